//! Which node takes what has no owner: the partitions, and the databases. Each node computes it for itself, from the same
//! owners and leases ([`cluster::share_out`]).

use super::folder::Folder;
use super::leases::Leases;
use anyhow::Result;
use cluster::{NodeName, NodeRecord, PartitionName, PartitionStatus, isolated_nodes, read_nodes, share_out};
use object_store::ObjectStore;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long something must have been without an owner: what the bucket says is not known at once.
const VACANT: Duration = Duration::from_millis(300);

/// Interval at which leases are read while something has no owner.
const PERIOD: Duration = Duration::from_millis(400);

/// For how long leases are watched before they count: each node renews its own in that time.
const WATCHED: Duration = Duration::from_millis(1300);

/// Leases that were not read for so long are watched anew.
const OUTDATED: Duration = Duration::from_secs(2);

/// For how long the bucket may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the doubt about an owner lasts before its lease ends.
const DOUBT: Duration = Duration::from_secs(3);

/// How long the node that is to take something has for that, once it can. After that, any node takes it.
const REPLACED: Duration = Duration::from_secs(4);

/// The turns of one node.
pub(super) struct Turns {
    node: NodeName,
    /// What is shared among the nodes.
    /// Nothing waits under the lock.
    places: Mutex<BTreeSet<PartitionName>>,
    /// Locked by the thread that reads leases; others do not wait for it.
    folder: Mutex<Folder>,
    /// Nothing waits under the lock.
    leases: Mutex<Leases>,
    /// The nodes that leave everything to the others, as that was read with the leases; nothing waits under the lock.
    isolated: Mutex<BTreeSet<NodeName>>,
    /// The last owner that was seen of each place; nothing waits under the lock.
    last_owners: Mutex<BTreeMap<PartitionName, NodeName>>,
}

impl Turns {
    /// `client` is used for nothing else.
    ///
    /// # Errors
    /// If there are no resources for its requests.
    pub(super) fn new(
        node: NodeName,
        places: BTreeSet<PartitionName>,
        client: Arc<dyn ObjectStore>,
        folder: &str,
    ) -> Result<Turns> {
        let folder = Mutex::new(Folder::new(client, folder)?);
        let (leases, isolated, last_owners) = Default::default();
        Ok(Turns { node, places: Mutex::new(places), folder, leases, isolated, last_owners })
    }

    /// A partition was added to those that are shared.
    pub(super) fn add(&self, place: PartitionName) {
        self.places.lock().insert(place);
    }

    /// A partition is not shared any more.
    pub(super) fn remove(&self, place: &PartitionName) {
        self.places.lock().remove(place);
        self.last_owners.lock().remove(place);
    }

    /// Another node serves something, as far as is known.
    pub(super) fn served(&self, place: &PartitionName, owner: Option<&NodeName>) {
        if let Some(owner) = owner {
            self.last_owners.lock().insert(place.clone(), owner.clone());
        }
    }

    /// Whether this node is to take a place now that has had no owner for `vacant`. `known` is what is known of all places.
    /// Reads leases when that is due.
    pub(super) fn is_due(&self, place: &PartitionName, known: &[PartitionStatus], vacant: Duration) -> bool {
        let Some(own) = known.iter().find(|one| one.partition == *place) else { return false };
        self.look();
        let target = self.target(place, known, Instant::now());
        is_due(&self.node, own, vacant, target.as_ref())
    }

    /// Reads the leases, and which nodes are isolated, unless that was done lately or another thread does it.
    fn look(&self) {
        let Some(folder) = self.folder.try_lock() else { return };
        if self.leases.lock().age(Instant::now()).is_some_and(|age| age < PERIOD) {
            return;
        }
        match folder.ask(PATIENCE, async |client, name| read_nodes(client, name).await) {
            Ok(records) => {
                let renewed = self.note(records, Instant::now());
                self.note_isolated(&folder, &renewed);
            }
            Err(error) => tracing::debug!(%error, "cannot read the leases of the nodes"),
        }
    }

    /// Notes the leases as they were read; returns those that are renewed.
    fn note(&self, records: Vec<NodeRecord>, now: Instant) -> Vec<NodeRecord> {
        let mut leases = self.leases.lock();
        if leases.age(now).is_some_and(|age| age >= OUTDATED) {
            *leases = Leases::default();
        }
        leases.note(records, now);
        leases.renewed(now).cloned().collect()
    }

