//! The hosts of connections: each host has a bounded number of them, and none evicts another host's.

use crate::host::{Host, HostId};
use crate::numbers::ByNumber;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

/// A client's connection, by the number that the server gave it. The address is compared as well: a number
/// alone never determines a caller's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection {
    number: u64,
    peer: SocketAddr,
}

impl Hash for Connection {
    /// Numbers are unique, so hashing the address would add nothing.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.number);
    }
}

/// Maps connections to hosts; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Connections(ByNumber<Connection, HostId>);

impl Connections {
    pub(crate) fn get(&self, peer: SocketAddr, number: u64) -> Option<HostId> {
        self.0.get(&Connection { number, peer }).copied()
    }

    /// Records a connection of `host`. The host's oldest one is dropped if it has `host_max`, or if there are
    /// `total_max` overall. Each host keeps at least one, so the total stays below `total_max` plus the
    /// number of hosts.
    pub(crate) fn add(
        &mut self,
        id: HostId,
        host: &mut Host,
        number: u64,
        host_max: usize,
        total_max: usize,
    ) {
        let connection = Connection { number, peer: host.address };
        if self.0.insert(connection, id).is_some() {
            return;
        }
        host.connections.push_back(number);
        if (host.connections.len() > host_max || self.0.len() > total_max) && host.connections.len() > 1 {
            let oldest = host.connections.pop_front();
            self.forget(host.address, oldest);
        }
    }

    /// Removes the connections of a host that is being removed.
    pub(crate) fn remove_host(&mut self, host: &Host) {
        for &number in &host.connections {
            self.forget(host.address, Some(number));
        }
    }

    fn forget(&mut self, peer: SocketAddr, number: Option<u64>) {
        if let Some(number) = number {
            self.0.remove(&Connection { number, peer });
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Monotonic;

    #[test]
    fn a_host_with_many_connections_displaces_its_own() {
        let host = |number: u8| Host::new(Monotonic(0), ([10, 0, 0, number], 7001).into(), None, 0);
        let (mut quiet, mut greedy) = (host(1), host(2));
        let mut connections = Connections::default();
        connections.add(HostId(1), &mut quiet, 1, 4, 6);
        for number in 2..50 {
            connections.add(HostId(2), &mut greedy, number, 4, 6);
        }
        assert_eq!((connections.len(), greedy.connections.len()), (5, 4));
        assert_eq!(connections.get(quiet.address, 1), Some(HostId(1)));
        assert_eq!(connections.get(greedy.address, 1), None, "the number of another address");
        connections.remove_host(&greedy);
        assert_eq!(connections.len(), 1);
    }
}
