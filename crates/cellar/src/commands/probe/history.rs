//! Outcomes of probes: a file with one line of JSON per outcome, oldest first.

use crate::files;
use anyhow::{Context, Result, ensure};
use events::catalogue::ProbeFigures;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Maximum length of a line that is read.
const LINE_BYTES_MAX: u64 = 65_536;

/// Outcome of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Start time, in milliseconds since 1970.
    pub(super) time_ms: u64,
    pub(super) volume: String,
    /// The volume's server according to the location database.
    pub(super) server: Option<String>,
    pub(super) locate_us: Option<u64>,
    pub(super) open_us: Option<u64>,
    pub(super) write_us: Option<u64>,
    pub(super) read_us: Option<u64>,
    pub(super) total_us: u64,
    /// The step that failed.
    pub(super) step: Option<String>,
    /// Cause of the failure.
    pub(super) error: Option<String>,
}

impl Outcome {
    pub(super) fn new(volume: &str, time_ms: u64) -> Outcome {
        Outcome {
            time_ms,
            volume: volume.to_owned(),
            server: None,
            locate_us: None,
            open_us: None,
            write_us: None,
            read_us: None,
            total_us: 0,
            step: None,
            error: None,
        }
    }

    /// Returns the outcome as figures for metrics.
    pub(super) fn figures(&self) -> ProbeFigures {
        let ns = |us: Option<u64>| us.unwrap_or(0).saturating_mul(1000);
        ProbeFigures {
            begun: self.time_ms.saturating_mul(1_000_000),
            failed: self.error.is_some().into(),
            time: ns(Some(self.total_us)),
            write: ns(self.write_us),
            read: ns(self.read_us),
        }
    }

    /// The outcome of a probe whose thread panicked.
    pub(super) fn broken(volume: &str) -> Outcome {
        let step = Some("probe".to_owned());
        Outcome {
            step,
            error: Some("the probe itself failed".to_owned()),
            ..Outcome::new(volume, super::now_ms())
        }
    }
}

/// A history being written.
#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
    keep: usize,
    lines: usize,
}

impl History {
    /// Opens a history of at most `keep` outcomes; it may exceed that by a quarter before the oldest are
    /// dropped.
    pub(super) fn open(path: &Path, keep: usize) -> Result<History> {
        let lines = match File::open(path) {
            Ok(file) => lines(file, usize::MAX).with_context(|| format!("cannot read {}", path.display()))?.0,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Ok(History { path: path.to_owned(), keep, lines })
    }

    /// Appends outcomes.
    pub(super) fn append(&mut self, outcomes: &[Outcome]) -> Result<()> {
        let path = self.path.clone();
        let doing = || format!("cannot write {}", path.display());
        let mut text = String::new();
        for outcome in outcomes {
            text.push_str(&serde_json::to_string(outcome)?);
            text.push('\n');
        }
        let mut file =
            File::options().create(true).append(true).mode(0o600).open(&self.path).with_context(doing)?;
        if !ends_with_line(&self.path).with_context(doing)? {
            text.insert(0, '\n'); // who wrote before was ended in the middle
        }
        file.write_all(text.as_bytes()).with_context(doing)?;
        self.lines += outcomes.len();
        if self.lines > self.keep.saturating_add(self.keep / 4) {
            self.shorten().with_context(doing)?;
        }
        Ok(())
    }

    /// Keeps the last lines, in a new file that replaces the old one.
    fn shorten(&mut self) -> Result<()> {
        let total = lines(File::open(&self.path)?, usize::MAX)?.0;
        let (_, start) = lines(File::open(&self.path)?, total.saturating_sub(self.keep))?;
        let mut old = File::open(&self.path)?;
        old.seek(SeekFrom::Start(start))?;
        let new = self.path.with_extension("new");
        let mut out = files::create(&new)?;
        io::copy(&mut old, &mut out)?;
        out.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.lines = self.keep.min(total);
        Ok(())
    }
}

/// Counts up to `limit` lines. Returns the count and the offset of the next line.
fn lines(file: File, limit: usize) -> io::Result<(usize, u64)> {
    let mut input = BufReader::new(file);
    let (mut count, mut place) = (0, 0);
    while count < limit {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        count += usize::from(end.is_some());
        place += used as u64;
        input.consume(used);
    }
    Ok((count, place))
}

fn ends_with_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Reads all outcomes, and counts the unreadable lines.
pub(super) fn read(path: &Path) -> Result<(Vec<Outcome>, usize)> {
    let doing = || format!("cannot read {}", path.display());
    let mut input = BufReader::new(File::open(path).with_context(doing)?);
    let (mut outcomes, mut damaged) = (Vec::new(), 0);
    loop {
        let mut line = Vec::new();
        let got = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).with_context(doing)?;
        if got == 0 {
            return Ok((outcomes, damaged));
        }
        ensure!(
            got < LINE_BYTES_MAX as usize,
            "{} is no history of probes: its lines are too long",
            path.display()
        );
        match serde_json::from_slice(&line) {
            Ok(outcome) => outcomes.push(outcome),
            Err(_) => damaged += 1,
        }
    }
}

