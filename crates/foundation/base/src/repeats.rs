//! Limits log lines that any host on the network can cause: each appears once in a period.

use crate::Monotonic;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Recently reported keys. Their number is bounded: while the limit is reached, new keys are not reported, so
/// that forged addresses fill neither the memory nor the log.
#[derive(Debug)]
pub struct Repeats<K> {
    reported: HashMap<K, Monotonic>,
    period: Duration,
    keys_max: usize,
    /// Time at which an overflow was last reported.
    overflowed: Option<Monotonic>,
}

/// Whether to report an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// The key was not reported in this period.
    New,
    /// The key was reported in this period.
    Repeated,
    /// The limit is reached: report, once in a period, that further keys are omitted.
    Overflow,
    /// The limit is reached, and that was reported.
    LeftOut,
}

impl<K: Eq + Hash> Repeats<K> {
    /// Creates a limiter that reports each key once in `period`, and remembers at most `keys_max` keys.
    pub fn new(period: Duration, keys_max: usize) -> Repeats<K> {
        Repeats { reported: HashMap::new(), period, keys_max, overflowed: None }
    }

    /// Returns whether to report `key` now; if so, it counts as reported.
    pub fn check(&mut self, key: K, now: Monotonic) -> Novelty {
        let period = self.period;
        let is_recent = |at: &Monotonic| now.since(*at) < period;
        if self.reported.get(&key).is_some_and(is_recent) {
            return Novelty::Repeated;
        }
        if self.reported.len() >= self.keys_max {
            self.reported.retain(|_, at| is_recent(at));
        }
        if self.reported.len() < self.keys_max {
            self.reported.insert(key, now);
            return Novelty::New;
        }
        if self.overflowed.as_ref().is_some_and(is_recent) {
            return Novelty::LeftOut;
        }
        self.overflowed = Some(now);
        Novelty::Overflow
    }

    /// Returns the keys reported within the last period.
    pub fn recent(&self, now: Monotonic) -> impl Iterator<Item = &K> {
        self.reported.iter().filter(move |(_, at)| now.since(**at) < self.period).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(600);

    #[test]
    fn keys_are_reported_once_in_a_period() {
        let (mut repeats, now) = (Repeats::new(PERIOD, 8), Monotonic(7));
        assert_eq!(repeats.check("a", now), Novelty::New);
        assert_eq!(repeats.check("a", now + PERIOD / 2), Novelty::Repeated);
        assert_eq!(repeats.check("b", now), Novelty::New);
        assert_eq!(repeats.check("a", now + PERIOD), Novelty::New);
        assert_eq!(repeats.recent(now + PERIOD).collect::<Vec<_>>(), [&"a"]);
    }

    #[test]
    fn keys_and_reports_are_bounded() {
        let (mut repeats, now) = (Repeats::new(PERIOD, 8), Monotonic(7));
        let checked: Vec<Novelty> = (0..1000).map(|key| repeats.check(key, now)).collect();
        assert_eq!(checked.iter().filter(|it| **it == Novelty::New).count(), 8);
        assert_eq!(checked.iter().filter(|it| **it == Novelty::Overflow).count(), 1);
        assert_eq!(repeats.reported.len(), 8);
        // All keys have expired and are removed.
        assert_eq!(repeats.check(999, now + PERIOD), Novelty::New);
    }
}