    /// Reads which of the nodes that renew their leases are isolated.
    fn note_isolated(&self, folder: &Folder, renewed: &[NodeRecord]) {
        let asked = folder.ask(PATIENCE, async |client, name| isolated_nodes(client, name, renewed).await);
        *self.isolated.lock() = asked.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot read which nodes the others reach");
            BTreeSet::new()
        });
    }

    /// Returns the node that is to take a place; `None` while it is not known which nodes run.
    fn target(&self, place: &PartitionName, known: &[PartitionStatus], now: Instant) -> Option<NodeName> {
        let leases = self.leases.lock();
        if leases.watched(now) < WATCHED {
            return None;
        }
        let places = self.places.lock().clone();
        let known: Vec<_> = known.iter().filter(|one| places.contains(&one.partition)).collect();
        let leaving = self.leaving(&known);
        // Commands have leases without addresses.
        let nodes = leases.renewed(now).filter(|record| !record.addresses.is_empty());
        let mut candidates: BTreeSet<NodeName> = nodes.map(|record| record.node.clone()).collect();
        let isolated = self.isolated.lock();
        candidates.retain(|node| !leaving.contains(node) && !isolated.contains(node));
        candidates.insert(self.node.clone());
        let owners = known.iter().map(|one| (one.partition.clone(), one.owner.clone())).collect();
        share_out(&owners, &candidates).remove(place)
    }

    /// Returns the nodes that have given something up for anyone, because they are ending.
    fn leaving(&self, known: &[&PartitionStatus]) -> BTreeSet<NodeName> {
        let last_owners = self.last_owners.lock();
        let is_free = |one: &&&PartitionStatus| one.owner.is_none() && one.successor.is_none();
        known.iter().filter(is_free).filter_map(|one| last_owners.get(&one.partition).cloned()).collect()
    }
}

