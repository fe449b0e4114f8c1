//! The whole queue.

use std::cmp::Ordering;

use crate::crowd::Waiting;
use crate::holders::Users;
use crate::kind::Part;
use crate::limits::Limits;
use crate::line::{Line, charge};
use crate::{Class, Kind, Work};

/// Maximum number of users' sub-queues parked in one [`Queue::take_next`], to bound its duration.
const LOOKS_MAX: usize = 16;

/// The reason why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many calls of this kind wait, and no other user has more waiting calls than this one.
    Full,
    /// Too many calls of this user wait.
    UserFull,
}

/// Represents a call that is being served. To be passed to [`Queue::finish`].
#[derive(Debug)]
pub struct Ticket {
    work: Work,
    stalled: bool,
}

impl Ticket {
    /// Returns the class of the call.
    pub fn class(&self) -> Class {
        self.work.class
    }
}

/// What a worker has to do next.
#[derive(Debug)]
pub enum Next<T> {
    /// Serve this call.
    Serve(T, Ticket),
    /// Call [`Queue::take_next`] again. Other threads may use the queue in between.
    Again,
    /// Wait.
    Nothing,
}

/// Waiting calls of type `T`.
///
/// Calls are added with [`push`](Self::push). An idle worker takes the [next](Self::take_next) call, serves
/// it, and reports completion with [`finish`](Self::finish). While it only waits for the client of its call
/// it may use [`stall`](Self::stall) and [`resume`](Self::resume), so that another worker may run in its
/// place.
#[derive(Debug)]
pub struct Queue<T> {
    limits: Limits,
    /// Indexed by [`Kind::index`].
    parts: [Part<T>; Kind::COUNT],
    users: Users,
    /// Number of calls added so far.
    added: u64,
}

impl<T> Queue<T> {
    /// Creates an empty queue.
    pub fn new(limits: Limits) -> Queue<T> {
        Queue {
            limits: limits.in_range(),
            parts: [Part::new(), Part::new()],
            users: Users::default(),
            added: 0,
        }
    }

    /// Returns the limits, clamped to their ranges.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of waiting calls.
    pub fn waiting(&self) -> usize {
        self.parts.iter().map(Part::waiting).sum()
    }

    /// Returns the number of calls being served, including stalled ones but not those of unidentified
    /// clients.
    pub fn served(&self) -> usize {
        self.parts.iter().map(Part::served).sum()
    }

    /// Returns the number of served calls that are stalled.
    pub fn stalled(&self) -> usize {
        self.parts.iter().map(Part::stalled).sum()
    }

    /// Whether a call waits for which there is a worker.
    pub fn can_serve(&self) -> bool {
        let classes = [Class::Small, Class::Bulk, Class::Stranger];
        Kind::SERVED.into_iter().any(|kind| classes.into_iter().any(|class| self.may_serve(kind, class)))
    }

    /// Adds a call. If too many calls of its kind wait, the newest call of the user with the most waiting
    /// calls is evicted and returned, unless that is the same user.
    pub fn push(&mut self, work: Work, call: T) -> Result<Option<T>, Refusal> {
        if self.users.of(work.user).0 >= self.limits.waiting_of_user_max {
            return Err(Refusal::UserFull);
        }
        let is_full = self.part(work.kind).waiting_with(work.class) >= self.limits.waiting_max;
        let displaced = if is_full { Some(self.displace(work)?) } else { None };
        self.users.change(work.user, |user| user.waiting += 1);
        self.added += 1;
        let waiting = Waiting { work, sequence: self.added, call };
        let is_free = work.class == Class::Stranger || self.is_free(work.user);
        self.part(work.kind).push(waiting, is_free);
        Ok(displaced)
    }

    /// Takes the next call to serve.
    pub fn take_next(&mut self) -> Next<T> {
        for kind in Kind::SERVED {
            if self.may_serve(kind, Class::Stranger) {
                return self.take_stranger(kind);
            }
        }
        for kind in Kind::SERVED {
            let next = self.take_next_of(kind);
            if !matches!(next, Next::Nothing) {
                return next;
            }
        }
        Next::Nothing
    }

    /// Ends a call; `cost` is its actual cost.
    pub fn finish(&mut self, mut ticket: Ticket, cost: u32) {
        self.resume(&mut ticket);
        let Work { user, kind, weight, volume, class, cost: expected } = ticket.work;
        if class == Class::Stranger {
            return self.part(kind).strangers.finish();
        }
        let was_free = self.is_free(user);
        self.users.change(user, |user| user.served -= 1);
        let share = self.limits.volume_share;
        self.part(kind).volumes.end(volume, share);
        let (was, is) = (charge(expected, weight), charge(cost, weight));
        let is_free = self.is_free(user);
        let line = self.part(kind).line(class);
        match is.cmp(&was) {
            Ordering::Equal => {}
            Ordering::Greater => line.charge(user, is - was, is_free),
            Ordering::Less => line.refund(user, was - is, is_free),
        }
        line.finish();
        if was_free != is_free {
            self.refresh(kind, user);
        }
        self.release(kind, volume);
    }

