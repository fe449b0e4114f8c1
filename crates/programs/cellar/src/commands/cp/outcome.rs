//! What a copy has done: totals, failures, and their output.

use crate::commands::Context;
use anyhow::{Result, bail};
use base::AbortCode;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Maximum number of failures and of names left out that are kept for the JSON summary. All are printed when they
/// happen and counted.
const KEPT_MAX: usize = 1000;

/// Totals of what was copied.
#[derive(Serialize)]
struct Summary {
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    seconds: f64,
    skipped: Vec<String>,
    failed: u64,
    failures: Vec<Failure>,
}

/// Something that could not be copied.
#[derive(Serialize)]
struct Failure {
    path: String,
    reason: String,
}

/// Counts of a copy in progress.
pub(super) struct Totals {
    pub(super) files: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) links: AtomicU64,
    pub(super) bytes: AtomicU64,
    skipped: Mutex<Vec<String>>,
    failed: AtomicU64,
    failures: Mutex<Vec<Failure>>,
    /// When a lost server was last reported.
    lost: Mutex<Option<Instant>>,
    /// Whether a server stayed silent, so that there is no point in going on.
    pub(super) is_lost: AtomicBool,
    bar: ProgressBar,
    start: Instant,
}

/// Interval between two messages about a server that does not answer.
const LOST_MESSAGE_INTERVAL: Duration = Duration::from_secs(10);

impl Totals {
    pub(super) fn new(context: &Context) -> Totals {
        Totals {
            files: AtomicU64::new(0),
            directories: AtomicU64::new(0),
            links: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            skipped: Mutex::default(),
            failed: AtomicU64::new(0),
            failures: Mutex::default(),
            lost: Mutex::default(),
            is_lost: AtomicBool::new(false),
            bar: context.format.bar(progress_bar()),
            start: Instant::now(),
        }
    }

    /// Reports something that is not copied on purpose.
    pub(super) fn skip(&self, what: impl std::fmt::Display, why: &str) {
        self.say(&format!("{what} is left out: {why}"));
        keep(&self.skipped, || what.to_string());
    }

    /// Reports something that could not be copied.
    pub(super) fn fail(&self, path: impl std::fmt::Display, error: &anyhow::Error) {
        self.failed.fetch_add(1, Relaxed);
        self.say(&format!("{path}: {error:#}"));
        keep(&self.failures, || Failure { path: path.to_string(), reason: format!("{error:#}") });
    }

    /// Returns whether something could not be copied.
    pub(super) fn has_failures(&self) -> bool {
        self.failed.load(Relaxed) > 0
    }

    /// Reports that a server does not answer and is tried for a while; not for each of the calls that wait for it.
    pub(super) fn lose(&self, server: impl std::fmt::Display, code: AbortCode, left: Duration) {
        let mut lost = self.lost.lock();
        if lost.is_none_or(|last| last.elapsed() >= LOST_MESSAGE_INTERVAL) {
            *lost = Some(Instant::now());
            let seconds = left.as_secs();
            self.say(&format!("{server} does not answer [{code}]; trying for another {seconds} s"));
        }
    }

    /// Shows the progress.
    pub(super) fn show(&self) {
        self.bar.set_position(self.files.load(Relaxed));
        let (bytes, rate) = (self.bytes.load(Relaxed), self.files_per_second());
        let failed = match self.failed.load(Relaxed) {
            0 => String::new(),
            failed => format!("  {failed} failed"),
        };
        self.bar.set_message(format!("{}  {rate} files/s{failed}", HumanBytes(bytes)));
    }

    fn files_per_second(&self) -> u64 {
        let milliseconds = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.files.load(Relaxed).saturating_mul(1000) / milliseconds
    }

    /// Removes the progress.
    pub(super) fn hide(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("cellar: {text}"));
    }

    /// Prints the totals; an error if something is missing from the copy.
    pub(super) fn report(self, context: &Context, is_interrupted: bool) -> Result<()> {
        let (elapsed, is_lost) = (self.start.elapsed(), self.is_lost.into_inner());
        let summary = Summary {
            files: self.files.into_inner(),
            directories: self.directories.into_inner(),
            links: self.links.into_inner(),
            bytes: self.bytes.into_inner(),
            seconds: elapsed.as_secs_f64(),
            skipped: self.skipped.into_inner(),
            failed: self.failed.into_inner(),
            failures: self.failures.into_inner(),
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
        context.format.done(&summary, sentence)?;
        match summary.failed {
            _ if is_interrupted => bail!("interrupted: the copy is incomplete"),
            0 => Ok(()),
            failed if is_lost => bail!("stopped at a server that does not answer; {failed} failed"),
            failed => bail!("{failed} could not be copied"),
        }
    }
}

fn keep<T>(list: &Mutex<Vec<T>>, make: impl FnOnce() -> T) {
    let mut list = list.lock();
    if list.len() < KEPT_MAX {
        list.push(make());
    }
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos} files  {elapsed}  {wide_msg}");
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}
