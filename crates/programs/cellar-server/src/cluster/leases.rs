//! The leases of all nodes as this node has read them, and which of them are renewed.

use cluster::{NodeName, NodeRecord, NodeState};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For how long after the last change of its lease a node is taken to run. Leases are renewed each second. It is shorter than the
/// TTL of a lease, so that what a dead node has is wanted when that ends.
const FRESH: Duration = Duration::from_millis(3500);

/// Number of lifetimes of a lease after which a node that does not renew it is evicted, although nothing is wanted that it has. It is no
/// hurry: the node may be restarting.
const SILENT_TTLS: u32 = 10;

/// Time without a reading after which all are read anew: a lease may have changed meanwhile, or could not be renewed.
const GAP: Duration = Duration::from_secs(20);

/// Leases as they were seen.
#[derive(Default)]
pub(super) struct Leases {
    begun: Option<Instant>,
    read: Option<Instant>,
    /// The leases, and when each was last seen to change.
    nodes: BTreeMap<NodeName, Seen>,
}

/// A lease as it was seen.
struct Seen {
    record: NodeRecord,
    /// When it was read first.
    since: Instant,
    /// Whether it was another one before.
    has_changed: bool,
}

/// Numbers of nodes by their leases. Commands, whose leases have no addresses, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Nodes that renew their leases.
    pub(super) live: u64,
    /// Nodes that do not, and that no other has found dead yet.
    pub(super) silent: u64,
    /// Nodes that another one has found dead, and that have not come back.
    pub(super) dead: u64,
}

impl Leases {
    /// Notes all leases as they were read.
    pub(super) fn note(&mut self, records: Vec<NodeRecord>, now: Instant) {
        self.begun.get_or_insert(now);
        let is_gap = self.age(now).is_some_and(|age| age >= GAP);
        self.read = Some(now);
        let mut before = std::mem::take(&mut self.nodes);
        if is_gap {
            before.clear();
        }
        for record in records {
            let seen = match before.remove(&record.node) {
                Some(known) if known.record == record => known,
                known => Seen { record, since: now, has_changed: known.is_some() },
            };
            self.nodes.insert(seen.record.node.clone(), seen);
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
        self.nodes.get(node).map(|seen| &seen.record)
    }

    /// Returns the leases that have not been given up, including those of dead nodes that no other has evicted yet.
    pub(super) fn live(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values().map(|seen| &seen.record).filter(|record| record.state == NodeState::Live)
    }

    /// Returns those of them that have not changed for ten times their lifetime.
    pub(super) fn silent(&self, now: Instant) -> impl Iterator<Item = &NodeRecord> {
        let is_silent = move |seen: &&Seen| {
            let is_live = seen.record.state == NodeState::Live;
            is_live && now.saturating_duration_since(seen.since) >= seen.record.ttl * SILENT_TTLS
        };
        self.nodes.values().filter(is_silent).map(|seen| &seen.record)
    }

    /// Returns how many nodes there are at the time of a reading.
    pub(super) fn numbers(&self, now: Instant) -> Numbers {
        let count = |state| {
            let of_nodes =
                self.nodes.values().map(|seen| &seen.record).filter(|record| !record.addresses.is_empty());
            of_nodes.filter(|record| record.state == state).count() as u64
        };
        let live = self.renewed(now).filter(|record| !record.addresses.is_empty()).count() as u64;
        Numbers { live, silent: count(NodeState::Live) - live, dead: count(NodeState::Dead) }
    }

    /// Returns the leases that are renewed.
    pub(super) fn renewed(&self, now: Instant) -> impl Iterator<Item = &NodeRecord> {
        let renewed = self.nodes.values().filter(move |seen| {
            let is_fresh = seen.has_changed && now.saturating_duration_since(seen.since) < FRESH;
            seen.record.state == NodeState::Live && is_fresh
        });
        renewed.map(|seen| &seen.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Incarnation;

    fn lease(node: &str, state: NodeState, sequence: u64) -> NodeRecord {
        let addresses = if node == "command" { vec![] } else { vec!["192.0.2.1:7010".parse().unwrap()] };
        NodeRecord {
            node: node.parse().unwrap(),
            incarnation: Incarnation { nonce: 1, count: 1 },
            sequence,
            state,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses,
            takes_addresses: false,
        }
    }

    #[test]
    fn nodes_that_are_silent_for_long_are_found() {
        let (mut leases, begun) = (Leases::default(), Instant::now());
        let note = |leases: &mut Leases, second: u64| {
            let records = vec![
                lease("alive", NodeState::Live, second),
                lease("quiet", NodeState::Live, second.min(10)),
                lease("gone", NodeState::Dead, 1),
                lease("stopped", NodeState::Left, 1),
                lease("command", NodeState::Live, second),
            ];
            let now = begun + Duration::from_secs(second);
            leases.note(records, now);
            (
                leases.numbers(now),
                leases.silent(now).map(|record| record.node.to_string()).collect::<Vec<_>>(),
            )
        };
        let numbers = |live, silent| Numbers { live, silent, dead: 1 };
        assert_eq!(note(&mut leases, 0), (numbers(0, 2), vec![]), "nothing was seen to change yet");
        assert_eq!(note(&mut leases, 10), (numbers(2, 0), vec![]));
        for second in [20, 30, 40, 50, 60, 69] {
            assert_eq!(note(&mut leases, second), (numbers(1, 1), vec![]));
        }
        assert_eq!(note(&mut leases, 70), (numbers(1, 1), vec!["quiet".to_owned()]));
        assert_eq!(note(&mut leases, 95), (numbers(0, 2), vec![]), "the bucket was away");
    }
}
