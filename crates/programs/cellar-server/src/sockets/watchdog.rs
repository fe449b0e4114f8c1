//! Watchdog of the service manager (sd_watchdog_enabled(3)): it kills and restarts the server if the receiving
//! threads make no progress.

use super::manager::Manager;
use std::time::Duration;

/// Time in which the thread of every lane runs at least once: it sleeps for ten seconds at most.
const PROGRESS_MAX: Duration = Duration::from_secs(15);

/// Longest interval between two checks.
const PERIOD_MAX: Duration = Duration::from_secs(5);

/// The service manager's watchdog, which expects a notification at intervals.
pub(crate) struct Watchdog {
    manager: Manager,
    period: Duration,
}

impl Watchdog {
    /// Returns the watchdog named in the environment (`WATCHDOG_USEC`, `WATCHDOG_PID`, `NOTIFY_SOCKET`), if
    /// it expects notifications of this process.
    pub(crate) fn of_environment() -> Option<Watchdog> {
        let variable = |name| std::env::var(name).ok();
        let (limit, pid) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
        let period = period(limit.as_deref(), pid.as_deref(), std::process::id())?;
        Some(Watchdog { manager: Manager::of_environment()?, period })
    }

    /// Returns the interval between checks. If a check succeeds, the caller calls [`Watchdog::feed`].
    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    /// Notifies the service manager that the server works.
    pub(crate) fn feed(&self) {
        self.manager.say("WATCHDOG=1");
    }
}

/// Returns the interval between two checks: a quarter of the limit, at most [`PERIOD_MAX`].
fn period(limit_us: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    let limit_us: u64 = limit_us?.parse().ok().filter(|limit| *limit > 0)?;
    let is_own = pid.is_none_or(|pid| pid.parse() == Ok(own_pid));
    is_own.then(|| (Duration::from_micros(limit_us) / 4).min(PERIOD_MAX))
}

/// Tracks the progress counters of threads.
#[derive(Default)]
pub(crate) struct Progress {
    /// Last count of each thread, and the time at which it was first seen.
    counts: Vec<(u64, Duration)>,
}

impl Progress {
    /// Takes the threads' counts at a time `now` since any fixed moment. Returns the indexes of threads whose
    /// count has been the same for longer than a working thread ever sleeps.
    pub(crate) fn stuck(&mut self, counts: impl IntoIterator<Item = u64>, now: Duration) -> Vec<usize> {
        let mut stuck = Vec::new();
        for (index, count) in counts.into_iter().enumerate() {
            match self.counts.get_mut(index) {
                None => self.counts.push((count, now)),
                Some((seen, since)) if *seen == count => {
                    if now.saturating_sub(*since) > PROGRESS_MAX {
                        stuck.push(index);
                    }
                }
                Some(entry) => *entry = (count, now),
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_is_named_is_watched() {
        let quarter = Some(Duration::from_secs(2));
        assert_eq!(period(Some("8000000"), Some("7"), 7), quarter);
        assert_eq!(period(Some("8000000"), None, 7), quarter);
        assert_eq!(period(Some("60000000"), None, 7), Some(PERIOD_MAX));
        for (limit, pid) in [
            (None, None),
            (Some("8000000"), Some("8")),
            (Some("8000000"), Some("x")),
            (Some("0"), None),
            (Some("soon"), None),
        ] {
            assert_eq!(period(limit, pid, 7), None, "{limit:?} {pid:?}");
        }
    }

    #[test]
    fn a_thread_is_stuck_if_its_count_stays_longer_than_it_sleeps() {
        let mut progress = Progress::default();
        let mut stuck = |counts: [u64; 2], second| progress.stuck(counts, Duration::from_secs(second));
        assert!(stuck([0, 0], 0).is_empty());
        assert!(stuck([0, 1], 15).is_empty());
        assert_eq!(stuck([0, 1], 16), [0]);
        assert_eq!(stuck([0, 1], 31), [0, 1]);
        assert_eq!(stuck([1, 1], 32), [1]);
        assert!(stuck([2, 2], 60).is_empty());
    }
}
