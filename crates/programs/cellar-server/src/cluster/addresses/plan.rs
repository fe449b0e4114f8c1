//! Which service addresses this node takes and gives up, from what it knows of the others.

use crate::cluster::isolation::OtherNode;
use crate::cluster::leases::{Leases, Numbers};
use cluster::{NodeName, NodeRecord, assign};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// For how long leases are watched before anything is taken: it is not known before which of them are renewed.
const WATCHED: Duration = Duration::from_millis(2500);

/// For how long another node must have been the one that should have an address before it is given up for that one.
const STEADY: Duration = Duration::from_secs(3);

/// For how long an address may have no owner before any node takes it.
const VACANT: Duration = Duration::from_secs(4);

/// What this node knows of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The owner according to the bucket.
    pub(super) owner: Option<NodeName>,
    /// The node for which the last owner has given it up.
    pub(super) successor: Option<NodeName>,
    /// Whether a node has it by a lease that is not in doubt.
    pub(super) is_served: bool,
}

/// What this node does about one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// Whether it takes it, or keeps it.
    pub(super) is_wanted: bool,
    /// The node that is to have it when this one gives it up.
    pub(super) heir: Option<NodeName>,
}

/// Leases as they were seen, and what follows.
pub(super) struct Plan {
    node: NodeName,
    leases: Leases,
    /// Since when which other node should have an address of this one.
    targets: BTreeMap<Ipv4Addr, (NodeName, Instant)>,
    /// Since when an address has no owner.
    vacant: BTreeMap<Ipv4Addr, Instant>,
}

impl Plan {
    pub(super) fn new(node: NodeName) -> Plan {
        let (leases, targets, vacant) = Default::default();
        Plan { node, leases, targets, vacant }
    }

    /// Notes all leases as they were read.
    pub(super) fn note(&mut self, records: Vec<NodeRecord>, now: Instant) {
        self.leases.note(records, now);
    }

