//! Where a datagram goes to or comes from.

use std::net::{IpAddr, SocketAddr};

/// The two ends of a datagram's way. Replies take the way of what they answer, so that a host with
/// several addresses answers from the one it was asked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The other end.
    pub remote: SocketAddr,
    /// This host's address; `None` leaves the choice to the system.
    pub local: Option<IpAddr>,
}

impl Path {
    /// A way to `remote` from whichever local address the system picks.
    pub fn to(remote: SocketAddr) -> Path {
        Path { remote, local: None }
    }
}
