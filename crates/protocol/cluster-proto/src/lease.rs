//! The lease of this node.
//!
//! The object `nodes/NAME` is replaced every second, on condition that it is what this node wrote or read last. The node
//! relies on its lease from the moment at which it *sent* a write that succeeded, not from the answer. A write of
//! unknown outcome counts only if a later read finds it, by its incarnation and its number.

use crate::names::{Incarnation, NodeName};
use crate::records::{NodeRecord, NodeState};
use crate::request::{Answer, Request, RequestId};
use crate::slot::{Known, Settled, Slot};
use crate::timing::Timing;
use base::Monotonic;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Number of writes of unknown outcome whose times are kept.
const WRITES_MAX: usize = 32;

/// Number of lifetimes of a lease after which another process of the same name, which renews it, is reported. One that hands over to
/// this one ends before.
const TAKEN_TTLS: u32 = 5;

/// How far the membership is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No object has this incarnation yet.
    Joining,
    /// The object has it.
    Held,
    /// Everything was given up, and the object is to say so.
    Leaving,
    /// The object says so.
    Left,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseChange {
    Joined,
    Lost(Incarnation),
    Left,
    Trouble(String),
    /// Another process renews a lease of this name.
    NameTaken(Vec<SocketAddr>),
}

#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) node: NodeName,
    pub(crate) incarnation: Incarnation,
    /// The process that has certainly ended.
    ended: Option<u128>,
    timing: Timing,
    addresses: Vec<SocketAddr>,
    pub(crate) takes_addresses: bool,
    stage: Stage,
    slot: Slot<NodeRecord>,
    sequence: u64,
    replaced: Option<Incarnation>,
    /// Numbers of the newest writes, and when they were sent.
    writes: VecDeque<(u64, Monotonic)>,
    renew_at: Monotonic,
    until: Option<Monotonic>,
    joined_at: Monotonic,
    /// The lease of another process that was read last, while this one is joining, and since when that has been there.
    other: Option<(Incarnation, u64, Monotonic)>,
}

/// The next request.
enum Plan {
    Read,
    Write,
}

impl Lease {
    pub(crate) fn new(
        node: NodeName,
        nonce: u128,
        (addresses, takes_addresses): (Vec<SocketAddr>, bool),
        object: String,
        timing: Timing,
        now: Monotonic,
    ) -> Lease {
        Lease {
            node,
            incarnation: Incarnation { nonce, count: 1 },
            ended: None,
            timing,
            addresses,
            takes_addresses,
            stage: Stage::Joining,
            slot: Slot::new(object, now),
            sequence: 0,
            replaced: None,
            writes: VecDeque::new(),
            renew_at: now,
            until: None,
            joined_at: now,
            other: None,
        }
    }

    /// Does not wait for the lease of a process that has certainly ended.
    pub(crate) fn after(self, ended: Option<u128>) -> Lease {
        Lease { ended, ..self }
    }

    /// Returns until when the node may answer.
    pub(crate) fn until(&self) -> Option<Monotonic> {
        self.until
    }

    pub(crate) fn is_valid(&self, now: Monotonic) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Whether the object has this incarnation.
    pub(crate) fn is_held(&self) -> bool {
        self.stage == Stage::Held
    }

    pub(crate) fn object(&self) -> &str {
        &self.slot.name
    }

    /// Returns when an earlier membership of this node is certainly over, by its own clock too; it was seen as the owner
    /// of a partition at `seen_at`.
    pub(crate) fn predecessor_over_at(&self, earlier: Incarnation, seen_at: Monotonic) -> Option<Monotonic> {
        let has_ended = self.incarnation.succeeds(earlier) || self.ended == Some(earlier.nonce);
        if has_ended || self.replaced == Some(earlier) {
            return Some(seen_at);
        }
        // Not the one that this membership has waited for: the object was removed by hand.
        self.is_held().then(|| self.joined_at.max(seen_at) + self.timing.wait(self.timing.ttl()))
    }

    /// Ends the membership, after all partitions were given up.
    pub(crate) fn leave(&mut self) {
        match self.stage {
            Stage::Held => self.stage = Stage::Leaving,
            Stage::Joining => self.stage = Stage::Left,
            Stage::Leaving | Stage::Left => return,
        }
        self.until = None;
    }

    pub(crate) fn has_left(&self) -> bool {
        self.stage == Stage::Left
    }

    /// Reads the object before the next renewal: another node has seen a later owner.
    pub(crate) fn doubt(&mut self) {
        self.slot.read_first();
    }

    fn plan(&self) -> Option<(Monotonic, Plan)> {
        if self.stage == Stage::Left {
            return None;
        }
        if !self.slot.may_write() {
            return Some((self.slot.next_read(true)?, Plan::Read));
        }
        match self.stage {
            Stage::Held => Some((self.slot.free_at(self.renew_at)?, Plan::Write)),
            Stage::Leaving => Some((self.slot.free_at(Monotonic(0))?, Plan::Write)),
            _ => {
                let free_at = self.slot.free_at(self.vacant_at())?;
                let read_at = self.slot.next_read(true)?;
                Some(if read_at < free_at { (read_at, Plan::Read) } else { (free_at, Plan::Write) })
            }
        }
    }

