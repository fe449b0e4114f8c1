//! When a node that reaches the bucket, but no other node, leaves the clients to the others.
//!
//! Such a node can pass no call on, and none reaches it. Others cannot take anything from it, since its lease is renewed: it has to
//! give everything up itself. Nodes that are cut off from each other must not all do that. So a node first announces it, and
//! does it if another one has not announced the same some time later. By their names they have turns, so that one is left in the end.

use crate::names::NodeName;
use base::Monotonic;
use std::collections::BTreeSet;
use std::time::Duration;

/// For how long no other node must have answered.
const SILENCE: Duration = Duration::from_secs(10);

/// Time between two turns, and from the announcement to the deed. What a node that has a lease says in it is known to the others within
/// that time: the renewal on which it relies was sent 4.9 s ago at most, and others rely on what they have asked for 2 s ago at most.
const TURN: Duration = Duration::from_secs(8);

/// For how long other nodes must have answered again.
const RETURN: Duration = Duration::from_secs(10);

/// The other nodes that renew their leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// All of them.
    pub live: BTreeSet<NodeName>,
    /// Those that say in their leases that they take service addresses: the clients can be left to them.
    pub takers: BTreeSet<NodeName>,
}

/// What a node does about clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It serves them.
    #[default]
    Serves,
    /// It serves them, and its lease says that it takes no service addresses.
    Announces,
    /// In addition it takes none, and gives up what it has: service addresses, partitions, databases.
    Leaves,
}

/// The standing of one node.
///
/// The caller asks the other nodes again and again, reads their leases, and calls [`step`](Isolation::step) every few seconds. It does what
/// the returned [`Standing`] says until the next call.
#[derive(Debug, Default)]
pub struct Isolation {
    standing: Standing,
    /// Since when no other node has answered.
    silent_since: Option<Monotonic>,
    /// When the present announcement was made.
    announced: Option<Monotonic>,
    /// Since when others answer again.
    heard_since: Option<Monotonic>,
}

impl Isolation {
    /// Returns the standing of the node named `node`. `heard` is when another node has answered last. A node that no other one
    /// can replace serves.
    pub fn step(
        &mut self,
        now: Monotonic,
        node: &NodeName,
        others: &Others,
        heard: Option<Monotonic>,
    ) -> Standing {
        if others.takers.is_empty() {
            *self = Isolation::default();
        } else if let Some(heard) = heard.filter(|heard| now.since(*heard) < SILENCE) {
            self.silent_since = Some(heard);
            let since = *self.heard_since.get_or_insert(heard);
            if self.standing == Standing::Announces || now.since(since) >= RETURN {
                self.standing = Standing::Serves;
            }
        } else {
            self.heard_since = None;
            let silent = now.since(*self.silent_since.get_or_insert(now));
            self.standing = self.be_silent(now, silent, node, others);
        }
        self.standing
    }

    /// Returns the standing of a node that no other has answered for some time.
    fn be_silent(&mut self, now: Monotonic, silent: Duration, node: &NodeName, others: &Others) -> Standing {
        let before = others.live.iter().filter(|other| *other > node).count();
        let turn = TURN * u32::try_from(before).unwrap_or(u32::MAX);
        match (self.standing, self.announced) {
            (Standing::Serves, _) if silent >= SILENCE.saturating_add(turn) => {
                self.announced = Some(now);
                Standing::Announces
            }
            (Standing::Announces, Some(announced)) if now.since(announced) >= TURN => Standing::Leaves,
            (standing, _) => standing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Standing::{Announces, Leaves, Serves};
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(1_000_000_000_000) + Duration::from_secs(seconds)
    }

    fn names(text: &str) -> BTreeSet<NodeName> {
        text.split_whitespace().map(|name| name.parse().unwrap()).collect()
    }

    /// A node `b`, and when it heard of others last.
    struct Node {
        isolation: Isolation,
        heard: Option<u64>,
    }

    impl Node {
        fn new() -> Node {
            Node { isolation: Isolation::default(), heard: None }
        }

        fn step(&mut self, second: u64, live: &str, takers: &str) -> Standing {
            let others = Others { live: names(live), takers: names(takers) };
            self.isolation.step(at(second), &"b".parse().unwrap(), &others, self.heard.map(at))
        }
    }

    #[test]
    fn a_silent_cluster_is_left_when_it_is_the_nodes_turn() {
        for (live, takers, after) in
            [("a", "a", Some(10)), ("a c", "a c", Some(18)), ("c d", "c", Some(26)), ("a c", "", None)]
        {
            let mut node = Node::new();
            let standings: Vec<Standing> = (0..60).map(|second| node.step(second, live, takers)).collect();
            let first = |standing| standings.iter().position(|one| *one == standing);
            assert_eq!(first(Announces), after, "{live}");
            assert_eq!(first(Leaves), after.map(|after| after + 8), "{live}");
        }
    }

    #[test]
    fn one_answer_is_enough_to_stay() {
        let mut node = Node::new();
        for second in 0..100 {
            node.heard = Some(second / 9 * 9);
            assert_eq!(node.step(second, "a c", "a c"), Serves, "{second}");
        }
        assert_eq!(node.step(116, "a c", "a c"), Serves, "it counts from the last answer");
        assert_eq!(node.step(117, "a c", "a c"), Announces);
        node.heard = Some(118);
        assert_eq!(node.step(118, "a c", "a c"), Serves, "it has given nothing up");
    }

    #[test]
    fn the_last_node_that_takes_clients_stays() {
        let mut node = Node::new();
        assert!((0..18).all(|second| node.step(second, "a c", "a c") == Serves));
        assert!((18..60).all(|second| node.step(second, "a c", "") == Serves), "the others have left before");
        assert!((60..78).all(|second| node.step(second, "a c", "a") == Serves), "it counts anew");
        assert_eq!(node.step(78, "a c", "a"), Announces);
        assert_eq!(node.step(85, "a c", ""), Serves, "a has announced it, too");
        assert_eq!(node.step(86, "a c", "a"), Serves);
        assert_eq!(node.step(104, "a c", "a"), Announces);
        assert_eq!(node.step(112, "a c", "a"), Leaves);
        assert_eq!(node.step(113, "c", ""), Serves, "a has died");
    }

    #[test]
    fn a_node_returns_when_others_answer_for_some_time() {
        let mut node = Node::new();
        assert!((0..=18).any(|second| node.step(second, "a", "a") == Leaves));
        node.heard = Some(20);
        assert!((20..40).all(|second| node.step(second, "a", "a") == Leaves), "one answer is not enough");
        for second in 40..50 {
            node.heard = Some(second);
            assert_eq!(node.step(second, "a", "a"), Leaves, "{second}");
        }
        assert_eq!(node.step(50, "a", "a"), Serves);
    }
}
