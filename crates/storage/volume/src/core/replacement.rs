//! Replaces a volume by another volume, or by another state of itself.
//!
//! The new one is a separate [`Volume`] with the same id; holders of the old one get `NoVolume`. Records that
//! only the old one read are purged in the background.

use crate::core::continuity::continue_above;
use crate::core::creation::{date_of_clone, put_volume};
use crate::core::group::Group;
use crate::core::loader::readers;
use crate::core::usage;
use crate::core::volume::Volume;
use crate::core::volumes::Volumes;
use crate::{SnapshotOf, VolumeError, VolumeHeader};
use base::{UnixTime, VolumeId, VolumeType};
use std::sync::Arc;
use store::Batch;
use volume_records::codec::{self, Counters, Job, StoredHeader};
use volume_records::epochs::Epochs;
use volume_records::{Past, families, keys};

/// New contents of a volume.
pub(crate) struct NewContents {
    pub(crate) stored: StoredHeader,
    pub(crate) counters: Counters,
    /// Time at which they are taken into use.
    pub(crate) now: UnixTime,
    /// Whether clients cannot have seen the replaced contents.
    pub(crate) replaces_unseen: bool,
    /// The history that all vnodes continue, if there is one.
    pub(crate) continued: Option<Past>,
}

impl NewContents {
    /// Makes the contents continue above what clients have seen of `old`. The caller holds the lock of
    /// changes and `old`'s writer lock.
    pub(crate) fn continue_above(&mut self, volumes: &Volumes, old: &Volume) -> Result<(), VolumeError> {
        let (header, counters) = (old.header(), old.counters());
        if self.replaces_unseen || self.stored.header.kind != VolumeType::ReadWrite {
            // A read-only volume has the versions of its read-write volume.
            self.counters.version_max = self.counters.version_max.max(counters.version_max);
            return Ok(());
        }
        let past = Past::of(&header, &counters).filter(|_| header.id == self.stored.header.id);
        let (stored, new) = (&mut self.stored, &mut self.counters);
        match past {
            // Nothing has changed meanwhile.
            Some(past) if self.continued == Some(past) && new.updated >= past.updated => {
                past.keep_on(stored, new);
            }
            Some(past) => continue_above(&past, stored, new, self.now)?,
            None => volumes.continue_above_past(stored, new, self.now)?,
        }
        stored.header.restored_at = Some(new.changes);
        Ok(())
    }
}

/// Returns the purge job for when a volume that read at `epoch` leaves its group.
pub(crate) fn leaving_job(epochs: &Epochs, group: u64, epoch: u64, kind: VolumeType) -> Job {
    let is_read_write = kind == VolumeType::ReadWrite;
    let is_last = match epochs.others.len() {
        0 => true,
        1 => !is_read_write && epochs.is_read_write_gone,
        _ => false,
    };
    if is_last { Job::Group { group } } else { Job::Versions { group, epoch } }
}

/// Removes the volume's read view from the group.
pub(crate) fn leave(epochs: &mut Epochs, epoch: u64, kind: VolumeType) {
    if kind == VolumeType::ReadWrite {
        epochs.is_read_write_gone = true;
    } else if let Some(at) = epochs.others.iter().position(|other| other.epoch == epoch) {
        epochs.others.swap_remove(at);
    }
}

pub(crate) fn put_job(batch: &mut Batch, job: &Job) {
    let value = codec::put_job(job);
    batch.put(families::VOLUMES, keys::job(&value), value);
}

