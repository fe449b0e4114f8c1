//! Reads everything periodically, so that damage is found while other copies exist.
//!
//! A pass reads the metadata in key order, family by family, and the chunks that it names. Its progress is
//! stored in the metadata, so that it resumes after a restart.
//!
//! Nothing is locked: between finding a name and reading its chunk, a writer, the purger or compaction may
//! release the chunk. So a chunk counts as damaged only if it is still named after the read failed; until
//! then it cannot have been released.

use crate::VolumeError;
use crate::core::chunk_names::Name;
use crate::core::shared::Partition;
use crate::core::volumes::Volumes;
use crate::upkeep::quarantine;
use base::{PartitionId, UnixTime, VnodeId};
use std::ops::ControlFlow;
use store::{Batch, Family, KeyRange, StoreError};
use volume_records::codec::{self, ScrubState};
use volume_records::{families, keys};

/// Records that one step reads.
const STEP_RECORDS: usize = 1000;

/// Bytes of chunks that one step reads, unless a single chunk is larger.
const STEP_BYTES: u64 = 4 << 20;

/// Families in the order in which they are read.
const FAMILIES: [Family; 5] =
    [families::VOLUMES, families::VNODES, families::ENTRIES, families::EXTENTS, families::TOTALS];

/// Interval between scrubber passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPolicy {
    /// Minimum time from the start of one pass to the start of the next, in seconds.
    pub period_seconds: u32,
}

impl Default for ScrubPolicy {
    fn default() -> ScrubPolicy {
        ScrubPolicy { period_seconds: 7 * 24 * 3600 }
    }
}

/// Result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStep {
    /// Bytes read; the caller sleeps for as long as these take at its rate.
    pub bytes: u64,
    /// Whether the next pass is not due yet.
    pub is_idle: bool,
}

/// Progress of the scrubber on a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatistics {
    /// Whether a pass is in progress.
    pub is_running: bool,
    /// Position: a metadata family, and a group of volumes in it.
    pub position: Option<(&'static str, u64)>,
    /// Start time of the current pass, or of the last one; 0 if there was none.
    pub started: UnixTime,
    /// End time of the last full pass; 0 if there was none.
    pub finished: UnixTime,
    /// Number of full passes.
    pub passes: u64,
    /// Records read in the current pass, or the last one.
    pub records: u64,
    /// Chunks read in the current pass, or the last one.
    pub chunks: u64,
    /// Bytes of records and chunks read in the current pass, or the last one.
    pub bytes: u64,
    /// Damaged chunks and records found in the current pass, or the last one.
    pub damages: u64,
    /// Bytes read since the server started, from which a rate can be computed.
    pub bytes_since_start: u64,
}

/// Scrubbing state of one partition.
#[derive(Default)]
pub(crate) struct Scrubber {
    /// `None` before it has been loaded.
    state: Option<ScrubState>,
    bytes_since_start: u64,
}

/// The records and chunks of one step.
#[derive(Default)]
struct Part {
    records: u64,
    bytes: u64,
    names: Vec<Name>,
    unreadable: Vec<Vec<u8>>,
    next: Option<Vec<u8>>,
    /// The key at which the database failed to continue, and why.
    broken: Option<(Vec<u8>, String)>,
}

impl Volumes {
    /// Reads a bounded part of a partition and records damage. Use one background thread per partition.
    ///
    /// # Errors
    /// `NoPartition`, `Store` (for failures of the disk, which are not damage).
    pub fn scrub_step(
        &self,
        partition: PartitionId,
        policy: ScrubPolicy,
        now: UnixTime,
    ) -> Result<ScrubStep, VolumeError> {
        let home = self.partition(partition)?;
        let mut scrubber = home.scrubber.lock();
        let mut state = scrubber.state(&home)?;
        quarantine::prune(&home, |_| false)?;
        let begun = state.started;
        let Some(family) = begin(&mut state, policy, now) else {
            return Ok(ScrubStep { bytes: 0, is_idle: true });
        };
        if state.started != begun {
            home.handle.meta.read_anew()?;
        }
        let part = read(&home, family, &state.from)?;
        let (chunks, damages) = self.examine(&home, family, &part, now)?;
        state.records += part.records;
        state.chunks += chunks;
        state.bytes += part.bytes;
        state.damages += damages;
        scrubber.bytes_since_start += part.bytes;
        advance(&home, &mut state, part.next, now)?;
        let mut batch = Batch::new();
        batch.put(Family::SYSTEM, keys::SCRUB_STATE, codec::put_scrub_state(&state));
        home.handle.meta.commit(batch)?;
        scrubber.state = Some(state);
        Ok(ScrubStep { bytes: part.bytes, is_idle: false })
    }

    /// Returns the progress of the scrubber on a partition.
    pub fn scrub_statistics(&self, partition: PartitionId) -> Result<ScrubStatistics, VolumeError> {
        let home = self.partition(partition)?;
        let mut scrubber = home.scrubber.lock();
        let state = scrubber.state(&home)?;
        let family = state.family.and_then(|family| FAMILIES.get(usize::from(family)));
        let group = state.from.first_chunk().map_or(0, |group| u64::from_be_bytes(*group));
        let ScrubState { started, finished, passes, records, chunks, bytes, damages, .. } = state;
        Ok(ScrubStatistics {
            is_running: family.is_some(),
            position: family.map(|family| (family.name(), group)),
            started,
            finished,
            passes,
            records,
            chunks,
            bytes,
            damages,
            bytes_since_start: scrubber.bytes_since_start,
        })
    }