/// Reads the outcomes in the last `bytes` bytes of a history; unreadable lines are skipped.
pub(super) fn read_last(path: &Path, bytes: u64) -> Result<Vec<Outcome>> {
    let doing = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(doing)?;
    let begin = file.metadata().with_context(doing)?.len().saturating_sub(bytes);
    file.seek(SeekFrom::Start(begin)).with_context(doing)?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text).with_context(doing)?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(time_ms: u64) -> Outcome {
        Outcome { read_us: Some(time_ms), ..Outcome::new("probe.a", time_ms) }
    }

    #[test]
    fn the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let mut history = History::open(&path, 8).unwrap();
        for time in 0..25 {
            history.append(&[outcome(time)]).unwrap();
            let (kept, damaged) = read(&path).unwrap();
            assert!(kept.len() <= 10 && damaged == 0);
            assert_eq!(kept.last(), Some(&outcome(time)));
            assert!(kept.windows(2).all(|pair| pair[0].time_ms + 1 == pair[1].time_ms));
        }
        let mut again = History::open(&path, 8).unwrap();
        again.append(&[outcome(25), outcome(26)]).unwrap();
        assert_eq!(read(&path).unwrap().0.last(), Some(&outcome(26)));
    }

    #[test]
    fn the_end_of_a_history_is_told_by_volume() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        assert!(super::super::latest(&path).unwrap_err().to_string().contains("history.jsonl"));
        let of = |volume: &str, time_ms, server: Option<&str>, error: Option<&str>| Outcome {
            server: server.map(str::to_owned),
            error: error.map(str::to_owned),
            total_us: time_ms,
            ..Outcome::new(volume, time_ms)
        };
        let mut history = History::open(&path, 100_000).unwrap();
        history.append(&vec![of("old", 1, None, None); 20_000]).unwrap();
        history.append(&[of("a", 1, Some("10.0.0.1"), None), of("b", 2, None, None)]).unwrap();
        history.append(&[of("a", 3, None, Some("gone"))]).unwrap();
        let told = super::super::latest(&path).unwrap();
        let of_a = told.iter().find(|(labels, _)| labels[0] == "a").unwrap();
        assert_eq!(of_a.0[1], "10.0.0.1", "where it was before");
        assert_eq!((of_a.1.failed, of_a.1.begun, of_a.1.time), (1, 3_000_000, 3_000));
        assert_eq!(told.iter().find(|(labels, _)| labels[0] == "b").unwrap().1.failed, 0);
        assert_eq!(read_last(&path, 300).unwrap().len(), 2, "the line that is cut is none");
    }

    #[test]
    fn a_writer_that_was_ended_costs_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        History::open(&path, 8).unwrap().append(&[outcome(1), outcome(2)]).unwrap();
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 5]).unwrap();
        History::open(&path, 8).unwrap().append(&[outcome(3)]).unwrap();
        assert_eq!(read(&path).unwrap(), (vec![outcome(1), outcome(3)], 1));
        fs::write(&path, vec![b'x'; 100_000]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("is no history of probes"));
    }
}
