//! Runs a promotion in several cells at a time.

use super::cells::Cells;
use super::journal::Journal;
use anyhow::{Error, Result};
use cell_client::network::now;
use parking_lot::{Condvar, Mutex};
use promote::{Promotion, PromotionError, Record, Task};
use std::time::Duration;

/// Pause before the first retry of a step; it doubles with each retry.
const PAUSE_SECONDS_MIN: u64 = 2;
/// Interval at which the pause checks whether to stop.
const NAP: Duration = Duration::from_millis(100);

/// State shared by the threads, under a lock. No call is made to a server under the lock.
struct Shared {
    promotion: Promotion,
    /// Number of tasks in progress.
    working: usize,
    is_over: bool,
    error: Option<Error>,
}

/// Runs a promotion until nothing is left to do or the user stops it, and returns its record. `watch` is
/// called for every change, with the task that caused it.
pub fn run(
    promotion: Promotion,
    cells: &Cells<'_>,
    journal: &Journal,
    parallel: usize,
    watch: &(dyn Fn(&Record, &Task, Option<&PromotionError>) + Sync),
) -> Result<Record> {
    let shared = Mutex::new(Shared { promotion, working: 0, is_over: false, error: None });
    let changed = Condvar::new();
    let worker = Worker { shared: &shared, changed: &changed, cells, journal, watch };
    std::thread::scope(|scope| {
        for _ in 0..parallel {
            scope.spawn(|| worker.work());
        }
    });
    let shared = shared.into_inner();
    let record = shared.promotion.into_record();
    match shared.error {
        Some(error) => Err(error),
        None => journal.write(&record).map(|()| record),
    }
}

struct Worker<'a> {
    shared: &'a Mutex<Shared>,
    changed: &'a Condvar,
    cells: &'a Cells<'a>,
    journal: &'a Journal,
    watch: &'a (dyn Fn(&Record, &Task, Option<&PromotionError>) + Sync),
}

impl Worker<'_> {
    fn work(&self) {
        while let Some(task) = self.next() {
            self.pause(task.tries);
            let outcome = self.cells.perform(&task);
            let mut shared = self.shared.lock();
            shared.working -= 1;
            // Failures after a request to stop are not recorded.
            if !(outcome.is_err() && self.cells.is_stopping()) {
                let trouble = outcome.as_ref().err().cloned();
                shared.promotion.finish(&task, outcome, now().0);
                (self.watch)(shared.promotion.record(), &task, trouble.as_ref());
                self.write(&mut shared);
            }
            self.changed.notify_all();
        }
    }

    /// Waits for the next task and records it; `None` at the end.
    fn next(&self) -> Option<Task> {
        let mut shared = self.shared.lock();
        loop {
            if shared.is_over || self.cells.is_stopping() {
                shared.is_over = true;
                self.changed.notify_all();
                return None;
            }
            let next = shared.promotion.next_task();
            if let Some(task) = next {
                self.write(&mut shared);
                shared.working += 1;
                return Some(task);
            }
            if shared.working == 0 {
                shared.is_over = true;
                continue;
            }
            self.changed.wait(&mut shared);
        }
    }

    fn write(&self, shared: &mut Shared) {
        if let Err(error) = self.journal.write(shared.promotion.record()) {
            shared.error.get_or_insert(error);
            shared.is_over = true;
        }
    }

    fn pause(&self, tries: u32) {
        if tries == 0 {
            return;
        }
        let mut left = Duration::from_secs(PAUSE_SECONDS_MIN << (tries - 1).min(4));
        while !left.is_zero() && !self.cells.is_stopping() {
            std::thread::sleep(NAP.min(left));
            left = left.saturating_sub(NAP);
        }
    }
}