    /// Reads the chunks of a part and reports damage; returns the number of chunks read and of damages.
    fn examine(
        &self,
        home: &Partition,
        family: Family,
        part: &Part,
        now: UnixTime,
    ) -> Result<(u64, u64), VolumeError> {
        let mut damages = 0;
        for key in &part.unreadable {
            quarantine::report_record(home, family, key, "the record cannot be read".into(), now)?;
            damages += 1;
        }
        if let Some((key, what)) = &part.broken {
            quarantine::report_record(home, family, key, what.clone(), now)?;
            damages += 1;
        }
        let mut damaged = Vec::new();
        for name in &part.names {
            match home.handle.chunks.verify(name.address) {
                Ok(()) => {}
                Err(error @ StoreError::Damaged { .. }) => damaged.push((name.clone(), error)),
                Err(error) => return Err(error.into()),
            }
        }
        damages += quarantine::report_chunks(self, home, &damaged, now)?;
        Ok((part.names.len() as u64, damages))
    }
}

impl Scrubber {
    fn state(&mut self, home: &Partition) -> Result<ScrubState, VolumeError> {
        if let Some(state) = &self.state {
            return Ok(state.clone());
        }
        let value = home.handle.meta.get(Family::SYSTEM, keys::SCRUB_STATE)?;
        // An unreadable state only costs a new pass.
        let state = value.and_then(|value| codec::get_scrub_state(&value)).unwrap_or_default();
        self.state = Some(state.clone());
        Ok(state)
    }
}

/// Starts a pass if one is due; returns the current family.
fn begin(state: &mut ScrubState, policy: ScrubPolicy, now: UnixTime) -> Option<Family> {
    let is_new = state.started == UnixTime(0);
    if state.family.is_none() && (is_new || now.0 >= state.started.0.saturating_add(policy.period_seconds)) {
        let (finished, passes) = (state.finished, state.passes);
        *state = ScrubState { family: Some(0), started: now, finished, passes, ..ScrubState::default() };
    }
    FAMILIES.get(usize::from(state.family?)).copied()
}

/// Reads the next records of a family.
fn read(home: &Partition, family: Family, from: &[u8]) -> Result<Part, VolumeError> {
    let mut part = Part::default();
    let mut last = from.to_vec();
    let state = home.handle.meta.snapshot();
    let scanned = state.scan(family, KeyRange::ascending(from, &keys::BEHIND_ALL), &mut |key, value| {
        if part.records as usize >= STEP_RECORDS || part.bytes >= STEP_BYTES {
            part.next = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        part.take(family, key, value);
        last = key.to_vec();
        ControlFlow::Continue(())
    });
    match scanned {
        Ok(()) => {}
        Err(error @ StoreError::Damaged { .. }) => {
            part.next = behind_group(&last);
            part.broken = Some((last, error.to_string()));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(part)
}

impl Part {
    fn take(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        if !value.is_empty() && !is_readable(family, key, value) {
            self.unreadable.push(key.to_vec());
        } else if family == families::EXTENTS
            && let Some(Some(address)) = codec::extent_address(value)
        {
            self.bytes += u64::from(address.stored_bytes);
            self.names.push(Name { key: key.to_vec(), address });
        }
    }
}

fn is_readable(family: Family, key: &[u8], value: &[u8]) -> bool {
    match family {
        families::VNODES => codec::get_vnode(VnodeId(0), value).is_some(),
        families::ENTRIES => codec::get_entry(value).is_some(),
        families::EXTENTS if keys::is_of_rows(key) => codec::get_row(value).is_some(),
        families::EXTENTS => codec::get_extent(value).is_some(),
        families::TOTALS => codec::get_totals(value).is_some(),
        _ => keys::registry_of(key).is_none_or(|what| match what {
            keys::Registry::Header => codec::header_place(value).and(codec::header_name(value)).is_some(),
            keys::Registry::Counters => codec::get_counters(value).is_some(),
            keys::Registry::Job => codec::get_job(value).is_some(),
            keys::Registry::Snapshot
            | keys::Registry::Policy
            | keys::Registry::Received
            | keys::Registry::Splitting
            | keys::Registry::Past => true,
        }),
    }
}

/// Returns the first key of the group after that of `key`, from which to continue if the database fails. The
/// rest of the group is skipped in this pass.
fn behind_group(key: &[u8]) -> Option<Vec<u8>> {
    let group = key.first_chunk().map_or(0, |group| u64::from_be_bytes(*group));
    Some(group.checked_add(1)?.to_be_bytes().to_vec())
}

/// Advances to the next part, family, or pass.
fn advance(
    home: &Partition,
    state: &mut ScrubState,
    next: Option<Vec<u8>>,
    now: UnixTime,
) -> Result<(), VolumeError> {
    let is_end_of_family = next.is_none();
    state.from = next.unwrap_or_default();
    if !is_end_of_family {
        return Ok(());
    }
    state.family = state.family.map(|family| family + 1).filter(|next| usize::from(*next) < FAMILIES.len());
    if state.family.is_none() {
        state.passes += 1;
        state.finished = now;
        let started = state.started;
        quarantine::prune(home, |damage| damage.last_seen < started)?;
        tracing::info!(partition = %home.handle.id, records = state.records, chunks = state.chunks,
            bytes = state.bytes, damages = state.damages, "everything was read");
    }
    Ok(())
}
