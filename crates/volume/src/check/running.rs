//! A check beside a server at work, at a pace, that can be interrupted and gone on with.
//!
//! It reads snapshots. A snapshot is what a crash at that moment would leave, and of that every invariant
//! holds without any repair (`docs/design/store.md`): so nothing that writers, the purger and the compactor do
//! meanwhile can look like a damage in the metadata. Segments are files and have no snapshots. They are
//! looked at after the snapshot that names their chunks was taken, so they hold at least what it names,
//! less what was given back since. So whatever is wrong with a chunk counts only if a record names it still
//! afterwards: a chunk is given back only when no record does, and its place is never used again.
//!
//! Looking at all records comes first, in one snapshot, and is done again after an interruption. Volumes
//! follow one by one, in snapshots of their own time, then the data; both go on where they ended.

use super::pace::{Pace, Paced};
use super::records::Named;
use super::{CheckOptions, CheckReport, Progress, Stage, chunks, records, registry, view};
use crate::{VolumeError, Volumes};
use base::{PartitionId, VolumeId};
use parking_lot::Mutex;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use store::{ChunkAddress, Frozen, MetaStore, SegmentAudit, StoreError};

/// As long as a snapshot is kept, what is deleted or replaced takes space; so it is renewed.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(60);

/// So many chunks behind a damaged one, files of damaged chunks are looked for.
const TELL_CHUNKS: u64 = 10_000;

/// Opens the segments that go with a state of the metadata; `None` if there are no files.
pub type OpenSegments<'a> = &'a dyn Fn(&dyn MetaStore) -> Result<Option<SegmentAudit>, StoreError>;

/// How far a check has come. What was found up to there is in its report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last volume that was looked at; 0 before the first.
    pub volume: VolumeId,
    /// Segment and offset of the last chunk that was read; zeros before the first.
    pub chunk: (u64, u64),
}

/// What a check has found up to its checkpoint.
#[derive(Clone, Debug, Default)]
pub struct CheckState {
    /// Where to go on.
    pub checkpoint: Checkpoint,
    /// What is being done; `None` before the beginning.
    pub progress: Option<Progress>,
    /// What looking at all records found: known as soon as that is done, and found anew by whoever goes
    /// on.
    pub records: CheckReport,
    /// What was found since the checkpoint that the check began with.
    pub found: CheckReport,
}

/// A check: make it, [`Check::run`] it on a thread of its own, look at it from others.
pub struct Check {
    options: CheckOptions,
    pace: Pace,
    stop: AtomicBool,
    state: Mutex<CheckState>,
}

