//! The users of one class, in the order in which they are served.

use std::collections::BTreeSet;

use crate::flow::{Flow, Standing};
use crate::holders::Place;
use crate::limits::{COST_MAX, WEIGHT_MAX, WEIGHT_ORDINARY};
use crate::numbers::ByUser;

/// Users with nothing waiting whose tags are remembered at most; who is forgotten begins at the present.
const IDLE_MAX: usize = 65_536;

/// Idle users that are looked at with each call that is taken.
const FORGOTTEN_PER_CALL: usize = 2;

/// How far a tag moves for one unit of work of a user of ordinary weight.
const TAG_PER_UNIT: u64 = WEIGHT_MAX as u64;

/// What work costs a user in tags.
pub(crate) fn charge(cost: u32, weight: u32) -> u64 {
    let cost = u64::from(cost.clamp(1, COST_MAX));
    cost * TAG_PER_UNIT * u64::from(WEIGHT_ORDINARY) / u64::from(weight.clamp(1, WEIGHT_MAX))
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Line<T> {
    flows: ByUser<Flow<T>>,
    ready: BTreeSet<(u64, u64)>,
    held: BTreeSet<(u64, u64)>,
    idle: BTreeSet<(u64, u64)>,
    /// The tag of who was served last.
    present: u64,
    pub(crate) waiting: usize,
    pub(crate) served: usize,
    /// Calls being served that wait for their clients; they are in `served` too.
    pub(crate) stalled: usize,
    /// The class's own tag beside the other's.
    pub(crate) tag: u64,
}

impl<T> Line<T> {
    pub(crate) fn new() -> Line<T> {
        Line {
            flows: ByUser::default(),
            ready: BTreeSet::new(),
            held: BTreeSet::new(),
            idle: BTreeSet::new(),
            present: 0,
            waiting: 0,
            served: 0,
            stalled: 0,
            tag: 0,
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Who is next of those below their share, with the tag and the volume.
    pub(crate) fn first_ready(&self) -> Option<(u64, u64, u32)> {
        let (tag, user) = *self.ready.first()?;
        Some((tag, user, self.flows.get(&user)?.next_volume()?))
    }

    /// Who is next of the others.
    pub(crate) fn first_held(&self, allowed: impl Fn(u64) -> bool) -> Option<u64> {
        // Who is not allowed has hundreds of calls under way: there can be but a few of them.
        self.held.iter().map(|(_, user)| *user).find(|user| allowed(*user))
    }

    /// Adds a call; `is_free`: its user is below its share.
    pub(crate) fn push(&mut self, user: u64, volume: u32, call: T, is_free: bool) {
        let present = self.present;
        let flow = self.flows.entry(user).or_insert_with(|| Flow::new(present));
        if flow.is_empty() && flow.tag < present {
            self.idle.remove(&(flow.tag, user));
            flow.tag = present;
        }
        let old = flow.tag;
        flow.push(volume, call);
        self.waiting += 1;
        self.place(user, old, is_free);
    }

    /// Takes the next call of a user and charges it.
    pub(crate) fn pop(&mut self, user: u64) -> Option<(u32, T, Option<Place>)> {
        let popped = self.flows.get_mut(&user)?.pop()?;
        self.present = self.present.max(self.flows.get(&user)?.tag);
        self.waiting -= 1;
        self.served += 1;
        Some(popped)
    }

    /// Takes the newest call of a user for a volume, as if it had never come.
    pub(crate) fn pop_newest(&mut self, user: u64, volume: u32, is_free: bool) -> Option<(T, Option<Place>)> {
        let popped = self.flows.get_mut(&user)?.pop_newest(volume)?;
        self.waiting -= 1;
        self.refresh(user, is_free);
        Some(popped)
    }

    /// Everything that waits, in no order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &T> {
        self.flows.values().flat_map(Flow::calls)
    }

    /// Moves a user's tag, and puts it where it belongs now.
    pub(crate) fn charge(&mut self, user: u64, tags: u64, is_free: bool) {
        let Some(flow) = self.flows.get_mut(&user) else { return };
        let old = flow.tag;
        flow.tag = old.saturating_add(tags);
        self.place(user, old, is_free);
        self.forget_some();
    }

    /// Gives back what a user was charged too much, but nothing of the past.
    pub(crate) fn refund(&mut self, user: u64, tags: u64, is_free: bool) {
        let present = self.present;
        let Some(flow) = self.flows.get_mut(&user) else { return };
        let old = flow.tag;
        flow.tag = old.saturating_sub(tags).max(present.min(old));
        self.place(user, old, is_free);
    }

    /// Puts a user where it belongs after its share has changed.
    pub(crate) fn refresh(&mut self, user: u64, is_free: bool) {
        if let Some(tag) = self.flows.get(&user).map(|flow| flow.tag) {
            self.place(user, tag, is_free);
        }
    }

    /// Parks the volume that is next for a user.
    pub(crate) fn park(&mut self, user: u64, place: Place, is_free: bool) {
        if let Some(flow) = self.flows.get_mut(&user) {
            flow.park(place);
        }
        self.refresh(user, is_free);
    }

    /// The opposite.
    pub(crate) fn unpark(&mut self, user: u64, volume: u32, is_free: bool) {
        if let Some(flow) = self.flows.get_mut(&user) {
            flow.unpark(volume);
        }
        self.refresh(user, is_free);
    }

    /// Takes everything that waits, the next of each user first.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        let mut all = Vec::with_capacity(self.waiting);
        for (_, user) in std::mem::take(&mut self.ready).into_iter().chain(std::mem::take(&mut self.held)) {
            let Some(mut flow) = self.flows.remove(&user) else { continue };
            all.extend(std::iter::from_fn(|| flow.pop()).map(|(_, call, _)| call));
        }
        self.waiting = 0;
        all
    }

    /// One call less is served. When there is nothing any more, all have used up what they had.
    pub(crate) fn finish(&mut self) {
        self.served -= 1;
        if self.served == 0 && self.waiting == 0 {
            self.present = self.idle.last().map_or(self.present, |(tag, _)| self.present.max(*tag));
        }
    }

    fn place(&mut self, user: u64, old: u64, is_free: bool) {
        let Some(flow) = self.flows.get_mut(&user) else { return };
        let standing = match (flow.is_empty(), is_free && flow.has_turn()) {
            (true, _) => Standing::Idle,
            (false, true) => Standing::Ready,
            (false, false) => Standing::Held,
        };
        let (was, new) = (std::mem::replace(&mut flow.standing, standing), flow.tag);
        if (was, old) == (standing, new) && standing != Standing::Idle {
            return;
        }
        self.set(was).remove(&(old, user));
        self.set(standing).insert((new, user));
    }

    fn set(&mut self, standing: Standing) -> &mut BTreeSet<(u64, u64)> {
        match standing {
            Standing::Idle => &mut self.idle,
            Standing::Ready => &mut self.ready,
            Standing::Held => &mut self.held,
        }
    }

    /// Forgets users who have nothing waiting and owe nothing.
    fn forget_some(&mut self) {
        for _ in 0..FORGOTTEN_PER_CALL {
            let Some(&(tag, user)) = self.idle.first() else { return };
            if tag > self.present && self.idle.len() <= IDLE_MAX {
                return;
            }
            self.idle.pop_first();
            self.flows.remove(&user);
        }
    }
}
