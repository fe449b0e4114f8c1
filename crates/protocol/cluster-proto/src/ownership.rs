//! One partition at one node: its phase, its owner's object, and the hosts that hold promises on it.

use crate::hosts::Hosts;
use crate::lease::Lease;
use crate::names::{Epoch, Incarnation, NodeName, PartitionName};
use crate::peers::{Peers, Verdict};
use crate::phase::{Phase, PhaseEvent};
use crate::records::{Holder, OwnerRecord};
use crate::request::{Action, Answer, Notice, Request, RequestId};
use crate::route::Forward;
use crate::slot::{Known, Settled, Slot};
use crate::takeover::{Cause, Stage, Timeline};
use crate::timing::Timing;
use base::Monotonic;
use std::collections::VecDeque;

/// What a partition has to know of the rest of the member.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) now: Monotonic,
    pub(crate) timing: Timing,
    pub(crate) lease: &'a Lease,
    pub(crate) peers: &'a Peers,
}

#[derive(Debug)]
pub(crate) struct Ownership {
    pub(crate) name: PartitionName,
    pub(crate) phase: Phase,
    pub(crate) since: Monotonic,
    /// Whether this node is to take the partition when no other has it.
    pub(crate) is_wanted: bool,
    /// The own ownership, or the one that is being claimed.
    pub(crate) epoch: Epoch,
    pub(crate) hosts: Hosts,
    slot: Slot<OwnerRecord>,
    /// When the present owner was seen first.
    owner_since: Monotonic,
    /// The last owner that was seen.
    last_owner: Option<NodeName>,
    /// The node that is to have the partition after this one.
    successor: Option<NodeName>,
    /// The takeover, or the end of the ownership, that is going on.
    timeline: Option<Timeline>,
    /// No claim before, after an open that failed.
    claim_after: Monotonic,
    failures: u32,
}

enum Plan {
    Read,
    Claim,
    Write(OwnerRecord),
}

impl Ownership {
    pub(crate) fn new(name: PartitionName, now: Monotonic) -> Ownership {
        Ownership {
            slot: Slot::new(name.object("owner"), now),
            name,
            phase: Phase::Remote,
            since: now,
            is_wanted: false,
            epoch: Epoch(0),
            hosts: Hosts::default(),
            owner_since: now,
            last_owner: None,
            successor: None,
            timeline: None,
            claim_after: now,
            failures: 0,
        }
    }

    /// Returns the owner according to the object.
    pub(crate) fn owner(&self) -> Option<(&NodeName, Incarnation, Epoch)> {
        let record = self.slot.known.record()?;
        match &record.holder {
            Holder::Owned { node, incarnation } => Some((node, *incarnation, record.epoch)),
            Holder::Free { .. } => None,
        }
    }

    /// Returns the node that is to have the partition next, if the object says so.
    pub(crate) fn next_owner(&self) -> Option<&NodeName> {
        match &self.slot.known.record()?.holder {
            Holder::Free { successor } => successor.as_ref(),
            Holder::Owned { .. } => None,
        }
    }

    /// Returns another node that is the owner.
    pub(crate) fn other_owner(&self, lease: &Lease) -> Option<(&NodeName, Incarnation, Epoch)> {
        self.owner().filter(|(node, ..)| **node != lease.node)
    }

    /// Returns another owner whose lease is not in doubt.
    pub(crate) fn forward(&self, view: View<'_>) -> Option<Forward> {
        let (node, _, epoch) = self.other_owner(view.lease)?;
        match self.owner_verdict(view) {
            Verdict::Alive(until) if view.now < until => {
                let addresses = view.peers.addresses(node).to_vec();
                Some(Forward { node: node.clone(), epoch, addresses, until })
            }
            _ => None,
        }
    }

    fn owner_verdict(&self, view: View<'_>) -> Verdict {
        let owner = self.other_owner(view.lease);
        owner.map_or(Verdict::Unknown, |(node, incarnation, _)| {
            view.peers.verdict(node, incarnation, self.owner_since)
        })
    }

