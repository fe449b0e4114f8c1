//! Metadata that is read at a limited pace and whose reading can be stopped.

use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use store::{Batch, CommitNumber, Family, KeyRange, MetaStore, Snapshot, StoreError, Visit};

/// Records between two looks at the clock.
const LOOK_RECORDS: u64 = 512;
/// Shorter rests are saved up.
const REST_LEAST: Duration = Duration::from_millis(2);
/// So that a stop is seen soon.
const REST_MOST: Duration = Duration::from_secs(1);

/// Lets its user work a part of the time.
pub(super) struct Pace {
    /// The part in hundredths.
    percent: u32,
    since: Mutex<Instant>,
    records: AtomicU64,
}

impl Pace {
    pub(super) fn new(percent: u32) -> Pace {
        Pace { percent: percent.clamp(1, 100), since: Mutex::new(Instant::now()), records: AtomicU64::new(0) }
    }

    /// One more record was read; whether to look at the clock.
    fn count(&self) -> bool {
        self.records.fetch_add(1, Relaxed).is_multiple_of(LOOK_RECORDS)
    }

    /// Rests as long as the work since the last rest makes due.
    pub(super) fn rest(&self) {
        let mut since = self.since.lock();
        let due = rest_for(since.elapsed(), self.percent);
        if due >= REST_LEAST {
            thread::sleep(due.min(REST_MOST));
            *since = Instant::now();
        }
    }
}

/// How long to rest after so much work.
fn rest_for(work: Duration, percent: u32) -> Duration {
    work * (100 - percent) / percent
}

/// Why a scan ended early.
pub(super) const STOPPED: &str = "the check was stopped";

/// Reads `meta` at a pace, until it is stopped.
pub(super) struct Paced<'a> {
    pub(super) meta: &'a dyn MetaStore,
    pub(super) pace: &'a Pace,
    pub(super) stop: &'a AtomicBool,
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
