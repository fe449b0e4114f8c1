//! Running a promotion: several cells at a time.

use super::cells::Cells;
use super::journal::Journal;
use crate::network::now;
use anyhow::{Error, Result};
use parking_lot::{Condvar, Mutex};
use promote::{Promotion, Record, Task, Trouble};
use std::time::Duration;

/// How long is waited before a step is tried again: twice as long each time.
const PAUSE_SECONDS_MIN: u64 = 2;
/// How soon that notices that somebody wants to stop.
const NAP: Duration = Duration::from_millis(100);

/// What the threads share; the lock guards it, and nothing is asked of a server under it.
struct Shared {
    promotion: Promotion,
    /// Tasks that are being worked on.
    working: usize,
    is_over: bool,
    error: Option<Error>,
}

/// Runs a promotion until nothing is left to be done, or somebody wants to stop; gives back what is known
/// then. `watch` is called with every change, and with the task that caused it.
pub fn run(
    promotion: Promotion,
    cells: &Cells<'_>,
    journal: &Journal,
    parallel: usize,
    watch: &(dyn Fn(&Record, &Task, Option<&Trouble>) + Sync),
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
    watch: &'a (dyn Fn(&Record, &Task, Option<&Trouble>) + Sync),
}

impl Worker<'_> {
    fn work(&self) {
        while let Some(task) = self.next() {
            self.pause(task.tries);
            let outcome = self.cells.perform(&task);
            let mut shared = self.shared.lock();
            shared.working -= 1;
            // Who stops is not told that cells did not answer.
            if !(outcome.is_err() && self.cells.is_stopping()) {
                let trouble = outcome.as_ref().err().cloned();
                shared.promotion.finish(&task, outcome, now().0);
                (self.watch)(shared.promotion.record(), &task, trouble.as_ref());
                self.write(&mut shared);
            }
            self.changed.notify_all();
        }
    }

    /// The next task, as soon as there is one, recorded; `None` at the end.
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
