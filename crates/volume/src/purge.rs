//! Reclaiming what deleted volumes and huge deleted files left behind.
//!
//! What is to be done is stored as a job in the batch that made it necessary, so that a restart
//! continues it. How far a job has come is only known in memory: it begins anew after a restart and
//! finds less to do.

use crate::VolumeError;
use crate::epochs::{self, Epochs, damage};
use crate::group::Group;
use crate::keys::{self, FileKey};
use crate::record::{self, Job};
use crate::shared::Partition;
use crate::sharing::{Changes, Doomed, Outcome, RowKey};
use crate::sight::Sight;
use base::PartitionId;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, ChunkAddress, Family, KeyRange};

/// Records looked at in one step.
const STEP_RECORDS: usize = 1000;

/// The families that hold a group's records. Vnodes go last: as long as one is there its group was
/// not purged.
const FAMILIES: [Family; 4] = [Family::Totals, Family::Entries, Family::Extents, Family::Vnodes];

/// How far the job at hand has come.
#[derive(Default)]
pub(crate) struct Purger {
    job: Option<Current>,
}

/// A job is known by its key and its partition: those of two partitions may have the same key.
struct Current {
    partition: PartitionId,
    key: Vec<u8>,
    job: Job,
    progress: Progress,
}

impl Current {
    /// Whether who goes on with a job goes on with this. All that say that versions of a group are to be purged mean
    /// the same, and one may have taken the place of another.
    fn is(&self, key: &[u8], job: Job) -> bool {
        match (self.job, job) {
            (Job::Versions { group, .. }, Job::Versions { group: other, .. }) => group == other,
            _ => self.key == key,
        }
    }
}

/// How far one job has come.
pub(crate) struct Progress {
    family: usize,
    /// Key to go on from; empty at a family's beginning.
    from: Vec<u8>,
    group: Option<Arc<Group>>,
    /// What was seen of the group at the last step.
    readers: Vec<Sight>,
    /// Somebody who was seen at an earlier step is gone: what was passed is to be looked at again.
    is_outdated: bool,
}

impl Progress {
    pub(crate) fn begin(group: Option<Arc<Group>>) -> Progress {
        Progress { family: 0, from: vec![], group, readers: vec![], is_outdated: false }
    }
}

/// One record version.
struct Version {
    key: Vec<u8>,
    prefix: Vec<u8>,
    born: u64,
    is_live: bool,
    address: Option<ChunkAddress>,
    shared: Option<RowKey>,
}

/// What a step deletes.
#[derive(Default)]
struct Deletion {
    batch: Batch,
    doomed: Vec<ChunkAddress>,
    sharing: Changes,
}

impl Purger {
    /// Does a step of a partition's first job; tells whether there was one.
    pub(crate) fn step(
        &mut self,
        home: &Partition,
        find_group: impl Fn(u64) -> Result<Option<Arc<Group>>, VolumeError>,
    ) -> Result<bool, VolumeError> {
        let Some((key, job)) = first_job(home)? else { return Ok(false) };
        let mut progress = match self.job.take_if(|known| known.partition == home.handle.id) {
            Some(known) if known.is(&key, job) => known.progress,
            // Of a group that goes as a whole no volume is left.
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
    batch.delete(Family::Volumes, key);
    home.handle.meta.commit(batch)?;
    Ok(())
}

fn first_job(home: &Partition) -> Result<Option<(Vec<u8>, Job)>, VolumeError> {
    let (from, to) = keys::registry_range(keys::Registry::Job);
    let mut first = None;
    home.handle.meta.scan(Family::Volumes, KeyRange::ascending(&from, &to), &mut |key, value| {
        let job = record::get_job(value);
        if job.is_some_and(|job| home.is_staged(job.group())) {
            return ControlFlow::Continue(());
        }
        first = Some((key.to_vec(), job));
        ControlFlow::Break(())
    })?;
    match first {
        Some((key, None)) => Err(damage(Family::Volumes, &key, "the purge job")),
        Some((key, Some(job))) => Ok(Some((key, job))),
        None => Ok(None),
    }
}

/// Commits a step's deletions; chunks go when that is durable.
fn delete(home: &Partition, group: Option<&Group>, mut deletion: Deletion) -> Result<(), VolumeError> {
    if deletion.batch.is_empty() {
        return Ok(());
    }
    let Outcome::Done(done) = home.commit(&mut deletion.batch, &deletion.sharing, &[])? else {
        return Err(VolumeError::DigestsCollide);
    };
    home.handle.meta.sync(done.number)?;
    home.release(group.map(|group| &group.pins), Doomed { own: deletion.doomed, shared: done.doomed });
    Ok(())
}

/// The next versions of a group, always all of a record; `None` at the end.
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

/// The versions from `from` on, or from the range's beginning if that is empty; always all of a record. `from`
/// is where to go on, empty at the end.
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
        Family::Extents => (record::extent_address(value)?, record::shared_row(value)),
        _ => (None, None),
    };
    Some(Version { key: key.to_vec(), prefix: prefix.to_vec(), born, is_live, address, shared })
}

