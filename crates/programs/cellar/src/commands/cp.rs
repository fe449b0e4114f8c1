//! `cellar cp`: copies files and trees into and out of a cell.
//!
//! The owner of the source tree controls its names and links, so neither direction follows a symbolic link
//! within the tree or writes anything outside the target ([`disk::beneath`]).
//!
//! A copy consists of steps, one for each entry of the tree, which several threads perform ([`steps`]). A directory
//! exists before the steps of its entries are added, and gets its attributes after the last of them.

mod fetching;
mod outcome;
mod steps;
mod storing;

use super::Context;
use anyhow::{Result, bail};
use base::AbortCode;
use cell_client::CellClient;
use cell_client::describe::failed;
use cell_client::path::Place;
use clap::Args;
use outcome::Totals;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use steps::Steps;

/// Copies files and trees.
#[derive(Args)]
pub struct Copy {
    /// File or directory to copy; `cell:VOLUME/PATH` is one in the cell.
    source: String,
    /// Destination; `cell:VOLUME/PATH` is one in the cell.
    target: String,
    /// Maximum number of concurrent file transfers.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// End the copy at the first failure.
    #[arg(long)]
    stop_on_error: bool,
}

/// Number of times that a file is copied if it changes meanwhile.
const CHANGES_MAX: usize = 3;
/// Time for which a server that does not answer is tried.
const LOST_TIME: Duration = Duration::from_secs(120);
/// Pause before it is tried again.
const LOST_PAUSE: Duration = Duration::from_secs(1);
/// Interval between checks for signals and updates of the progress.
const TICK: Duration = Duration::from_millis(100);

/// What the steps of both directions need.
struct Copier<'a> {
    cell: &'a CellClient,
    totals: &'a Totals,
    stop_on_error: bool,
    is_interrupted: Arc<AtomicBool>,
}

/// Runs the command.
pub fn run(context: &Context, copy: &Copy) -> Result<()> {
    let (source, target) = (Place::parse(&copy.source)?, Place::parse(&copy.target)?);
    let (cell, totals) = (context.client()?, Totals::new(context));
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second signal ends the program immediately.
        signal_hook::flag::register_conditional_shutdown(signal, 1, is_interrupted.clone())?;
        signal_hook::flag::register(signal, is_interrupted.clone())?;
    }
    allow_open_files();
    let copier = Copier { cell: &cell, totals: &totals, stop_on_error: copy.stop_on_error, is_interrupted };
    let threads = copy.jobs.into();
    match (&source, &target) {
        (Place::Local(from), Place::Cell(to)) => {
            let first = copier.begin_store(from, copy.source.ends_with('/'), to)?;
            copier.run(threads, first, Copier::store);
        }
        (Place::Cell(from), Place::Local(to)) => {
            let first = copier.begin_fetch(from, to)?;
            copier.run(threads, first, Copier::fetch);
        }
        _ => bail!("one of SOURCE and TARGET must be in the cell (cell:VOLUME/PATH), the other local"),
    }
    let is_interrupted = copier.is_interrupted.load(Relaxed);
    totals.report(context, is_interrupted)
}

/// Raises the limit of open files as far as allowed: each directory in progress is open.
fn allow_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

impl Copier<'_> {
    /// Performs steps with a number of threads, and shows the progress.
    fn run<T: Send>(&self, threads: usize, first: Vec<T>, perform: impl Fn(&Self, T, &Steps<T>) + Sync) {
        let steps = Steps::new(first);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    steps.work(|step| {
                        perform(self, step, &steps);
                        if self.is_to_stop() {
                            steps.stop();
                        }
                    });
                });
            }
            while !steps.wait(TICK) {
                if self.is_to_stop() {
                    steps.stop();
                }
                self.totals.show();
            }
        });
        self.totals.hide();
    }

    fn is_to_stop(&self) -> bool {
        self.is_interrupted.load(Relaxed)
            || self.totals.is_lost.load(Relaxed)
            || (self.stop_on_error && self.totals.has_failures())
    }

    /// Makes a call, again and again for [`LOST_TIME`] if the server does not answer. The call must have the same
    /// effect however often it is made.
    fn persist<T>(
        &self,
        server: impl std::fmt::Display,
        mut call: impl FnMut() -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        let mut began = None;
        loop {
            let code = match call() {
                Err(code) if is_silence(code) => code,
                answer => return answer,
            };
            let waited = began.get_or_insert_with(Instant::now).elapsed();
            let Some(left) = LOST_TIME.checked_sub(waited) else {
                self.totals.is_lost.store(true, Relaxed);
                return Err(code);
            };
            if self.is_to_stop() {
                return Err(code);
            }
            self.totals.lose(&server, code, left);
            std::thread::sleep(LOST_PAUSE);
        }
    }
}

/// Returns whether a call ended without an answer, so that it may have been made or not.
fn is_silence(code: AbortCode) -> bool {
    matches!(
        code,
        AbortCode::RX_CALL_DEAD
            | AbortCode::RX_CALL_TIMEOUT
            | AbortCode::RX_CALL_IDLE
            | AbortCode::RX_RESTARTING
    )
}

/// Adds the failed action to an abort code.
fn doing<T>(what: &str, answer: Result<T, AbortCode>) -> Result<T> {
    answer.map_err(failed(what))
}