    /// Whether it is known which leases are renewed.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.leases.watched(now) >= WATCHED
    }

    /// Returns how many nodes there are at the time of a reading.
    pub(super) fn numbers(&self, now: Instant) -> Numbers {
        self.leases.numbers(now)
    }

    /// Returns the other nodes that renew their leases.
    pub(super) fn others(&self, now: Instant) -> Vec<OtherNode> {
        let others = self.leases.renewed(now).filter(|record| record.node != self.node);
        let known = others.filter_map(|record| {
            let NodeRecord { node, incarnation, takes_addresses, .. } = record.clone();
            let address = *record.addresses.first()?;
            let addresses = record.addresses.iter().map(SocketAddr::ip).collect();
            Some(OtherNode { name: node, incarnation, address, addresses, takes_addresses })
        });
        known.collect()
    }

    /// Returns the leases that have not been renewed for long.
    pub(super) fn silent(&self, now: Instant) -> impl Iterator<Item = &NodeRecord> {
        self.leases.silent(now)
    }

    /// Whether any node takes addresses, including dead ones that no other has evicted yet.
    pub(super) fn has_takers(&self) -> bool {
        self.leases.live().any(|record| record.takes_addresses)
    }

    /// Returns the lease of a node.
    pub(super) fn lease(&self, node: &NodeName) -> Option<&NodeRecord> {
        self.leases.of(node)
    }

    /// Decides about all addresses. `takes` is whether this node can take any now.
    pub(super) fn decide(
        &mut self,
        seen: &BTreeMap<Ipv4Addr, Seen>,
        takes: bool,
        now: Instant,
    ) -> BTreeMap<Ipv4Addr, Wish> {
        let candidates = self.candidates(takes, now);
        let owners: BTreeMap<Ipv4Addr, Option<NodeName>> =
            seen.iter().map(|(address, seen)| (*address, seen.owner.clone())).collect();
        let others = candidates.iter().filter(|node| **node != self.node).cloned().collect();
        let (mut targets, mut heirs) = (assign(&owners, &candidates), assign(&owners, &others));
        let is_mine = |seen: &Seen| seen.owner.as_ref() == Some(&self.node);
        self.targets.retain(|address, (node, _)| {
            targets.get(address) == Some(node) && seen.get(address).is_some_and(is_mine)
        });
        self.vacant.retain(|address, _| seen.get(address).is_some_and(|seen| !seen.is_served));
        let mut wishes = BTreeMap::new();
        for (address, seen) in seen {
            let is_vacant = self.is_vacant(*address, seen, now);
            let is_mine = seen.owner.as_ref() == Some(&self.node);
            let is_next = seen.successor.as_ref() == Some(&self.node);
            let (is_wanted, heir) = match targets.remove(address) {
                Some(target) if target != self.node => {
                    let is_kept = is_mine && !self.is_steady(*address, &target, now);
                    (is_kept || is_next || is_vacant, Some(target))
                }
                target => (target.is_some() || is_mine, heirs.remove(address)),
            };
            wishes.insert(*address, Wish { is_wanted: is_wanted && takes, heir });
        }
        wishes
    }

    /// Whether an address has had no owner for long.
    fn is_vacant(&mut self, address: Ipv4Addr, seen: &Seen, now: Instant) -> bool {
        if seen.is_served {
            return false;
        }
        let since = *self.vacant.entry(address).or_insert(now);
        now.saturating_duration_since(since) >= VACANT
    }

    /// Whether another node is the one that should have an address of this node, for some time.
    fn is_steady(&mut self, address: Ipv4Addr, target: &NodeName, now: Instant) -> bool {
        let (_, since) = self.targets.entry(address).or_insert_with(|| (target.clone(), now));
        now.saturating_duration_since(*since) >= STEADY
    }

    /// Returns the nodes that can get an address.
    fn candidates(&self, takes: bool, now: Instant) -> BTreeSet<NodeName> {
        let is_other = |record: &&NodeRecord| record.takes_addresses && record.node != self.node;
        let others = self.leases.renewed(now).filter(is_other).map(|record| record.node.clone());
        others.chain(takes.then(|| self.node.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::NodeState;

    fn name(text: &str) -> NodeName {
        text.parse().unwrap()
    }

    fn record(node: &str, sequence: u64, takes_addresses: bool) -> NodeRecord {
        NodeRecord {
            node: name(node),
            incarnation: "0000000000000000000000000000abcd.1".parse().unwrap(),
            sequence,
            state: NodeState::Live,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: vec![([192, 0, 2, 1], 7010).into()],
            takes_addresses,
        }
    }

    /// A node `a` that reads the leases of others.
    struct Watch {
        plan: Plan,
        begun: Instant,
    }

    impl Watch {
        fn new() -> Watch {
            Watch { plan: Plan::new(name("a")), begun: Instant::now() }
        }

        fn at(&self, ms: u64) -> Instant {
            self.begun + Duration::from_millis(ms)
        }

        /// These nodes have renewed their leases at a time; `!` marks those that take no addresses. The leases of the others
        /// are as before.
        fn renew(&mut self, ms: u64, nodes: &str) {
            let of = |text: &str| record(text.trim_start_matches('!'), ms, !text.starts_with('!'));
            let mut records: Vec<NodeRecord> = nodes.split_whitespace().map(of).collect();
            let is_missing = |other: &NodeRecord| !records.iter().any(|record| record.node == other.node);
            let known = self.plan.leases.live();
            let silent: Vec<NodeRecord> = known.filter(|other| is_missing(other)).cloned().collect();
            records.extend(silent);
            let at = self.at(ms);
            self.plan.note(records, at);
        }

        /// Decides with these owners (`-` for none, `>` before a successor, `?` behind one that is in doubt); returns for each address `+` if it is
        /// wanted, and the heir.
        fn decide(&mut self, ms: u64, owners: &str) -> String {
            let seen = |text: &str| {
                let successor = text.strip_prefix('>').map(name);
                let owner = text.trim_end_matches('?');
                let owner = (owner != "-" && successor.is_none()).then(|| name(owner));
                Seen { is_served: owner.is_some() && !text.ends_with('?'), owner, successor }
            };
            let address = |at| Ipv4Addr::new(10, 0, 0, at);
            let seen = (1..).zip(owners.split_whitespace()).map(|(at, text)| (address(at), seen(text)));
            let (seen, at) = (seen.collect(), self.at(ms));
            let wishes = self.plan.decide(&seen, true, at);
            let shown = |wish: Wish| {
                let heir = wish.heir.map_or_else(|| "-".to_owned(), |heir| heir.to_string());
                format!("{}{heir}", if wish.is_wanted { "+" } else { "" })
            };
            wishes.into_values().map(shown).collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn other_nodes_count_while_they_renew_their_leases() {
        let mut watch = Watch::new();
        let others = |watch: &Watch, ms| {
            let others = watch.plan.others(watch.at(ms)).into_iter();
            let shown =
                others.map(|one| format!("{}{}", if one.takes_addresses { "" } else { "!" }, one.name));
            shown.collect::<Vec<_>>().join(" ")
        };
        watch.renew(0, "a b !c");
        assert_eq!(others(&watch, 0), "", "the leases may be old");
        watch.renew(1000, "a b !c");
        assert_eq!(others(&watch, 4400), "b !c");
        watch.renew(4400, "a !b");
        assert_eq!(others(&watch, 4600), "!b");
    }

    #[test]
    fn a_node_alone_takes_everything() {
        let mut watch = Watch::new();
        watch.renew(0, "");
        assert!(!watch.plan.is_ready(watch.at(2499)) && watch.plan.is_ready(watch.at(2500)));
        assert_eq!(watch.decide(2500, "- - -"), "+- +- +-");
    }

    #[test]
    fn addresses_are_shared_with_nodes_that_come() {
        let mut watch = Watch::new();
        watch.renew(0, "a b");
        assert_eq!(watch.decide(0, "a a"), "+- +-", "the lease of b may be old");
        watch.renew(1000, "a b");
        assert_eq!(watch.decide(1000, "a a"), "+b +b", "not at once");
        watch.renew(4000, "a b !c");
        assert_eq!(watch.decide(4000, "a a"), "+b b");
        assert_eq!(watch.decide(4100, "a b"), "+b b");
        watch.renew(5000, "a b !c");
        assert_eq!(watch.decide(8000, "a b"), "+b b", "c takes none");
    }

    #[test]
    fn the_addresses_of_a_dead_node_are_taken() {
        let mut watch = Watch::new();
        watch.renew(0, "a b c");
        watch.renew(1000, "a b c");
        assert_eq!(watch.decide(1000, "a b c"), "+b b c");
        watch.renew(4000, "a c");
        assert_eq!(watch.decide(4400, "a b c"), "+b b c");
        assert_eq!(watch.decide(4600, "a b? c"), "+c +c c");
    }

    #[test]
    fn an_address_is_taken_from_a_node_that_leaves() {
        let mut watch = Watch::new();
        watch.renew(0, "a b c");
        watch.renew(1000, "a b c");
        assert_eq!(watch.decide(1000, "a b c"), "+b b c");
        watch.renew(5000, "a b c");
        assert_eq!(watch.decide(5000, "a b >a"), "+c b +c", "c seems to live");
        assert_eq!(watch.decide(5100, "a b a"), "+c b +c", "it is not given back at once");
        watch.renew(6000, "a b !c");
        assert_eq!(watch.decide(6000, "a b a"), "+b b +b");
    }

    #[test]
    fn a_vacant_address_is_taken_by_anyone_in_the_end() {
        let mut watch = Watch::new();
        watch.renew(0, "a b");
        watch.renew(1000, "a b");
        assert_eq!(watch.decide(1000, "a -"), "+b b");
        watch.renew(4000, "a b");
        assert_eq!(watch.decide(4999, "a -"), "+b b");
        assert_eq!(watch.decide(5000, "a -"), "+b +b");
        assert_eq!(watch.decide(5001, "a b"), "+b b");
        assert_eq!(watch.decide(5002, "a -"), "+b b", "it counts from anew");
    }

    #[test]
    fn a_node_that_can_take_none_gives_all_up() {
        let mut watch = Watch::new();
        watch.renew(0, "!a b");
        watch.renew(1000, "!a b");
        let mine = || Seen { owner: Some(name("a")), successor: None, is_served: true };
        let owners = BTreeMap::from([1, 2].map(|at| (Ipv4Addr::new(10, 0, 0, at), mine())));
        let at = watch.at(1000);
        let wishes = watch.plan.decide(&owners, false, at);
        assert!(wishes.values().all(|wish| *wish == Wish { is_wanted: false, heir: Some(name("b")) }));
        assert!(watch.plan.has_takers());
        watch.renew(2000, "!a !b");
        assert!(!watch.plan.has_takers());
    }
}
