//! Clients of a cluster that print a line for each answer.

use crate::tests::mixed::all;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, kill_tree, tools};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time limit for an answer.
const LIMIT: Duration = Duration::from_secs(120);

/// An answer later than this after the end of a node is not one of that node.
pub(crate) const SETTLED: Duration = Duration::from_millis(500);

/// Number of lines of a program that a failure quotes.
const QUOTED_LINES: usize = 5;

/// A program that prints a line with the time and a number for each answer, until it is dropped.
pub(crate) struct Series {
    child: Child,
    log: PathBuf,
}

impl Series {
    /// Creates files in a volume through one node. The numbers are the milliseconds that each has taken.
    pub(crate) fn pulse(host: &Cell, server: &str, volume: &str) -> Result<Series> {
        Series::start(host, &format!("pulse-{volume}-{server}.log"), &["pulse", host.address, server, volume])
    }

    /// Asks one server for the version of a volume's root directory. Each call fails after `patience_ms` without a packet.
    pub(crate) fn peek(host: &Cell, server: &str, volume: &str, patience_ms: u64) -> Result<Series> {
        let (log, patience) = (format!("peek-{server}-{patience_ms}.log"), patience_ms.to_string());
        Series::start(host, &log, &["peek", host.address, server, volume, &patience])
    }

    fn start(host: &Cell, log: &str, arguments: &[&str]) -> Result<Series> {
        let log = host.path().join(log);
        let child = Command::new(tools().join("openafs-cell"))
            .arg("-d")
            .arg(host.path())
            .arg("run")
            .arg(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .spawn()?;
        Ok(Series { child, log })
    }

    /// Returns the end of what was printed, for a failure.
    fn end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(QUOTED_LINES)..];
        format!("{} ends with: {}", self.log.display(), last.join("; "))
    }

    /// Returns the complete lines.
    fn lines(&self) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.log)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(whole.lines().map(str::to_owned).collect())
    }

    /// Returns the times of the answers, and their numbers. Lines about failed calls have no number.
    pub(crate) fn rows(&self) -> Result<Vec<(SystemTime, u64)>> {
        let row = |line: &String| {
            let (ms, number) = line.split_once(' ')?;
            Some((UNIX_EPOCH + Duration::from_millis(ms.parse().ok()?), number.parse().ok()?))
        };
        Ok(self.lines()?.iter().filter_map(row).collect())
    }

    /// Returns the lines about failed calls: the time and the code of each.
    pub(crate) fn failures(&self) -> Result<Vec<String>> {
        Ok(self.lines()?.into_iter().filter(|line| line.contains(" failed ")).collect())
    }

    /// Waits for this many more answers.
    pub(crate) fn more(&self, count: usize) -> Result<()> {
        let before = self.rows()?.len();
        wait_for(LIMIT, || Ok(self.rows()?.len() >= before + count)).with_context(|| self.end())
    }

    /// Waits for the first answer that came after this time, and returns how long afterwards.
    pub(crate) fn after(&self, time: SystemTime) -> Result<Duration> {
        let first = || -> Result<_> { Ok(self.rows()?.into_iter().find(|(at, _)| *at > time)) };
        wait_for(LIMIT, || Ok(first()?.is_some())).with_context(|| self.end())?;
        Ok(first()?.context("no answer")?.0.duration_since(time)?)
    }

    /// Returns the longest time between two answers after `since`, the first one counted from it. It waits for one after
    /// [`SETTLED`]. Take `since` when the node is stopped, not before: sending a signal takes long on a busy machine.
    pub(crate) fn longest_gap(&self, since: SystemTime) -> Result<Duration> {
        self.after(since + SETTLED)?;
        let (mut last, mut longest) = (since, Duration::ZERO);
        for (at, _) in self.rows()?.into_iter().filter(|(at, _)| *at > since) {
            longest = longest.max(at.duration_since(last)?);
            last = at;
        }
        Ok(longest)
    }

    /// Returns the longest time that [`pulse`](Series::pulse) took for a file after the first `before`.
    pub(crate) fn longest_wait(&self, before: usize) -> Result<Duration> {
        let waits = self.rows()?.into_iter().skip(before).map(|(_, ms)| ms);
        Ok(Duration::from_millis(waits.max().unwrap_or(0)))
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        kill_tree(&mut self.child);
    }
}

/// Checks that the first `files` files that [`Series::pulse`] creates are in a volume.
pub(crate) fn check_files(host: &Cell, volume: &str, files: usize) -> Result<()> {
    let copy = host.scratch()?.join(format!("files-of-{volume}"));
    _ = std::fs::remove_dir_all(&copy);
    all(host, &[format!("cellar cp cell:{volume}/ {}", copy.display())])?;
    let is_missing = |number: &usize| !copy.join(format!("pulse-{number}")).exists();
    let missing: Vec<usize> = (0..files).filter(is_missing).collect();
    ensure!(missing.is_empty(), "{volume} lacks acknowledged files: {missing:?} of {files}");
    Ok(())
}
