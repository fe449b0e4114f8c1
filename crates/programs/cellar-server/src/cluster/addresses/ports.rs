//! The server's ports, as far as the coming and going of service addresses concerns them.

use cellar_config::Role;
use rx::{PeerReport, Server};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};

/// The ports. They are not kept open: their services have the node.
pub(super) struct Ports {
    servers: Vec<Weak<Server>>,
}

impl Ports {
    pub(super) fn of(servers: &[Arc<Server>]) -> Ports {
        Ports { servers: servers.iter().map(Arc::downgrade).collect() }
    }

    fn open(&self) -> impl Iterator<Item = Arc<Server>> {
        self.servers.iter().filter_map(Weak::upgrade)
    }

    /// An address is here, or stays here: new calls are accepted there. Calls that clients wait for at the node before are
    /// ended.
    pub(super) fn came(&self, address: Ipv4Addr) {
        self.open().for_each(|server| server.succeed(IpAddr::V4(address)));
    }

    /// An address is about to go: packets that would begin calls there are dropped, so that clients send them again to the node
    /// that has it next.
    pub(super) fn leaves(&self, address: Ipv4Addr) {
        self.open().for_each(|server| server.hold_new_calls_at(IpAddr::V4(address)));
    }

    /// Returns the number of clients' calls at an address that have not ended.
    pub(super) fn calls(&self, address: Ipv4Addr) -> usize {
        self.open().map(|server| server.calls_at(IpAddr::V4(address))).sum()
    }

    /// Returns the number of packets that the file server has received from hosts with other addresses than these.
    pub(super) fn packets_of_others(&self, excluded: &BTreeSet<IpAddr>) -> u64 {
        let is_file_server =
            |server: &Arc<Server>| server.addresses().iter().any(|at| at.port() == Role::Fs.port());
        let is_other =
            |peer: &PeerReport| !peer.address.ip().is_loopback() && !excluded.contains(&peer.address.ip());
        let received = |server: Arc<Server>| {
            let (peers, _) = server.peers();
            peers.iter().filter(|peer| is_other(peer)).map(|peer| peer.counters.received).sum::<u64>()
        };
        self.open().filter(is_file_server).map(received).sum()
    }

    /// An address is gone: calls of this node that left from it fail, and later ones leave from another.
    pub(super) fn went(&self, address: Ipv4Addr) {
        self.open().for_each(|server| server.connector().forget_source(IpAddr::V4(address)));
    }
}
