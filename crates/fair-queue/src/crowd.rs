//! Waiting calls by user and age, to find the one that goes when a room is full.
//!
//! Keeping this up to date costs more than the lines themselves, so it exists only under pressure.

use std::collections::{BTreeMap, BTreeSet};

use crate::numbers::ByUser;
use crate::{Class, Work};

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) work: Work,
    /// Larger than that of any call that came earlier.
    pub(crate) sequence: u64,
    pub(crate) call: T,
}

impl<T> Waiting<T> {
    /// The volume under which its line has it: strangers' calls all keep their order.
    pub(crate) fn volume(&self) -> u32 {
        if self.work.class == Class::Stranger { 0 } else { self.work.volume }
    }
}

/// See the module's text.
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

    /// The number of waiting calls of a user.
    pub(crate) fn count_of(&self, user: u64) -> usize {
        self.counts.get(&user).copied().unwrap_or(0)
    }

    /// The user with most waiting calls, and how many they are.
    pub(crate) fn largest(&self) -> Option<(usize, u64)> {
        self.by_count.last().copied()
    }

    /// Class and volume of a user's newest call.
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
