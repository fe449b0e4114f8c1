//! Requests to give partitions and the databases up to other nodes, until their threads take them.

use cluster_proto::{NodeName, Owned};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The requests, at most one for each that is owned; nothing waits under the lock.
#[derive(Default)]
pub(crate) struct Handovers(Mutex<HashMap<Owned, Order>>);

/// A request to give something up.
pub(crate) struct Order {
    /// The node that is to have it.
    pub(crate) to: NodeName,
    done: SyncSender<bool>,
}

impl Handovers {
    /// Asks for something to be given up. Receives whether it was; `None` if that was asked for already.
    pub(crate) fn ask(&self, what: Owned, to: NodeName) -> Option<Receiver<bool>> {
        let mut orders = self.0.lock();
        if orders.contains_key(&what) {
            return None;
        }
        let (done, is_done) = sync_channel(1);
        orders.insert(what, Order { to, done });
        Some(is_done)
    }

    /// Returns the request to give something up, if there is one.
    pub(crate) fn take(&self, what: Owned) -> Option<Order> {
        self.0.lock().remove(&what)
    }
}

impl Order {
    /// Reports whether it was given up.
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
        let (handovers, partition) = (Handovers::default(), Owned::from_index(1).unwrap());
        let to = || "b".parse().unwrap();
        assert!(handovers.take(partition).is_none());
        let asked = handovers.ask(partition, to()).unwrap();
        assert!(handovers.ask(partition, to()).is_none(), "asked for already");
        assert!(handovers.ask(Owned::Databases, to()).is_some());
        let order = handovers.take(partition).unwrap();
        assert_eq!(order.to, to());
        order.end(true);
        assert_eq!(asked.recv(), Ok(true));
        let asked = handovers.ask(partition, to()).unwrap();
        drop(handovers.take(partition));
        assert!(asked.recv().is_err(), "the thread has ended");
    }
}