impl Volumes {
    /// Brings an existing clone to the current state of `source`, durably and in constant time. The header is
    /// that of the source with id, name, kind, parent and copy date of the clone, and can be modified by
    /// `change`. Holders of the old clone get `NoVolume`.
    pub fn reclone(
        &self,
        source: VolumeId,
        clone: VolumeId,
        now: UnixTime,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<Arc<Volume>, VolumeError> {
        let _changes = self.lock_changes();
        let (source, old) = (self.get_any_state(source)?, self.get_any_state(clone)?);
        check_clone(&source, &old)?;
        let is_same = Arc::ptr_eq(&source.group, &old.group);
        let mut writer = source.group.writer.lock();
        let mut old_writer = (!is_same).then(|| old.group.writer.lock());
        let (read_view, mut counters) = (source.view().read_view, source.counters());
        let old_epoch = old.view().read_view.epoch;
        let source_header = source.header();
        let now = date_of_clone(&source_header, now);
        let header = recloned(source_header.clone(), &old.header(), now, change);
        let dated = source_header.dated.max(header.created);
        usage::copy(&mut counters, &header);
        let stored = StoredHeader { group: source.group.id, read_view: read_view.clone(), header };
        let mut batch = Batch::new();
        let old_epochs = old_writer.as_deref().map_or(&writer.epochs, |writer| &writer.epochs);
        put_job(&mut batch, &leaving_job(old_epochs, old.group.id, old_epoch, old.kind()));
        put_volume(&mut batch, &stored, &counters);
        let is_read_write = source.kind() == VolumeType::ReadWrite;
        if is_read_write {
            let moved_on = StoredHeader {
                read_view: read_view.at(read_view.epoch + 1),
                ..source.stored(VolumeHeader { dated, ..source_header })
            };
            batch.put(families::VOLUMES, keys::header(source.id()), codec::put_header(&moved_on));
        }
        let publish = source.group.publish.write();
        let number = source.meta().commit(batch)?;
        old.set_deleted();
        if is_read_write {
            writer.epochs.current += 1;
            source.change_live(|live| live.moved_on(dated));
        }
        let old_epochs = old_writer.as_deref_mut().map_or(&mut writer.epochs, |writer| &mut writer.epochs);
        leave(old_epochs, old_epoch, old.kind());
        writer.epochs.others.push(read_view);
        drop((publish, old_writer, writer));
        let volume =
            Arc::new(Volume::new(&source.shared, &source.home, Arc::clone(&source.group), stored, &counters));
        volume.set_state(old.state());
        self.swap_in_index(clone, Arc::clone(&volume));
        volume.settle(number, vec![])?;
        Ok(volume)
    }

    /// Turns a read-only volume into the read-write volume of its family, durably; the read-only volume no
    /// longer exists afterwards. Takes constant time unless a younger clone shares its records; then
    /// everything is copied.
    ///
    /// # Errors
    /// `NoVolume`, `Invalid` (not read-only, or without a parent), `VolumeExists` (the parent is on this
    /// server), `Store`, `PartitionFull`.
    pub fn convert_to_read_write(&self, id: VolumeId, now: UnixTime) -> Result<Arc<Volume>, VolumeError> {
        let old = self.get_any_state(id)?;
        let header = converted(old.header())?;
        if let Some(volume) = self.convert_in_place(&old, &header, now)? {
            return Ok(volume);
        }
        let mut copy = self.restore(id)?;
        copy.keep_all()?;
        copy.finish(self, header, now)
    }

    /// Converts without copying; returns `None` if the volume cannot write without affecting others.
    fn convert_in_place(
        &self,
        old: &Arc<Volume>,
        header: &VolumeHeader,
        now: UnixTime,
    ) -> Result<Option<Arc<Volume>>, VolumeError> {
        let _changes = self.lock_changes();
        self.check_replaceable(old, header.id)?;
        // A deleted read-write volume may have left versions that would become visible.
        while self.purge_step()? {}
        let group = Arc::clone(&old.group);
        let mut writer = group.writer.lock();
        let old_sight = old.view().read_view;
        let epoch = old_sight.epoch;
        let is_newest = writer.epochs.others.iter().all(|other| other.epoch <= epoch);
        if !writer.epochs.is_read_write_gone || !is_newest {
            return Ok(None);
        }
        let mut counters = Counters { next_unique: header.next_unique, ..old.counters() };
        let mut stored =
            StoredHeader { group: group.id, read_view: old_sight.at(epoch + 1), header: header.clone() };
        self.continue_above_past(&mut stored, &mut counters, now)?;
        let mut batch = Batch::new();
        delete_volume(&mut batch, old.id());
        put_volume(&mut batch, &stored, &counters);
        let number = old.meta().commit(batch)?;
        old.set_deleted();
        leave(&mut writer.epochs, epoch, old.kind());
        writer.epochs.take_writer(stored.read_view.clone());
        drop(writer);
        let volume = Arc::new(Volume::new(&old.shared, &old.home, group, stored, &counters));
        self.swap_in_index(old.id(), Arc::clone(&volume));
        volume.settle(number, vec![])?;
        Ok(Some(volume))
    }

    /// Checks that `old` is still in use, and that no other volume has its new id. The caller holds the lock
    /// of changes.
    pub(crate) fn check_replaceable(&self, old: &Arc<Volume>, new_id: VolumeId) -> Result<(), VolumeError> {
        if !Arc::ptr_eq(&self.get_any_state(old.id())?, old) {
            return Err(VolumeError::NoVolume(old.id()));
        }
        let is_taken = new_id != old.id() && self.get_any_state(new_id).is_ok();
        if is_taken { Err(VolumeError::VolumeExists(new_id)) } else { Ok(()) }
    }

    /// Takes a volume in a new group into use, together with the changes in `batch`.
    pub(crate) fn replace(
        &self,
        old: &Arc<Volume>,
        mut new: NewContents,
        mut batch: Batch,
    ) -> Result<Arc<Volume>, VolumeError> {
        let _changes = self.lock_changes();
        self.check_replaceable(old, new.stored.header.id)?;
        let mut writer = old.group.writer.lock();
        new.continue_above(self, old)?;
        let NewContents { stored, counters, .. } = new;
        let epoch = old.view().read_view.epoch;
        put_job(&mut batch, &leaving_job(&writer.epochs, old.group.id, epoch, old.kind()));
        let staged = codec::put_job(&Job::Group { group: stored.group });
        batch.delete(families::VOLUMES, keys::job(&staged));
        delete_volume(&mut batch, old.id());
        forget_snapshot(&mut batch, &old.header());
        if stored.header.kind != VolumeType::ReadWrite {
            batch.delete(families::VOLUMES, keys::policy(old.id()));
        }
        put_volume(&mut batch, &stored, &counters);
        let number = old.meta().commit(batch)?;
        old.set_deleted();
        leave(&mut writer.epochs, epoch, old.kind());
        drop(writer);
        let is_read_write_gone = stored.header.kind != VolumeType::ReadWrite;
        let (current, rollbacks) = (stored.read_view.epoch, Arc::clone(&stored.read_view.rollbacks));
        let epochs = Epochs { current, rollbacks, others: readers(&stored), is_read_write_gone };
        let group = Arc::new(Group::new(stored.group, epochs, Arc::clone(&old.home.handle.chunks)));
        let volume = Arc::new(Volume::new(&old.shared, &old.home, group, stored, &counters));
        volume.set_state(old.state());
        self.swap_in_index(old.id(), Arc::clone(&volume));
        volume.settle(number, vec![])?;
        Ok(volume)
    }
}

pub(crate) fn delete_volume(batch: &mut Batch, id: VolumeId) {
    batch.delete(families::VOLUMES, keys::header(id));
    batch.delete(families::VOLUMES, keys::counters(id));
}

fn check_clone(source: &Volume, clone: &Volume) -> Result<(), VolumeError> {
    if clone.kind() == VolumeType::ReadWrite || source.id() == clone.id() {
        return Err(VolumeError::Invalid("not a clone of another volume"));
    }
    if clone.header().snapshot.is_some() {
        return Err(VolumeError::Invalid("a snapshot stays as it is"));
    }
    if !Arc::ptr_eq(&source.home, &clone.home) {
        return Err(VolumeError::Invalid("volume and clone are on different partitions"));
    }
    Ok(())
}

fn recloned(
    source: VolumeHeader,
    old: &VolumeHeader,
    now: UnixTime,
    change: impl FnOnce(&mut VolumeHeader),
) -> VolumeHeader {
    let mut header = VolumeHeader {
        id: old.id,
        name: old.name.clone(),
        kind: old.kind,
        parent: old.parent,
        copied: old.copied,
        created: now,
        destroy_me: 0,
        snapshot: None,
        stands_for: old.stands_for,
        unseen: None,
        restored_at: None,
        ..source
    };
    change(&mut header);
    VolumeHeader { id: old.id, kind: old.kind, parent: old.parent, stands_for: old.stands_for, ..header }
}

/// Returns the header of a read-only volume after its conversion (convertVolumeInfo of OpenAFS).
fn converted(old: VolumeHeader) -> Result<VolumeHeader, VolumeError> {
    if old.kind != VolumeType::ReadOnly {
        return Err(VolumeError::Invalid("not a read-only volume"));
    }
    if old.snapshot.is_some() {
        return Err(VolumeError::Invalid("a snapshot stays as it is; the volume can be rolled back to it"));
    }
    if old.parent == old.id || old.parent == VolumeId(0) {
        return Err(VolumeError::Invalid("a volume without a parent"));
    }
    let created = old.created.min(old.copied);
    let base = old.name.as_str().strip_suffix(".readonly").and_then(|name| name.parse().ok());
    Ok(VolumeHeader {
        id: old.parent,
        kind: VolumeType::ReadWrite,
        clone: old.number(),
        restored_from: old.number(),
        stands_for: None,
        unseen: None,
        restored_at: None,
        dated: old.dated.max(old.created),
        created,
        copied: created,
        // The old read-write volume may have allocated some that clients still remember.
        next_unique: old.next_unique.saturating_add(5000),
        name: base.unwrap_or_else(|| old.name.clone()),
        ..old
    })
}

/// Removes a volume from the list of snapshots, if it is one.
pub(crate) fn forget_snapshot(batch: &mut Batch, header: &VolumeHeader) {
    if let Some(SnapshotOf { volume, name }) = &header.snapshot {
        batch.delete(families::VOLUMES, keys::snapshot(*volume, name));
    }
}

/// Removes a volume's entry in the list of snapshots and its policy. The volume's own snapshots stay.
pub(crate) fn forget_snapshots(batch: &mut Batch, volume: &Volume) {
    forget_snapshot(batch, &volume.header());
    if volume.kind() == VolumeType::ReadWrite {
        batch.delete(families::VOLUMES, keys::policy(volume.id()));
    }
}
