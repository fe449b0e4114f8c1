//! The queue as a whole.

use std::cmp::Ordering;

use crate::holders::{Users, Volumes};
use crate::limits::{Limits, SMALL_SHARE, WEIGHT_ORDINARY};
use crate::line::{Line, charge};
use crate::{Class, Work};

/// Lines that are put aside in one [`Queue::take_next`], so that it is never long.
const LOOKS_MAX: usize = 16;

/// Why a call was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many wait.
    Full,
    /// Too many of this user wait.
    UserFull,
}

/// A call that is being served; to be given to [`Queue::finish`].
#[derive(Debug)]
pub struct Ticket {
    work: Work,
    stalled: bool,
}

impl Ticket {
    /// The call's class.
    pub fn class(&self) -> Class {
        self.work.class
    }
}

/// What a worker does next.
#[derive(Debug)]
pub enum Next<T> {
    /// This.
    Serve(T, Ticket),
    /// Asks again at once; others may use the queue in between.
    Again,
    /// Waits.
    Nothing,
}

/// Waiting calls of type `T`.
///
/// [`push`](Self::push) what arrives. A worker that is free asks for the [next](Self::take_next) call,
/// serves it, and says when that is over ([`finish`](Self::finish)). While it can do nothing but wait for the
/// client of its call it may say so with [`stall`](Self::stall) and [`resume`](Self::resume): then
/// another may work in its place.
#[derive(Debug)]
pub struct Queue<T> {
    limits: Limits,
    small: Line<(Work, T)>,
    bulk: Line<(Work, T)>,
    strangers: Line<(Work, T)>,
    users: Users,
    volumes: Volumes,
    /// The tag of the class that was served last.
    present: u64,
}

impl<T> Queue<T> {
    /// An empty one.
    pub fn new(limits: Limits) -> Queue<T> {
        Queue {
            limits: limits.in_range(),
            small: Line::new(),
            bulk: Line::new(),
            strangers: Line::new(),
            users: Users::default(),
            volumes: Volumes::default(),
            present: 0,
        }
    }

    /// The limits, in range.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Calls that wait.
    pub fn waiting(&self) -> usize {
        self.small.waiting + self.bulk.waiting + self.strangers.waiting
    }

    /// Calls being served, also those that wait for their clients, but not those of strangers.
    pub fn served(&self) -> usize {
        self.small.served + self.bulk.served
    }

    /// Of these, how many wait for their clients.
    pub fn stalled(&self) -> usize {
        self.small.stalled + self.bulk.stalled
    }

    /// Whether something waits for which there is a worker.
    pub fn can_serve(&self) -> bool {
        self.may_serve(Class::Small) || self.may_serve(Class::Bulk) || self.may_serve(Class::Stranger)
    }

    /// Adds a call, unless too many wait.
    pub fn push(&mut self, work: Work, call: T) -> Result<(), Refusal> {
        let is_stranger = work.class == Class::Stranger;
        let strangers = self.strangers.waiting;
        let others = if is_stranger { strangers } else { self.waiting() - strangers };
        if others >= self.limits.waiting_max {
            return Err(Refusal::Full);
        }
        if self.users.of(work.user).0 >= self.limits.waiting_of_user_max {
            return Err(Refusal::UserFull);
        }
        self.users.change(work.user, |user| user.waiting += 1);
        let (is_free, present) = (self.is_free(work.user), self.present);
        if is_stranger {
            self.strangers.push(work.user, 0, (work, call), true);
            return Ok(());
        }
        let line = self.line(work.class);
        if line.waiting == 0 {
            line.tag = line.tag.max(present);
        }
        line.push(work.user, work.volume, (work, call), is_free);
        Ok(())
    }