    /// Marks a call as stalled: its worker only waits for the client. Returns whether another call may be
    /// served instead.
    pub fn stall(&mut self, ticket: &mut Ticket) -> bool {
        let Work { kind, class, .. } = ticket.work;
        let may_stall = class != Class::Stranger
            && self.stalled() < self.limits.stalled_max()
            && self.parts[kind.index()].stalled() < self.limits.stalled_max_of(kind);
        if !ticket.stalled && may_stall {
            ticket.stalled = true;
            self.part(kind).line(class).stalled += 1;
        }
        ticket.stalled
    }

    /// Ends the stall of a call, because its client has responded.
    pub fn resume(&mut self, ticket: &mut Ticket) {
        if std::mem::take(&mut ticket.stalled) {
            self.part(ticket.work.kind).line(ticket.work.class).stalled -= 1;
        }
    }

    /// Removes and returns all waiting calls.
    pub fn drain(&mut self) -> Vec<T> {
        let left: Vec<Waiting<T>> = self.parts.iter_mut().flat_map(Part::take_all).collect();
        for waiting in &left {
            self.users.change(waiting.work.user, |user| user.waiting -= 1);
        }
        left.into_iter().map(|waiting| waiting.call).collect()
    }

    fn part(&mut self, kind: Kind) -> &mut Part<T> {
        &mut self.parts[kind.index()]
    }

    fn is_free(&self, user: u64) -> bool {
        self.users.of(user).1 < self.limits.user_share
    }

    /// Evicts a call for one of a user that has fewer waiting calls than another.
    fn displace(&mut self, work: Work) -> Result<T, Refusal> {
        let crowd = self.part(work.kind).crowd(work.class);
        let (most, user) = crowd.largest().ok_or(Refusal::Full)?;
        if crowd.count_of(work.user) + 1 >= most {
            return Err(Refusal::Full);
        }
        let (class, volume) = crowd.newest(user).ok_or(Refusal::Full)?;
        let is_free = class == Class::Stranger || self.is_free(user);
        let Limits { waiting_max, volume_share, .. } = self.limits;
        let part = self.part(work.kind);
        let popped = part.line(class).pop_newest(user, volume, is_free);
        let (waiting, emptied) = popped.ok_or(Refusal::Full)?;
        if let Some(place) = emptied {
            part.volumes.forget(volume, class, place, volume_share);
        }
        part.leave(&waiting, waiting_max);
        self.users.change(user, |user| user.waiting -= 1);
        Ok(waiting.call)
    }

    /// Whether a call of the kind and class waits and there is a worker for it.
    fn may_serve(&self, kind: Kind, class: Class) -> bool {
        let part = &self.parts[kind.index()];
        match class {
            Class::Small => part.small.waiting > 0 && self.has_worker(kind),
            Class::Bulk => part.bulk.waiting > 0 && self.has_worker_for_bulk(kind),
            Class::Stranger => part.strangers.waiting > 0 && self.has_worker_for_stranger(kind),
        }
    }

    /// Whether one more call of the kind may be served: either by its guaranteed workers, or by those not
    /// guaranteed to the other kind.
    fn has_worker(&self, kind: Kind) -> bool {
        let (limits, part) = (&self.limits, &self.parts[kind.index()]);
        let others = limits.kept(kind.other());
        if self.served() >= limits.served_max || part.served() + others >= limits.served_max {
            return false;
        }
        let working = part.working();
        let all_working: usize = self.parts.iter().map(Part::working).sum();
        working < limits.kept(kind) || all_working < limits.workers && working + others < limits.workers
    }

    fn has_worker_for_bulk(&self, kind: Kind) -> bool {
        let (limits, part) = (&self.limits, &self.parts[kind.index()]);
        let others = limits.kept(kind.other());
        let all_served: usize = self.parts.iter().map(|part| part.bulk.served).sum();
        let all_working: usize = self.parts.iter().map(Part::bulk_working).sum();
        let has_thread = all_served + limits.workers_for_small < limits.served_max
            && part.bulk.served + limits.workers_for_small + others < limits.served_max;
        let working = part.bulk_working();
        let is_kept = part.working() < limits.kept(kind) && working < limits.kept_for_bulk(kind);
        let bulk_max = limits.bulk_max();
        let has_turn = is_kept || all_working < bulk_max && working + others < bulk_max;
        has_thread && has_turn && self.has_worker(kind)
    }

    fn has_worker_for_stranger(&self, kind: Kind) -> bool {
        let all: usize = self.parts.iter().map(|part| part.strangers.served).sum();
        let of_kind = self.parts[kind.index()].strangers.served;
        all < self.limits.strangers_max && of_kind < self.limits.strangers_max_of_kind()
    }