    /// Changes the phase, if the event does.
    pub(crate) fn apply(
        &mut self,
        event: PhaseEvent,
        now: Monotonic,
        actions: &mut VecDeque<Action>,
    ) -> bool {
        let Some(next) = self.phase.after(event) else { return false };
        let (name, epoch) = (self.name.clone(), self.epoch);
        actions.push_back(Action::Notice(Notice::Phase(name.clone(), next, epoch)));
        match next {
            Phase::Opening => actions.push_back(Action::Open(name, epoch)),
            Phase::Draining => actions.push_back(Action::Drain(name, epoch)),
            Phase::Fenced => actions.push_back(Action::Close(name, epoch)),
            Phase::Remote | Phase::Waiting => self.slot.read_first(),
            Phase::Claiming | Phase::Resetting | Phase::Serving | Phase::Releasing => {}
        }
        let before = std::mem::replace(&mut self.phase, next);
        self.since = now;
        self.measure(before, now, actions);
        true
    }

    /// Measures the stages of takeovers, and of the ends of ownerships.
    fn measure(&mut self, before: Phase, now: Monotonic, actions: &mut VecDeque<Action>) {
        match (before, self.phase) {
            (Phase::Claiming, Phase::Opening) => self.reach(Stage::Claim, now),
            // Failed attempts belong to the opening.
            (Phase::Opening, Phase::Resetting | Phase::Claiming) => self.reach(Stage::Open, now),
            (Phase::Resetting, Phase::Serving) => {
                self.reach(Stage::Reset, now);
                self.end_timeline(true, actions);
            }
            (Phase::Claiming, Phase::Remote | Phase::Waiting) => self.timeline = None,
            (_, Phase::Draining) => {
                self.end_timeline(false, actions);
                self.timeline = Some(Timeline::new(Cause::GivenUp, self.successor.clone(), now));
            }
            (Phase::Draining, Phase::Releasing) => self.reach(Stage::Close, now),
            (Phase::Releasing, Phase::Remote) => {
                self.reach(Stage::Free, now);
                self.end_timeline(true, actions);
            }
            (_, Phase::Fenced) => {
                self.end_timeline(false, actions);
                self.timeline = Some(Timeline::new(Cause::Fenced, None, now));
            }
            (Phase::Fenced, Phase::Remote) => {
                self.reach(Stage::Close, now);
                self.end_timeline(true, actions);
            }
            _ => {}
        }
    }

    fn reach(&mut self, stage: Stage, now: Monotonic) {
        if let Some(timeline) = &mut self.timeline {
            timeline.reach(stage, now);
        }
    }

    fn end_timeline(&mut self, is_complete: bool, actions: &mut VecDeque<Action>) {
        if let Some(timeline) = self.timeline.take() {
            let takeover = timeline.end(self.name.clone(), self.epoch, is_complete);
            actions.push_back(Action::Notice(Notice::Takeover(Box::new(takeover))));
        }
    }

    /// Returns the takeover that begins with a claim.
    fn begin_timeline(&self, view: View<'_>) -> Timeline {
        let since = self.owner_since;
        let Some(record) = self.slot.known.record() else { return Timeline::new(Cause::New, None, since) };
        match &record.holder {
            Holder::Free { successor } => {
                let is_for_this = successor.as_ref() == Some(&view.lease.node);
                let cause = if is_for_this { Cause::Moved } else { Cause::Free };
                Timeline::new(cause, self.last_owner.clone(), since)
            }
            Holder::Owned { node, .. } if *node == view.lease.node => {
                Timeline::new(Cause::Restarted, Some(node.clone()), since)
            }
            Holder::Owned { node, incarnation } => {
                let end = view.peers.end_of(node, *incarnation);
                // The end of its lease was not seen here if it had ended before.
                end.map_or_else(
                    || Timeline::new(Cause::Died, Some(node.clone()), since),
                    |end| end.timeline(node.clone()),
                )
            }
        }
    }

