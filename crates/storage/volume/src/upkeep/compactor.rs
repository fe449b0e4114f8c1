//! Reclaims the space of dead chunks between live ones.
//!
//! A segment with enough dead data is emptied: its live chunks are moved into the segment being written, and
//! the file is deleted when all of it has been released. With at least X percent dead, reclaiming X bytes
//! costs at most 100 - X bytes of writes, and every byte dies once. So the total written, copies included, is
//! at most 100 / X times what clients wrote.
//!
//! Segments that are too small for their medium (objects of a bucket, which cannot grow) are emptied together, dead
//! data or not, so that one segment has their chunks.
//!
//! The record that names a chunk is found through the owner stored next to it: an extent, or the row of a
//! chunk that several files share. If no owner is stored (segments of version 1), or part of the segment
//! cannot be read, the segment waits until one walk through all extents finds the names for all such
//! segments.

use crate::VolumeError;
use crate::core::chunk_names::{self, Name};
use crate::core::shared::Partition;
use crate::core::volumes::Volumes;
use crate::upkeep::quarantine;
use crate::upkeep::relocation::Moved;
use base::{PartitionId, UnixTime};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{SegmentUse, StoreError};

/// Bytes moved in one step, unless a single chunk is larger.
const STEP_BYTES: u64 = 4 << 20;

/// Records of a segment that one step examines.
const STEP_RECORDS: usize = 500;

/// Cost of examining one record, in bytes charged to the rate.
const RECORD_COST_BYTES: u64 = 256;

/// Extents that one step of a full walk examines.
const STEP_EXTENTS: usize = 5000;

/// Maximum number of segments that wait for a walk; at this number it takes priority over other work.
const WALK_SEGMENTS: usize = 32;

/// Idle steps before a segment that could not be emptied is tried again.
const RETRY_STEPS: u32 = 1000;

/// Thresholds that select segments for compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPolicy {
    /// Percentage of dead data from which a segment is compacted, 1 to 100.
    pub dead_percent: u8,
    /// The same percentage while the disk is nearly full.
    pub dead_percent_full: u8,
    /// The disk is nearly full when less than this percentage is free.
    pub full_percent: u8,
}

impl Default for CompactionPolicy {
    fn default() -> CompactionPolicy {
        CompactionPolicy { dead_percent: 50, dead_percent_full: 10, full_percent: 5 }
    }
}

/// Result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionStep {
    /// Cost in bytes; the caller sleeps for as long as these take at its rate.
    pub bytes: u64,
    /// Whether there is nothing to do, or no space to do it.
    pub is_idle: bool,
}

/// Compaction statistics of a partition since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionStatistics {
    /// Segments whose compaction was started.
    pub segments: u64,
    /// Bytes that were dead in them at that time.
    pub dead_bytes: u64,
    /// Chunks moved.
    pub chunks: u64,
    /// Stored bytes copied to move them.
    pub copied_bytes: u64,
    /// Small segments whose chunks were moved into larger ones, not counted as compacted.
    pub merged_segments: u64,
    /// Stored bytes copied for that, not counted as copied.
    pub merged_bytes: u64,
    /// Walks through all extents.
    pub walks: u64,
    /// Chunks that could not be moved because they were damaged.
    pub damaged: u64,
    /// Steps that found no space for copies.
    pub refused: u64,
    /// Whether the disk was nearly full at the last step.
    pub is_nearly_full: bool,
}

/// Compaction state of one partition.
#[derive(Default)]
pub(crate) struct Compactor {
    work: Work,
    /// Names found and not yet processed.
    queue: VecDeque<Name>,
    /// Whether the names in the queue are those of small segments.
    is_merging: bool,
    /// Segments that wait for a walk.
    waiting: BTreeSet<u64>,
    /// Segments that were emptied as far as possible, and the dead bytes in them before.
    tried: BTreeMap<u64, u64>,
    /// Whether the last step found nothing to do.
    is_resting: bool,
    idle_steps: u32,
    statistics: CompactionStatistics,
}

