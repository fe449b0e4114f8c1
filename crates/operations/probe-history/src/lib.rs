//! Outcomes of probes: a file with one line of JSON per outcome, oldest first.

pub mod summary;

use anyhow::{Context, Result, ensure};
use cellar_config::files;
use events::catalogue::ProbeFigures;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Period that [`recent`] covers, a day, and its maximum number of outcomes.
const RECENT_MS: u64 = 24 * 3600 * 1000;
const RECENT_OUTCOMES_MAX: usize = 3000;

/// Bytes at the end of a history that [`latest`] reads.
const LATEST_BYTES: u64 = 1 << 20;

/// Maximum length of a line that is read.
const LINE_BYTES_MAX: u64 = 65_536;

/// Outcome of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Start time, in milliseconds since 1970.
    pub time_ms: u64,
    /// The probed volume.
    pub volume: String,
    /// The volume's server according to the location database.
    pub server: Option<String>,
    /// Time to locate the volume, in microseconds.
    pub locate_us: Option<u64>,
    /// Time to open the file.
    pub open_us: Option<u64>,
    /// Time to write it.
    pub write_us: Option<u64>,
    /// Time to read it back.
    pub read_us: Option<u64>,
    /// Time of the whole probe.
    pub total_us: u64,
    /// The step that failed.
    pub step: Option<String>,
    /// Cause of the failure.
    pub error: Option<String>,
}

impl Outcome {
    /// Returns an outcome without results yet.
    pub fn new(volume: &str, time_ms: u64) -> Outcome {
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

    /// Returns the outcome as exported figures.
    pub fn figures(&self) -> ProbeFigures {
        let ns = |us: Option<u64>| us.unwrap_or(0).saturating_mul(1000);
        ProbeFigures {
            begun: self.time_ms.saturating_mul(1_000_000),
            failed: self.error.is_some().into(),
            time: ns(Some(self.total_us)),
            write: ns(self.write_us),
            read: ns(self.read_us),
        }
    }

    /// Returns the outcome of a probe whose thread failed.
    pub fn broken(volume: &str) -> Outcome {
        let step = Some("probe".to_owned());
        Outcome { step, error: Some("the probe itself failed".to_owned()), ..Outcome::new(volume, now_ms()) }
    }
}

/// A history file that outcomes are appended to.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    keep: usize,
    lines: usize,
}

impl History {
    /// Opens a history of at most `keep` outcomes; a quarter more are kept before the oldest are removed.
    pub fn open(path: &Path, keep: usize) -> Result<History> {
        let lines = match File::open(path) {
            Ok(file) => lines(file, usize::MAX).with_context(|| format!("cannot read {}", path.display()))?.0,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Ok(History { path: path.to_owned(), keep, lines })
    }

    /// Appends outcomes.
    pub fn append(&mut self, outcomes: &[Outcome]) -> Result<()> {
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
            text.insert(0, '\n'); // the last writer was killed in the middle of a line
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

/// Reads all outcomes. Returns them with the number of unreadable lines.
pub fn read(path: &Path) -> Result<(Vec<Outcome>, usize)> {
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
            "{} is not a probe history: its lines are too long",
            path.display()
        );
        match serde_json::from_slice(&line) {
            Ok(outcome) => outcomes.push(outcome),
            Err(_) => damaged += 1,
        }
    }
}

/// The outcomes at the end of a history, in so many bytes; lines that are none are left out.
pub fn read_last(path: &Path, bytes: u64) -> Result<Vec<Outcome>> {
    let doing = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(doing)?;
    let begin = file.metadata().with_context(doing)?.len().saturating_sub(bytes);
    file.seek(SeekFrom::Start(begin)).with_context(doing)?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text).with_context(doing)?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// Returns the system time, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_millis() as u64)
}

/// Returns the last day of a history for the web page: a summary and the latest outcomes, oldest first.
pub fn recent(history: &Path) -> Result<Value> {
    let (mut outcomes, damaged) = read(history)?;
    let since_ms = now_ms().saturating_sub(RECENT_MS);
    let summary = summary::summarise(&outcomes, since_ms, damaged);
    outcomes.retain(|outcome| outcome.time_ms >= since_ms);
    let latest = &outcomes[outcomes.len().saturating_sub(RECENT_OUTCOMES_MAX)..];
    Ok(json!({ "summary": summary, "outcomes": latest }))
}

/// Returns the last outcome of each volume as figures, with the volume's last known server.
pub fn latest(history: &Path) -> Result<Vec<([String; 2], ProbeFigures)>> {
    let mut latest = BTreeMap::new();
    let mut servers: HashMap<String, String> = HashMap::new();
    for outcome in read_last(history, LATEST_BYTES)? {
        servers.extend(outcome.server.clone().map(|server| (outcome.volume.clone(), server)));
        latest.insert(outcome.volume.clone(), outcome);
    }
    let row = |(volume, outcome): (String, Outcome)| {
        let server = servers.get(&volume).cloned().unwrap_or_default();
        ([volume, server], outcome.figures())
    };
    Ok(latest.into_iter().map(row).collect())
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
    fn a_history_ends_by_volume() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        assert!(latest(&path).unwrap_err().to_string().contains("history.jsonl"));
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
        let reported = latest(&path).unwrap();
        let of_a = reported.iter().find(|(labels, _)| labels[0] == "a").unwrap();
        assert_eq!(of_a.0[1], "10.0.0.1", "where it was before");
        assert_eq!((of_a.1.failed, of_a.1.begun, of_a.1.time), (1, 3_000_000, 3_000));
        assert_eq!(reported.iter().find(|(labels, _)| labels[0] == "b").unwrap().1.failed, 0);
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
        assert!(read(&path).unwrap_err().to_string().contains("is not a probe history"));
    }
}