impl Check {
    /// A check that goes on behind `checkpoint` and works `percent` of the time.
    pub fn new(options: CheckOptions, percent: u32, checkpoint: Checkpoint) -> Check {
        let state = CheckState { checkpoint, ..CheckState::default() };
        Check { options, pace: Pace::new(percent), stop: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Ends it soon; the state tells how far it came.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// How far it is.
    pub fn state(&self) -> CheckState {
        self.state.lock().clone()
    }

    /// How far it is, without what was found.
    pub fn progress(&self) -> (Checkpoint, Option<Progress>) {
        let state = self.state.lock();
        (state.checkpoint, state.progress)
    }

    /// Checks; `None` if it was stopped. What cannot be read is a damage like any other.
    ///
    /// # Errors
    /// `Store`: the segments cannot be listed.
    pub fn run(
        &self,
        meta: &dyn MetaStore,
        open_segments: OpenSegments<'_>,
    ) -> Result<Option<CheckReport>, VolumeError> {
        let Some((segments, named)) = self.check_records(meta, open_segments)? else { return Ok(None) };
        if self.check_volumes(meta).is_none() {
            return Ok(None);
        }
        if let Some(segments) = segments.filter(|_| self.options.data)
            && self.read_chunks(meta, &segments, &named).is_none()
        {
            return Ok(None);
        }
        let state = self.state();
        Ok(Some(state.records.and(state.found)))
    }

    /// All records and the places of all chunks, in one snapshot.
    #[allow(clippy::type_complexity, reason = "what the later stages need, or nothing if it was stopped")]
    fn check_records(
        &self,
        meta: &dyn MetaStore,
        open_segments: OpenSegments<'_>,
    ) -> Result<Option<(Option<SegmentAudit>, Vec<Named>)>, VolumeError> {
        let frozen = Frozen::of(meta);
        let paced = self.paced(&frozen);
        let mut report = CheckReport::default();
        let registry = registry::read(&paced, &mut report);
        let mut named = records::check(&paced, &registry, &mut report, &mut |progress| self.show(progress));
        // Behind the snapshot: nothing that it names is too new to be there.
        let segments = open_segments(&frozen)?;
        drop(frozen);
        if let Some(segments) = &segments {
            let options = CheckOptions { data: false };
            named.sort_unstable();
            let findings = chunks::look(segments, &named, options, &mut report, &mut |_| {});
            chunks::tell(&Frozen::of(meta), &findings, &mut report);
            named.retain(|named| !findings.contains_key(&named.address));
        }
        if self.is_stopped() {
            return Ok(None);
        }
        self.state.lock().records = report;
        Ok(Some((segments, named)))
    }

    /// The volumes behind the checkpoint; `None` if stopped.
    fn check_volumes(&self, meta: &dyn MetaStore) -> Option<()> {
        loop {
            let (frozen, begun) = (Frozen::of(meta), Instant::now());
            let paced = self.paced(&frozen);
            // What is wrong with it was reported with the records.
            let registry = registry::read(&paced, &mut CheckReport::default());
            let total = registry.volumes.len() as u64;
            let last = self.state.lock().checkpoint.volume;
            let rest = registry.volumes.range((Excluded(last), Unbounded));
            let first = 1 + registry.volumes.range(..=last).count() as u64;
            let mut is_old = false;
            for (done, (&id, known)) in (first..).zip(rest) {
                is_old = begun.elapsed() > SNAPSHOT_AGE_MAX;
                if is_old {
                    break;
                }
                let mut report = CheckReport::default();
                view::check(&paced, &registry, id, known, &mut report);
                if self.is_stopped() {
                    return None;
                }
                let mut state = self.state.lock();
                state.found = std::mem::take(&mut state.found).and(report);
                state.checkpoint.volume = id;
                state.progress = Some(Progress { stage: Stage::Volumes, done, total });
            }
            if !is_old {
                return (!self.is_stopped()).then_some(());
            }
        }
    }

    /// The chunks behind the checkpoint, in the order in which they lie; `None` if stopped.
    fn read_chunks(&self, meta: &dyn MetaStore, segments: &SegmentAudit, named: &[Named]) -> Option<()> {
        let place = |address: ChunkAddress| (address.segment, address.offset);
        let last = self.state.lock().checkpoint.chunk;
        let first = named.partition_point(|named| place(named.address) <= last);
        let bytes = |named: &[Named]| named.iter().map(|named| u64::from(named.address.stored_bytes)).sum();
        let (total, mut done) = (bytes(named), bytes(&named[..first]));
        let mut pending = Pending::default();
        for (at, one) in (first + 1..).zip(&named[first..]) {
            if let Some(what) = chunks::read_one(segments, *one) {
                pending.findings.insert(one.address, what);
            }
            pending.chunks += 1;
            done += u64::from(one.address.stored_bytes);
            let is_stopped = self.is_stopped();
            if pending.is_due() || is_stopped || at == named.len() {
                let report = std::mem::take(&mut pending).tell(meta);
                let mut state = self.state.lock();
                state.found = std::mem::take(&mut state.found).and(report);
                state.checkpoint.chunk = place(one.address);
                state.progress = Some(Progress { stage: Stage::Data, done, total });
            }
            if is_stopped {
                return None;
            }
            self.pace.rest();
        }
        Some(())
    }

    fn paced<'a>(&'a self, meta: &'a dyn MetaStore) -> Paced<'a> {
        Paced { meta, pace: &self.pace, stop: &self.stop }
    }

    fn show(&self, progress: Progress) {
        self.state.lock().progress = Some(progress);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Chunks that were read since the checkpoint.
#[derive(Default)]
struct Pending {
    chunks: u64,
    findings: chunks::Findings,
}

impl Pending {
    /// Saying which files damaged chunks are of takes a look at all records; so that is done for many at
    /// once.
    fn is_due(&self) -> bool {
        self.findings.is_empty() || self.chunks >= TELL_CHUNKS
    }

    fn tell(self, meta: &dyn MetaStore) -> CheckReport {
        let mut report = CheckReport { chunks_read: self.chunks, ..CheckReport::default() };
        chunks::tell(&Frozen::of(meta), &self.findings, &mut report);
        report
    }
}

impl CheckReport {
    /// What two parts of a check found together.
    #[must_use]
    pub fn and(mut self, other: CheckReport) -> CheckReport {
        self.volumes += other.volumes;
        self.groups += other.groups;
        self.jobs += other.jobs;
        self.records += other.records;
        self.vnodes += other.vnodes;
        self.chunks += other.chunks;
        self.chunk_bytes += other.chunk_bytes;
        self.dead_bytes += other.dead_bytes;
        self.chunks_read += other.chunks_read;
        self.damage_count += other.damage_count;
        let room = super::DAMAGES_MAX.saturating_sub(self.damages.len());
        self.damages.extend(other.damages.into_iter().take(room));
        self
    }
}

impl Volumes {
    /// Runs a check of a partition while it serves. For a thread of its own.
    ///
    /// # Errors
    /// `NoPartition`; those of [`Check::run`].
    pub fn check(&self, partition: PartitionId, check: &Check) -> Result<Option<CheckReport>, VolumeError> {
        let home = self.partition(partition)?;
        check.run(&*home.handle.meta, &|state| home.handle.chunks.audit(state))
    }
}
