//! When a node that reaches the bucket, but no other node, leaves the clients to the others.
//!
//! Such a node can pass no call on, and none reaches it. Others cannot take anything from it, since its lease is renewed: it has to
//! give everything up itself. It does so only if more than half of all nodes reach each other and not it, and clients reach them:
//!
//! - Two groups of nodes cannot both have more than half, so the nodes of one group at least serve, and nodes that reach any other
//!   serve in any case. A cluster of two nodes changes nothing: neither can know which of them the clients reach.
//! - If clients have sent this node something lately, and none has sent anything to the others since they are cut off, the network
//!   is cut between the clients and the others.

use crate::names::{Incarnation, NodeName};
use crate::records::ReachRecord;
use base::Monotonic;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// For how long another node counts as reached after it has answered.
const REACHED: Duration = Duration::from_secs(7);

/// For how long it is evidence that clients reach this node.
const CLIENTS_HERE: Duration = Duration::from_secs(30);

/// For how long there must be a group to which the clients can be left.
const CONFIRMED: Duration = Duration::from_secs(9);

/// Time after which all is in the bucket that the group's nodes have published before it was formed.
const PUBLISHED: Duration = Duration::from_secs(5);

/// For how long other nodes must have answered again.
const RETURN: Duration = Duration::from_secs(10);

/// For how long there must be no such group any more. Leases that are renewed late for a moment are no reason to change anything.
const DISSOLVED: Duration = Duration::from_secs(8);

/// What a node does about clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It serves them.
    #[default]
    Serves,
    /// It takes nothing, and gives up what it has: service addresses, partitions, databases. Its lease says that it takes no
    /// service addresses.
    Leaves,
}

/// What reaches this node.
#[derive(Clone, Debug)]
pub struct Ways {
    node: NodeName,
    /// When each other node has answered last.
    answers: BTreeMap<NodeName, Monotonic>,
    /// When a client has sent something last.
    client: Option<Monotonic>,
    /// Whether a node was not reached when the record was made last.
    is_cut: bool,
    /// How often clients have sent something since then.
    clients: u64,
}

impl Ways {
    /// Nothing has reached the node yet.
    pub fn new(node: NodeName) -> Ways {
        Ways { node, answers: BTreeMap::new(), client: None, is_cut: false, clients: 0 }
    }

    /// Another node has answered this one.
    pub fn answered(&mut self, node: &NodeName, now: Monotonic) {
        self.answers.insert(node.clone(), now);
    }

    /// A client has sent something.
    pub fn client_sent(&mut self, now: Monotonic) {
        self.client = Some(now);
        self.clients += u64::from(self.is_cut);
    }

    /// Returns the record that this node publishes. `others` are all nodes that renew their leases; what is known of others is forgotten.
    pub fn record<'a>(
        &mut self,
        now: Monotonic,
        incarnation: Incarnation,
        others: impl Iterator<Item = &'a NodeName>,
    ) -> ReachRecord {
        let (mut answers, mut reached, mut is_cut) = (BTreeMap::new(), Vec::new(), false);
        for other in others {
            answers.extend(self.answers.get(other).map(|answer| (other.clone(), *answer)));
            if self.reaches(now, other) {
                reached.push(other.clone());
            } else {
                is_cut = true;
            }
        }
        (self.answers, self.is_cut) = (answers, is_cut);
        ReachRecord::new(self.node.clone(), incarnation, reached, self.clients)
    }

    /// Whether no other node counts as reached: then the records of the others are needed.
    pub fn is_silent(&self, now: Monotonic) -> bool {
        !self.answers.keys().any(|node| self.reaches(now, node))
    }

    /// Whether another node counts as reached.
    pub fn reaches(&self, now: Monotonic, node: &NodeName) -> bool {
        self.answers.get(node).is_some_and(|answer| now.since(*answer) < REACHED)
    }

    fn has_clients(&self, now: Monotonic) -> bool {
        self.client.is_some_and(|client| now.since(client) < CLIENTS_HERE)
    }
}

/// Another node that renews its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Whether it takes service addresses: the clients can be left to it.
    pub takes_addresses: bool,
    /// What it has published in its present membership, if that is known.
    pub reach: Option<ReachRecord>,
}

