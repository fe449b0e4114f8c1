//! The routes to partitions of other nodes. Threads that forward calls read them without asking the lease's thread.

use crate::clock;
use cluster_proto::{Forward, PartitionName, Route};
use parking_lot::RwLock;
use std::collections::BTreeMap;

/// The routes that the lease's thread has published.
#[derive(Debug, Default)]
pub(crate) struct Routes(RwLock<BTreeMap<PartitionName, Forward>>);

impl Routes {
    /// Replaces the routes, if they have changed. Called by the lease's thread only.
    pub(crate) fn publish(&self, routes: BTreeMap<PartitionName, Forward>) {
        if *self.0.read() != routes {
            *self.0.write() = routes;
        }
    }

    /// Returns the route to a partition's owner, if that is another node whose lease is not in doubt.
    pub(crate) fn find(&self, partition: &PartitionName) -> Option<Route> {
        let routes = self.0.read();
        let forward = routes.get(partition).filter(|forward| clock::now() < forward.until)?;
        Some(forward.clone().into())
    }
}
