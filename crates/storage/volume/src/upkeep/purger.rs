//! Reclaims the records and chunks of deleted volumes and huge deleted files.
//!
//! The work is stored as a job in the batch that made it necessary, so that a restart continues it. The
//! progress of a job is only in memory: after a restart it starts again and finds less to do.

use crate::VolumeError;
use crate::core::group::Group;
use crate::core::shared::Partition;
use crate::dedup::{Changes, Obsolete, Outcome};
use crate::interface::error::damage;
use base::PartitionId;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, ChunkAddress, Family, KeyRange};
use volume_records::codec::{self, Job};
use volume_records::epochs::{self, Epochs};
use volume_records::keys::{self, FileKey};
use volume_records::rows::RowKey;
use volume_records::{ReadView, families};

/// Records examined in one step.
const STEP_RECORDS: usize = 1000;

/// The families that hold a group's records. Vnodes are last: as long as one exists its group has not been
/// purged.
const FAMILIES: [Family; 4] = [families::TOTALS, families::ENTRIES, families::EXTENTS, families::VNODES];

/// The current job and its progress.
#[derive(Default)]
pub(crate) struct Purger {
    job: Option<Current>,
}

/// A job is identified by key and partition, as two partitions may use the same key.
struct Current {
    partition: PartitionId,
    key: Vec<u8>,
    job: Job,
    progress: Progress,
}

impl Current {
    /// Returns whether the stored job continues this one. All jobs that purge versions of a group are
    /// equivalent, and one may have replaced another.
    fn is(&self, key: &[u8], job: Job) -> bool {
        match (self.job, job) {
            (Job::Versions { group, .. }, Job::Versions { group: other, .. }) => group == other,
            _ => self.key == key,
        }
    }
}

/// Progress of one job.
pub(crate) struct Progress {
    family: usize,
    /// Key to continue from; empty at the start of a family.
    from: Vec<u8>,
    group: Option<Arc<Group>>,
    /// Read views of the group at the last step.
    readers: Vec<ReadView>,
    /// Whether a read view seen at an earlier step has ended, so that records already passed must be examined
    /// again.
    is_outdated: bool,
}

impl Progress {
    pub(crate) fn begin(group: Option<Arc<Group>>) -> Progress {
        Progress { family: 0, from: vec![], group, readers: vec![], is_outdated: false }
    }
}

/// One version of a record.
struct Version {
    key: Vec<u8>,
    prefix: Vec<u8>,
    born: u64,
    is_live: bool,
    address: Option<ChunkAddress>,
    shared: Option<RowKey>,
}

/// Deletions of a step.
#[derive(Default)]
struct Deletion {
    batch: Batch,
    obsolete: Vec<ChunkAddress>,
    sharing: Changes,
}

impl Purger {
    /// Performs a step of a partition's first job; returns whether there was one.
    pub(crate) fn step(
        &mut self,
        home: &Partition,
        find_group: impl Fn(u64) -> Result<Option<Arc<Group>>, VolumeError>,
    ) -> Result<bool, VolumeError> {
        let Some((key, job)) = first_job(home)? else { return Ok(false) };
        let mut progress = match self.job.take_if(|known| known.partition == home.handle.id) {
            Some(known) if known.is(&key, job) => known.progress,
            // A group that is purged as a whole has no volume left.
            _ if matches!(job, Job::Group { .. }) => Progress::begin(None),
            _ => Progress::begin(find_group(job.group())?),
        };
        let is_done = match job {
            Job::Group { group } => step_group(home, group, &mut progress)?,
            Job::Versions { group, .. } => step_versions(home, group, &key, &mut progress)?,
            Job::File { group, vnode, unique, epoch } => {
                step_file(home, FileKey { group, vnode, unique }, epoch, &mut progress)?
            }
        };
        if !is_done {
            self.job = Some(Current { partition: home.handle.id, key, job, progress });
        } else if !matches!(job, Job::Versions { .. }) {
            forget_job(home, &key)?;
        }
        Ok(true)
    }
}

fn forget_job(home: &Partition, key: &[u8]) -> Result<(), VolumeError> {
    let mut batch = Batch::new();
    batch.delete(families::VOLUMES, key);
    home.handle.meta.commit(batch)?;
    Ok(())
}

