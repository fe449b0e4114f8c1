//! How many tests run at a time.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of tests in parallel: each may run several servers, and a guest of 1 GiB.
const JOBS_MAX: usize = 8;

/// Maximum number of tests for each processor. Most tests wait most of the time: for votes, timeouts and starting servers.
const JOBS_PER_PROCESSOR: usize = 4;

/// For how long the load is measured before another test begins.
const MEASURED: Duration = Duration::from_millis(1500);

/// Share of the processors' time that must be unused for another test to begin, in percent.
const IDLE_PERCENT_MIN: u64 = 30;

/// How many tests run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobs {
    /// Always, at least.
    pub least: usize,
    /// While processors are idle, at most.
    pub most: usize,
}

impl Jobs {
    /// One at a time.
    pub const ONE: Jobs = Jobs { least: 1, most: 1 };

    /// Returns what `CELLAR_TEST_JOBS` says, or what the machine can bear.
    ///
    /// # Errors
    /// If the variable is not a number from 1 to 8.
    pub fn configured() -> Result<Jobs> {
        match std::env::var("CELLAR_TEST_JOBS") {
            Ok(text) => Jobs::parse(&text),
            Err(_) => Ok(Jobs::of(std::thread::available_parallelism().map_or(1, usize::from))),
        }
    }

    fn parse(text: &str) -> Result<Jobs> {
        let jobs = text.parse().ok().filter(|jobs| (1..=JOBS_MAX).contains(jobs)).with_context(|| {
            format!("CELLAR_TEST_JOBS={text}: expected how many tests run at a time, 1 to {JOBS_MAX}")
        })?;
        Ok(Jobs { least: jobs, most: jobs })
    }

    fn of(processors: usize) -> Jobs {
        Jobs { least: processors.min(JOBS_MAX), most: (JOBS_PER_PROCESSOR * processors).min(JOBS_MAX) }
    }
}

/// The tests that were begun.
#[derive(Debug)]
pub struct Begun {
    jobs: Jobs,
    running: Arc<()>,
}

/// A test that is running, until it is dropped.
#[derive(Debug)]
pub struct Running(#[allow(dead_code, reason = "it is counted")] Arc<()>);

impl Begun {
    /// Returns that none was.
    pub fn of(jobs: Jobs) -> Begun {
        Begun { jobs, running: Arc::default() }
    }

    /// Waits until another test may begin. At most [`Jobs::most`] may be begun and not be dropped.
    pub fn begin(&mut self) -> Running {
        self.begin_when(|| idle_percent(MEASURED) >= IDLE_PERCENT_MIN)
    }

    fn begin_when(&mut self, mut is_idle: impl FnMut() -> bool) -> Running {
        while Arc::strong_count(&self.running) > self.jobs.least && !is_idle() {}
        Running(Arc::clone(&self.running))
    }
}

/// Returns the share of the processors' time that is not used during `time`, in percent; 100 if it is not known.
fn idle_percent(time: Duration) -> u64 {
    let read = || std::fs::read_to_string("/proc/stat").ok().and_then(|text| parse_idle(&text));
    let before = read();
    std::thread::sleep(time);
    let Some(((idle_before, all_before), (idle, all))) = before.zip(read()) else { return 100 };
    let (idle, all) = (idle.saturating_sub(idle_before), all.saturating_sub(all_before));
    100 * idle / all.max(1)
}

/// Parses the time in which all processors had nothing to do, and the time altogether, of `/proc/stat`.
fn parse_idle(text: &str) -> Option<(u64, u64)> {
    let times = text.lines().next()?.strip_prefix("cpu ")?;
    // User, nice, system, idle, waiting for a device, interrupts of two kinds, stolen; then what the first ones contain.
    let times: Vec<u64> = times.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [_, _, _, idle, waiting, ..] = times[..] else { return None };
    Some((idle + waiting, times.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_jobs_is_checked() {
        assert_eq!(Jobs::parse("1").unwrap(), Jobs::ONE);
        assert_eq!(Jobs::parse("8").unwrap(), Jobs { least: 8, most: 8 });
        for text in ["", "0", "9", "-1", "two"] {
            let error = Jobs::parse(text).unwrap_err().to_string();
            assert!(error.contains("expected how many tests run at a time, 1 to 8"), "{error}");
        }
        assert_eq!(Jobs::of(1), Jobs { least: 1, most: 4 });
        assert_eq!(Jobs::of(2), Jobs { least: 2, most: 8 });
        assert_eq!(Jobs::of(64), Jobs { least: 8, most: 8 });
    }

    #[test]
    fn more_tests_begin_while_processors_are_idle() {
        let mut begun = Begun::of(Jobs { least: 2, most: 4 });
        let not_asked = || panic!("two always run");
        let first = begun.begin_when(not_asked);
        let second = begun.begin_when(not_asked);
        let mut answers = [false, false, true].into_iter();
        let third = begun.begin_when(|| answers.next().unwrap());
        assert_eq!(answers.next(), None, "it was measured until there was room");
        drop((first, second));
        drop(begun.begin_when(not_asked));
        drop(third);
    }

    #[test]
    fn idle_time_is_parsed() {
        let text = "cpu  10 20 30 400 50 6 7 8 99 99\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(parse_idle(text), Some((450, 531)));
        assert_eq!(parse_idle("cpu  1 2 3 4 5"), Some((9, 15)), "of an old kernel");
        for text in ["", "cpu", "cpu  1 2 3 4", "cpu  1 2 x 4 5", "cpu0 1 2 3 4 5 6 7 8"] {
            assert_eq!(parse_idle(text), None, "{text}");
        }
        assert!(idle_percent(Duration::from_millis(1)) <= 100);
    }
}
