//! When the next round of the log begins.
//!
//! A round is one request to the bucket, which takes about as long for one commit as for a hundred. Commits that arrive
//! during a round wait for the next. If that began at once, the callers whose commits have just become durable would miss
//! it with their next ones, so that the callers of one partition would be served in two groups, in turn. So a round waits
//! for most of the callers of the one before, for at most as long as a round takes. Where they do not come back, as when
//! clients pause between changes, fewer and fewer rounds wait.

use std::time::Duration;

/// Longest wait.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Most doublings of the number of rounds that do not wait.
const MISSES_MAX: u32 = 8;

/// Paces the rounds of one log.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Number of commits that the last round made durable, and of those that came meanwhile.
    callers: u64,
    /// Typical duration of a round.
    round: Duration,
    /// Waits in vain since the last that was not.
    misses: u32,
    /// Number of rounds that do not wait because of them.
    skips: u32,
}

impl Pace {
    /// Returns how many commits the next round waits for, in all, and for how long, if `waiting` are there.
    pub(crate) fn begin(&mut self, waiting: u64) -> Option<(u64, Duration)> {
        let target = self.callers - self.callers / 4;
        if waiting >= target {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        Some((target, self.round.min(WAIT_MAX)))
    }

    /// Records whether as many commits came as a round waited for.
    pub(crate) fn waited(&mut self, is_reached: bool) {
        if is_reached {
            self.misses = 0;
        } else {
            self.misses = (self.misses + 1).min(MISSES_MAX);
            self.skips = 1 << self.misses;
        }
    }

    /// Records a round that made `commits` durable, while `later` others were made.
    pub(crate) fn end(&mut self, commits: u64, later: u64, took: Duration) {
        self.callers = commits + later;
        self.round = if self.round.is_zero() { took } else { (self.round * 7 + took) / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(4);

    #[test]
    fn one_caller_never_waits() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            assert_eq!(pace.begin(1), None);
            pace.end(1, 0, ROUND);
        }
    }

    #[test]
    fn two_groups_of_callers_become_one() {
        let mut pace = Pace::default();
        pace.end(8, 8, ROUND);
        assert_eq!(pace.begin(8), Some((12, ROUND)));
        pace.waited(true);
        pace.end(12, 4, ROUND);
        assert_eq!(pace.begin(4), Some((12, ROUND)), "the next round waits again");
        assert_eq!(pace.begin(12), None, "all are there");
        // With two callers, both are waited for.
        pace.end(1, 1, ROUND);
        assert_eq!(pace.begin(1), Some((2, ROUND)));
    }

    #[test]
    fn callers_that_do_not_return_are_waited_for_less_and_less() {
        let mut pace = Pace::default();
        let mut waits = 0;
        for _ in 0..10_000 {
            pace.end(8, 8, ROUND);
            if pace.begin(8).is_some() {
                waits += 1;
                pace.waited(false);
            }
        }
        assert_eq!(waits, 45, "of 10,000 rounds");
        pace.end(2, 0, ROUND);
        assert_eq!(pace.begin(2), None, "those that left are forgotten");
    }

    #[test]
    fn a_slow_bucket_is_not_made_slower() {
        let mut pace = Pace::default();
        pace.end(8, 8, Duration::from_secs(5));
        assert_eq!(pace.begin(8), Some((12, WAIT_MAX)));
    }
}
