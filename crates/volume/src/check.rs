//! Proving that a partition is what `docs/reference/formats` says: nothing is changed, and nothing in normal
//! work needs it.
//!
//! Four passes, in which rows of shared chunks are counted against the extents that name them. The registry tells which volumes and groups there are. Every version of every record
//! is looked at by itself: whether it can be read and whether anybody needs it. Then each volume is
//! looked at as its readers see it: directories against vnodes, links, counters, extents. Last come
//! the chunks that records name, against the segments and their accounts.

mod chunks;
mod pace;
mod records;
mod registry;
mod rows;
mod running;
mod totals;
mod tree;
mod view;

use crate::VolumeError;
use base::VolumeId;
use std::fmt;
use store::{MetaStore, SegmentAudit};

pub use running::{Check, CheckState, Checkpoint, OpenSegments};

/// Damages that are told in full; more are only counted.
const DAMAGES_MAX: usize = 10_000;

/// What is checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions {
    /// Read every chunk and verify its checksum too.
    pub data: bool,
}

/// One thing that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// The volume, where it is known.
    pub volume: Option<VolumeId>,
    /// Which record, vnode, name or place of a file.
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

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Looking at all records; how many there are is not known.
    Records,
    /// Looking at volumes.
    Volumes,
    /// Reading chunks, in bytes as stored.
    Data,
}

/// How far a check is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// So much of it is done.
    pub done: u64,
    /// Of so much; 0 if nobody knows.
    pub total: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Volumes.
    pub volumes: u64,
    /// Groups of volumes that share records.
    pub groups: u64,
    /// Purge jobs that are not done yet.
    pub jobs: u64,
    /// Versions of records of vnodes, directory entries and extents.
    pub records: u64,
    /// Vnodes, counted in every volume that shows them.
    pub vnodes: u64,
    /// Chunks that records name.
    pub chunks: u64,
    /// What these take on the disk, in bytes.
    pub chunk_bytes: u64,
    /// Bytes in segments that nobody names.
    pub dead_bytes: u64,
    /// Chunks that were read and verified.
    pub chunks_read: u64,
    /// What is wrong; at most ten thousand of them.
    pub damages: Vec<Damage>,
    /// How much is wrong.
    pub damage_count: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }

    fn add(&mut self, volume: Option<VolumeId>, place: impl Into<String>, what: impl Into<String>) {
        self.damage_count += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(Damage { volume, place: place.into(), what: what.into() });
        }
    }

    /// Takes an error that ended a part of the check for a damage.
    fn add_failure(&mut self, volume: Option<VolumeId>, place: &str, result: Result<(), VolumeError>) {
        if let Err(error) = result {
            self.add(volume, place, error.to_string());
        }
    }
}

/// Is told how far a check is.
pub type Observe<'a> = &'a mut dyn FnMut(Progress);

/// Checks a partition that nobody changes meanwhile. Without `segments`, chunks are not looked at.
/// What cannot be read is a damage like any other, so there are no errors.
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
