//! One creation of objects for many callers that wait.

use crate::StoreError;
use events::parts::Part;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::time::Instant;

/// Like [`GroupSync`](crate::group_sync::GroupSync), except that a round whose bucket did not answer fails for all who
/// waited for it: each on its own would wait as long again, one after the other.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The round that runs and the last one that failed. Held only to read or change them.
    state: Mutex<State>,
    ended: Condvar,
    durable: AtomicU64,
    requests: AtomicU64,
    led: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    /// Number of the newest round.
    newest: u64,
    unavailable: Option<Unavailable>,
}

/// The round that had no answer, and its error.
#[derive(Clone, Debug)]
struct Unavailable {
    round: u64,
    place: String,
    what: String,
}

/// Ends the round on drop, even if it panics, so that no caller waits for ever.
struct Round<'a>(&'a Rounds);

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_running = false;
        self.0.ended.notify_all();
    }
}

impl Rounds {
    /// Waits until `number` is durable. `save` must make durable what was appended before it was called, and return
    /// the largest number covered; at most one runs at a time.
    pub(super) fn wait(
        &self,
        number: u64,
        save: impl Fn() -> Result<u64, StoreError>,
    ) -> Result<(), StoreError> {
        self.requests.fetch_add(1, Relaxed);
        if self.durable.load(Acquire) >= number {
            return Ok(());
        }
        let (span, begun) = (waits::enter(Part::Disk), Instant::now());
        let result = self.lead_or_follow(number, save);
        span.leave(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        result
    }

    fn lead_or_follow(
        &self,
        number: u64,
        save: impl Fn() -> Result<u64, StoreError>,
    ) -> Result<(), StoreError> {
        loop {
            let mut state = self.state.lock();
            if self.durable.load(Acquire) >= number {
                return Ok(());
            }
            if !state.is_running {
                state.is_running = true;
                state.newest += 1;
                let round = state.newest;
                drop(state);
                return self.lead(round, save);
            }
            let followed = state.newest;
            while state.is_running && state.newest == followed {
                self.ended.wait(&mut state);
            }
            let failed = state.unavailable.clone().filter(|failed| failed.round == followed);
            if let Some(Unavailable { place, what, .. }) = failed {
                return Err(StoreError::Unavailable { place, what });
            }
        }
    }

    /// A round that the caller leads began after what the caller appended, so it covers that.
    fn lead(&self, round: u64, save: impl Fn() -> Result<u64, StoreError>) -> Result<(), StoreError> {
        let _round = Round(self);
        self.led.fetch_add(1, Relaxed);
        match save() {
            Ok(covered) => {
                self.durable.fetch_max(covered, AcqRel);
                Ok(())
            }
            Err(error) => {
                if let StoreError::Unavailable { place, what } = &error {
                    let (place, what) = (place.clone(), what.clone());
                    self.state.lock().unavailable = Some(Unavailable { round, place, what });
                }
                Err(error)
            }
        }
    }

    /// Returns the number of calls to [`Rounds::wait`].
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns the number of rounds that served them.
    pub(super) fn rounds(&self) -> u64 {
        self.led.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_caller_returns_after_a_round_that_began_after_its_append() {
        let (rounds, appended, saved) = (Rounds::default(), AtomicU64::new(0), AtomicU64::new(0));
        let save = || {
            let covered = appended.load(Acquire);
            thread::yield_now();
            saved.fetch_max(covered, AcqRel);
            Ok(covered)
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let number = appended.fetch_add(1, AcqRel) + 1;
                        rounds.wait(number, save).unwrap();
                        assert!(saved.load(Acquire) >= number);
                    }
                });
            }
        });
        assert!(rounds.requests() == 2400 && rounds.rounds() <= 2400);
    }

    #[test]
    fn all_who_wait_for_a_round_without_an_answer_fail_with_it() {
        let (rounds, saves, begun) = (Rounds::default(), AtomicU64::new(0), Barrier::new(2));
        let no_answer = || StoreError::Unavailable { place: "a bucket".into(), what: "no answer".into() };
        thread::scope(|scope| {
            scope.spawn(|| {
                let first = rounds.wait(1, || {
                    saves.fetch_add(1, AcqRel);
                    begun.wait();
                    // Until all others wait; those that it wakes wait again.
                    let end = Instant::now() + Duration::from_secs(60);
                    while rounds.ended.notify_all() < 5 && Instant::now() < end {
                        thread::sleep(Duration::from_millis(10));
                    }
                    Err(no_answer())
                });
                assert!(matches!(first, Err(StoreError::Unavailable { .. })));
            });
            begun.wait();
            for number in 2..7 {
                let (rounds, saves) = (&rounds, &saves);
                scope.spawn(move || {
                    let other = rounds.wait(number, || Ok(saves.fetch_add(1, AcqRel)));
                    assert!(matches!(other, Err(StoreError::Unavailable { .. })), "{other:?}");
                });
            }
        });
        assert_eq!(saves.load(Acquire), 1);
        rounds.wait(7, || Ok(7)).unwrap();
        rounds.wait(7, || panic!("it is durable")).unwrap();
        assert!(matches!(rounds.wait(8, || Err(StoreError::Full)), Err(StoreError::Full)));
    }
}
