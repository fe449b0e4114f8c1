//! Group commit: one sync for many callers. The first caller becomes the leader. Callers that arrive during
//! its sync wait, and one of them leads the next sync, which covers them all.

use crate::StoreError;
use events::parts::Part;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::time::Instant;

/// Every write has a larger number than the one before; a sync makes all writes up to some number durable.
#[derive(Debug, Default)]
pub(crate) struct GroupSync {
    /// Whether a sync is running. The lock is held only to read or set the flag, never during the sync.
    leading: Mutex<bool>,
    finished: Condvar,
    durable: AtomicU64,
    requests: AtomicU64,
    rounds: AtomicU64,
}

/// Gives up leadership on drop, even if the sync panics, so that followers never wait forever.
struct Lead<'a>(&'a GroupSync);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        *self.0.leading.lock() = false;
        self.0.finished.notify_all();
    }
}

impl GroupSync {
    /// Waits until `number` is durable. `sync` must make durable everything that was written before it was
    /// called, and return the largest number covered; at most one runs at a time.
    pub(crate) fn wait(
        &self,
        number: u64,
        sync: impl Fn() -> Result<u64, StoreError>,
    ) -> Result<(), StoreError> {
        self.requests.fetch_add(1, Relaxed);
        if self.durable.load(Acquire) >= number {
            return Ok(());
        }
        let (span, begun) = (waits::enter(Part::Disk), Instant::now());
        let result = self.lead_or_follow(number, sync);
        span.leave(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        result
    }

    fn lead_or_follow(
        &self,
        number: u64,
        sync: impl Fn() -> Result<u64, StoreError>,
    ) -> Result<(), StoreError> {
        while self.durable.load(Acquire) < number {
            if let Some(_lead) = self.lead(number) {
                self.rounds.fetch_add(1, Relaxed);
                self.durable.fetch_max(sync()?, AcqRel);
            }
        }
        Ok(())
    }

    /// Becomes the leader; `None` once another caller's sync has finished or has made `number` durable.
    fn lead(&self, number: u64) -> Option<Lead<'_>> {
        let mut leading = self.leading.lock();
        if self.durable.load(Acquire) >= number {
            return None;
        }
        if *leading {
            self.finished.wait(&mut leading);
            return None;
        }
        *leading = true;
        Some(Lead(self))
    }

    /// Returns the number of calls to [`GroupSync::wait`].
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns the number of syncs that served them.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn every_caller_returns_after_a_sync_that_began_after_its_write() {
        let (group, written, synced) = (GroupSync::default(), AtomicU64::new(0), AtomicU64::new(0));
        let sync = || {
            let covered = written.load(Acquire);
            thread::yield_now();
            synced.fetch_max(covered, AcqRel);
            Ok(covered)
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let number = written.fetch_add(1, AcqRel) + 1;
                        group.wait(number, sync).unwrap();
                        assert!(synced.load(Acquire) >= number);
                    }
                });
            }
        });
        assert_eq!(group.requests(), 4000);
        assert!(group.rounds() <= 4000);
    }

    #[test]
    fn a_failure_reaches_the_caller_and_covers_nothing() {
        let group = GroupSync::default();
        let fail = || Err(StoreError::ReadOnly("broken".into()));
        assert!(group.wait(1, fail).is_err());
        assert!(group.wait(1, || Ok(1)).is_ok());
        assert!(group.wait(1, fail).is_ok());
    }
}
