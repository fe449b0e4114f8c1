//! Hosts that may hold callback promises.

use base::HostUuid;
use std::net::SocketAddr;

/// A host that may hold callback promises on a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedHost {
    /// The address to which the promises were made.
    pub address: SocketAddr,
    /// The host's UUID; old clients have none.
    pub uuid: Option<HostUuid>,
}
