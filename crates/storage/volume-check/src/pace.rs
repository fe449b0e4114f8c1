//! A metadata store wrapper whose reads are throttled and can be stopped.

use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use store::{Batch, CommitNumber, Family, KeyRange, MetaStore, Snapshot, StoreError, Visit};

/// Records between two checks of the clock.
const LOOK_RECORDS: u64 = 512;
/// Minimum pause; shorter ones accumulate.
const REST_LEAST: Duration = Duration::from_millis(2);
/// Maximum pause, so that a stop request takes effect soon.
const REST_MOST: Duration = Duration::from_secs(1);

/// Throttles its user to a share of the time.
pub(crate) struct Pace {
    /// Share of the time to work, in percent.
    percent: u32,
    since: Mutex<Instant>,
    records: AtomicU64,
}

impl Pace {
    pub(crate) fn new(percent: u32) -> Pace {
        Pace { percent: percent.clamp(1, 100), since: Mutex::new(Instant::now()), records: AtomicU64::new(0) }
    }

    /// Counts a record; returns whether to check the clock.
    fn count(&self) -> bool {
        self.records.fetch_add(1, Relaxed).is_multiple_of(LOOK_RECORDS)
    }

    /// Sleeps for as long as the work since the last pause requires.
    pub(crate) fn rest(&self) {
        let mut since = self.since.lock();
        let due = rest_for(since.elapsed(), self.percent);
        if due >= REST_LEAST {
            thread::sleep(due.min(REST_MOST));
            *since = Instant::now();
        }
    }
}

/// Returns the pause due after this much work.
fn rest_for(work: Duration, percent: u32) -> Duration {
    work * (100 - percent) / percent
}

/// Error text of a scan that was stopped.
pub(crate) const STOPPED: &str = "the check was stopped";

/// Reads `meta` at a limited pace until stopped.
pub(crate) struct Paced<'a> {
    pub(crate) meta: &'a dyn MetaStore,
    pub(crate) pace: &'a Pace,
    pub(crate) stop: &'a AtomicBool,
}

impl MetaStore for Paced<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.meta.get(family, key)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        let mut is_stopped = self.stop.load(Relaxed);
        if !is_stopped {
            self.meta.scan(family, range, &mut |key, value| {
                if self.pace.count() {
                    self.pace.rest();
                    is_stopped = self.stop.load(Relaxed);
                }
                if is_stopped { ControlFlow::Break(()) } else { visit(key, value) }
            })?;
        }
        if is_stopped { Err(StoreError::Meta(STOPPED.to_owned())) } else { Ok(()) }
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.meta.snapshot()
    }

    fn commit(&self, _batch: Batch) -> Result<CommitNumber, StoreError> {
        Err(StoreError::Meta("a check changes nothing".to_owned()))
    }

    fn sync(&self, _number: CommitNumber) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_are_as_long_as_the_share_of_work_wants() {
        let work = Duration::from_millis(300);
        for (percent, rest_ms) in [(100, 0), (50, 300), (25, 900), (1, 29_700)] {
            assert_eq!(rest_for(work, percent), Duration::from_millis(rest_ms), "{percent}");
        }
    }
}
