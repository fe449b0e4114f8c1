//! Who owns which partition, as a table that all nodes see.

use crate::{HOLD, VOLUMES, incarnation, name, partition};
use cluster_proto::{CallKind, Epoch, Incarnation, NodeName, NodeRecord, NodeState, PartitionName, Route};
use clusterserver::{LeaseError, Own, Ownership};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What is known of partitions and nodes. Each lock guards the field; nothing waits under it.
#[derive(Default)]
pub struct Table {
    /// The owner of each partition, and its state there.
    pub owners: Mutex<HashMap<PartitionName, (usize, Own)>>,
    /// What a node believes instead.
    pub beliefs: Mutex<HashMap<(usize, PartitionName), (usize, Epoch)>>,
    /// Where each node receives calls.
    pub addresses: Mutex<HashMap<usize, SocketAddr>>,
    /// Nodes whose leases have ended.
    pub dead: Mutex<Vec<usize>>,
    /// Nodes that may not know all partitions.
    pub outdated: Mutex<Vec<usize>>,
    /// Number of times that a lease was read.
    pub leases_read: AtomicU64,
}

impl Table {
    /// Returns a table in which each node owns its partition, in the epochs from 5 on.
    pub fn new() -> Arc<Table> {
        let table = Table::default();
        for index in 0..VOLUMES.len() {
            let epoch = Epoch(5 + index as u64);
            let own = Own { epoch, reads: true, changes: true, is_draining: false };
            table.owners.lock().insert(partition(index), (index, own));
        }
        Arc::new(table)
    }

    /// Changes the state of a partition at its owner.
    pub fn set(&self, index: usize, change: impl FnOnce(&mut Own)) {
        if let Some((_, own)) = self.owners.lock().get_mut(&partition(index)) {
            change(own);
        }
    }

    /// Returns the table as a node sees it.
    pub fn view(self: &Arc<Self>, index: usize) -> Arc<dyn Ownership> {
        Arc::new(View { index, table: Arc::clone(self) })
    }
}

struct View {
    index: usize,
    table: Arc<Table>,
}

impl Ownership for View {
    fn node(&self) -> (NodeName, Incarnation) {
        (name(self.index), incarnation(self.index))
    }

    fn partitions(&self) -> Vec<PartitionName> {
        self.table.owners.lock().keys().cloned().collect()
    }

    fn knows_all(&self) -> bool {
        !self.table.outdated.lock().contains(&self.index)
    }

    fn own(&self, partition: &PartitionName) -> Option<Own> {
        let owners = self.table.owners.lock();
        owners.get(partition).filter(|(owner, _)| *owner == self.index).map(|(_, own)| *own)
    }

    fn route(&self, partition: &PartitionName, kind: CallKind, _: Duration) -> Route {
        let (mut owner, own) = self.table.owners.lock()[partition];
        let mut epoch = own.epoch;
        if let Some(belief) = self.table.beliefs.lock().get(&(self.index, partition.clone())) {
            (owner, epoch) = *belief;
        }
        if owner != self.index {
            let addresses = vec![self.table.addresses.lock()[&owner]];
            Route::Forward { node: name(owner), epoch, addresses }
        } else if own.answers(kind) {
            Route::Local(epoch)
        } else {
            Route::Hold
        }
    }

    fn hold_limit(&self) -> Duration {
        HOLD
    }

    fn lease(&self, node: &NodeName) -> Result<Option<NodeRecord>, LeaseError> {
        self.table.leases_read.fetch_add(1, Relaxed);
        let index = (0..VOLUMES.len()).find(|index| name(*index) == *node);
        Ok(index.map(|index| NodeRecord {
            node: node.clone(),
            incarnation: incarnation(index),
            sequence: 1,
            state: if self.table.dead.lock().contains(&index) { NodeState::Dead } else { NodeState::Live },
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: vec![self.table.addresses.lock()[&index]],
            takes_addresses: false,
        }))
    }
}
