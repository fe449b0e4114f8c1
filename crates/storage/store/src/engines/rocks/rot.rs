//! Finds out whether the logs of a database lack changes that were durable.

use super::survey::Survey;
use crate::StoreError;
use std::path::PathBuf;

/// Changes that were durable and are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    /// The log that cannot be read further, or that what follows is missing after.
    path: PathBuf,
    /// Where its readable part ends, in bytes.
    offset: u64,
    /// Sequence number of the first change that is gone; `None` if it is unknown.
    first: Option<u64>,
    /// That of the last change that was certainly durable.
    last: u64,
}

impl Loss {
    /// Returns what was lost.
    pub(super) fn describe(&self) -> String {
        let last = self.last;
        match self.first {
            Some(first) => format!("the log ends there, but changes {first} to {last} were durable"),
            None => format!("the log begins after that, but all changes up to {last} were durable"),
        }
    }

    /// Returns file and offset.
    pub(super) fn place(&self) -> String {
        format!("{} at offset {}", self.path.display(), self.offset)
    }

    pub(super) fn into_error(self) -> StoreError {
        let help = "`cellar store accept-loss` opens it without these and all later ones";
        StoreError::Damaged { place: self.place(), what: format!("{}; {help}", self.describe()) }
    }
}

/// What RocksDB says about a database that it has opened without changing it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    /// Number of the oldest log that is needed: the contents of those before are all in tables. If it is unknown, nothing can be
    /// proven.
    pub(super) oldest_log: Option<u64>,
    /// The newest change.
    pub(super) newest_change: u64,
}

/// Before it is asked: all logs may be needed, and tables may have all changes.
const ANY: Opened = Opened { oldest_log: Some(0), newest_change: u64::MAX };

/// Whether the logs may lack durable changes: only then it is worth asking RocksDB.
pub(super) fn is_possible(logs: &[Survey]) -> bool {
    let has_claims = logs.iter().any(|log| log.claimed > 0);
    let is_unreadable = |log: &Survey| log.changes.is_none() && log.is_damaged;
    has_claims && (logs.iter().any(is_unreadable) || find(logs, ANY).is_some())
}

/// Adds to RocksDB's reason for not opening a database what the logs lack.
pub(super) fn explain(logs: &[Survey], reason: String) -> String {
    match find(logs, ANY) {
        Some(loss) => format!("{reason}; in {} {}", loss.place(), loss.describe()),
        None => reason,
    }
}

/// Returns what the logs, which are in order, prove to be lost.
pub(super) fn find(logs: &[Survey], opened: Opened) -> Option<Loss> {
    let oldest = opened.oldest_log?;
    let needed = || logs.iter().filter(|log| log.number >= oldest && !log.is_blank());
    let claimed = needed().map(|log| log.claimed).max()?;
    let chain = Chain::of(needed());
    let loss =
        |place: &Survey, first, last| Loss { path: place.path.clone(), offset: place.end, first, last };
    let place = chain.last.or_else(|| needed().next())?;
    let reached = chain.next.map_or(u64::MAX, |next| next.saturating_sub(1)).min(opened.newest_change);
    if claimed > reached {
        return Some(loss(place, Some(reached + 1), claimed));
    }
    // What the first records had is unknown, and may also be less than what the tables have. But they precede a record
    // that was durable. One that is not newer than an earlier log may be of a deleted log, whose blocks the file system shows.
    let reached_before = |log: &Survey| {
        let earlier = logs.iter().filter(|other| other.number < log.number);
        earlier.filter_map(|other| Some(other.changes.as_ref()?.end)).max()
    };
    let lacks_start = |log: &&Survey| {
        let resumed = log.resumed.zip(reached_before(log));
        log.changes.is_none() && resumed.is_some_and(|(next, before)| (before..=log.claimed).contains(&next))
    };
    needed().find(lacks_start).map(|log| loss(log, None, log.claimed))
}

/// The logs that follow each other without a hole.
#[derive(Default)]
pub(super) struct Chain<'a> {
    /// The one that is read last.
    pub(super) last: Option<&'a Survey>,
    /// The change that would follow.
    next: Option<u64>,
    /// Those that do not continue the ones before.
    pub(super) apart: Vec<&'a Survey>,
}

impl<'a> Chain<'a> {
    /// RocksDB reads a log after a damaged one only if it continues with the next change.
    pub(super) fn of(logs: impl Iterator<Item = &'a Survey>) -> Chain<'a> {
        let mut chain = Chain::default();
        for log in logs {
            match &log.changes {
                Some(changes) if chain.next.is_none_or(|next| next == changes.start) => {
                    (chain.last, chain.next) = (Some(log), Some(changes.end));
                }
                Some(_) => chain.apart.push(log),
                None => {}
            }
        }
        chain
    }
}

#[cfg(test)]
mod tests;
