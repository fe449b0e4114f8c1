//! Socket errors: ICMP messages about datagrams sent earlier.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use rx_proto::header::HEADER_BYTES;
use socket2::Socket;

use super::LaneSocket;
use crate::notice::Notice;
use crate::statistics::LaneCounters;
use crate::sys;

/// Maximum number of errors fetched at a time.
const ERRORS_MAX: usize = 256;

impl LaneSocket {
    /// Returns the next error about a datagram sent from this socket.
    pub(crate) fn notice(&self) -> Option<Notice> {
        self.notices.pop()
    }

    /// Fetches the kernel's errors about earlier datagrams. Returns their number.
    pub(crate) fn fetch_errors(&self, counters: &LaneCounters) -> usize {
        let mut quote = [0; HEADER_BYTES];
        let mut fetched = 0;
        while fetched < ERRORS_MAX
            && let Ok(error) = sys::receive_error(self.socket.as_fd(), &mut quote)
        {
            fetched += 1;
            if let Some(notice) = error.and_then(|error| Notice::new(&error, &quote[..error.quoted_bytes])) {
                let _ = self.notices.push(notice);
            }
        }
        counters.errors_reported.add(fetched);
        fetched
    }
}

/// Makes the kernel record network errors about sent datagrams, with their destinations.
pub(super) fn report(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv4() {
        return sys::set_integer(socket.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    }
    sys::set_integer(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)
}

/// Whether the network may have caused this error by an earlier datagram: these are the errors into which the
/// kernel translates ICMP messages (Linux `icmp_err_convert`, `icmpv6_err_convert`).
pub(super) fn may_be_anothers(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EMSGSIZE
                | libc::EPROTO
                | libc::EACCES
        )
    )
}

/// Whether the kernel may have refused a datagram because of its source address, which this host may have
/// lost.
pub(super) fn may_be_the_sources(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EADDRNOTAVAIL | libc::EACCES)
    )
}