    fn take_next_of(&mut self, kind: Kind) -> Next<T> {
        for _ in 0..LOOKS_MAX {
            let small = self.may_serve(kind, Class::Small);
            let bulk = self.may_serve(kind, Class::Bulk);
            if !small && !bulk {
                return Next::Nothing;
            }
            if let Some(class) = self.part(kind).choose(small, bulk, Line::has_ready) {
                if let Some(next) = self.take_ready(kind, class) {
                    return next;
                }
            } else if !(small && self.release_any(kind, Class::Small)
                || bulk && self.release_any(kind, Class::Bulk))
            {
                return self.take_held(kind, small, bulk);
            }
        }
        Next::Again
    }

    /// Takes the first call of a user below its share. Returns `None` if the call's volume has reached its
    /// share; the user's calls for it are then parked.
    fn take_ready(&mut self, kind: Kind, class: Class) -> Option<Next<T>> {
        let share = self.limits.volume_share;
        let part = &mut self.parts[kind.index()];
        let (tag, user, volume) = part.line(class).first_ready()?;
        if part.volumes.is_full(volume, share) {
            let place = part.volumes.park(volume, class, tag, user);
            let is_free = self.is_free(user);
            self.part(kind).line(class).park(user, place, is_free);
            return None;
        }
        Some(self.take(kind, class, user))
    }

    /// Takes a call of a user that has reached its share, since no user of the kind below its share waits and
    /// workers should not idle.
    fn take_held(&mut self, kind: Kind, small: bool, bulk: bool) -> Next<T> {
        let allowed = |user: u64| self.users.of(user).1 < self.limits.user_max();
        let part = &self.parts[kind.index()];
        let Some(class) = part.choose(small, bulk, |line| line.first_held(allowed).is_some()) else {
            return Next::Nothing;
        };
        let line = if class == Class::Small { &part.small } else { &part.bulk };
        match line.first_held(allowed) {
            Some(user) => self.take(kind, class, user),
            None => Next::Nothing,
        }
    }

    /// Takes a call of an unidentified client. These use none of the workers, and only take turns among
    /// themselves.
    fn take_stranger(&mut self, kind: Kind) -> Next<T> {
        let room_size = self.limits.waiting_max;
        let part = self.part(kind);
        let Some((_, user, _)) = part.strangers.first_ready() else { return Next::Nothing };
        let Some((_, waiting, _)) = part.strangers.pop(user) else { return Next::Nothing };
        let work = waiting.work;
        part.leave(&waiting, room_size);
        part.strangers.charge(user, charge(work.cost, work.weight), true);
        self.users.change(user, |user| user.waiting -= 1);
        Next::Serve(waiting.call, Ticket { work, stalled: false })
    }

    fn take(&mut self, kind: Kind, class: Class, user: u64) -> Next<T> {
        let (room_size, share) = (self.limits.waiting_max, self.limits.volume_share);
        let part = self.part(kind);
        let Some((volume, waiting, emptied)) = part.line(class).pop(user) else { return Next::Nothing };
        if let Some(place) = emptied {
            part.volumes.forget(volume, class, place, share);
        }
        part.leave(&waiting, room_size);
        part.volumes.begin(volume, share);
        self.users.change(user, |user| {
            user.waiting -= 1;
            user.served += 1;
        });
        let (is_free, work) = (self.is_free(user), waiting.work);
        self.part(kind).line(class).charge(user, charge(work.cost, work.weight), is_free);
        if !is_free {
            self.refresh(kind, user);
        }
        let bulk_is_open = self.may_serve(kind, Class::Bulk);
        self.part(kind).charge_class(class, work.cost, bulk_is_open);
        Next::Serve(waiting.call, Ticket { work, stalled: false })
    }

    /// Updates a user's state after the number of its served calls has changed.
    fn refresh(&mut self, kind: Kind, user: u64) {
        let is_free = self.is_free(user);
        let part = self.part(kind);
        part.small.refresh(user, is_free);
        part.bulk.refresh(user, is_free);
    }

    /// Unparks one user's calls for the volume after a call for it has ended.
    fn release(&mut self, kind: Kind, volume: u32) {
        let share = self.limits.volume_share;
        if let Some((class, user)) = self.part(kind).volumes.release(volume, share) {
            let is_free = self.is_free(user);
            self.part(kind).line(class).unpark(user, volume, is_free);
        }
    }

    /// Unparks one user's calls for any volume below its share.
    fn release_any(&mut self, kind: Kind, class: Class) -> bool {
        let share = self.limits.volume_share;
        let Some((volume, user)) = self.part(kind).volumes.release_any(class, share) else {
            return false;
        };
        let is_free = self.is_free(user);
        self.part(kind).line(class).unpark(user, volume, is_free);
        true
    }
}