    /// What to serve now.
    pub fn take_next(&mut self) -> Next<T> {
        if self.may_serve(Class::Stranger) {
            return self.take_stranger();
        }
        for _ in 0..LOOKS_MAX {
            let small = self.may_serve(Class::Small);
            let bulk = self.may_serve(Class::Bulk);
            if !small && !bulk {
                return Next::Nothing;
            }
            if let Some(class) = self.choose(small, bulk, Line::has_ready) {
                if let Some(next) = self.take_ready(class) {
                    return next;
                }
            } else if !(small && self.release_any(Class::Small) || bulk && self.release_any(Class::Bulk)) {
                return self.take_held(small, bulk);
            }
        }
        Next::Again
    }

    /// The call is over; `cost` is what it really was.
    pub fn finish(&mut self, mut ticket: Ticket, cost: u32) {
        self.resume(&mut ticket);
        let Work { user, weight, volume, class, cost: expected } = ticket.work;
        if class == Class::Stranger {
            return self.strangers.finish();
        }
        let was_free = self.is_free(user);
        self.users.change(user, |user| user.served -= 1);
        self.volumes.end(volume, self.limits.volume_share);
        let (was, is) = (charge(expected, weight), charge(cost, weight));
        let is_free = self.is_free(user);
        let line = self.line(class);
        match is.cmp(&was) {
            Ordering::Equal => {}
            Ordering::Greater => line.charge(user, is - was, is_free),
            Ordering::Less => line.refund(user, was - is, is_free),
        }
        line.finish();
        if was_free != is_free {
            self.refresh(user);
        }
        self.release(volume);
    }

    /// The worker can do nothing but wait for the client of this call. True if another may be
    /// served instead.
    pub fn stall(&mut self, ticket: &mut Ticket) -> bool {
        let is_stranger = ticket.work.class == Class::Stranger;
        if !ticket.stalled && !is_stranger && self.stalled() < self.limits.stalled_max() {
            ticket.stalled = true;
            self.line(ticket.work.class).stalled += 1;
        }
        ticket.stalled
    }

    /// The client has done something.
    pub fn resume(&mut self, ticket: &mut Ticket) {
        if std::mem::take(&mut ticket.stalled) {
            self.line(ticket.work.class).stalled -= 1;
        }
    }

    /// Gives up everything that waits.
    pub fn drain(&mut self) -> Vec<T> {
        let mut left = Vec::new();
        for class in [Class::Small, Class::Bulk, Class::Stranger] {
            for (work, call) in self.line(class).take_all() {
                self.users.change(work.user, |user| user.waiting -= 1);
                left.push(call);
            }
        }
        self.volumes.forget_parked();
        left
    }

    fn line(&mut self, class: Class) -> &mut Line<(Work, T)> {
        match class {
            Class::Small => &mut self.small,
            Class::Bulk => &mut self.bulk,
            Class::Stranger => &mut self.strangers,
        }
    }

    fn is_free(&self, user: u64) -> bool {
        self.users.of(user).1 < self.limits.user_share
    }

    /// Whether there is something of the class, and a worker for it.
    fn may_serve(&self, class: Class) -> bool {
        if class == Class::Stranger {
            return self.strangers.waiting > 0 && self.strangers.served < self.limits.strangers_max;
        }
        let working = self.served() - self.stalled();
        if working >= self.limits.workers || self.served() >= self.limits.served_max {
            return false;
        }
        match class {
            Class::Small | Class::Stranger => self.small.waiting > 0,
            Class::Bulk => {
                let has_worker = self.bulk.served - self.bulk.stalled < self.limits.bulk_max();
                let has_thread = self.bulk.served + self.limits.workers_for_small < self.limits.served_max;
                self.bulk.waiting > 0 && has_worker && has_thread
            }
        }
    }

    /// The class whose turn it is, of those with something that fits.
    fn choose(&self, small: bool, bulk: bool, fits: impl Fn(&Line<(Work, T)>) -> bool) -> Option<Class> {
        match (small && fits(&self.small), bulk && fits(&self.bulk)) {
            (true, true) if self.bulk.tag < self.small.tag => Some(Class::Bulk),
            (true, _) => Some(Class::Small),
            (false, true) => Some(Class::Bulk),
            (false, false) => None,
        }
    }

