//! Gratuitous ARP (RFC 826, RFC 5227 section 2.3).

use std::net::Ipv4Addr;

/// The operations of ARP: request and reply.
pub(crate) const ARP_KINDS: [u16; 2] = [1, 2];

/// Length of an Ethernet frame with ARP for IPv4, without padding.
const FRAME_BYTES: usize = 42;

/// Returns the frame by which the owner of an Ethernet address announces that it has an IPv4 address.
pub(crate) fn frame(kind: u16, ethernet: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    frame.extend([0xff; 6]);
    frame.extend(ethernet);
    // The protocol ARP; Ethernet with 6 bytes, IPv4 with 4 bytes.
    frame.extend([0x08, 0x06, 0x00, 0x01, 0x08, 0x00, 6, 4]);
    frame.extend(kind.to_be_bytes());
    frame.extend(ethernet);
    frame.extend(address.octets());
    // Linux takes a reply as an announcement only if it is from the host to itself (`arp_is_garp` in net/ipv4/arp.c).
    frame.extend(ethernet);
    frame.extend(address.octets());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_announces_an_address_to_all() {
        let ethernet = [2, 0, 0, 0, 0, 7];
        let expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 7, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0,
            0, 0, 0, 7, 192, 0, 2, 11, 2, 0, 0, 0, 0, 7, 192, 0, 2, 11,
        ];
        assert_eq!(frame(1, ethernet, Ipv4Addr::new(192, 0, 2, 11)), expected);
        assert_eq!(frame(2, ethernet, Ipv4Addr::new(192, 0, 2, 11))[20..22], [0, 2]);
        assert_eq!(expected.len(), FRAME_BYTES);
    }
}
