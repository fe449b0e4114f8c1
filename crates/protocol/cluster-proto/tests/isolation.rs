//! Nodes that are cut off from each other, and still reach the bucket: which of them leave the clients to others.
//! `CELLAR_SEED_FIRST=n` sets the first seed.

use base::Monotonic;
use cluster_proto::{Isolation, NodeName, Others, Standing};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of histories.
const COUNT: u64 = 500;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Interval of the steps of a history.
const TICK: u64 = 100 * MS;

/// Number of times that the ways between the nodes change in a history.
const CUTS: usize = 6;

/// Number of ticks between two of these times. The last of five nodes leaves after 50 s, or 50 s later if two have announced it at once.
const TICKS: usize = 1200;

/// For how long a lease counts that does not change; see `leases.rs` in `cellar-server`.
const FRESH: u64 = 3500 * MS;

/// Longest time until a request to the bucket is done, or is not.
const LATE: u64 = 1500 * MS;

/// A renewal: when it is done, its number, and whether the node takes service addresses.
type Renewal = (u64, u64, bool);

#[derive(Default)]
struct Node {
    is_up: bool,
    isolation: Isolation,
    standing: Standing,
    /// How often it has begun or ended to leave clients to others since the ways have.
    changes: u32,
    heard: Option<u64>,
    sequence: u64,
    next_renewal: u64,
    next_look: u64,
    next_probe: u64,
    /// Renewals on their way to the bucket, and the last one there.
    sent: VecDeque<Renewal>,
    lease: Option<Renewal>,
    /// The leases of others, and when each was seen to change.
    seen: BTreeMap<usize, (u64, Renewal)>,
}

impl Node {
    fn leaves(&self) -> bool {
        self.standing == Standing::Leaves
    }
}

struct World {
    rng: SmallRng,
    now: u64,
    names: Vec<NodeName>,
    nodes: Vec<Node>,
    /// Ways from one node to another that are cut.
    cut: BTreeSet<(usize, usize)>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = SmallRng::seed_from_u64(seed);
        let count = rng.random_range(2..=5);
        let names = (0..count).map(|node| format!("n{node}").parse().unwrap()).collect();
        let nodes = (0..count).map(|_| Node { is_up: true, ..Node::default() }).collect();
        World { rng, now: 1000 * SECOND, names, nodes, cut: BTreeSet::new() }
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
        match self.rng.random_range(0..5) {
            0 => {}
            1 => {
                let node = self.rng.random_range(0..count);
                self.cut.extend((0..count).map(|other| (node, other)));
            }
            2 => self.cut.extend((0..count).flat_map(|from| (0..count).map(move |to| (from, to)))),
            _ => {
                for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
                    if self.rng.random_bool(0.3) {
                        self.cut.insert((from, to));
                    }
                }
            }
        }
        for node in 0..count {
            let is_up = self.rng.random_bool(0.85);
            if is_up != self.nodes[node].is_up {
                let Node { sequence, lease, .. } = self.nodes[node];
                self.nodes[node] = Node { is_up, sequence, lease, ..Node::default() };
            }
            self.nodes[node].changes = 0;
        }
    }

    fn step(&mut self, node: usize) {
        let now = self.now;
        let arrived = self.nodes[node].sent.iter().take_while(|(done, ..)| *done <= now).count();
        let last = self.nodes[node].sent.drain(..arrived).next_back();
        self.nodes[node].lease = last.or(self.nodes[node].lease);
        if !self.nodes[node].is_up {
            return;
        }
        if now >= self.nodes[node].next_renewal && self.nodes[node].sent.is_empty() {
            let late = if self.rng.random_bool(0.1) { self.rng.random_range(0..LATE) } else { 5 * MS };
            let here = &mut self.nodes[node];
            here.sequence += 1;
            here.next_renewal = now + SECOND;
            here.sent.push_back((now + late, here.sequence, here.standing == Standing::Serves));
        }
        if now >= self.nodes[node].next_probe {
            let is_heard = self.others(node).into_iter().any(|other| self.reaches(node, other));
            self.nodes[node].next_probe = now + self.rng.random_range(SECOND..4 * SECOND);
            if is_heard {
                self.nodes[node].heard = Some(now);
            }
        }
        if now >= self.nodes[node].next_look {
            self.nodes[node].next_look = now + self.rng.random_range(800 * MS..1000 * MS);
            self.look(node);
        }
    }

    /// Reads the leases, and decides.
    fn look(&mut self, node: usize) {
        let (now, mut others) = (self.now, Others::default());
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
                others.live.insert(self.names[other].clone());
                others.takers.extend(lease.2.then(|| self.names[other].clone()));
            }
        }
        let (name, here) = (self.names[node].clone(), &mut self.nodes[node]);
        let standing = here.isolation.step(Monotonic(now), &name, &others, here.heard.map(Monotonic));
        here.changes += u32::from((standing == Standing::Leaves) != here.leaves());
        here.standing = standing;
    }

    /// Plays until the ways have not changed for long. Returns the greatest number of changes of a node.
    fn settle(&mut self) -> u32 {
        for tick in 0..TICKS {
            self.now += TICK;
            (0..self.nodes.len()).for_each(|node| self.step(node));
            let mut up = self.nodes.iter().filter(|node| node.is_up).peekable();
            // One that was isolated when the last other died finds that out when its lease is not fresh any more.
            if tick > 60 && up.peek().is_some() {
                assert!(up.any(|node| !node.leaves()), "no node takes the clients after {tick} ticks");
            }
        }
        self.nodes.iter().map(|node| node.changes).max().unwrap_or(0)
    }

    /// Checks that those that reach another node take clients, and no other; exactly one if there is no such node.
    fn check(&self) {
        let up: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_up).collect();
        let reaches = |node: &usize| up.iter().any(|other| other != node && self.reaches(*node, *other));
        let connected: Vec<usize> = up.iter().copied().filter(reaches).collect();
        let takes: Vec<usize> = up.iter().copied().filter(|node| !self.nodes[*node].leaves()).collect();
        let is_right = if connected.is_empty() { takes.len() == up.len().min(1) } else { takes == connected };
        assert!(is_right, "{takes:?} of {up:?} take clients, with {:?} cut", self.cut);
    }
}

#[test]
fn clients_are_left_to_nodes_that_reach_others() {
    seeds::play(COUNT, |seed| {
        let mut world = World::new(seed);
        for cut in 0..CUTS {
            world.shuffle();
            let changes = world.settle();
            assert!(changes <= 3, "seed {seed}: a node has changed {changes} times after cut {cut}");
            world.check();
        }
    });
}