    /// Takes the first call of who is below its share. `None`: its volume is not, and it was put aside.
    fn take_ready(&mut self, class: Class) -> Option<Next<T>> {
        let (tag, user, volume) = self.line(class).first_ready()?;
        if self.volumes.is_full(volume, self.limits.volume_share) {
            let place = self.volumes.park(volume, class, tag, user);
            let is_free = self.is_free(user);
            self.line(class).park(user, place, is_free);
            return None;
        }
        Some(self.take(class, user))
    }

    /// Nobody below its share waits: workers are not left idle for that.
    fn take_held(&mut self, small: bool, bulk: bool) -> Next<T> {
        let allowed = |user: u64| self.users.of(user).1 < self.limits.user_max();
        let Some(class) = self.choose(small, bulk, |line| line.first_held(allowed).is_some()) else {
            return Next::Nothing;
        };
        let line = if class == Class::Small { &self.small } else { &self.bulk };
        match line.first_held(allowed) {
            Some(user) => self.take(class, user),
            None => Next::Nothing,
        }
    }

    /// Strangers hold nothing of the workers; they only take turns among themselves.
    fn take_stranger(&mut self) -> Next<T> {
        let Some((_, user, _)) = self.strangers.first_ready() else { return Next::Nothing };
        let Some((_, (work, call), _)) = self.strangers.pop(user) else { return Next::Nothing };
        self.users.change(user, |user| user.waiting -= 1);
        self.strangers.charge(user, charge(work.cost, work.weight), true);
        Next::Serve(call, Ticket { work, stalled: false })
    }

    fn take(&mut self, class: Class, user: u64) -> Next<T> {
        let Some((volume, (work, call), emptied)) = self.line(class).pop(user) else { return Next::Nothing };
        let share = self.limits.volume_share;
        if let Some(place) = emptied {
            self.volumes.forget(volume, class, place, share);
        }
        self.volumes.begin(volume, share);
        self.users.change(user, |user| {
            user.waiting -= 1;
            user.served += 1;
        });
        let is_free = self.is_free(user);
        self.line(class).charge(user, charge(work.cost, work.weight), is_free);
        if !is_free {
            self.refresh(user);
        }
        self.charge_class(class, work.cost);
        Next::Serve(call, Ticket { work, stalled: false })
    }

    /// Classes are charged like users; one that could not be served meanwhile has lost its turns.
    fn charge_class(&mut self, class: Class, cost: u32) {
        let weight = match class {
            Class::Small => SMALL_SHARE * WEIGHT_ORDINARY,
            Class::Bulk | Class::Stranger => WEIGHT_ORDINARY,
        };
        let line = self.line(class);
        let present = line.tag;
        line.tag = present.saturating_add(charge(cost, weight));
        self.present = self.present.max(present);
        if !self.may_serve(Class::Bulk) {
            self.bulk.tag = self.bulk.tag.max(self.present);
        }
    }

    /// Puts the user where it belongs after what it holds has changed.
    fn refresh(&mut self, user: u64) {
        let is_free = self.is_free(user);
        self.small.refresh(user, is_free);
        self.bulk.refresh(user, is_free);
    }

    /// A call for the volume has ended: one that was put aside for it may go on.
    fn release(&mut self, volume: u32) {
        if let Some((class, user)) = self.volumes.release(volume, self.limits.volume_share) {
            let is_free = self.is_free(user);
            self.line(class).unpark(user, volume, is_free);
        }
    }

    /// The same for any volume below its share.
    fn release_any(&mut self, class: Class) -> bool {
        let Some((volume, user)) = self.volumes.release_any(class, self.limits.volume_share) else {
            return false;
        };
        let is_free = self.is_free(user);
        self.line(class).unpark(user, volume, is_free);
        true
    }
}
