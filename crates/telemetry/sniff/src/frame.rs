//! Decodes captured frames to UDP datagrams.
//!
//! Sources: IEEE 802.3 and 802.1Q, RFC 791, RFC 768; the numbers of link types and Linux's cooked headers are
//! those of the pcap format (<https://www.tcpdump.org/linktypes.html>).

use std::net::{Ipv4Addr, SocketAddrV4};

/// Link-layer header of a captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet, possibly with VLAN tags.
    Ethernet,
    /// None: the frame starts with an IP packet.
    Raw,
    /// Linux's cooked header of 16 bytes (capturing on "any").
    Cooked,
    /// Version 2 of Linux's cooked header, of 20 bytes.
    Cooked2,
    /// Four bytes with the address family (BSD's loopback).
    Loopback,
    /// Unknown, with its number.
    Other(u32),
}

impl Link {
    /// Returns the link type with this number (LINKTYPE_*).
    pub fn from_number(number: u32) -> Link {
        match number {
            1 => Link::Ethernet,
            // 101 in files; 12 and 14 are written by some systems.
            12 | 14 | 101 | 228 => Link::Raw,
            113 => Link::Cooked,
            276 => Link::Cooked2,
            0 | 108 => Link::Loopback,
            other => Link::Other(other),
        }
    }
}

/// A UDP datagram over IPv4, as far as captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Address of the sender.
    pub source: SocketAddrV4,
    /// Address of the receiver.
    pub destination: SocketAddrV4,
    /// Captured part of the payload.
    pub payload: &'a [u8],
    /// Payload bytes on the wire.
    pub payload_bytes: usize,
    /// Whether it is the first of several IP fragments; the others are ignored.
    pub is_fragmented: bool,
}

/// Decoded content of a captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A UDP datagram, or its first fragment.
    Udp(Datagram<'a>),
    /// A fragment other than the first.
    Fragment,
    /// IPv4, but not UDP.
    OtherProtocol,
    /// IPv6, which is ignored: AFS does not use it.
    Ipv6,
    /// Not IP, of an unknown link type, or truncated within its headers.
    Unknown,
}

/// Maximum number of VLAN tags that are skipped.
const TAGS_MAX: usize = 4;

/// Protocol number of UDP.
const UDP: u8 = 17;

/// Length of a UDP header.
const UDP_HEADER_BYTES: usize = 8;

/// Decodes the datagram in a frame.
pub fn decode(link: Link, frame: &[u8]) -> Frame<'_> {
    network_layer(link, frame).and_then(internet).unwrap_or(Frame::Unknown)
}

/// Returns the IP packet in a frame.
fn network_layer(link: Link, frame: &[u8]) -> Option<&[u8]> {
    match link {
        Link::Ethernet => behind_ethernet(frame),
        Link::Raw => Some(frame),
        Link::Cooked => behind_type(frame, 14, 16),
        Link::Cooked2 => behind_type(frame, 0, 20),
        Link::Loopback => frame.get(4..),
        Link::Other(_) => None,
    }
}

fn behind_ethernet(frame: &[u8]) -> Option<&[u8]> {
    let mut at = 12;
    for _ in 0..=TAGS_MAX {
        match half(frame, at)? {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            _ => return behind_type(frame, at, at + 2),
        }
    }
    None
}

/// Returns the data after a header of this length if its EtherType, at `place`, is IP.
fn behind_type(frame: &[u8], place: usize, length: usize) -> Option<&[u8]> {
    matches!(half(frame, place)?, 0x0800 | 0x86dd).then(|| frame.get(length..))?
}

fn internet(packet: &[u8]) -> Option<Frame<'_>> {
    match packet.first()? >> 4 {
        4 => internet4(packet),
        6 => Some(Frame::Ipv6),
        _ => None,
    }
}

