//! Progress display of a running job: its current step and transfer.

use crate::output::Format;
use cell_client::CellClient;
use indicatif::{ProgressBar, ProgressStyle};
use job_runner::traffic;
use jobs::Job;
use parking_lot::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Interval at which the spinner moves.
const TICK: Duration = Duration::from_millis(200);
const PERIOD: Duration = Duration::from_millis(500);

const PLAIN: &str = "{spinner} {elapsed_precise} {wide_msg}";
const WITH_BYTES: &str = "{spinner} {elapsed_precise} [{bar:20}] {percent}% {bytes}/{total_bytes} {binary_bytes_per_sec} {wide_msg}";

/// A progress line on the terminal.
pub(super) struct Bar<'a> {
    line: ProgressBar,
    cell: &'a CellClient,
    /// The job as last recorded; `None` once it has ended.
    job: Mutex<Option<Job>>,
    over: Condvar,
}

impl<'a> Bar<'a> {
    pub(super) fn new(format: Format, cell: &'a CellClient, job: &Job) -> Bar<'a> {
        let bar = format.bar(ProgressBar::new_spinner()).with_message(job.title());
        set_style(&bar, PLAIN);
        bar.enable_steady_tick(TICK);
        Bar { line: bar, cell, job: Mutex::new(Some(job.clone())), over: Condvar::new() }
    }

    /// Displays the present state of the job.
    pub(super) fn show(&self, job: &Job) {
        self.line.set_message(format!("{}: {}", job.title(), job.latest()));
        *self.job.lock() = Some(job.clone());
    }

    /// Displays the number of bytes transferred.
    pub(super) fn show_bytes(&self, done: u64, total: u64) {
        if self.line.length() != Some(total) {
            set_style(&self.line, WITH_BYTES);
            self.line.set_length(total);
        }
        self.line.set_position(done);
    }

    /// Displays transfer progress while `work` runs.
    pub(super) fn while_shown<T>(&self, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            // Servers are queried only if the line is visible.
            if !self.line.is_hidden() {
                scope.spawn(|| self.watch());
            }
            let _end = End(self);
            work()
        })
    }

    fn watch(&self) {
        loop {
            let Some(job) = self.job.lock().clone() else { return };
            let reported = traffic::of_job(self.cell, &job).traffic;
            if reported.total > 0 {
                self.show_bytes(reported.done, reported.total);
            }
            let mut job = self.job.lock();
            if job.is_some() {
                self.over.wait_for(&mut job, PERIOD);
            }
        }
    }
}

/// Ends the display when dropped, even by a panic.
struct End<'b, 'a>(&'b Bar<'a>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        *self.0.job.lock() = None;
        self.0.over.notify_all();
        self.0.line.finish_and_clear();
    }
}

fn set_style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
