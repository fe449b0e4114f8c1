//! All deadlines of an endpoint in order.
//!
//! Every call, connection and peer has at most one entry: its earliest deadline. When a deadline moves into
//! the future, its entry stays in place; when the entry expires, nothing is due and the entry is created
//! again. The steady state of a transfer therefore costs nothing here.
//!
//! Neither does the steady state of many short calls: the entry of a call on its channel belongs to the
//! channel, and the next call on the channel uses it again.

use std::collections::BTreeSet;

use base::Monotonic;

use crate::slab::Key;

/// The owner of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timed {
    /// A call that has left its channel.
    Call(Key),
    /// The current call on this channel of a connection.
    Channel(Key, u8),
    Connection(Key),
    Peer(Key),
}

/// The entry of an object in [`Timers`], stored in the object itself.
#[derive(Debug, Default)]
pub(crate) struct Armed(Option<Monotonic>);

/// The ordered deadlines of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeSet<(Monotonic, Timed)>,
}

impl Timers {
    /// Ensures that `what` expires at `at` or earlier.
    pub(crate) fn arm(&mut self, what: Timed, armed: &mut Armed, at: Option<Monotonic>) {
        let Some(at) = at else { return };
        if armed.0.is_some_and(|old| old <= at) {
            return;
        }
        self.disarm(what, armed);
        self.queue.insert((at, what));
        armed.0 = Some(at);
    }

    /// Removes the entry of an object that is being removed.
    pub(crate) fn disarm(&mut self, what: Timed, armed: &mut Armed) {
        if let Some(old) = armed.0.take() {
            self.queue.remove(&(old, what));
        }
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Monotonic> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// Removes and returns an entry that is due. Its owner's [`Armed`] must be cleared with [`Armed::fired`].
    pub(crate) fn pop_due(&mut self, now: Monotonic) -> Option<Timed> {
        if self.next()? > now {
            return None;
        }
        self.queue.pop_first().map(|(_, what)| what)
    }
}

impl Armed {
    /// Records that [`Timers::pop_due`] has removed the entry.
    pub(crate) fn fired(&mut self) {
        self.0 = None;
    }

    /// Prefetches the deadline: see [`look`].
    pub(crate) fn look(&self) -> u64 {
        look(self.0)
    }
}

/// Returns a deadline as a meaningless number, for prefetching.
pub(crate) fn look(at: Option<Monotonic>) -> u64 {
    at.map_or(0, |at| at.0)
}

/// Returns the earlier of two deadlines.
pub(crate) fn earlier(one: Option<Monotonic>, other: Option<Monotonic>) -> Option<Monotonic> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn later_deadlines_are_lazy_and_earlier_ones_are_not() {
        let key = Slab::new().insert_with(|_| ());
        let (mut timers, mut armed) = (Timers::default(), Armed::default());
        timers.arm(Timed::Call(key), &mut armed, Some(Monotonic(50)));
        timers.arm(Timed::Call(key), &mut armed, Some(Monotonic(90)));
        assert_eq!(timers.next(), Some(Monotonic(50)));
        timers.arm(Timed::Call(key), &mut armed, Some(Monotonic(20)));
        assert_eq!(timers.next(), Some(Monotonic(20)));
        assert_eq!(timers.pop_due(Monotonic(19)), None);
        assert_eq!(timers.pop_due(Monotonic(20)), Some(Timed::Call(key)));
        assert_eq!(timers.next(), None);
        armed.fired();
        timers.arm(Timed::Call(key), &mut armed, Some(Monotonic(90)));
        timers.disarm(Timed::Call(key), &mut armed);
        assert_eq!(timers.next(), None);
    }
}