/// The standing of one node.
///
/// The caller asks the other nodes again and again, reads their leases, writes the [record](Ways::record) of this node when it changes,
/// and calls [`step`](Isolation::step) every few seconds, with the records of the others if none [answers](Ways::is_silent). It does what
/// the returned [`Standing`] says until the next call.
#[derive(Debug, Default)]
pub struct Isolation {
    standing: Standing,
    /// Since when there is a group to which the clients can be left.
    group_since: Option<Monotonic>,
    /// What nodes had published about clients then.
    clients: BTreeMap<NodeName, u64>,
    /// Since when others answer again.
    heard_since: Option<Monotonic>,
    /// Since when there is no such group any more.
    dissolved_since: Option<Monotonic>,
}

impl Isolation {
    /// Returns the standing of this node. `others` are all that renew their leases, and `None` if that is not known at present: then
    /// nothing changes.
    pub fn step(
        &mut self,
        now: Monotonic,
        ways: &Ways,
        others: Option<&BTreeMap<NodeName, Other>>,
    ) -> Standing {
        let Some(others) = others else { return self.standing };
        let is_heard = others.keys().any(|other| ways.reaches(now, other));
        if is_heard {
            (self.group_since, self.dissolved_since) = (None, None);
            if now.since(*self.heard_since.get_or_insert(now)) >= RETURN {
                self.standing = Standing::Serves;
            }
            return self.standing;
        }
        self.heard_since = None;
        let group = heirs(&ways.node, others);
        match self.standing {
            Standing::Serves if group.is_empty() => self.group_since = None,
            Standing::Serves => {
                let age = now.since(*self.group_since.get_or_insert(now));
                let have_clients = self.have_clients(age, &group, others);
                if age >= CONFIRMED && (have_clients || !ways.has_clients(now)) {
                    *self = Isolation { standing: Standing::Leaves, ..Isolation::default() };
                }
            }
            Standing::Leaves if group.is_empty() => {
                if now.since(*self.dissolved_since.get_or_insert(now)) >= DISSOLVED {
                    *self = Isolation::default();
                }
            }
            Standing::Leaves => self.dissolved_since = None,
        }
        self.standing
    }

    /// Whether clients have sent something to a group since it was formed, `age` ago.
    fn have_clients(
        &mut self,
        age: Duration,
        group: &BTreeSet<&NodeName>,
        others: &BTreeMap<NodeName, Other>,
    ) -> bool {
        let published = others.iter().filter(|(node, _)| group.contains(node));
        let now = published.filter_map(|(node, other)| Some((node.clone(), other.reach.as_ref()?.clients)));
        let now: BTreeMap<NodeName, u64> = now.collect();
        if age < PUBLISHED {
            self.clients = now;
            return false;
        }
        now.iter().any(|(node, clients)| clients > self.clients.entry(node.clone()).or_insert(*clients))
    }
}

/// Returns the nodes to which `node` can leave its clients: more than half of all that reach each other, in steps, and not this
/// node. It is empty if there are none, or none of them takes service addresses.
pub fn heirs<'a>(node: &NodeName, others: &'a BTreeMap<NodeName, Other>) -> BTreeSet<&'a NodeName> {
    let reached = |of: &NodeName| others.get(of)?.reach.as_ref().map(ReachRecord::reached);
    let reaches = |from: &NodeName, to: &NodeName| reached(from).is_some_and(|reached| reached.contains(to));
    let mut left: BTreeSet<&NodeName> =
        others.keys().filter(|other| reached(other).is_some() && !reaches(other, node)).collect();
    while let Some(first) = left.pop_first() {
        let (mut group, mut edge) = (BTreeSet::from([first]), vec![first]);
        while let Some(from) = edge.pop() {
            let next: Vec<&NodeName> =
                left.iter().copied().filter(|to| reaches(from, to) && reaches(to, from)).collect();
            for to in next {
                left.remove(to);
                group.insert(to);
                edge.push(to);
            }
        }
        let is_most = group.len() * 2 > others.len() + 1;
        if is_most && group.iter().any(|one| others[*one].takes_addresses) {
            return group;
        }
    }
    BTreeSet::new()
}