fn internet4(packet: &[u8]) -> Option<Frame<'_>> {
    let header_bytes = usize::from(packet[0] & 15) * 4;
    let header = packet.get(..header_bytes.max(20))?;
    if header[9] != UDP {
        return Some(Frame::OtherProtocol);
    }
    let fragment = half(header, 6)?;
    if fragment & 0x1fff != 0 {
        return Some(Frame::Fragment);
    }
    // Ethernet pads short frames; segmentation offload leaves a length of 0 in a long one.
    let total = match usize::from(half(header, 2)?) {
        0 => packet.len(),
        total => total.min(packet.len()),
    };
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let udp = packet.get(header.len()..total)?;
    let payload = udp.get(UDP_HEADER_BYTES..)?;
    let payload_bytes = usize::from(half(udp, 4)?).checked_sub(UDP_HEADER_BYTES)?;
    Some(Frame::Udp(Datagram {
        source: SocketAddrV4::new(address(12), half(udp, 0)?),
        destination: SocketAddrV4::new(address(16), half(udp, 2)?),
        payload: &payload[..payload.len().min(payload_bytes)],
        payload_bytes,
        is_fragmented: fragment & 0x2000 != 0,
    }))
}

/// Reads two bytes as a number.
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Builds an IPv4 packet with this datagram, for writing captures.
pub fn encode(
    source: SocketAddrV4,
    destination: SocketAddrV4,
    payload: &[u8],
    payload_bytes: usize,
) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut out = vec![0x45, 0];
    out.extend(length(payload_bytes + UDP_HEADER_BYTES + 20));
    out.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    out.extend(source.ip().octets());
    out.extend(destination.ip().octets());
    let sum = checksum(&out);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    for port in [source.port(), destination.port()] {
        out.extend(port.to_be_bytes());
    }
    out.extend(length(payload_bytes + UDP_HEADER_BYTES));
    out.extend([0, 0]); // no checksum (RFC 768)
    out.extend_from_slice(payload);
    out
}

/// Computes the checksum of an IPv4 header (RFC 791).
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses() -> (SocketAddrV4, SocketAddrV4) {
        ("10.0.0.1:7001".parse().unwrap(), "10.0.0.2:7000".parse().unwrap())
    }

    fn datagram(payload: &[u8]) -> Frame<'_> {
        let (source, destination) = addresses();
        let payload_bytes = payload.len();
        Frame::Udp(Datagram { source, destination, payload, payload_bytes, is_fragmented: false })
    }

    #[test]
    fn the_same_datagram_behind_every_link_header() {
        let (source, destination) = addresses();
        let packet = encode(source, destination, b"hello", 5);
        let with = |head: &[u8]| [head, &packet].concat();
        let ethernet = with(&[&[2; 12][..], &[8, 0]].concat());
        let tagged = with(&[&[2; 12][..], &[0x81, 0, 0, 7, 0x88, 0xa8, 0, 9, 8, 0]].concat());
        let cooked = with(&[&[0; 14][..], &[8, 0]].concat());
        let cooked2 = with(&[&[8, 0][..], &[0; 18]].concat());
        for (number, frame) in [
            (101, packet.clone()),
            (1, ethernet),
            (1, tagged),
            (113, cooked),
            (276, cooked2),
            (0, with(&[0; 4])),
        ] {
            assert_eq!(decode(Link::from_number(number), &frame), datagram(b"hello"), "link {number}");
        }
        assert_eq!(decode(Link::Other(147), &packet), Frame::Unknown);
        let padded = [&packet[..], &[0; 13]].concat();
        assert_eq!(decode(Link::Raw, &padded), datagram(b"hello"));
    }

    #[test]
    fn other_packets_are_distinguished() {
        let (source, destination) = addresses();
        let packet = encode(source, destination, b"hello", 1000);
        let mut changed = packet.clone();
        changed[6] = 0x20;
        let Frame::Udp(first) = decode(Link::Raw, &changed) else { panic!("no datagram") };
        assert!(first.is_fragmented);
        assert_eq!((first.payload, first.payload_bytes), (&b"hello"[..], 1000));
        changed[7] = 1;
        assert_eq!(decode(Link::Raw, &changed), Frame::Fragment);
        changed = packet.clone();
        changed[9] = 6;
        assert_eq!(decode(Link::Raw, &changed), Frame::OtherProtocol);
        changed[0] = 0x60;
        assert_eq!(decode(Link::Raw, &changed), Frame::Ipv6);
        assert_eq!(decode(Link::Ethernet, &[2; 60]), Frame::Unknown);
        for length in 0..28 {
            assert!(!matches!(decode(Link::Raw, &packet[..length]), Frame::Udp(_)), "{length}");
        }
    }

    proptest! {
        #[test]
        fn survives_anything(link in 0u32..300, frame in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Frame::Udp(datagram) = decode(Link::from_number(link), &frame) {
                prop_assert!(datagram.payload.len() <= datagram.payload_bytes);
            }
        }
    }
}
