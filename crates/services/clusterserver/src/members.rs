//! Who owns which partition, according to the lease of this process and the bucket.

use crate::environment::{LeaseError, Own, Ownership};
use base::Monotonic;
use cluster::{Member, Owner};
use cluster_proto::{CallKind, Incarnation, LIST_FRESH, NodeName, NodeRecord, PartitionName, Route};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the number of the membership is relied on. Nodes refuse the calls of an earlier one.
const INCARNATION_FRESH: Duration = Duration::from_millis(500);

/// The partitions of a [`Member`].
///
/// Name the partitions of the cluster when it is created; [`follow`](Self::follow) and [`unfollow`](Self::unfollow) change them, and
/// [`listed`](Self::listed) says that they are as the bucket has them. Call [`opened`](Self::opened) once a partition that the member
/// owns is served here, and [`closed`](Self::closed) before it is given up.
pub struct Members {
    member: Arc<Member>,
    node: NodeName,
    hold_limit: Duration,
    /// Nothing waits under the lock.
    list: RwLock<List>,
    /// Partitions that are served here; nothing waits under the lock.
    owners: RwLock<HashMap<PartitionName, Served>>,
    /// How often a partition has begun to leave.
    departures: AtomicU64,
    /// The membership, and when it was asked for.
    incarnation: Mutex<Option<(Instant, Incarnation)>>,
}

/// The partitions of the cluster.
struct List {
    partitions: Vec<PartitionName>,
    may_change: bool,
    /// When they were read, if they have been.
    read: Option<Monotonic>,
}

impl List {
    /// Whether these are all.
    fn is_complete(&self, now: Monotonic) -> bool {
        !self.may_change || self.read.is_some_and(|read| now.since(read) < LIST_FRESH)
    }
}

/// A partition that is served here.
struct Served {
    owner: Arc<Owner>,
    is_draining: bool,
}

impl Members {
    /// Follows these partitions. `hold_limit` is [`cluster_proto::Timing::hold_limit`] of the member.
    pub fn new(
        member: Arc<Member>,
        node: NodeName,
        hold_limit: Duration,
        partitions: Vec<PartitionName>,
    ) -> Members {
        for partition in &partitions {
            member.follow(partition);
        }
        let (owners, departures, incarnation) = Default::default();
        let list = RwLock::new(List { partitions, may_change: false, read: None });
        Members { member, node, hold_limit, list, owners, departures, incarnation }
    }

    /// The partitions may change: this node relies on them only for a while after they were [`listed`](Self::listed).
    pub fn expect_changes(&self) {
        self.list.write().may_change = true;
    }

    /// The partitions are those that the bucket has named in a reading that began at this time ([`cluster::now`]).
    pub fn listed(&self, begun: Monotonic) {
        self.list.write().read = Some(begun);
    }

    /// A partition was added to the cluster: volumes may be there.
    pub fn follow(&self, partition: &PartitionName) {
        self.member.follow(partition);
        let mut list = self.list.write();
        if !list.partitions.contains(partition) {
            list.partitions.push(partition.clone());
        }
    }

    /// No volume is in a partition. Calls for it still go to its owner.
    pub fn disregard(&self, partition: &PartitionName) {
        self.list.write().partitions.retain(|other| other != partition);
    }

    /// A partition was removed from the cluster.
    pub fn unfollow(&self, partition: &PartitionName) {
        self.disregard(partition);
        self.member.unfollow(partition);
    }

    /// A partition is served here from now on, as long as its owner says so.
    pub fn opened(&self, owner: Arc<Owner>) {
        self.owners.write().insert(owner.partition().clone(), Served { owner, is_draining: false });
    }

    /// Lets no call to a partition begin any more, and prepares to give it up for the node `to`. Calls that have begun are
    /// still answered. Returns false if it is not served here, or is being given up already.
    pub fn drain(&self, partition: &PartitionName, to: NodeName) -> bool {
        let mut owners = self.owners.write();
        let served =
            owners.get_mut(partition).filter(|served| !served.is_draining && !served.owner.has_ended());
        let Some(served) = served else { return false };
        served.is_draining = true;
        self.departures.fetch_add(1, Ordering::Release);
        served.owner.drain(Some(to));
        true
    }

    /// Whether a partition is served here, and its calls are answered at present.
    pub fn serves(&self, partition: &PartitionName) -> bool {
        let owners = self.owners.read();
        owners.get(partition).is_some_and(|served| served.owner.accepts(CallKind::Read))
    }

    /// A partition is no longer served here.
    pub fn closed(&self, partition: &PartitionName) {
        self.departures.fetch_add(1, Ordering::Release);
        self.owners.write().remove(partition);
    }

    /// Returns how often a partition has begun to leave. A call during which this has changed may have found its volume
    /// absent because of that.
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }
}

impl Ownership for Members {
    fn node(&self) -> (NodeName, Incarnation) {
        let mut incarnation = self.incarnation.lock();
        let fresh = incarnation.filter(|(at, _)| at.elapsed() < INCARNATION_FRESH);
        let present = fresh.map(|(_, known)| known).or_else(|| {
            let asked = self.member.incarnation()?;
            *incarnation = Some((Instant::now(), asked));
            Some(asked)
        });
        // No node believes in this one, which none has.
        (self.node.clone(), present.unwrap_or(Incarnation { nonce: 0, count: 0 }))
    }

    fn partitions(&self) -> Vec<PartitionName> {
        self.list.read().partitions.clone()
    }

    fn knows_all(&self) -> bool {
        self.list.read().is_complete(cluster::now())
    }

    fn own(&self, partition: &PartitionName) -> Option<Own> {
        let owners = self.owners.read();
        let Served { owner, is_draining } =
            owners.get(partition).filter(|served| !served.owner.has_ended())?;
        let (reads, changes) = (owner.accepts(CallKind::Read), owner.accepts(CallKind::Change));
        Some(Own { epoch: owner.epoch(), reads, changes, is_draining: *is_draining })
    }

    fn route(&self, partition: &PartitionName, kind: CallKind, age: Duration) -> Route {
        self.member.route(partition, kind, age)
    }

    fn hold_limit(&self) -> Duration {
        self.hold_limit
    }

    fn lease(&self, node: &NodeName) -> Result<Option<NodeRecord>, LeaseError> {
        self.member.lease(node).map_err(|why| {
            tracing::warn!(%node, why, "the lease of a node cannot be read");
            LeaseError
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_known_once_they_were_read() {
        let at = |second: u64| Monotonic(second * 1_000_000_000);
        let mut list = List { partitions: Vec::new(), may_change: false, read: None };
        assert!(list.is_complete(at(0)), "they do not change");
        list.may_change = true;
        assert!(!list.is_complete(at(0)) && !list.is_complete(at(6)), "the machine has just started");
        list.read = Some(at(1));
        assert!(list.is_complete(at(7)) && !list.is_complete(at(8)));
    }
}
