//! Checks that a partition conforms to `docs/reference/formats`. Changes nothing; normal operation does not
//! need it. [`check`] is for a partition that nothing else uses, [`Check`] for one that is served meanwhile.
//!
//! The check shares the definition of the records with the crate `volume` (`volume-records`), but none of the
//! code that decides what to write: a check that used it could not see its errors.
//!
//! The check makes four passes. The registry lists the volumes and groups. Then every version of every record
//! is checked on its own: whether it can be read and whether any volume needs it; rows of shared chunks are
//! counted against the extents that name them. Then each volume is checked as its readers see it: directories
//! against vnodes, links, counters, extents. Finally the chunks that records name are checked against the
//! segments and their accounts.

mod chunks;
mod pace;
mod records;
mod registry;
mod rows;
mod running;
mod totals;
mod tree;
mod view;

use base::VolumeId;
use std::fmt;
use store::{MetaStore, SegmentAudit};
use volume_records::RecordError;

pub use running::{Check, CheckState, Checkpoint, OpenSegments};

/// Maximum number of damages reported in detail; further ones are only counted.
const DAMAGES_MAX: usize = 10_000;

/// Options of a check.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions {
    /// Whether to read every chunk and verify its checksum.
    pub data: bool,
}

/// One violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// The volume, if known.
    pub volume: Option<VolumeId>,
    /// The record, vnode, name or location in a file.
    pub place: String,
    /// What is wrong, with the values expected and got.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(volume) = self.volume {
            write!(out, "volume {volume}, ")?;
        }
        write!(out, "{}: {}", self.place, self.what)
    }
}

/// A stage of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Checking all records; their total number is unknown.
    Records,
    /// Checking volumes.
    Volumes,
    /// Reading chunks; progress is in stored bytes.
    Data,
}

/// Progress of a check.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Current stage.
    pub stage: Stage,
    /// Amount done.
    pub done: u64,
    /// Total amount; 0 if unknown.
    pub total: u64,
}

/// Results of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Number of volumes.
    pub volumes: u64,
    /// Number of groups of volumes that share records.
    pub groups: u64,
    /// Number of unfinished purge jobs.
    pub jobs: u64,
    /// Number of versions of records of vnodes, directory entries and extents.
    pub records: u64,
    /// Number of vnodes, counted in every volume that contains them.
    pub vnodes: u64,
    /// Number of chunks that records name.
    pub chunks: u64,
    /// Size of these chunks on disk, in bytes.
    pub chunk_bytes: u64,
    /// Bytes in segments that no record names.
    pub dead_bytes: u64,
    /// Number of chunks read and verified.
    pub chunks_read: u64,
    /// The damages found, at most ten thousand.
    pub damages: Vec<Damage>,
    /// Total number of damages found.
    pub damage_count: u64,
}

impl CheckReport {
    /// Returns whether no damage was found.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }

    fn add(&mut self, volume: Option<VolumeId>, place: impl Into<String>, what: impl Into<String>) {
        self.damage_count += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(Damage { volume, place: place.into(), what: what.into() });
        }
    }

    /// Records an error that ended part of the check as a damage.
    fn add_failure(&mut self, volume: Option<VolumeId>, place: &str, result: Result<(), RecordError>) {
        if let Err(error) = result {
            self.add(volume, place, error.to_string());
        }
    }
}

/// Receives the progress of a check.
pub type Observe<'a> = &'a mut dyn FnMut(Progress);

/// Checks a partition that nothing else changes meanwhile. Without `segments`, chunks are not checked.
/// Unreadable data is reported as damage, so the function does not fail.
pub fn check(
    meta: &dyn MetaStore,
    segments: Option<&SegmentAudit>,
    options: CheckOptions,
    observe: Observe<'_>,
) -> CheckReport {
    let mut report = CheckReport::default();
    let registry = registry::read(meta, &mut report);
    let named = records::check(meta, &registry, &mut report, observe);
    let total = registry.volumes.len() as u64;
    for (done, (&id, known)) in (0..).zip(&registry.volumes) {
        view::check(meta, &registry, id, known, &mut report);
        observe(Progress { stage: Stage::Volumes, done: done + 1, total });
    }
    if let Some(segments) = segments {
        chunks::check(meta, segments, named, options, &mut report, observe);
    }
    report
}

#[cfg(test)]
mod tests;