    /// Emits the resets whose turn has come, and ends the phase after the last one.
    pub(crate) fn reset_hosts(&mut self, now: Monotonic, actions: &mut VecDeque<Action>) {
        if !matches!(self.phase, Phase::Resetting | Phase::Serving) {
            return;
        }
        while let Some(host) = self.hosts.next_reset() {
            actions.push_back(Action::Reset(self.name.clone(), self.epoch, host));
        }
        if !self.hosts.is_resetting() {
            self.apply(PhaseEvent::AllReset, now, actions);
        }
    }

    /// Pauses after an open that failed.
    pub(crate) fn open_failed(&mut self, now: Monotonic, timing: Timing) {
        self.failures = (self.failures + 1).min(6);
        self.claim_after = now + timing.retry() * (1 << self.failures);
    }

    pub(crate) fn open_succeeded(&mut self) {
        self.failures = 0;
    }

    /// Gives the partition up, now or when it is claimed, for a successor if one is named.
    pub(crate) fn release(&mut self, successor: Option<NodeName>) {
        self.is_wanted = false;
        self.successor = successor;
    }

    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
        self.successor = None;
    }

    /// Follows what time alone changes: doubts about the owner, and claims.
    pub(crate) fn tick(&mut self, view: View<'_>, actions: &mut VecDeque<Action>) {
        if !matches!(self.phase, Phase::Remote | Phase::Waiting) {
            return;
        }
        if let Verdict::Alive(doubt_at) = self.owner_verdict(view) {
            let event = if view.now < doubt_at { PhaseEvent::OwnerSeen } else { PhaseEvent::OwnerSilent };
            self.apply(event, view.now, actions);
        }
        if self.claim_at(view).is_some_and(|due| due <= view.now) {
            self.timeline = Some(self.begin_timeline(view));
            self.apply(PhaseEvent::Claim, view.now, actions);
        }
    }

    /// Returns when the phase next changes by time alone.
    pub(crate) fn next_change(&self, view: View<'_>) -> Option<Monotonic> {
        if !matches!(self.phase, Phase::Remote | Phase::Waiting) {
            return None;
        }
        let doubt = match self.owner_verdict(view) {
            Verdict::Alive(doubt_at) if self.phase == Phase::Remote => Some(doubt_at),
            _ => None,
        };
        [doubt, self.claim_at(view)].into_iter().flatten().min()
    }

    /// Returns when this node may write its name into the object; `None` while that is not known.
    fn claim_at(&self, view: View<'_>) -> Option<Monotonic> {
        if !self.is_wanted
            || !view.lease.is_held()
            || !view.lease.is_valid(view.now)
            || !self.slot.may_write()
        {
            return None;
        }
        Some(self.vacant_at(view)?.max(self.claim_after))
    }

    fn vacant_at(&self, view: View<'_>) -> Option<Monotonic> {
        let Some(record) = self.slot.known.record() else { return Some(self.slot.changed_at) };
        match &record.holder {
            Holder::Free { successor: Some(other) } if *other != view.lease.node => {
                Some(self.owner_since + view.timing.ttl())
            }
            Holder::Free { .. } => Some(self.owner_since),
            Holder::Owned { node, incarnation } if *node == view.lease.node => {
                if *incarnation == view.lease.incarnation {
                    return Some(self.owner_since);
                }
                view.lease.predecessor_over_at(*incarnation, self.owner_since)
            }
            Holder::Owned { .. } => match self.owner_verdict(view) {
                Verdict::Over(at) => Some(at),
                Verdict::Unknown | Verdict::Alive(_) => None,
            },
        }
    }

    /// Whether the object names the present membership of this node.
    fn names_me(&self, lease: &Lease) -> bool {
        let owner = self.owner();
        owner.is_some_and(|(node, incarnation, _)| *node == lease.node && incarnation == lease.incarnation)
    }

    fn free(&self, epoch: Epoch) -> OwnerRecord {
        OwnerRecord { epoch, holder: Holder::Free { successor: self.successor.clone() } }
    }

    fn plan(&self, view: View<'_>) -> Option<(Monotonic, Plan)> {
        match self.phase {
            Phase::Opening | Phase::Resetting | Phase::Serving | Phase::Draining | Phase::Fenced => None,
            _ if !self.slot.may_write() => Some((self.slot.next_read(true)?, Plan::Read)),
            Phase::Remote | Phase::Waiting => {
                // A claim that was given up has arrived late.
                if !self.is_wanted && view.lease.is_held() && self.names_me(view.lease) {
                    let free = self.free(self.slot.known.record()?.epoch);
                    return Some((self.slot.free_at(Monotonic(0))?, Plan::Write(free)));
                }
                Some((self.slot.next_read(true)?, Plan::Read))
            }
            Phase::Claiming => {
                let due = if view.lease.is_valid(view.now) { self.claim_after } else { return None };
                Some((self.slot.free_at(due)?, Plan::Claim))
            }
            Phase::Releasing => Some((self.slot.free_at(Monotonic(0))?, Plan::Write(self.free(self.epoch)))),
        }
    }

    pub(crate) fn next_time(&self, view: View<'_>) -> Option<Monotonic> {
        let request = self.plan(view).map(|(due, _)| due);
        [request, self.next_change(view)].into_iter().flatten().min()
    }

    pub(crate) fn request(&mut self, view: View<'_>, id: RequestId) -> Option<Request> {
        let (_, plan) = self.plan(view).filter(|(due, _)| *due <= view.now)?;
        let record = match plan {
            Plan::Read => return Some(self.slot.read(view.now, id)),
            Plan::Write(record) => record,
            Plan::Claim => {
                let before = self.slot.known.record().map_or(Epoch(0), |record| record.epoch);
                self.epoch = before.next();
                let (node, incarnation) = (view.lease.node.clone(), view.lease.incarnation);
                OwnerRecord { epoch: self.epoch, holder: Holder::Owned { node, incarnation } }
            }
        };
        let operation = self.slot.known.write(record.encode())?;
        Some(self.slot.write(view.now, id, operation, record))
    }

    pub(crate) fn has_asked(&self, id: RequestId) -> bool {
        self.slot.has_asked(id)
    }

    pub(crate) fn answer(&mut self, view: View<'_>, answer: Answer, actions: &mut VecDeque<Action>) {
        let before = self.slot.known.record().map(|record| record.holder.clone());
        let settled = self.slot.settle(view.now, view.timing, answer, OwnerRecord::decode);
        if self.slot.known.record().map(|record| &record.holder) != before.as_ref() {
            self.owner_since = view.now;
            if let Some(Holder::Owned { node, .. }) = before {
                self.last_owner = Some(node);
            }
        }
        match settled {
            Settled::Unsettled => {}
            Settled::Trouble(why) => {
                let object = self.slot.name.clone();
                actions.push_back(Action::Notice(Notice::Trouble { object, why }));
            }
            Settled::Read | Settled::Written(..) => self.learn(view, actions),
        }
    }

    /// Follows what the object says now.
    fn learn(&mut self, view: View<'_>, actions: &mut VecDeque<Action>) {
        let names_me = self.names_me(view.lease);
        let epoch = self.slot.known.record().map(|record| record.epoch);
        match self.phase {
            // Epochs are not used twice, so this is the claim that was written last, whatever became of its answer.
            Phase::Claiming if names_me && epoch == Some(self.epoch) => {
                self.apply(PhaseEvent::Claimed, view.now, actions);
            }
            Phase::Claiming if self.vacant_at(view).is_none_or(|at| at > view.now) => {
                self.apply(PhaseEvent::Outrun, view.now, actions);
            }
            Phase::Releasing if !names_me || epoch != Some(self.epoch) => {
                self.apply(PhaseEvent::Released, view.now, actions);
            }
            Phase::Waiting if matches!(self.slot.known, Known::Found(..)) && self.owner().is_none() => {
                self.apply(PhaseEvent::OwnerSeen, view.now, actions);
            }
            _ => {}
        }
    }
}
