//! ICMP errors about datagrams that this process sent.

use std::net::{IpAddr, SocketAddr};

use base::Monotonic;
use rx_proto::Endpoint;
use rx_proto::header::HEADER_BYTES;

use crate::sys::SocketError;

/// Codes of ICMP "destination unreachable" that mean that the peer is absent: network, host and port
/// unreachable, network and host prohibited (RFC 792, RFC 1812; `rxi_ProcessNetError`).
const UNREACHABLE: [u8; 5] = [0, 1, 3, 9, 10];
const UNREACHABLE_TYPE: u8 = 3;

/// The same codes for IPv6: no route, prohibited, address and port unreachable (RFC 4443, 3.1).
const UNREACHABLE_V6: [u8; 4] = [0, 1, 3, 4];
const UNREACHABLE_V6_TYPE: u8 = 1;

/// Length of the IP and UDP headers, and the smallest MTU that every path supports.
const HEADERS: u32 = 28;
const HEADERS_V6: u32 = 48;
const MTU_MIN: u32 = 68;
const MTU_MIN_V6: u32 = 1280;

/// An error about a datagram that was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Destination of the datagram.
    pub(crate) remote: SocketAddr,
    fate: Fate,
    /// First bytes of the datagram: its Rx header.
    quote: [u8; HEADER_BYTES],
}

/// The reason why a datagram was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unreachable,
    /// It was longer than this number of bytes, which the path allows.
    TooBig(usize),
    /// Its source address, which this host no longer has.
    SourceGone(IpAddr),
}

impl Notice {
    /// Interprets a socket error. Returns `None` if it is irrelevant, or if the router quoted less than an Rx
    /// header, so that the error cannot be attributed to a call.
    pub(crate) fn new(error: &SocketError, quoted: &[u8]) -> Option<Notice> {
        let quote = *quoted.first_chunk()?;
        Some(Notice { remote: error.to, fate: fate(error)?, quote })
    }

    /// A notice for a datagram to `remote` that was refused because this host no longer has the address
    /// `local`.
    pub(crate) fn source_gone(remote: SocketAddr, local: IpAddr) -> Notice {
        Notice { remote, fate: Fate::SourceGone(local), quote: [0; HEADER_BYTES] }
    }

    /// Reports this notice to the endpoint that sent the datagram.
    pub(crate) fn report(&self, now: Monotonic, endpoint: &mut Endpoint) {
        match self.fate {
            Fate::Unreachable => endpoint.handle_unreachable(now, self.remote, &self.quote),
            Fate::TooBig(bytes) if endpoint.has_sent(self.remote, &self.quote) => {
                endpoint.handle_packet_too_big(rx_proto::Path::to(self.remote), bytes);
            }
            Fate::TooBig(_) => {}
            Fate::SourceGone(local) => endpoint.handle_source_gone(now, local),
        }
    }
}

fn fate(error: &SocketError) -> Option<Fate> {
    let (origin, codes, kind, headers, least) = if error.to.is_ipv4() {
        (libc::SO_EE_ORIGIN_ICMP, &UNREACHABLE[..], UNREACHABLE_TYPE, HEADERS, MTU_MIN)
    } else {
        (libc::SO_EE_ORIGIN_ICMP6, &UNREACHABLE_V6[..], UNREACHABLE_V6_TYPE, HEADERS_V6, MTU_MIN_V6)
    };
    if error.origin != origin {
        return None;
    }
    if error.number == libc::EMSGSIZE {
        return (error.info >= least).then_some(Fate::TooBig((error.info - headers) as usize));
    }
    (error.kind == kind && codes.contains(&error.code)).then_some(Fate::Unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreachable_notices_count() {
        let v4: SocketAddr = "192.0.2.1:7001".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:7001".parse().unwrap();
        let (icmp, icmp6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
        let (refused, size) = (libc::ECONNREFUSED, libc::EMSGSIZE);
        let gone = Some(Fate::Unreachable);
        for (to, origin, kind, code, number, info, expected) in [
            (v4, icmp, 3, 3, refused, 0, gone),
            (v4, icmp, 3, 0, refused, 0, gone),
            (v4, icmp, 3, 1, refused, 0, gone),
            (v4, icmp, 3, 2, refused, 0, None),
            (v4, icmp, 3, 9, refused, 0, gone),
            (v4, icmp, 3, 10, refused, 0, gone),
            (v4, icmp, 3, 13, refused, 0, None),
            (v4, icmp, 11, 0, refused, 0, None),
            (v4, icmp6, 3, 3, refused, 0, None),
            (v4, libc::SO_EE_ORIGIN_LOCAL, 3, 3, refused, 0, None),
            (v4, icmp, 3, 4, size, 1400, Some(Fate::TooBig(1372))),
            (v4, icmp, 3, 4, size, 67, None),
            (v6, icmp6, 1, 4, refused, 0, gone),
            (v6, icmp6, 1, 2, refused, 0, None),
            (v6, icmp6, 3, 3, refused, 0, None),
            (v6, icmp6, 2, 0, size, 1280, Some(Fate::TooBig(1232))),
            (v6, icmp6, 2, 0, size, 1279, None),
            (v6, icmp, 1, 4, refused, 0, None),
        ] {
            let error = SocketError { to, origin, kind, code, number, info, quoted_bytes: 28 };
            let notice = Notice::new(&error, &[7; 28]);
            assert_eq!(notice.map(|notice| notice.fate), expected, "{error:?}");
            assert_eq!(Notice::new(&error, &[7; 27]), None);
        }
    }
}