/// Returns the nodes that leave everything to the others, as far as that is seen from outside: such a node takes no service addresses,
/// says that it reaches no other node, and has [heirs]. `nodes` are all that renew their leases.
///
/// A node is not among them while it is not known what it reaches, or what the others do.
pub fn isolated(nodes: &BTreeMap<NodeName, Other>) -> BTreeSet<NodeName> {
    let reaches_none = |one: &Other| one.reach.as_ref().is_some_and(|reach| reach.reached().is_empty());
    let can_leave = |node: &NodeName| {
        let mut others = nodes.clone();
        others.remove(node);
        !heirs(node, &others).is_empty()
    };
    let silent = nodes.iter().filter(|(_, one)| !one.takes_addresses && reaches_none(one));
    silent.map(|(node, _)| node).filter(|node| can_leave(node)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::Standing::{Leaves, Serves};
    use super::*;
    use crate::names::Incarnation;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(1_000_000_000_000) + Duration::from_secs(seconds)
    }

    fn name(text: &str) -> NodeName {
        text.parse().unwrap()
    }

    /// Other nodes as text: `b:cd` reaches c and d, `!b:cd` takes no addresses, `b:cd*` has clients now, `b` has no record.
    fn others(text: &str, second: u64) -> BTreeMap<NodeName, Other> {
        let other = |word: &str| {
            let takes_addresses = !word.starts_with('!');
            let word = word.trim_start_matches('!');
            let (node, reached) =
                word.split_once(':').map_or((word, None), |(node, rest)| (node, Some(rest)));
            let reach = reached.map(|reached| {
                let names = reached.trim_end_matches('*').chars().map(|one| name(&one.to_string()));
                let incarnation = Incarnation { nonce: 1, count: 1 };
                let clients = if reached.ends_with('*') { 1000 + second } else { 1000 };
                ReachRecord::new(name(node), incarnation, names, clients)
            });
            (name(node), Other { takes_addresses, reach })
        };
        text.split_whitespace().map(other).collect()
    }

    /// The node `a`.
    struct Node {
        isolation: Isolation,
        ways: Ways,
        has_clients: bool,
    }

    impl Node {
        fn new() -> Node {
            Node { isolation: Isolation::default(), ways: Ways::new(name("a")), has_clients: false }
        }

        fn step(&mut self, second: u64, known: Option<&str>) -> Standing {
            if self.has_clients {
                self.ways.client_sent(at(second));
            }
            self.isolation.step(at(second), &self.ways, known.map(|known| others(known, second)).as_ref())
        }

        fn hear(&mut self, second: u64) {
            self.ways.answered(&name("b"), at(second));
        }

        /// Returns the second of the first step in which it has this standing.
        fn first(&mut self, standing: Standing, from: u64, known: Option<&str>) -> Option<u64> {
            (from..from + 100).find(|second| self.step(*second, known) == standing)
        }
    }

    #[test]
    fn clients_are_left_to_most_of_the_nodes() {
        for (known, leaves) in [
            ("b:c c:b", true),
            ("b:c !c:b", true),
            ("!b:c !c:b", false),
            ("b:c c", false),
            ("b:c c:", false),
            ("b:ac c:b", false),
            ("b:c c:ab", false),
            ("b:", false),
            ("", false),
            ("b:c c:b d:", false),
            ("b:c c:bd d:c", true),
            ("b:c c:b d:e e:d", false),
            ("b:cd c:bd d:bc e:", true),
            ("b:cd c:b d: e:", false),
        ] {
            let first = Node::new().first(Leaves, 0, Some(known));
            assert_eq!(first, leaves.then_some(9), "{known}");
        }
    }

    #[test]
    fn a_node_that_leaves_is_seen_from_outside() {
        for (nodes, expected) in [
            ("!a: b:c c:b", "a"),
            ("a: b:c c:b", ""),
            ("!a b:c c:b", ""),
            ("!a:d b:c c:b", ""),
            ("!a: b:c c", ""),
            ("!a: b:c c:", ""),
            ("!a: b:ac c:b", ""),
            ("!a: b:c c:ab", ""),
            ("!a: !b:c !c:b", ""),
            ("!a: b:", ""),
            ("!a: !b: c:d d:c", ""),
            ("!a: !b: c:de d:ce e:cd", "a b"),
            ("!a: b:c c:b d", ""),
            ("!a: b:cd c:bd d:bc !e", "a"),
            ("", ""),
        ] {
            let found = isolated(&others(nodes, 0));
            let found: Vec<&str> = found.iter().map(NodeName::as_str).collect();
            assert_eq!(found.join(" "), expected, "{nodes}");
        }
    }

    #[test]
    fn clients_that_reach_only_this_node_keep_it() {
        for (has_clients, known, leaves) in [
            (true, "b:c c:b", false),
            (true, "b:c c:b*", true),
            (false, "b:c c:b*", true),
            (true, "b:c c:b d:*", false),
        ] {
            let mut node = Node { has_clients, ..Node::new() };
            assert_eq!(node.first(Leaves, 0, Some(known)).is_some(), leaves, "{known}");
        }
        let mut node = Node { has_clients: true, ..Node::new() };
        assert_eq!(node.first(Leaves, 0, Some("b:c c:b")), None);
        node.has_clients = false;
        assert_eq!(node.first(Leaves, 200, Some("b:c c:b")), Some(200), "they have gone");
        node.has_clients = true;
        assert_eq!(node.first(Serves, 201, Some("b:c c:b")), None, "calls that still arrive change nothing");
    }

    #[test]
    fn one_answer_is_enough_to_stay() {
        let mut node = Node::new();
        for second in 0..100 {
            node.hear(second / 15 * 15);
            assert_eq!(node.step(second, Some("b:c c:b")), Serves, "{second}");
        }
        assert_eq!(node.first(Leaves, 100, Some("b:c c:b")), Some(106), "silent since 97");
    }

    #[test]
    fn the_record_names_reached_nodes() {
        let mut ways = Ways::new(name("a"));
        let incarnation = Incarnation { nonce: 1, count: 1 };
        let live = ["b", "c"].map(name);
        let said = |ways: &mut Ways, second, live: &[NodeName]| {
            let record = ways.record(at(second), incarnation, live.iter());
            let reached = record.reached().iter().map(NodeName::as_str).collect::<String>();
            format!("{reached} {}", record.clients)
        };
        ways.client_sent(at(8));
        ways.answered(&live[0], at(8));
        ways.answered(&live[1], at(10));
        assert_eq!(said(&mut ways, 10, &live), "bc 0", "clients do not matter while it reaches all");
        assert_eq!(said(&mut ways, 13, &live[1..]), "c 0");
        assert_eq!(said(&mut ways, 13, &live), "c 0", "the answer of a node that was gone is forgotten");
        ways.client_sent(at(13));
        assert_eq!(said(&mut ways, 14, &live), "c 1");
        assert!(!ways.is_silent(at(16)) && ways.is_silent(at(17)));
        assert_eq!(said(&mut ways, 17, &live), " 1");
    }

    #[test]
    fn gaps_in_what_is_known_change_nothing() {
        let mut node = Node::new();
        assert_eq!(node.first(Leaves, 0, None), None);
        assert_eq!(node.first(Leaves, 200, Some("b:c c:b")), Some(209));
        assert_eq!(node.first(Serves, 210, None), None);
        for second in 400..460 {
            let known = if second % 8 == 0 { "b:c c:b" } else { "b:c" };
            assert_eq!(node.step(second, Some(known)), Leaves, "{second}");
        }
        assert_eq!(node.first(Serves, 460, Some("b:c")), Some(465), "since 457");
        assert_eq!(node.first(Leaves, 466, Some("b:c c:b")), Some(475), "it counts anew");
    }

    #[test]
    fn clients_of_others_may_send_little() {
        let mut node = Node { has_clients: true, ..Node::new() };
        let said = |second| if second == 30 { "b:c* c:b" } else { "b:c c:b" };
        let first = (0..100).find(|second| node.step(*second, Some(said(*second))) == Leaves);
        assert_eq!(first, Some(30));
    }

    #[test]
    fn a_group_must_last() {
        let mut node = Node::new();
        for second in 0..100 {
            let known = if second % 9 == 8 { "b:c" } else { "b:c c:b" };
            assert_eq!(node.step(second, Some(known)), Serves, "{second}");
        }
    }

    #[test]
    fn a_node_returns_when_others_answer_for_some_time() {
        let mut node = Node::new();
        assert_eq!(node.first(Leaves, 0, Some("b:c c:b")), Some(9));
        node.hear(20);
        assert!(
            (20..40).all(|second| node.step(second, Some("b:c c:b")) == Leaves),
            "one answer is not enough"
        );
        for second in 40..50 {
            node.hear(second);
            assert_eq!(node.step(second, Some("b:ac c:ab")), Leaves, "{second}");
        }
        assert_eq!(node.step(50, Some("b:ac c:ab")), Serves);
    }
}
