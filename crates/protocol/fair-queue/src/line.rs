//! The queue of one class: its users in the order in which they are served.

use std::collections::BTreeSet;

use crate::flow::{Flow, Standing};
use crate::holders::Place;
use crate::limits::{COST_MAX, WEIGHT_MAX, WEIGHT_ORDINARY};
use crate::numbers::ByUser;

/// Maximum number of users without waiting calls whose tags are remembered. A forgotten user starts at the
/// current tag.
const IDLE_MAX: usize = 65_536;

/// Number of idle users that are checked with each call taken.
const FORGOTTEN_PER_CALL: usize = 2;

/// Increase of a tag per unit of work for a user of ordinary weight.
const TAG_PER_UNIT: u64 = WEIGHT_MAX as u64;

/// Returns the increase of a user's tag for this much work.
pub(crate) fn charge(cost: u32, weight: u32) -> u64 {
    let cost = u64::from(cost.clamp(1, COST_MAX));
    cost * TAG_PER_UNIT * u64::from(WEIGHT_ORDINARY) / u64::from(weight.clamp(1, WEIGHT_MAX))
}

/// The queue of one class; see the module documentation.
#[derive(Debug)]
pub(crate) struct Line<T> {
    flows: ByUser<Flow<T>>,
    ready: BTreeSet<(u64, u64)>,
    held: BTreeSet<(u64, u64)>,
    idle: BTreeSet<(u64, u64)>,
    /// Tag of the user that was served last.
    present: u64,
    pub(crate) waiting: usize,
    pub(crate) served: usize,
    /// Stalled calls, which are included in `served`.
    pub(crate) stalled: usize,
    /// Tag of the class, compared with that of the other class.
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

    /// Returns the next user below its share, with its tag and volume.
    pub(crate) fn first_ready(&self) -> Option<(u64, u64, u32)> {
        let (tag, user) = *self.ready.first()?;
        Some((tag, user, self.flows.get(&user)?.next_volume()?))
    }

    /// Returns the next user that has reached its share.
    pub(crate) fn first_held(&self, allowed: impl Fn(u64) -> bool) -> Option<u64> {
        // Each user that is not allowed has hundreds of calls in progress, so there are few of them.
        self.held.iter().map(|(_, user)| *user).find(|user| allowed(*user))
    }

    /// Adds a call. `is_free` means that its user is below its share.
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

    /// Takes the next call of a user. The caller has to charge it.
    pub(crate) fn pop(&mut self, user: u64) -> Option<(u32, T, Option<Place>)> {
        let popped = self.flows.get_mut(&user)?.pop()?;
        self.present = self.present.max(self.flows.get(&user)?.tag);
        self.waiting -= 1;
        self.served += 1;
        Some(popped)
    }

    /// Removes the newest call of a user for a volume, as if it had never been added.
    pub(crate) fn pop_newest(&mut self, user: u64, volume: u32, is_free: bool) -> Option<(T, Option<Place>)> {
        let popped = self.flows.get_mut(&user)?.pop_newest(volume)?;
        self.waiting -= 1;
        self.refresh(user, is_free);
        Some(popped)
    }

    /// Returns all waiting calls, in no particular order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &T> {
        self.flows.values().flat_map(Flow::calls)
    }

    /// Advances a user's tag, and updates its position.
    pub(crate) fn charge(&mut self, user: u64, tags: u64, is_free: bool) {
        let Some(flow) = self.flows.get_mut(&user) else { return };
        let old = flow.tag;
        flow.tag = old.saturating_add(tags);
        self.place(user, old, is_free);
        self.forget_some();
    }

    /// Refunds an excessive charge, but not beyond the current tag.
    pub(crate) fn refund(&mut self, user: u64, tags: u64, is_free: bool) {
        let present = self.present;
        let Some(flow) = self.flows.get_mut(&user) else { return };
        let old = flow.tag;
        flow.tag = old.saturating_sub(tags).max(present.min(old));
        self.place(user, old, is_free);
    }

    /// Updates a user's position after its share has changed.
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

    /// Unparks a volume of a user.
    pub(crate) fn unpark(&mut self, user: u64, volume: u32, is_free: bool) {
        if let Some(flow) = self.flows.get_mut(&user) {
            flow.unpark(volume);
        }
        self.refresh(user, is_free);
    }

    /// Removes and returns all waiting calls, the next of each user first.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        let mut all = Vec::with_capacity(self.waiting);
        for (_, user) in std::mem::take(&mut self.ready).into_iter().chain(std::mem::take(&mut self.held)) {
            let Some(mut flow) = self.flows.remove(&user) else { continue };
            all.extend(std::iter::from_fn(|| flow.pop()).map(|(_, call, _)| call));
        }
        self.waiting = 0;
        all
    }

    /// Counts one served call less. When no calls are left, all users start equal again.
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

    /// Forgets users without waiting calls whose tags have been passed.
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
