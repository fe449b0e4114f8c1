//! Nodes that are cut off from each other or from clients, and still reach the bucket: which of them leave the clients to others.
//! `CELLAR_SEED_FIRST=n` sets the first seed.

use base::Monotonic;
use cluster_proto::{Incarnation, Isolation, NodeName, Other, ReachRecord, Standing, Ways, isolated};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of histories.
const COUNT: u64 = 500;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Interval of the steps of a history.
const TICK: u64 = 100 * MS;

/// Number of times that the ways change in a history.
const CUTS: usize = 6;

/// Number of ticks between two of these times.
const TICKS: usize = 900;

/// Number of ticks within which a node that has left takes the clients after all others have died.
const RETURN_TICKS: usize = 150;

/// For how long a lease counts that does not change; see `leases.rs` in `cellar-server`.
const FRESH: u64 = 3500 * MS;

/// Longest time until a request to the bucket is done, or is not.
const LATE: u64 = 1500 * MS;

/// For how long after a node's return others may see that it leaves everything to them: until its lease says otherwise, and is read.
const SEEN_LATE: u64 = 3 * SECOND;

/// A renewal: when it is done, its number, and whether the node takes service addresses.
type Renewal = (u64, u64, bool);

struct Node {
    is_up: bool,
    /// Whether clients reach it.
    has_clients: bool,
    isolation: Isolation,
    standing: Standing,
    /// How often its standing has changed since the ways have.
    changes: u32,
    /// When it has left everything to the others last.
    left_at: u64,
    ways: Ways,
    sequence: u64,
    next_renewal: u64,
    next_look: u64,
    next_probe: u64,
    /// Renewals on their way to the bucket, and the last one there.
    sent: VecDeque<Renewal>,
    lease: Option<Renewal>,
    /// A record on its way to the bucket, and the last one there.
    saying: Option<(u64, ReachRecord)>,
    said: Option<ReachRecord>,
    /// The leases of others, and when each was seen to change.
    seen: BTreeMap<usize, (u64, Renewal)>,
    lives: u32,
}

impl Node {
    fn new(name: &NodeName) -> Node {
        Node {
            is_up: true,
            has_clients: true,
            isolation: Isolation::default(),
            standing: Standing::Serves,
            changes: 0,
            left_at: 0,
            ways: Ways::new(name.clone()),
            sequence: 0,
            next_renewal: 0,
            next_look: 0,
            next_probe: 0,
            sent: VecDeque::new(),
            lease: None,
            saying: None,
            said: None,
            seen: BTreeMap::new(),
            lives: 1,
        }
    }

    /// Ends or begins a process. What is in the bucket stays.
    fn restart(&mut self, name: &NodeName, is_up: bool) {
        let fresh = Node::new(name);
        let before = std::mem::replace(self, fresh);
        (self.is_up, self.sequence, self.lease) = (is_up, before.sequence, before.lease);
        (self.said, self.lives) = (before.said, before.lives + u32::from(is_up));
    }

    fn leaves(&self) -> bool {
        self.standing == Standing::Leaves
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation { nonce: 1, count: self.lives }
    }

    /// Returns what the bucket says of it.
    fn published(&self) -> Other {
        let reach = self.said.clone().filter(|said| said.incarnation == self.incarnation());
        Other { takes_addresses: self.lease.is_some_and(|lease| lease.2), reach }
    }
}