#[derive(Default)]
enum Work {
    #[default]
    None,
    /// Processing the records of a segment.
    Segment { segment: u64, from: u64, needs_walk: bool },
    /// Processing the records of small segments, together.
    Merge { segments: VecDeque<u64> },
    /// Walking through all extents.
    Walk { segments: BTreeSet<u64>, from: Vec<u8> },
}

impl Volumes {
    /// Performs a bounded step of compaction on a partition. Use one background thread per partition.
    ///
    /// # Errors
    /// `NoPartition`, `Store`. Nothing is lost; the next step starts with another segment.
    pub fn compact_step(
        &self,
        partition: PartitionId,
        policy: CompactionPolicy,
        now: UnixTime,
    ) -> Result<CompactionStep, VolumeError> {
        let home = self.partition(partition)?;
        let mut compactor = home.compactor.lock();
        let found = compactor.find(&home, policy);
        let bytes = found.inspect_err(|_| compactor.work = Work::None)?;
        let names = compactor.take_names();
        let moved = self.move_chunks(&home, names)?;
        compactor.count(&moved);
        quarantine::report_chunks(self, &home, &moved.damaged, now)?;
        let is_idle = moved.is_full || compactor.is_resting;
        Ok(CompactionStep { bytes: bytes + moved.copied_bytes, is_idle })
    }

    /// Returns the compaction statistics of a partition.
    pub fn compaction_statistics(&self, partition: PartitionId) -> Result<CompactionStatistics, VolumeError> {
        Ok(self.partition(partition)?.compactor.lock().statistics)
    }
}

impl Compactor {
    /// Finds the next names if none are left; returns the cost in bytes.
    fn find(&mut self, home: &Partition, policy: CompactionPolicy) -> Result<u64, VolumeError> {
        self.is_resting = false;
        if !self.queue.is_empty() {
            return Ok(0);
        }
        if matches!(self.work, Work::None) {
            self.begin(home, policy);
        }
        self.is_merging = matches!(self.work, Work::Merge { .. });
        match std::mem::take(&mut self.work) {
            Work::None => Ok(0),
            Work::Merge { segments } => self.look_into_all(home, segments),
            Work::Segment { segment, from, needs_walk } => self.look_into(home, segment, from, needs_walk),
            Work::Walk { segments, from } => self.walk(home, segments, &from),
        }
    }

    /// Chooses the next work.
    fn begin(&mut self, home: &Partition, policy: CompactionPolicy) {
        let space = (home.handle.space)();
        // Space about to be released counts as free, so that the lower threshold applies no longer than
        // needed.
        let free_kib = space.free_kib.saturating_add(home.handle.chunks.doomed_bytes() >> 10);
        let is_nearly_full = free_kib < space.total_kib / 100 * u64::from(policy.full_percent);
        self.statistics.is_nearly_full = is_nearly_full;
        let percent = if is_nearly_full { policy.dead_percent_full } else { policy.dead_percent };
        let sparse = home.handle.chunks.sparse_segments(percent);
        let mut small = home.handle.chunks.small_segments();
        let is_known = |segment: u64| sparse.iter().chain(&small).any(|used| used.segment == segment);
        self.tried.retain(|segment, _| is_known(*segment));
        small.retain(|used| self.is_worth_it(used));
        let next = sparse.iter().find(|used| self.is_worth_it(used));
        if let Some(used) = next.filter(|_| self.waiting.len() < WALK_SEGMENTS) {
            self.tried.insert(used.segment, used.dead);
            self.statistics.segments += 1;
            self.statistics.dead_bytes += used.dead;
            self.work = Work::Segment { segment: used.segment, from: 0, needs_walk: false };
        } else if small.len() > 1 && self.waiting.len() < WALK_SEGMENTS {
            self.tried.extend(small.iter().map(|used| (used.segment, used.dead)));
            self.statistics.merged_segments += small.len() as u64;
            self.work = Work::Merge { segments: small.iter().map(|used| used.segment).collect() };
        } else if !self.waiting.is_empty() {
            self.statistics.walks += 1;
            self.work = Work::Walk { segments: std::mem::take(&mut self.waiting), from: vec![] };
        } else {
            self.rest();
        }
    }

