//! Who owns which partition, according to the lease of this process and the bucket.

use crate::environment::{LeaseError, Own, Ownership};
use cluster::{Member, Owner};
use cluster_proto::{CallKind, Incarnation, NodeName, NodeRecord, PartitionName, Route};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the number of the membership is relied on. Nodes refuse the calls of an earlier one.
const INCARNATION_FRESH: Duration = Duration::from_millis(500);

/// The partitions of a [`Member`].
///
/// Name all partitions of the cluster when it is created. Call [`opened`](Self::opened) once a partition that the member
/// owns is served here, and [`closed`](Self::closed) before it is given up.
pub struct Members {
    member: Arc<Member>,
    node: NodeName,
    hold_limit: Duration,
    partitions: Vec<PartitionName>,
    /// Partitions that are served here; nothing waits under the lock.
    owners: RwLock<HashMap<PartitionName, Arc<Owner>>>,
    /// The membership, and when it was asked for.
    incarnation: Mutex<Option<(Instant, Incarnation)>>,
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
        let (owners, incarnation) = (RwLock::default(), Mutex::default());
        Members { member, node, hold_limit, partitions, owners, incarnation }
    }

    /// A partition is served here from now on, as long as its owner says so.
    pub fn opened(&self, owner: Arc<Owner>) {
        self.owners.write().insert(owner.partition().clone(), owner);
    }

    /// A partition is no longer served here.
    pub fn closed(&self, partition: &PartitionName) {
        self.owners.write().remove(partition);
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
        self.partitions.clone()
    }

    fn own(&self, partition: &PartitionName) -> Option<Own> {
        let owners = self.owners.read();
        let owner = owners.get(partition).filter(|owner| !owner.has_ended())?;
        Some(Own { epoch: owner.epoch(), reads: owner.may_answer(), changes: owner.may_change() })
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
