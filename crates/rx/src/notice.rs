//! What ICMP says about datagrams of ours, as far as it matters.

use std::net::{IpAddr, SocketAddr};

use base::Monotonic;
use rx_proto::Endpoint;
use rx_proto::header::HEADER_BYTES;

use crate::sys::SocketError;

/// Codes of "destination unreachable" that mean that nobody is there: network, host and port
/// unreachable, network and host prohibited (RFC 792, RFC 1812; `rxi_ProcessNetError`).
const UNREACHABLE: [u8; 5] = [0, 1, 3, 9, 10];
const UNREACHABLE_TYPE: u8 = 3;

/// The same for IPv6: no route, prohibited, address and port unreachable (RFC 4443, 3.1).
const UNREACHABLE_V6: [u8; 4] = [0, 1, 3, 4];
const UNREACHABLE_V6_TYPE: u8 = 1;

/// IP and UDP headers, and the least that every path carries.
const HEADERS: u32 = 28;
const HEADERS_V6: u32 = 48;
const MTU_MIN: u32 = 68;
const MTU_MIN_V6: u32 = 1280;

/// A datagram that was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Where it was sent to.
    pub(crate) remote: SocketAddr,
    fate: Fate,
    /// How it began.
    quote: [u8; HEADER_BYTES],
}

/// Why it was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unreachable,
    /// It should have had at most so many bytes.
    TooBig(usize),
    /// It was to leave from this address, which the machine no longer has.
    SourceGone(IpAddr),
}

impl Notice {
    /// What to make of an error; `None` if nothing. Routers that quote less than an Rx header leave
    /// open what it is about.
    pub(crate) fn new(error: &SocketError, quoted: &[u8]) -> Option<Notice> {
        let quote = *quoted.first_chunk()?;
        Some(Notice { remote: error.to, fate: fate(error)?, quote })
    }

    /// A datagram to `remote` was refused since the machine no longer has the address `local`.
    pub(crate) fn source_gone(remote: SocketAddr, local: IpAddr) -> Notice {
        Notice { remote, fate: Fate::SourceGone(local), quote: [0; HEADER_BYTES] }
    }

    /// Tells the endpoint that sent it.
    pub(crate) fn tell(&self, now: Monotonic, endpoint: &mut Endpoint) {
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
    fn only_what_means_that_nobody_is_there_counts() {
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