fn first_job(home: &Partition) -> Result<Option<(Vec<u8>, Job)>, VolumeError> {
    let (from, to) = keys::registry_range(keys::Registry::Job);
    let mut first = None;
    home.handle.meta.scan(families::VOLUMES, KeyRange::ascending(&from, &to), &mut |key, value| {
        let job = codec::get_job(value);
        if job.is_some_and(|job| home.is_staged(job.group())) {
            return ControlFlow::Continue(());
        }
        first = Some((key.to_vec(), job));
        ControlFlow::Break(())
    })?;
    match first {
        Some((key, None)) => Err(damage(families::VOLUMES, &key, "the purge job")),
        Some((key, Some(job))) => Ok(Some((key, job))),
        None => Ok(None),
    }
}

/// Commits a step's deletions, and releases the chunks when the commit is durable.
fn delete(home: &Partition, group: Option<&Group>, mut deletion: Deletion) -> Result<(), VolumeError> {
    if deletion.batch.is_empty() {
        return Ok(());
    }
    let Outcome::Done(done) = home.commit(&mut deletion.batch, &deletion.sharing, &[])? else {
        return Err(VolumeError::DigestsCollide);
    };
    home.handle.meta.sync(done.number)?;
    home.release(group.map(|group| &group.pins), Obsolete { own: deletion.obsolete, shared: done.obsolete });
    Ok(())
}

/// Returns the next versions of a group, always complete records; `None` at the end.
fn next_versions(
    home: &Partition,
    group: u64,
    progress: &mut Progress,
) -> Result<Option<(Family, Vec<Version>)>, VolumeError> {
    while let Some(&family) = FAMILIES.get(progress.family) {
        let found = versions_between(home, family, keys::group_range(group), &mut progress.from)?;
        if progress.from.is_empty() {
            progress.family += 1;
        }
        if !found.is_empty() {
            return Ok(Some((family, found)));
        }
    }
    Ok(None)
}

/// Returns the versions from `next` on, or from the start of the range if it is empty; always complete
/// records. Sets `next` to the key to continue from, empty at the end.
fn versions_between(
    home: &Partition,
    family: Family,
    (begin, to): (Vec<u8>, Vec<u8>),
    next: &mut Vec<u8>,
) -> Result<Vec<Version>, VolumeError> {
    let mut found: Vec<Version> = Vec::new();
    let from = if next.is_empty() { begin } else { std::mem::take(next) };
    let mut damaged = None;
    home.handle.meta.scan(family, KeyRange::ascending(&from, &to), &mut |key, value| {
        let Some(version) = read_version(family, key, value) else {
            damaged = Some(damage(family, key, "a record of a group"));
            return ControlFlow::Break(());
        };
        let is_new_record = found.last().is_none_or(|last| last.prefix != version.prefix);
        if is_new_record && found.len() >= STEP_RECORDS {
            *next = key.to_vec();
            return ControlFlow::Break(());
        }
        found.push(version);
        ControlFlow::Continue(())
    })?;
    damaged.map_or(Ok(found), Err)
}

fn read_version(family: Family, key: &[u8], value: &[u8]) -> Option<Version> {
    let (prefix, born) = keys::split(key)?;
    let is_live = !value.is_empty();
    let (address, shared) = match family {
        families::EXTENTS => (codec::extent_address(value)?, codec::shared_row(value)),
        _ => (None, None),
    };
    Some(Version { key: key.to_vec(), prefix: prefix.to_vec(), born, is_live, address, shared })
}

/// Deletes records of a group that has no volumes left.
fn step_group(home: &Partition, group: u64, progress: &mut Progress) -> Result<bool, VolumeError> {
    let Some((family, found)) = next_versions(home, group, progress)? else { return Ok(true) };
    let mut deletion = Deletion::default();
    for version in found {
        deletion.take(family, &version);
    }
    delete(home, progress.group.as_deref(), deletion)?;
    Ok(false)
}

