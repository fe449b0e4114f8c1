//! The addresses of a datagram.

use std::net::{IpAddr, SocketAddr};

/// The two ends of a datagram's path. An answer uses the path of the packet it answers, so that a host with
/// several addresses answers from the one that received the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Address of the remote end.
    pub remote: SocketAddr,
    /// Local address; `None` leaves the choice to the system.
    pub local: Option<IpAddr>,
}

impl Path {
    /// Returns a path to `remote` from a local address that the system chooses.
    pub fn to(remote: SocketAddr) -> Path {
        Path { remote, local: None }
    }
}
