//! One node: the shell around its member, and the partitions that it has open.

use super::client::Call;
use super::clock::Clock;
use super::database::Contents;
use super::world::Event;
use base::Monotonic;
use cluster_proto::{CallKind, Member, Phase, RequestId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A partition's open database.
pub(crate) struct Handle {
    pub writer: u64,
    pub epoch: u64,
    pub contents: Contents,
    /// Clients that hold a promise, by file.
    pub promises: BTreeMap<usize, BTreeSet<usize>>,
    /// Changes that wait for the one before.
    pub waiting: VecDeque<Held>,
    pub active: Option<Active>,
    pub is_draining: bool,
    /// When the newest write arrives: they arrive in order.
    pub written_at: u64,
}

/// The change that is being made.
pub(crate) struct Active {
    pub held: Held,
    pub version: u64,
    /// Whether it is durable.
    pub is_durable: bool,
    /// Clients whose break is not answered.
    pub breaks: BTreeSet<usize>,
}

/// A call at a node, and when it arrived there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub call: Call,
    pub since: Monotonic,
    /// The node that forwarded it, and the epoch of the ownership that it was sent to.
    pub front: Option<(usize, u64)>,
}

/// What the shell publishes for threads that answer calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Published {
    pub deadline: Option<Monotonic>,
}

pub(crate) struct Node {
    pub clock: Clock,
    /// `None` while the process does not run.
    pub member: Option<Member>,
    /// Number of the process.
    pub process: u64,
    /// Its nonce, kept when it ends.
    pub nonce: Option<u128>,
    pub is_stalled: bool,
    /// Stalls when it has sent the next renewal.
    pub stalls_at_renewal: bool,
    /// What arrived while the process was stalled.
    pub deferred: Vec<Event>,
    pub published: Published,
    pub handles: BTreeMap<usize, Handle>,
    /// The newest opening of each partition whose outcome is not known.
    pub held: Vec<(Held, bool)>,
    pub timer: Option<u64>,
    /// Requests without an answer, and when they end.
    pub asked: BTreeMap<RequestId, Asked>,
    pub is_cut: bool,
}

/// A request without an answer.
pub(crate) struct Asked {
    /// Whether it writes the lease of the node.
    pub renews: bool,
}

impl Node {
    pub(crate) fn new(clock: Clock) -> Node {
        Node {
            clock,
            member: None,
            process: 0,
            nonce: None,
            is_stalled: false,
            stalls_at_renewal: false,
            deferred: Vec::new(),
            published: Published::default(),
            handles: BTreeMap::new(),
            held: Vec::new(),
            timer: None,
            asked: BTreeMap::new(),
            is_cut: false,
        }
    }

    /// Whether a thread of this node could answer a call of the partition at this instant.
    pub(crate) fn can_answer(
        &self,
        real: u64,
        phase: Option<(Phase, cluster_proto::Epoch)>,
        is_blind: bool,
    ) -> bool {
        let in_time = self.published.deadline.is_some_and(|deadline| self.clock.at(real) < deadline);
        (in_time || is_blind) && phase.is_some_and(|(phase, _)| phase.answers(CallKind::Read))
    }

    /// Ends the process.
    pub(crate) fn crash(&mut self) {
        let clock = self.clock;
        let (process, nonce, is_cut) = (self.process, self.nonce, self.is_cut);
        *self = Node { process, nonce, is_cut, ..Node::new(clock) };
    }
}