/// Deletes versions that no volume of a group reads. Another volume of the group may be deleted meanwhile and
/// leave the same job: this pass then runs to its end and starts again, so it covers everything however often
/// that happens. The job is removed here, under the lock that deletions need, and not by the caller.
pub(crate) fn step_versions(
    home: &Partition,
    group: u64,
    job: &[u8],
    progress: &mut Progress,
) -> Result<bool, VolumeError> {
    let Some(shared) = progress.group.clone() else {
        // A job for the whole group exists.
        forget_job(home, job)?;
        return Ok(true);
    };
    let writer = shared.writer.lock();
    if home.is_staged(group) {
        // Staged since the job was found: data without readers may be under construction.
        return Ok(false);
    }
    let readers = writer.epochs.readers();
    progress.is_outdated |= progress.readers.iter().any(|reader| !readers.contains(reader));
    progress.readers.clone_from(&readers);
    let Some((family, found)) = next_versions(home, group, progress)? else {
        if progress.is_outdated {
            *progress = Progress::begin(Some(Arc::clone(&shared)));
            return Ok(false);
        }
        forget_job(home, job)?;
        return Ok(true);
    };
    let mut deletion = Deletion::default();
    for record in found.chunk_by(|a, b| a.prefix == b.prefix) {
        deletion.thin(family, record, None, &readers);
    }
    delete(home, Some(&shared), deletion)?;
    drop(writer);
    Ok(false)
}

impl Deletion {
    fn take(&mut self, family: Family, version: &Version) {
        self.obsolete.extend(version.address);
        if let Some(row) = version.shared {
            self.sharing.take_away(row);
        }
        self.batch.delete(family, version.key.as_slice());
    }

    /// Deletes the versions of one record that no reader needs. With `ended`, first marks the record as
    /// deleted from that epoch on.
    fn thin(&mut self, family: Family, record: &[Version], ended: Option<u64>, readers: &[ReadView]) {
        let Some(first) = record.first() else { return };
        let mut versions: Vec<(u64, bool)> =
            record.iter().map(|version| (version.born, version.is_live)).collect();
        if let Some(ended) = ended {
            versions.retain(|&(born, _)| born != ended);
            let at = versions.partition_point(|&(born, _)| born > ended);
            versions.insert(at, (ended, false));
        }
        let unneeded = epochs::unneeded(&versions, readers);
        for version in record {
            let is_replaced = Some(version.born) == ended;
            if is_replaced || unneeded.contains(&version.born) {
                self.take(family, version);
            }
        }
        if let Some(ended) = ended.filter(|ended| !unneeded.contains(ended)) {
            self.batch.put(family, keys::versioned(&first.prefix, ended), []);
        }
    }
}

/// Deletes the data of a file that was deleted at `epoch`, for all readers that do not see the file.
fn step_file(
    home: &Partition,
    file: FileKey,
    epoch: u64,
    progress: &mut Progress,
) -> Result<bool, VolumeError> {
    // Without a group, a job for the whole group exists.
    let Some(shared) = progress.group.clone() else { return Ok(true) };
    let writer = shared.writer.lock();
    let ended = if epoch > 0 { Some(epoch) } else { end_of(home, file, &writer.epochs)? };
    let Some(ended) = ended else { return Ok(true) };
    let found = versions_between(home, families::EXTENTS, file.extents(0, u64::MAX), &mut progress.from)?;
    let readers = writer.epochs.readers();
    let mut deletion = Deletion::default();
    for record in found.chunk_by(|a, b| a.prefix == b.prefix) {
        deletion.thin(families::EXTENTS, record, Some(ended), &readers);
    }
    delete(home, Some(&shared), deletion)?;
    drop(writer);
    Ok(progress.from.is_empty())
}

/// Returns the epoch from which a file is deleted, for a job of the older form without an epoch: the current
/// one if the read-write volume exists and does not have the file, otherwise `None`.
fn end_of(home: &Partition, file: FileKey, epochs: &Epochs) -> Result<Option<u64>, VolumeError> {
    if epochs.is_read_write_gone {
        return Ok(None);
    }
    let prefix = keys::vnode(file.group, file.vnode);
    let found = epochs::get(&*home.handle.meta, families::VNODES, &prefix, &epochs.writer())?;
    let vnode = found.and_then(|(_, value)| codec::get_vnode(file.vnode, &value));
    let is_there = vnode.is_some_and(|vnode| vnode.status.unique == file.unique);
    Ok((!is_there).then_some(epochs.current))
}