    /// Returns when this node may take the name over from the membership that has it. Requests of a process that has
    /// ended may still arrive; the condition of the write that replaces its lease sees to them.
    fn vacant_at(&self) -> Monotonic {
        let may_renew = |other: &NodeRecord| {
            other.state == NodeState::Live
                && !self.incarnation.succeeds(other.incarnation)
                && self.ended != Some(other.incarnation.nonce)
        };
        match self.slot.known.record() {
            Some(other) if may_renew(other) => self.slot.changed_at + self.timing.wait(other.ttl),
            _ => Monotonic(0),
        }
    }

    pub(crate) fn next_time(&self) -> Option<Monotonic> {
        Some(self.plan()?.0)
    }

    pub(crate) fn request(&mut self, now: Monotonic, id: RequestId) -> Option<Request> {
        let (due, plan) = self.plan()?;
        if due > now {
            return None;
        }
        match plan {
            Plan::Read => Some(self.slot.read(now, id)),
            Plan::Write => self.write(now, id),
        }
    }

    fn write(&mut self, now: Monotonic, id: RequestId) -> Option<Request> {
        if self.stage == Stage::Joining {
            self.replaced = self.slot.known.record().map(|other| other.incarnation);
        }
        let record = NodeRecord {
            node: self.node.clone(),
            incarnation: self.incarnation,
            sequence: self.sequence + 1,
            state: if self.stage == Stage::Leaving { NodeState::Left } else { NodeState::Live },
            ttl: self.timing.ttl(),
            replaced: self.replaced,
            addresses: self.addresses.clone(),
            takes_addresses: self.takes_addresses,
        };
        let operation = self.slot.known.write(record.encode())?;
        self.sequence += 1;
        self.writes.truncate(WRITES_MAX - 1);
        self.writes.push_front((self.sequence, now));
        Some(self.slot.write(now, id, operation, record))
    }

    pub(crate) fn has_asked(&self, id: RequestId) -> bool {
        self.slot.has_asked(id)
    }

    pub(crate) fn answer(&mut self, now: Monotonic, answer: Answer) -> Option<LeaseChange> {
        let node = self.node.clone();
        let settled = self.slot.settle(now, self.timing, answer, |bytes| NodeRecord::decode(&node, bytes));
        match settled {
            Settled::Written(record, sent) => self.own(now, &record, Some(sent)),
            Settled::Read => self.found(now),
            Settled::Unsettled => None,
            Settled::Trouble(why) => Some(LeaseChange::Trouble(why)),
        }
    }

    fn found(&mut self, now: Monotonic) -> Option<LeaseChange> {
        let Known::Found(_, record) = &self.slot.known else {
            // The object of a membership is removed only after another node has ended that, and does not come back.
            let is_gone = self.stage != Stage::Joining && matches!(self.slot.known, Known::Missing);
            return is_gone.then(|| self.lose(now));
        };
        let record = record.clone();
        if record.incarnation == self.incarnation {
            let sent = self.writes.iter().find(|(sequence, _)| *sequence == record.sequence);
            let sent = sent.map(|(_, sent)| *sent);
            return self.own(now, &record, sent);
        }
        if self.stage != Stage::Joining {
            return Some(self.lose(now));
        }
        self.is_taken(now, &record).then_some(LeaseChange::NameTaken(record.addresses))
    }

    /// Notes the lease of another process, for whose end this one waits. Returns whether it goes on for long, and was renewed again.
    fn is_taken(&mut self, now: Monotonic, record: &NodeRecord) -> bool {
        let before = self.other.filter(|(incarnation, ..)| *incarnation == record.incarnation);
        let since = before.map_or(now, |(.., since)| since);
        self.other = Some((record.incarnation, record.sequence, since));
        let is_renewed = before.is_some_and(|(_, sequence, _)| sequence != record.sequence);
        let is_long = now.since(since) >= self.timing.ttl() * TAKEN_TTLS;
        record.state == NodeState::Live && is_renewed && is_long
    }

    /// The object is this membership's, and was perhaps written by a request sent at `sent`.
    fn own(&mut self, now: Monotonic, record: &NodeRecord, sent: Option<Monotonic>) -> Option<LeaseChange> {
        match record.state {
            NodeState::Live => self.renewed(now, sent),
            NodeState::Left if self.stage == Stage::Leaving => {
                self.stage = Stage::Left;
                Some(LeaseChange::Left)
            }
            NodeState::Left | NodeState::Dead => Some(self.lose(now)),
        }
    }

    fn renewed(&mut self, now: Monotonic, sent: Option<Monotonic>) -> Option<LeaseChange> {
        if self.stage == Stage::Leaving {
            return None;
        }
        if let Some(sent) = sent {
            let until = sent + self.timing.trust();
            self.until = Some(self.until.map_or(until, |before| before.max(until)));
            self.renew_at = sent + self.timing.renewal();
        }
        if self.stage == Stage::Held {
            return None;
        }
        self.stage = Stage::Held;
        self.joined_at = now;
        Some(LeaseChange::Joined)
    }

    /// Ends the membership; the next one begins.
    fn lose(&mut self, now: Monotonic) -> LeaseChange {
        let lost = self.incarnation;
        self.until = None;
        self.writes.clear();
        self.renew_at = now;
        if self.stage == Stage::Leaving {
            self.stage = Stage::Left;
            return LeaseChange::Left;
        }
        self.stage = Stage::Joining;
        self.incarnation.count += 1;
        LeaseChange::Lost(lost)
    }
}
