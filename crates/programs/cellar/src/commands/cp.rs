//! `cellar cp`: copies files and trees into and out of a cell.
//!
//! The owner of the source tree controls its names and links, so neither direction follows a symbolic link
//! within the tree or writes anything outside the target ([`disk::beneath`]).

mod fetching;
mod storing;

use super::Context;
use anyhow::{Result, bail};
use cell_client::CellClient;
use cell_client::files::{Attributes, Node};
use cell_client::path::Place;
use clap::Args;
use crossbeam::channel::{Receiver, Sender};
use disk::beneath::{self, Folder};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Copy files and trees into and out of a cell. `cell:VOLUME/PATH` names a file in the cell. A source
/// directory that ends in `/` stands for its contents. Symbolic links within a tree are copied, never
/// followed. A local target that is itself a link is followed if it ends in `/`. Local files get the mode of
/// the file in the cell less the umask, without the set-user-ID, set-group-ID and sticky bits.
#[derive(Args)]
pub struct Copy {
    /// File or directory to copy.
    source: String,
    /// Destination.
    target: String,
    /// Maximum number of concurrent file transfers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
}

/// Totals of what was copied.
#[derive(Serialize)]
struct Summary {
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    seconds: f64,
    skipped: Vec<String>,
}

/// A file to transfer once its directory exists.
enum Job {
    Store { path: PathBuf, input: File, file: Node, attributes: Attributes, length: u64 },
    Fetch { file: Node, folder: Arc<Folder>, name: OsString },
}

struct Copier<'a> {
    cell: &'a CellClient,
    jobs: Sender<Job>,
    totals: &'a Totals,
}

#[derive(Default)]
struct Totals {
    files: AtomicU64,
    directories: AtomicU64,
    links: AtomicU64,
    bytes: AtomicU64,
    skipped: Mutex<Vec<String>>,
    errors: Mutex<Vec<anyhow::Error>>,
}

impl Totals {
    fn skip(&self, what: impl std::fmt::Display, why: &str) {
        eprintln!("cellar: {what} is left out: {why}");
        self.skipped.lock().push(what.to_string());
    }
}

/// Runs the command.
pub fn run(context: &Context, copy: &Copy) -> Result<()> {
    let (source, target) = (Place::parse(&copy.source)?, Place::parse(&copy.target)?);
    let cell = context.client()?;
    let totals = Totals::default();
    let bar = context.format.bar(progress_bar());
    let start = Instant::now();
    let (sender, receiver) = crossbeam::channel::bounded(usize::from(copy.jobs) * 4);
    let walked = std::thread::scope(|scope| {
        for _ in 0..copy.jobs {
            let receiver = receiver.clone();
            scope.spawn(|| work(&cell, receiver, &totals, &bar));
        }
        let copier = Copier { cell: &cell, jobs: sender, totals: &totals };
        match (&source, &target) {
            (Place::Local(from), Place::Cell(to)) => copier.store(from, copy.source.ends_with('/'), to),
            (Place::Cell(from), Place::Local(to)) => copier.fetch(from, to),
            _ => bail!("one of SOURCE and TARGET must be in the cell (cell:VOLUME/PATH), the other local"),
        }
    });
    bar.finish_and_clear();
    walked?;
    report(context, totals, start.elapsed())
}

fn report(context: &Context, totals: Totals, elapsed: Duration) -> Result<()> {
    let mut errors = totals.errors.into_inner();
    if !errors.is_empty() {
        let more = errors.len() - 1;
        let first = errors.swap_remove(0);
        return Err(if more > 0 {
            first.context(format!("{more} more files failed too; the first"))
        } else {
            first
        });
    }
    let summary = Summary {
        files: totals.files.into_inner(),
        directories: totals.directories.into_inner(),
        links: totals.links.into_inner(),
        bytes: totals.bytes.into_inner(),
        seconds: elapsed.as_secs_f64(),
        skipped: totals.skipped.into_inner(),
    };
    let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = HumanBytes(summary.bytes.saturating_mul(1000) / milliseconds);
    let sentence = format!(
        "{} files, {} directories, {} links, {} in {:.1} s ({rate}/s)",
        summary.files,
        summary.directories,
        summary.links,
        HumanBytes(summary.bytes),
        summary.seconds
    );
    context.format.done(&summary, sentence)
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos} files  {elapsed}  {wide_msg}");
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn work(cell: &CellClient, jobs: Receiver<Job>, totals: &Totals, bar: &ProgressBar) {
    for job in jobs {
        let name = match &job {
            Job::Store { path, .. } => path.display().to_string(),
            Job::Fetch { folder, name, .. } => folder.path().join(name).display().to_string(),
        };
        match transfer(cell, job, totals) {
            Ok(()) => {
                totals.files.fetch_add(1, Ordering::Relaxed);
                bar.inc(1);
                bar.set_message(format!("{}  {name}", HumanBytes(totals.bytes.load(Ordering::Relaxed))));
            }
            Err(error) => totals.errors.lock().push(error.context(name)),
        }
    }
}

fn transfer(cell: &CellClient, job: Job, totals: &Totals) -> Result<()> {
    let mut progress = |bytes| {
        totals.bytes.fetch_add(bytes, Ordering::Relaxed);
    };
    match job {
        Job::Store { mut input, file, attributes, length, .. } => {
            cell.store(&file, attributes, &mut input, length, &mut progress)
        }
        Job::Fetch { file, folder, name } => {
            let mut fresh = folder.begin(&name, file.status.unix_mode_bits)?;
            cell.fetch(&file, fresh.file(), &mut progress)?;
            let modified = Some(UNIX_EPOCH + Duration::from_secs(file.status.client_mod_time.into()));
            fresh.set_attributes(&beneath::Attributes { modified, ..beneath::Attributes::default() })?;
            Ok(fresh.keep()?)
        }
    }
}

impl Copier<'_> {
    fn queue(&self, job: Job) -> Result<()> {
        self.jobs.send(job).map_err(|_| anyhow::anyhow!("the workers have ended"))
    }
}
