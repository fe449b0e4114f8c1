//! Requests to give partitions up to other nodes, until the partitions' threads take them.

use base::PartitionId;
use cluster_proto::NodeName;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The requests, at most one for each partition; nothing waits under the lock.
#[derive(Default)]
pub(crate) struct Handovers(Mutex<HashMap<PartitionId, Order>>);

/// A request to give a partition up.
pub(crate) struct Order {
    /// The node that is to have it.
    pub(crate) to: NodeName,
    done: SyncSender<bool>,
}

impl Handovers {
    /// Asks for a partition to be given up. Receives whether it was; `None` if that was asked for already.
    pub(crate) fn ask(&self, partition: PartitionId, to: NodeName) -> Option<Receiver<bool>> {
        let mut orders = self.0.lock();
        if orders.contains_key(&partition) {
            return None;
        }
        let (done, is_done) = sync_channel(1);
        orders.insert(partition, Order { to, done });
        Some(is_done)
    }

    /// Returns the request for a partition, if there is one.
    pub(crate) fn take(&self, partition: PartitionId) -> Option<Order> {
        self.0.lock().remove(&partition)
    }
}

impl Order {
    /// Reports whether the partition was given up.
    pub(crate) fn end(self, is_given_up: bool) {
        // Without a receiver, the caller does not wait any more.
        _ = self.done.try_send(is_given_up);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_one_request_at_a_time() {
        let (handovers, partition) = (Handovers::default(), PartitionId::from_index(1).unwrap());
        let to = || "b".parse().unwrap();
        assert!(handovers.take(partition).is_none());
        let asked = handovers.ask(partition, to()).unwrap();
        assert!(handovers.ask(partition, to()).is_none(), "asked for already");
        let order = handovers.take(partition).unwrap();
        assert_eq!(order.to, to());
        order.end(true);
        assert_eq!(asked.recv(), Ok(true));
        let asked = handovers.ask(partition, to()).unwrap();
        drop(handovers.take(partition));
        assert!(asked.recv().is_err(), "the thread has ended");
    }
}
