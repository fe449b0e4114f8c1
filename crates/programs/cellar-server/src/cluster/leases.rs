//! The leases of all nodes as this node has read them, and which of them are renewed.

use cluster::{NodeName, NodeRecord, NodeState};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For how long after the last change of its lease a node is taken to run. Leases are renewed each second. It is shorter than the
/// TTL of a lease, so that what a dead node has is wanted when that ends.
const FRESH: Duration = Duration::from_millis(3500);

/// Leases as they were seen.
#[derive(Default)]
pub(super) struct Leases {
    begun: Option<Instant>,
    read: Option<Instant>,
    /// The leases, and when each was last seen to change.
    nodes: BTreeMap<NodeName, (NodeRecord, Option<Instant>)>,
}

impl Leases {
    /// Notes all leases as they were read.
    pub(super) fn note(&mut self, records: Vec<NodeRecord>, now: Instant) {
        self.begun.get_or_insert(now);
        self.read = Some(now);
        let mut before = std::mem::take(&mut self.nodes);
        for record in records {
            let changed = match before.remove(&record.node) {
                Some((known, changed)) if known == record => changed,
                Some(_) => Some(now),
                None => None,
            };
            self.nodes.insert(record.node.clone(), (record, changed));
        }
    }

    /// Returns the time since they were read last.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        self.read.map(|read| now.saturating_duration_since(read))
    }

    /// Returns for how long they have been watched.
    pub(super) fn watched(&self, now: Instant) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun))
    }

    /// Returns the lease of a node.
    pub(super) fn of(&self, node: &NodeName) -> Option<&NodeRecord> {
        self.nodes.get(node).map(|(record, _)| record)
    }

    /// Returns the leases that have not been given up, including those of dead nodes that no other has evicted yet.
    pub(super) fn live(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values().map(|(record, _)| record).filter(|record| record.state == NodeState::Live)
    }

    /// Returns the leases that are renewed.
    pub(super) fn renewed(&self, now: Instant) -> impl Iterator<Item = &NodeRecord> {
        let is_fresh = move |changed: Instant| now.saturating_duration_since(changed) < FRESH;
        let renewed = self.nodes.values().filter(move |(record, changed)| {
            record.state == NodeState::Live && changed.is_some_and(is_fresh)
        });
        renewed.map(|(record, _)| record)
    }
}