    /// Returns whether the segment is untried, or an eighth of it has died since it was tried.
    fn is_worth_it(&self, used: &SegmentUse) -> bool {
        let tried = self.tried.get(&used.segment);
        tried.is_none_or(|before| used.dead.saturating_sub(*before) > used.bytes / 8)
    }

    fn rest(&mut self) {
        self.is_resting = true;
        self.idle_steps += 1;
        if self.idle_steps >= RETRY_STEPS {
            self.idle_steps = 0;
            self.tried.clear();
        }
    }

    /// Finds the names of the next chunks of a segment.
    fn look_into(
        &mut self,
        home: &Partition,
        segment: u64,
        from: u64,
        mut needs_walk: bool,
    ) -> Result<u64, VolumeError> {
        let records = match home.handle.chunks.records(segment, from, STEP_RECORDS) {
            // The segment's file was deleted meanwhile.
            Err(StoreError::Damaged { .. }) => return Ok(RECORD_COST_BYTES),
            records => records?,
        };
        for (address, owner) in &records.found {
            if owner.is_known() {
                self.queue.extend(chunk_names::by_owner(&*home.handle.meta, *owner, *address)?);
            } else {
                needs_walk = true;
            }
        }
        needs_walk |= records.is_cut;
        if let Some(from) = records.next {
            self.work = Work::Segment { segment, from, needs_walk };
        } else if needs_walk {
            self.waiting.insert(segment);
        }
        Ok((1 + records.found.len() as u64) * RECORD_COST_BYTES)
    }

    /// Finds the names of the chunks of small segments, as many as one step moves.
    fn look_into_all(&mut self, home: &Partition, mut segments: VecDeque<u64>) -> Result<u64, VolumeError> {
        let mut cost = 0;
        while let Some(segment) = segments.pop_front() {
            cost += self.look_into(home, segment, 0, false)?;
            // The rest of a segment with many records comes first; the others are chosen again when that is over.
            if matches!(self.work, Work::Segment { .. }) {
                return Ok(cost);
            }
            let queued: u64 = self.queue.iter().map(|name| u64::from(name.address.stored_bytes)).sum();
            if queued >= STEP_BYTES || self.queue.len() >= STEP_RECORDS {
                self.work = Work::Merge { segments };
                return Ok(cost);
            }
        }
        Ok(cost)
    }

    /// Searches the next extents for names of chunks in these segments.
    fn walk(&mut self, home: &Partition, segments: BTreeSet<u64>, from: &[u8]) -> Result<u64, VolumeError> {
        let is_wanted = |address: store::ChunkAddress| segments.contains(&address.segment);
        let names = chunk_names::walk(&*home.handle.meta, from, STEP_EXTENTS, is_wanted)?;
        self.queue.extend(names.found);
        if let Some(from) = names.next {
            self.work = Work::Walk { segments, from };
        }
        Ok(STEP_EXTENTS as u64 * RECORD_COST_BYTES / 4)
    }

    /// Takes as many names as one step moves.
    fn take_names(&mut self) -> Vec<Name> {
        let (mut names, mut bytes) = (Vec::new(), 0);
        while let Some(name) = self.queue.pop_front() {
            bytes += u64::from(name.address.stored_bytes);
            names.push(name);
            if bytes >= STEP_BYTES {
                break;
            }
        }
        names
    }

    fn count(&mut self, moved: &Moved) {
        self.statistics.chunks += moved.chunks;
        let copied = &mut self.statistics;
        let copied = if self.is_merging { &mut copied.merged_bytes } else { &mut copied.copied_bytes };
        *copied += moved.copied_bytes;
        self.statistics.damaged += moved.damaged.len() as u64;
        if moved.is_full {
            self.statistics.refused += 1;
            // Another segment may fit now, and these later.
            self.queue.clear();
            self.work = Work::None;
            self.tried.clear();
        }
    }
}