/// Whether a node is to take what has had no owner for `vacant`, and what `target` is to take.
fn is_due(node: &NodeName, known: &PartitionStatus, vacant: Duration, target: Option<&NodeName>) -> bool {
    // What this node has had before, or was given.
    if [&known.owner, &known.successor].into_iter().flatten().any(|other| other == node) {
        return true;
    }
    let patience = if known.owner.is_some() { DOUBT + REPLACED } else { REPLACED };
    let is_turn = known.successor.is_none() && target == Some(node);
    vacant >= patience || is_turn && vacant >= VACANT
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Monotonic;
    use cluster::{Epoch, NodeState, Phase, ReachRecord, write_reach};
    use object_store::memory::InMemory;

    fn name(text: &str) -> NodeName {
        text.parse().unwrap()
    }

    fn place(index: usize) -> PartitionName {
        format!("cell/p{index}").parse().unwrap()
    }

    /// A place as text: its owner, `-` for none, `>` before a successor.
    fn status(index: usize, text: &str) -> PartitionStatus {
        let successor = text.strip_prefix('>').map(name);
        let owner = (text != "-" && successor.is_none()).then(|| name(text));
        PartitionStatus {
            partition: place(index),
            phase: Phase::Remote,
            since: Monotonic(0),
            epoch: Epoch(1),
            owner,
            successor,
        }
    }

    fn known(owners: &str) -> Vec<PartitionStatus> {
        owners.split_whitespace().enumerate().map(|(index, text)| status(index, text)).collect()
    }

    fn record(node: &str, sequence: u64) -> NodeRecord {
        NodeRecord {
            node: name(node.trim_start_matches('!')),
            incarnation: "0000000000000000000000000000abcd.1".parse().unwrap(),
            sequence,
            state: NodeState::Live,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: if node.starts_with('!') { Vec::new() } else { vec![([10, 0, 0, 1], 7010).into()] },
            takes_addresses: false,
        }
    }

    fn turns(node: &str, places: usize) -> Turns {
        let places = (0..places).map(place).collect();
        Turns::new(name(node), places, Arc::new(InMemory::new()), "cell").unwrap()
    }

    /// The targets that a node sees for each place, with these nodes alive, `!` before those without address.
    fn targets(turns: &Turns, alive: &str, owners: &str) -> String {
        let begun = Instant::now();
        *turns.leases.lock() = Leases::default();
        for (sequence, seconds) in [(1, 0), (2, 1)] {
            let records = alive.split_whitespace().map(|node| record(node, sequence));
            let dead = record("dead", 7);
            turns.leases.lock().note(records.chain([dead]).collect(), begun + Duration::from_secs(seconds));
        }
        let at = |ms| begun + Duration::from_millis(ms);
        let known = known(owners);
        assert_eq!(turns.target(&place(0), &known, at(1299)), None, "not watched for long enough");
        let target = |one: &PartitionStatus| turns.target(&one.partition, &known, at(1300));
        let shown = |target: Option<NodeName>| target.map_or_else(|| "-".to_owned(), |node| node.to_string());
        known.iter().map(|one| shown(target(one))).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn survivors_agree_who_takes_what() {
        for node in ["a", "b", "c"] {
            let turns = turns(node, 5);
            assert_eq!(targets(&turns, "a b c", "dead dead a b b"), "c a - - -", "{node}");
            assert_eq!(targets(&turns, "a b c !command", "dead dead dead dead dead"), "a b c a b", "{node}");
        }
        let turns = turns("a", 2);
        assert_eq!(targets(&turns, "a b", "dead - b b b"), "a b - - -", "only what is shared counts");
        assert_eq!(targets(&turns, "", "dead dead"), "a a", "alone");
        turns.add(place(2));
        turns.remove(&place(0));
        assert_eq!(targets(&turns, "a b", "a - -"), "- a b", "the others are shared now");
    }

    #[test]
    fn a_node_that_leaves_takes_nothing() {
        let turns = turns("a", 4);
        (0..3).for_each(|index| turns.served(&place(index), Some(&name("b"))));
        assert_eq!(targets(&turns, "a b c", "- b b a"), "c a c -", "what it has left is shared, too");
        assert_eq!(targets(&turns, "a b c", "- - b a"), "c a c -");
        assert_eq!(targets(&turns, "a b c", ">a b b a"), "c - - -", "it has moved one, and stays");
    }

    #[test]
    fn a_node_that_reaches_no_other_takes_nothing() {
        let bucket = Arc::new(InMemory::new());
        let places = (0..3).map(place).collect();
        let turns = Turns::new(name("a"), places, Arc::clone(&bucket) as _, "cell").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let publish = |node: &str, reached: &[&str]| {
            let incarnation = record(node, 1).incarnation;
            let reached = reached.iter().map(|node| name(node));
            let record = ReachRecord::new(name(node), incarnation, reached, 0);
            runtime.block_on(write_reach(&*bucket, "cell", &record)).unwrap();
        };
        let target = |owners: &str| {
            let begun = Instant::now();
            *turns.leases.lock() = Leases::default();
            for (sequence, seconds) in [(1, 0), (2, 1)] {
                let takes =
                    |(node, takes_addresses)| NodeRecord { takes_addresses, ..record(node, sequence) };
                let records = [("a", true), ("b", false), ("c", true)].map(takes);
                let renewed = turns.note(records.into(), begun + Duration::from_secs(seconds));
                turns.note_isolated(&turns.folder.lock(), &renewed);
            }
            turns.target(&place(0), &known(owners), begun + Duration::from_millis(1300))
        };
        publish("a", &["c"]);
        publish("c", &["a"]);
        assert_eq!(target("dead a c"), Some(name("b")), "it has published nothing");
        publish("b", &[]);
        assert_eq!(target("dead a c"), Some(name("a")));
        assert!(!turns.isolated.lock().is_empty());
        *turns.leases.lock() = Leases::default();
        turns.look();
        assert!(turns.isolated.lock().is_empty(), "the bucket has no leases");
        publish("b", &["c"]);
        assert_eq!(target("dead a c"), Some(name("b")));
    }

    #[test]
    fn any_node_takes_a_partition_left_over_in_the_end() {
        let due = |text: &str, ms, target: &str| {
            is_due(&name("a"), &status(0, text), Duration::from_millis(ms), Some(&name(target)))
        };
        assert!(due("a", 0, "b") && due(">a", 0, "b"), "its own");
        assert!(!due("dead", 299, "a") && due("dead", 300, "a"));
        assert!(!due("dead", 6999, "b") && due("dead", 7000, "b"));
        assert!(!due("-", 3999, "b") && due("-", 4000, "b"));
        assert!(!due(">b", 3999, "a") && due(">b", 4000, "a"), "b is to have it");
    }
}
