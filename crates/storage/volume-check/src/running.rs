//! A throttled check alongside a running server, which can be interrupted and resumed.
//!
//! The check reads snapshots. A snapshot is the state that a crash at that moment would leave, in which every
//! invariant holds without any repair (`docs/design/store.md`), so nothing that writers, the purger and the
//! compactor do meanwhile can look like damage in the metadata. Segments are files and have no snapshots.
//! They are read after the snapshot that names their chunks was taken, so they hold at least what it names,
//! except for chunks released since. Damage to a chunk therefore counts only if a record still names the
//! chunk afterwards: a chunk is released only when no record names it, and its address is never reused.
//!
//! The pass over all records comes first, in one snapshot, and is repeated after an interruption. The volumes
//! follow one by one, in later snapshots, then the data; both resume where they ended.

use crate::pace::{Pace, Paced};
use crate::records::Named;
use crate::{CheckOptions, CheckReport, Progress, Stage, chunks, records, registry, view};
use base::VolumeId;
use parking_lot::Mutex;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use store::{ChunkAddress, Frozen, MetaStore, SegmentAudit, StoreError};

/// Maximum age of a snapshot. While a snapshot exists, deleted and replaced data takes space, so it is
/// renewed.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(60);

/// Chunks read before the files of damaged ones are looked up.
const TELL_CHUNKS: u64 = 10_000;

/// Opens the segments that go with a state of the metadata; `None` if there are no files.
pub type OpenSegments<'a> = &'a dyn Fn(&dyn MetaStore) -> Result<Option<SegmentAudit>, StoreError>;

/// Position that a check has reached. Its report covers everything before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last volume checked; 0 before the first.
    pub volume: VolumeId,
    /// Segment and offset of the last chunk read; zeros before the first.
    pub chunk: (u64, u64),
}

/// Results of a check up to its checkpoint.
#[derive(Clone, Debug, Default)]
pub struct CheckState {
    /// Position to resume from.
    pub checkpoint: Checkpoint,
    /// Current progress; `None` before the start.
    pub progress: Option<Progress>,
    /// Results of the pass over all records, set when it has finished. A resumed check repeats this pass.
    pub records: CheckReport,
    /// Results since the checkpoint that the check started from.
    pub found: CheckReport,
}

/// A check. [`Check::run`] it on a dedicated thread; other threads can observe and stop it.
pub struct Check {
    options: CheckOptions,
    pace: Pace,
    stop: AtomicBool,
    /// See [`SNAPSHOT_AGE_MAX`].
    pub(crate) snapshot_age_max: Duration,
    state: Mutex<CheckState>,
}

impl Check {
    /// Creates a check that resumes after `checkpoint` and works `percent` of the time.
    pub fn new(options: CheckOptions, percent: u32, checkpoint: Checkpoint) -> Check {
        let state = CheckState { checkpoint, ..CheckState::default() };
        Check {
            options,
            pace: Pace::new(percent),
            stop: AtomicBool::new(false),
            snapshot_age_max: SNAPSHOT_AGE_MAX,
            state: Mutex::new(state),
        }
    }

    /// Requests an early stop; the state then shows how far the check came.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Returns the results so far.
    pub fn state(&self) -> CheckState {
        self.state.lock().clone()
    }

    /// Returns the checkpoint and progress without the results.
    pub fn progress(&self) -> (Checkpoint, Option<Progress>) {
        let state = self.state.lock();
        (state.checkpoint, state.progress)
    }

    /// Runs the check on a partition's metadata, which may change meanwhile; returns `None` if it was stopped.
    /// Unreadable data is reported as damage.
    ///
    /// # Errors
    /// Errors of `open_segments`.
    pub fn run(
        &self,
        meta: &dyn MetaStore,
        open_segments: OpenSegments<'_>,
    ) -> Result<Option<CheckReport>, StoreError> {
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

    /// Checks all records and the addresses of all chunks, in one snapshot.
    #[allow(clippy::type_complexity, reason = "what the later stages need, or nothing if it was stopped")]
    fn check_records(
        &self,
        meta: &dyn MetaStore,
        open_segments: OpenSegments<'_>,
    ) -> Result<Option<(Option<SegmentAudit>, Vec<Named>)>, StoreError> {
        let frozen = Frozen::of(meta);
        let paced = self.paced(&frozen);
        let mut report = CheckReport::default();
        let registry = registry::read(&paced, &mut report);
        let mut named = records::check(&paced, &registry, &mut report, &mut |progress| self.show(progress));
        // After the snapshot, so that every segment it names is included.
        let segments = open_segments(&frozen)?;
        drop(frozen);
        if let Some(segments) = &segments {
            let options = CheckOptions { data: false };
            named.sort_unstable();
            let findings = chunks::look(segments, &named, options, &mut report, &mut |_| {});
            chunks::report_to(&Frozen::of(meta), &findings, &mut report);
            named.retain(|named| !findings.contains_key(&named.address));
        }
        if self.is_stopped() {
            return Ok(None);
        }
        self.state.lock().records = report;
        Ok(Some((segments, named)))
    }

    /// Checks the volumes after the checkpoint; `None` if stopped.
    fn check_volumes(&self, meta: &dyn MetaStore) -> Option<()> {
        loop {
            let (frozen, begun) = (Frozen::of(meta), Instant::now());
            let paced = self.paced(&frozen);
            // Damage to the registry was reported with the records.
            let registry = registry::read(&paced, &mut CheckReport::default());
            let total = registry.volumes.len() as u64;
            let last = self.state.lock().checkpoint.volume;
            let rest = registry.volumes.range((Excluded(last), Unbounded));
            let first = 1 + registry.volumes.range(..=last).count() as u64;
            let mut is_old = false;
            for (done, (&id, known)) in (first..).zip(rest) {
                let mut report = CheckReport::default();
                view::check(&paced, &registry, id, known, &mut report);
                if self.is_stopped() {
                    return None;
                }
                let mut state = self.state.lock();
                state.found = std::mem::take(&mut state.found).and(report);
                state.checkpoint.volume = id;
                state.progress = Some(Progress { stage: Stage::Volumes, done, total });
                // After a volume: the registry alone may take longer.
                is_old = begun.elapsed() > self.snapshot_age_max;
                if is_old {
                    break;
                }
            }
            if !is_old {
                return (!self.is_stopped()).then_some(());
            }
        }
    }

    /// Reads the chunks after the checkpoint, in address order; `None` if stopped.
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
                let report = std::mem::take(&mut pending).report_to(meta);
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

/// Chunks read since the checkpoint.
#[derive(Default)]
struct Pending {
    chunks: u64,
    findings: chunks::Findings,
}

impl Pending {
    /// Finding the files of damaged chunks takes a scan of all records, so it is done for many chunks
    /// together.
    fn is_due(&self) -> bool {
        self.findings.is_empty() || self.chunks >= TELL_CHUNKS
    }

    fn report_to(self, meta: &dyn MetaStore) -> CheckReport {
        let mut report = CheckReport { chunks_read: self.chunks, ..CheckReport::default() };
        chunks::report_to(&Frozen::of(meta), &self.findings, &mut report);
        report
    }
}

impl CheckReport {
    /// Combines the results of two parts of a check.
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
        let room = crate::DAMAGES_MAX.saturating_sub(self.damages.len());
        self.damages.extend(other.damages.into_iter().take(room));
        self
    }
}
