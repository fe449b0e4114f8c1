//! Waiting calls by user and age, to find the call to evict when too many wait.
//!
//! Maintaining this index costs more than the queues themselves, so it exists only under pressure.

use std::collections::{BTreeMap, BTreeSet};

use crate::numbers::ByUser;
use crate::{Class, Work};

/// A waiting call.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) work: Work,
    /// Larger than the number of any earlier call.
    pub(crate) sequence: u64,
    pub(crate) call: T,
}

impl<T> Waiting<T> {
    /// Returns the volume under which the call is queued. Calls of unidentified clients are not separated by
    /// volume, so that they keep their order.
    pub(crate) fn volume(&self) -> u32 {
        if self.work.class == Class::Stranger { 0 } else { self.work.volume }
    }
}

/// The index; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    counts: ByUser<usize>,
    by_count: BTreeSet<(usize, u64)>,
    /// Class and volume by user and sequence number.
    calls: BTreeMap<(u64, u64), (Class, u32)>,
}

impl Crowd {
    pub(crate) fn add<T>(&mut self, waiting: &Waiting<T>) {
        let user = waiting.work.user;
        self.calls.insert((user, waiting.sequence), (waiting.work.class, waiting.volume()));
        self.count(user, self.count_of(user) + 1);
    }

    pub(crate) fn remove<T>(&mut self, waiting: &Waiting<T>) {
        let user = waiting.work.user;
        if self.calls.remove(&(user, waiting.sequence)).is_some() {
            self.count(user, self.count_of(user) - 1);
        }
    }

    /// Returns the number of waiting calls of a user.
    pub(crate) fn count_of(&self, user: u64) -> usize {
        self.counts.get(&user).copied().unwrap_or(0)
    }

    /// Returns the user with the most waiting calls, and their number.
    pub(crate) fn largest(&self) -> Option<(usize, u64)> {
        self.by_count.last().copied()
    }

    /// Returns class and volume of a user's newest call.
    pub(crate) fn newest(&self, user: u64) -> Option<(Class, u32)> {
        self.calls.range((user, 0)..=(user, u64::MAX)).next_back().map(|(_, place)| *place)
    }

    fn count(&mut self, user: u64, count: usize) {
        let old = if count == 0 { self.counts.remove(&user) } else { self.counts.insert(user, count) };
        if let Some(old) = old {
            self.by_count.remove(&(old, user));
        }
        if count > 0 {
            self.by_count.insert((count, user));
        }
    }
}
