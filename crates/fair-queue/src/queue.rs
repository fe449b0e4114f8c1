//! The queue as a whole.

use std::cmp::Ordering;

use crate::crowd::Waiting;
use crate::holders::Users;
use crate::kind::Part;
use crate::limits::Limits;
use crate::line::{Line, charge};
use crate::{Class, Kind, Work};

/// Lines that are put aside in one [`Queue::take_next`], so that it is never long.
const LOOKS_MAX: usize = 16;

/// Why a call was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many of its kind wait, and no other user has more waiting calls than this one.
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
    /// By [`Kind::index`].
    parts: [Part<T>; Kind::COUNT],
    users: Users,
    /// Calls that were added so far.
    added: u64,
}

impl<T> Queue<T> {
    /// An empty one.
    pub fn new(limits: Limits) -> Queue<T> {
        Queue {
            limits: limits.in_range(),
            parts: [Part::new(), Part::new()],
            users: Users::default(),
            added: 0,
        }
    }

    /// The limits, in range.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Calls that wait.
    pub fn waiting(&self) -> usize {
        self.parts.iter().map(Part::waiting).sum()
    }

    /// Calls being served, also those that wait for their clients, but not those of strangers.
    pub fn served(&self) -> usize {
        self.parts.iter().map(Part::served).sum()
    }

    /// Of these, how many wait for their clients.
    pub fn stalled(&self) -> usize {
        self.parts.iter().map(Part::stalled).sum()
    }

    /// Whether something waits for which there is a worker.
    pub fn can_serve(&self) -> bool {
        let classes = [Class::Small, Class::Bulk, Class::Stranger];
        Kind::SERVED.into_iter().any(|kind| classes.into_iter().any(|class| self.may_serve(kind, class)))
    }

    /// Adds a call. If the room of its kind is full, the newest call of the user with most waiting calls makes room
    /// and is returned, unless that user is the caller's.
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

    /// What to serve now.
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

    /// The call is over; `cost` is what it really was.
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

    /// The worker can do nothing but wait for the client of this call. True if another may be
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

    /// The client has done something.
    pub fn resume(&mut self, ticket: &mut Ticket) {
        if std::mem::take(&mut ticket.stalled) {
            self.part(ticket.work.kind).line(ticket.work.class).stalled -= 1;
        }
    }

    /// Gives up everything that waits.
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

    /// Makes room for a call of a user that has fewer waiting calls than another.
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

    /// Whether there is something of the kind and class, and a worker for it.
    fn may_serve(&self, kind: Kind, class: Class) -> bool {
        let part = &self.parts[kind.index()];
        match class {
            Class::Small => part.small.waiting > 0 && self.has_worker(kind),
            Class::Bulk => part.bulk.waiting > 0 && self.has_worker_for_bulk(kind),
            Class::Stranger => part.strangers.waiting > 0 && self.has_worker_for_stranger(kind),
        }
    }

    /// Whether one more call of the kind may be served: in its own part, or in what is left beside the other's.
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

    /// Takes the first call of who is below its share. `None`: its volume is not, and it was put aside.
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

    /// Nobody of the kind below its share waits: workers are not left idle for that.
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

    /// Strangers hold nothing of the workers; they only take turns among themselves.
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

    /// Puts the user where it belongs after what it holds has changed.
    fn refresh(&mut self, kind: Kind, user: u64) {
        let is_free = self.is_free(user);
        let part = self.part(kind);
        part.small.refresh(user, is_free);
        part.bulk.refresh(user, is_free);
    }

    /// A call for the volume has ended: one that was put aside for it may go on.
    fn release(&mut self, kind: Kind, volume: u32) {
        let share = self.limits.volume_share;
        if let Some((class, user)) = self.part(kind).volumes.release(volume, share) {
            let is_free = self.is_free(user);
            self.part(kind).line(class).unpark(user, volume, is_free);
        }
    }

    /// The same for any volume below its share.
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
