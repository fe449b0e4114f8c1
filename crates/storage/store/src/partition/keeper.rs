//! The thread that does a partition's recurring maintenance.

use crate::StoreError;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of rounds before a failed step is retried; with one round in 5 s, every five minutes.
const PAUSE_ROUNDS_MAX: u32 = 64;

/// Longest pause between two pieces of work.
const REST_MAX: Duration = Duration::from_millis(50);

/// A running thread; dropping it ends the thread.
pub(super) struct Keeper {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Signals the thread to end.
#[derive(Default)]
pub(super) struct Stop {
    is_notified: Mutex<bool>,
    reported: Condvar,
}

impl Stop {
    fn notify(&self) {
        *self.is_notified.lock() = true;
        self.reported.notify_all();
    }

    /// Waits at most `at_most`; returns whether to end.
    fn wait(&self, at_most: Duration) -> bool {
        let mut is_notified = self.is_notified.lock();
        if !*is_notified {
            self.reported.wait_for(&mut is_notified, at_most);
        }
        *is_notified
    }

    /// Whether the thread is to end.
    pub(super) fn is_notified(&self) -> bool {
        *self.is_notified.lock()
    }

    /// Returns a function that paces work done in pieces. Call it before each piece: it pauses as long as the
    /// previous piece took, so that half of the time is left to others, and returns whether to continue.
    pub(super) fn rests(&self) -> impl FnMut() -> bool {
        let mut begun = Instant::now();
        move || {
            let is_notified = self.wait(begun.elapsed().min(REST_MAX));
            begun = Instant::now();
            !is_notified
        }
    }
}

impl Keeper {
    /// Calls `maintain` in each round. Before it, calls `begin` in the first round and, with increasing
    /// pauses, again until it succeeds once.
    pub(super) fn start(
        every: Duration,
        mut begin: impl FnMut() -> Result<(), StoreError> + Send + 'static,
        mut maintain: impl FnMut(&Stop) + Send + 'static,
    ) -> io::Result<Keeper> {
        let stop = Arc::<Stop>::default();
        let stop_too = Arc::clone(&stop);
        let run = move || {
            let mut beginning = Beginning::default();
            while !stop_too.wait(every) {
                if beginning.is_due()
                    && let Some(error) = beginning.tried(begin().err())
                {
                    tracing::error!(%error, again_after = ?every * beginning.pause_rounds,
                        "metadata tables are not merged yet");
                }
                maintain(&stop_too);
            }
        };
        let thread = thread::Builder::new().name("store-keeper".into()).spawn(run)?;
        Ok(Keeper { stop, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.notify();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Schedules the retries of a step that has to succeed once. Call [`Beginning::is_due`] in each round; if it
/// returns true, try the step and report the result to [`Beginning::tried`].
#[derive(Debug, Default)]
struct Beginning {
    is_done: bool,
    /// Pause between the last failure and the next try; 0 before the first.
    pause_rounds: u32,
    /// Rounds left until the next try.
    left_rounds: u32,
}

impl Beginning {
    fn is_due(&mut self) -> bool {
        self.left_rounds = self.left_rounds.saturating_sub(1);
        !self.is_done && self.left_rounds == 0
    }

    /// Records the result and returns the failure.
    fn tried<E>(&mut self, failure: Option<E>) -> Option<E> {
        self.is_done = failure.is_none();
        self.pause_rounds = (2 * self.pause_rounds).clamp(1, PAUSE_ROUNDS_MAX);
        self.left_rounds = self.pause_rounds;
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    /// Returns the rounds in which a step is tried that fails `failures` times.
    fn tries(failures: usize, rounds: u32) -> Vec<u32> {
        let (mut beginning, mut tries) = (Beginning::default(), vec![]);
        for round in 1..=rounds {
            if beginning.is_due() {
                tries.push(round);
                beginning.tried((tries.len() <= failures).then_some(()));
            }
        }
        tries
    }

    #[test]
    fn failures_are_retried_with_growing_pauses() {
        assert_eq!(tries(0, 1000), [1]);
        assert_eq!(tries(1, 1000), [1, 2]);
        assert_eq!(tries(4, 1000), [1, 2, 4, 8, 16]);
        assert_eq!(tries(100, 400), [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384]);
    }

    #[test]
    fn the_thread_goes_on_with_its_rounds_and_begins_when_it_can() {
        let begins = Arc::new(AtomicU32::new(0));
        let (reported, rounds) = mpsc::channel();
        let counted = Arc::clone(&begins);
        let begin = move || match counted.fetch_add(1, SeqCst) {
            0..3 => Err(StoreError::Meta("no space".into())),
            _ => Ok(()),
        };
        let maintain = move |_: &Stop| _ = reported.send(());
        let keeper = Keeper::start(Duration::from_micros(10), begin, maintain).unwrap();
        let after = |count: usize| {
            assert_eq!(rounds.iter().take(count).count(), count);
            begins.load(SeqCst)
        };
        assert!(after(1) >= 1);
        assert_eq!(after(100), 4, "in rounds 1, 2, 4 and 8");
        assert_eq!(after(100), 4);
        drop(keeper);
        let end = rounds.iter().count();
        assert!(rounds.recv().is_err(), "{end} rounds more, and then no thread");
    }
}
