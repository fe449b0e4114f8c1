//! Connections to other nodes, kept for their next calls.

use crate::environment::Nodes;
use afs_idl::ClientConnection;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Connections to each node. One carries 32 calls at a time.
const PER_NODE: usize = 4;

/// Maximum number of addresses with connections; beyond it all are dropped. Active calls go on.
const ADDRESSES_MAX: usize = 256;

pub(crate) struct Links {
    nodes: Arc<dyn Nodes>,
    is_patient: bool,
    /// Connections by address; nothing waits under the lock.
    open: Mutex<HashMap<SocketAddr, Open>>,
}

/// The connections to one address.
#[derive(Default)]
struct Open {
    uses: usize,
    connections: Vec<Arc<dyn ClientConnection>>,
}

impl Links {
    pub(crate) fn new(nodes: Arc<dyn Nodes>) -> Links {
        Links { nodes, is_patient: false, open: Mutex::default() }
    }

    /// For calls that may take any time.
    pub(crate) fn patient(nodes: Arc<dyn Nodes>) -> Links {
        Links { is_patient: true, ..Links::new(nodes) }
    }

    fn connect(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        if self.is_patient { self.nodes.connect_patiently(address) } else { self.nodes.connect(address) }
    }

    /// Returns a connection to the cluster service at an address.
    pub(crate) fn to(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        let mut open = self.open.lock();
        if open.len() >= ADDRESSES_MAX && !open.contains_key(&address) {
            open.clear();
        }
        let Open { uses, connections } = open.entry(address).or_default();
        *uses += 1;
        if connections.len() < PER_NODE {
            connections.push(self.connect(address));
            return Arc::clone(&connections[connections.len() - 1]);
        }
        Arc::clone(&connections[*uses % PER_NODE])
    }
}