/// Deletes records of a group that no volume is left of.
fn step_group(home: &Partition, group: u64, progress: &mut Progress) -> Result<bool, VolumeError> {
    let Some((family, found)) = next_versions(home, group, progress)? else { return Ok(true) };
    let mut deletion = Deletion::default();
    for version in found {
        deletion.take(family, &version);
    }
    delete(home, progress.group.as_deref(), deletion)?;
    Ok(false)
}

/// Deletes versions that no volume of a group reads. Another volume of the group may be deleted
/// meanwhile and leave the same job: then this goes on to the end and begins again, so that it gets everywhere
/// however often that happens; and the job is taken away under the lock that deletions need, here and not by the caller.
pub(crate) fn step_versions(
    home: &Partition,
    group: u64,
    job: &[u8],
    progress: &mut Progress,
) -> Result<bool, VolumeError> {
    let Some(shared) = progress.group.clone() else {
        // There is a job for all of the group.
        forget_job(home, job)?;
        return Ok(true);
    };
    let writer = shared.writer.lock();
    if home.is_staged(group) {
        // Since the job was found: what nobody sees may be what somebody builds.
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
        self.doomed.extend(version.address);
        if let Some(row) = version.shared {
            self.sharing.take_away(row);
        }
        self.batch.delete(family, version.key.as_slice());
    }

    /// Deletes the versions of one record that no reader needs. With `ended`, the record is deleted from that epoch
    /// on first.
    fn thin(&mut self, family: Family, record: &[Version], ended: Option<u64>, readers: &[Sight]) {
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

/// Deletes data of a file that is gone since `epoch`, for all who do not see the file.
fn step_file(
    home: &Partition,
    file: FileKey,
    epoch: u64,
    progress: &mut Progress,
) -> Result<bool, VolumeError> {
    // Without a group there is a job for all of it.
    let Some(shared) = progress.group.clone() else { return Ok(true) };
    let writer = shared.writer.lock();
    let ended = if epoch > 0 { Some(epoch) } else { end_of(home, file, &writer.epochs)? };
    let Some(ended) = ended else { return Ok(true) };
    let found = versions_between(home, Family::Extents, file.extents(0, u64::MAX), &mut progress.from)?;
    let readers = writer.epochs.readers();
    let mut deletion = Deletion::default();
    for record in found.chunk_by(|a, b| a.prefix == b.prefix) {
        deletion.thin(Family::Extents, record, Some(ended), &readers);
    }
    delete(home, Some(&shared), deletion)?;
    drop(writer);
    Ok(progress.from.is_empty())
}

/// Since when a file is gone of which a job of an older form only says that it is: now, if there is a
/// read-write volume and the file is not there.
fn end_of(home: &Partition, file: FileKey, epochs: &Epochs) -> Result<Option<u64>, VolumeError> {
    if epochs.is_read_write_gone {
        return Ok(None);
    }
    let prefix = keys::vnode(file.group, file.vnode);
    let found = epochs::get(&*home.handle.meta, Family::Vnodes, &prefix, &epochs.writer())?;
    let vnode = found.and_then(|(_, value)| record::get_vnode(file.vnode, &value));
    let is_there = vnode.is_some_and(|vnode| vnode.status.unique == file.unique);
    Ok((!is_there).then_some(epochs.current))
}