struct World {
    rng: SmallRng,
    now: u64,
    names: Vec<NodeName>,
    nodes: Vec<Node>,
    /// Ways from one node to another that are cut.
    cut: BTreeSet<(usize, usize)>,
    /// The nodes that had left the clients to others when the ways changed last.
    had_left: Vec<bool>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = SmallRng::seed_from_u64(seed);
        let count = rng.random_range(2..=5);
        let names: Vec<NodeName> = (0..count).map(|node| format!("n{node}").parse().unwrap()).collect();
        let nodes: Vec<Node> = names.iter().map(Node::new).collect();
        let had_left = vec![false; count];
        World { rng, now: 1000 * SECOND, names, nodes, cut: BTreeSet::new(), had_left }
    }

    /// Whether a call of one node is answered by another.
    fn reaches(&self, from: usize, to: usize) -> bool {
        self.nodes[to].is_up && !self.cut.contains(&(from, to)) && !self.cut.contains(&(to, from))
    }

    fn others(&self, node: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|other| *other != node).collect()
    }

    /// Cuts and mends ways; nodes die and come back.
    fn shuffle(&mut self) {
        let count = self.nodes.len();
        self.cut.clear();
        let isolated = self.rng.random_range(0..count);
        let is_of_one = self.rng.random_range(0..5);
        match is_of_one {
            0 => {}
            1 | 2 => self.cut.extend((0..count).map(|other| (isolated, other))),
            3 => self.cut.extend((0..count).flat_map(|from| (0..count).map(move |to| (from, to)))),
            _ => {
                for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
                    if self.rng.random_bool(0.3) {
                        self.cut.insert((from, to));
                    }
                }
            }
        }
        let with_clients = self.rng.random_range(0..4);
        for node in 0..count {
            let is_up = self.rng.random_bool(0.9);
            if is_up != self.nodes[node].is_up {
                self.nodes[node].restart(&self.names[node], is_up);
            }
            self.nodes[node].changes = 0;
            self.nodes[node].has_clients = match with_clients {
                0 => node == isolated,
                1 => node != isolated,
                2 => self.rng.random_bool(0.5),
                _ => true,
            };
            self.had_left[node] = self.nodes[node].leaves();
        }
    }

    fn step(&mut self, node: usize) {
        let now = self.now;
        let here = &mut self.nodes[node];
        let arrived = here.sent.iter().take_while(|(done, ..)| *done <= now).count();
        here.lease = here.sent.drain(..arrived).next_back().or(here.lease);
        if let Some((_, record)) = here.saying.take_if(|(done, _)| *done <= now)
            && self.rng.random_bool(0.8)
        {
            here.said = Some(record);
        }
        if !here.is_up {
            return;
        }
        if here.has_clients && !here.leaves() && self.rng.random_bool(0.05) {
            here.ways.client_sent(Monotonic(now));
        }
        if now >= here.next_renewal && here.sent.is_empty() {
            let late = if self.rng.random_bool(0.1) { self.rng.random_range(0..LATE) } else { 5 * MS };
            here.sequence += 1;
            here.next_renewal = now + SECOND;
            here.sent.push_back((now + late, here.sequence, here.standing == Standing::Serves));
        }
        if now >= here.next_probe {
            here.next_probe = now + self.rng.random_range(SECOND..4 * SECOND);
            for other in self.others(node) {
                if self.reaches(node, other) {
                    let name = &self.names[other];
                    self.nodes[node].ways.answered(name, Monotonic(now));
                }
            }
        }
        if now >= self.nodes[node].next_look {
            self.nodes[node].next_look = now + self.rng.random_range(800 * MS..1000 * MS);
            self.look(node);
        }
    }

    /// Reads the leases, and decides.
    fn look(&mut self, node: usize) {
        let (now, mut others) = (self.now, BTreeMap::new());
        for other in self.others(node) {
            let Some(lease) = self.nodes[other].lease else { continue };
            let known = self.nodes[node].seen.get(&other).copied();
            let changed = match known {
                Some((changed, before)) if before.1 == lease.1 => changed,
                Some(_) => now,
                // It may be old.
                None => 0,
            };
            self.nodes[node].seen.insert(other, (changed, lease));
            if now - changed < FRESH {
                others.insert(self.names[other].clone(), self.nodes[other].published());
            }
        }
        self.check_isolated(node, &others);
        let late = self.rng.random_range(0..LATE);
        // Sometimes the bucket does not answer.
        let is_known = self.rng.random_bool(0.95);
        let here = &mut self.nodes[node];
        let record = here.ways.record(Monotonic(now), here.incarnation(), others.keys());
        // A node decides nothing while the others cannot read what it reaches.
        let is_published = here
            .said
            .as_ref()
            .is_some_and(|said| said.reached() == record.reached() && said.incarnation == record.incarnation);
        if here.saying.is_none() && here.said.as_ref() != Some(&record) {
            here.saying = Some((now + late, record));
        }
        let others = (is_known && is_published).then_some(&others);
        let standing = here.isolation.step(Monotonic(now), &here.ways, others);
        here.changes += u32::from(standing != here.standing);
        here.standing = standing;
        if here.leaves() {
            here.left_at = now;
        }
    }

    /// Returns the nodes that a node takes to leave everything to the others.
    fn seen_isolated(&self, node: usize, others: &BTreeMap<NodeName, Other>) -> BTreeSet<NodeName> {
        let mut nodes = others.clone();
        nodes.insert(self.names[node].clone(), self.nodes[node].published());
        isolated(&nodes)
    }

    /// No node is ever passed over that takes something.
    fn check_isolated(&self, node: usize, others: &BTreeMap<NodeName, Other>) {
        for name in self.seen_isolated(node, others) {
            let isolated = &self.nodes[self.names.iter().position(|other| *other == name).unwrap()];
            let is_past = self.now - isolated.left_at <= SEEN_LATE;
            assert!(!isolated.is_up || isolated.leaves() || is_past, "{node} takes {name} for isolated");
        }
    }

    /// Plays until the ways have not changed for long.
    fn settle(&mut self) {
        let mut without = 0;
        for _ in 0..TICKS {
            self.now += TICK;
            (0..self.nodes.len()).for_each(|node| self.step(node));
            let mut up = self.nodes.iter().filter(|node| node.is_up).peekable();
            let is_left = up.peek().is_some() && up.all(Node::leaves);
            without = if is_left { without + 1 } else { 0 };
            assert!(without <= RETURN_TICKS, "no node takes the clients for {without} ticks");
        }
    }

    /// Returns whether most of the living nodes reach each other, and not this one, and the clients of all of them.
    fn can_leave_to_others(&self, node: usize) -> Option<bool> {
        let is_up = |one: &usize| self.nodes[*one].is_up;
        let up = (0..self.nodes.len()).filter(is_up).count();
        let mut left: BTreeSet<usize> =
            self.others(node).into_iter().filter(is_up).filter(|other| !self.reaches(*other, node)).collect();
        let is_silent = !self.others(node).iter().any(|other| self.reaches(node, *other));
        while let Some(first) = left.pop_first() {
            let (mut group, mut at) = (vec![first], 0);
            while at < group.len() {
                let next: Vec<usize> =
                    left.iter().copied().filter(|to| self.reaches(group[at], *to)).collect();
                left.retain(|one| !next.contains(one));
                group.extend(next);
                at += 1;
            }
            if is_silent && group.len() * 2 > up {
                return Some(group.iter().any(|one| self.nodes[*one].has_clients));
            }
        }
        None
    }

    fn check(&self) -> u64 {
        let mut left = 0;
        for (node, here) in self.nodes.iter().enumerate().filter(|(_, here)| here.is_up) {
            let leaves = match self.can_leave_to_others(node) {
                None => false,
                Some(they_have_clients) => they_have_clients || !here.has_clients || self.had_left[node],
            };
            let (cut, clients) = (&self.cut, self.nodes.iter().map(|node| node.has_clients));
            let clients: Vec<bool> = clients.collect();
            assert_eq!(here.leaves(), leaves, "{node}, with {cut:?} cut, clients at {clients:?}");
            // It leaves and returns if the group is cut just now, and what it said before was all that was missing.
            assert!(here.changes <= 2, "{node} has changed {} times, with {cut:?} cut", here.changes);
            left += u64::from(leaves);
        }
        let up = || self.nodes.iter().zip(&self.names).filter(|(here, _)| here.is_up);
        let leaving: BTreeSet<NodeName> =
            up().filter(|(here, _)| here.leaves()).map(|(_, name)| name.clone()).collect();
        let published = up().map(|(here, name)| (name.clone(), here.published())).collect();
        assert_eq!(isolated(&published), leaving, "as seen from outside, with {:?} cut", self.cut);
        left
    }
}

#[test]
fn clients_are_left_to_nodes_that_reach_others() {
    let left = std::sync::atomic::AtomicU64::new(0);
    seeds::play(COUNT, |seed| {
        let mut world = World::new(seed);
        for _ in 0..CUTS {
            world.shuffle();
            world.settle();
            left.fetch_add(world.check(), std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(left.into_inner() > COUNT / 5, "histories in which nodes leave");
}
