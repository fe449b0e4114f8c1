//! A socket's errors: what the network says about datagrams sent earlier.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use rx_proto::header::HEADER_BYTES;
use socket2::Socket;

use super::LaneSocket;
use crate::notice::Notice;
use crate::statistics::LaneCounters;
use crate::sys;

/// Errors about earlier datagrams that are fetched at a time.
const ERRORS_MAX: usize = 256;

impl LaneSocket {
    /// The next thing that the network said about a datagram sent here.
    pub(crate) fn notice(&self) -> Option<Notice> {
        self.notices.pop()
    }

    /// Takes over what the kernel has to say about earlier datagrams; tells how many things.
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

/// Asks the kernel to keep what the network says about our datagrams, and to whom they went.
pub(super) fn report(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv4() {
        return sys::set_integer(socket.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    }
    sys::set_integer(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)
}

/// Whether an error may be the network's about an earlier datagram: what the kernel makes of ICMP
/// messages (Linux `icmp_err_convert`, `icmpv6_err_convert`).
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

/// Whether the kernel may have refused a datagram for its source address, which the machine may have lost.
pub(super) fn may_be_the_sources(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EADDRNOTAVAIL | libc::EACCES)
    )
}
