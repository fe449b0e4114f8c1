//! Parked volumes: volumes with the same number as one on another partition, whose place they may take.
//!
//! To clients a number names one volume, but a volume that moves between partitions exists on both for a
//! while, and so does a read-only volume while it is released to a partition other than that of the
//! read-write volume. Until then one of the two is parked under a temporary id, from a range that is reserved
//! and that file service does not use; its header has the number that it is known by to administration. When
//! the other volume is deleted, [`Volumes::take_place`] gives it that number. Of two read-only volumes, one
//! may also be parked in favour of the other, [`Volumes::displace`]. If the other partition is that of another server, which
//! shares its partitions with this one, the caller knows when the number is free.
//!
//! The two partitions have no common commit, so safety depends on the order: a parked volume is durable
//! before the other one is deleted, and the deletion is durable before the first takes its place. So a crash
//! leaves either both, or the parked one alone under either number, and a number never refers to two volumes.

use crate::core::creation::put_volume;
use crate::core::replacement::delete_volume;
use crate::{CloneVolume, NewVolume, Volume, VolumeError, VolumeHeader, Volumes};
use base::{PartitionId, VolumeId, VolumeType};
use parking_lot::MutexGuard;
use std::sync::Arc;
use store::Batch;
use volume_records::codec::StoredHeader;
use volume_records::{PARKED_FIRST, is_parked};

/// Number of ids for each partition, which keeps them distinct even while a partition is missing.
const NUMBERS_PER_PARTITION: u32 = 1 << 8;

/// Returns the ids for parked volumes of a partition.
fn numbers(partition: PartitionId) -> impl Iterator<Item = VolumeId> {
    let first = PARKED_FIRST + partition.index() * NUMBERS_PER_PARTITION;
    (first..=first + (NUMBERS_PER_PARTITION - 1)).map(VolumeId)
}

/// Returns the value of [`VolumeHeader::stands_for`] for a parked volume with this number.
fn stands_for(kind: VolumeType, number: VolumeId) -> Option<VolumeId> {
    (kind != VolumeType::ReadWrite).then_some(number)
}

impl Volumes {
    /// Returns the volume with this number on a partition, whatever its state, including a parked one.
    pub fn find_on(&self, id: VolumeId, partition: PartitionId) -> Result<Arc<Volume>, VolumeError> {
        let is_served_there = self.index.read().is_on(id, partition);
        if is_served_there && !is_parked(id) {
            return self.get_any_state(id);
        }
        let parked = self.apart_from(id)?;
        parked.into_iter().find(|volume| volume.partition() == partition).ok_or(VolumeError::NoVolume(id))
    }

    /// Returns the volumes that are parked with this number.
    pub fn apart_from(&self, id: VolumeId) -> Result<Vec<Arc<Volume>>, VolumeError> {
        Ok(self.all_apart()?.into_iter().filter(|volume| volume.header().number() == id).collect())
    }

    /// Returns all parked volumes.
    pub fn all_apart(&self) -> Result<Vec<Arc<Volume>>, VolumeError> {
        let ids: Vec<VolumeId> = self.index.read().parked().collect();
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            match self.get_any_state(id) {
                Ok(volume) => found.push(volume),
                Err(VolumeError::NoVolume(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Creates a parked volume with the number of one on another partition. Its file data is stored with the
    /// same options as that of the other one.
    ///
    /// # Errors
    /// `VolumeExists` (on this partition, or of another kind or family, or a backup is requested), `NoVolume`
    /// (there is no other one), `NoPartition`, `Invalid` (too many on the partition), `Store`.
    pub fn create_apart(&self, partition: PartitionId, new: &NewVolume) -> Result<Arc<Volume>, VolumeError> {
        let changes = self.lock_changes();
        let parent = if new.parent == VolumeId(0) { new.id } else { new.parent };
        let other = self.check_apart(partition, new.id, new.kind, parent)?;
        let id = self.free_number(partition)?;
        let stands_for = stands_for(new.kind, new.id);
        let volume = self.make(changes, partition, &NewVolume { id, parent, ..new.clone() }, stands_for)?;
        let header = other.header();
        volume.update_header(|new| {
            new.compression = header.compression;
            new.deduplicates = header.deduplicates;
        })?;
        Ok(volume)
    }

    /// Creates a parked volume with a number that another server may use, which shares its partitions with this one.
    ///
    /// # Errors
    /// `VolumeExists` (on this partition, or it is a backup), `NoPartition`, `Invalid` (too many on the partition), `Store`.
    pub fn create_parked(&self, partition: PartitionId, new: &NewVolume) -> Result<Arc<Volume>, VolumeError> {
        let changes = self.lock_changes();
        let parent = if new.parent == VolumeId(0) { new.id } else { new.parent };
        let may_be_parked = match new.kind {
            VolumeType::ReadWrite => parent == new.id,
            VolumeType::ReadOnly => true,
            VolumeType::Backup => false,
        };
        self.check_unused(partition, new.id, may_be_parked)?;
        let (id, stands_for) = (self.free_number(partition)?, stands_for(new.kind, new.id));
        self.make(changes, partition, &NewVolume { id, parent, ..new.clone() }, stands_for)
    }

    /// Creates a parked read-only clone with a number that another server may use, which shares its partitions with this
    /// one. `change` can modify its header.
    pub fn clone_parked(
        &self,
        source: VolumeId,
        new: &CloneVolume,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<Arc<Volume>, VolumeError> {
        let changes = self.lock_changes();
        let source = self.get_any_state(source)?;
        let partition = source.partition();
        self.check_unused(partition, new.id, new.kind == VolumeType::ReadOnly)?;
        self.make_parked_clone(changes, &source, new, change)
    }

    fn check_unused(&self, partition: PartitionId, id: VolumeId, may_be: bool) -> Result<(), VolumeError> {
        let is_possible = may_be && self.find_on(id, partition).is_err();
        if is_possible { Ok(()) } else { Err(VolumeError::VolumeExists(id)) }
    }

    /// Creates a parked read-only clone with the number of one on another partition. `change` can modify its
    /// header.
    pub fn clone_apart(
        &self,
        source: VolumeId,
        new: &CloneVolume,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<Arc<Volume>, VolumeError> {
        let changes = self.lock_changes();
        let source = self.get_any_state(source)?;
        let partition = source.partition();
        self.check_apart(partition, new.id, new.kind, source.header().parent)?;
        self.make_parked_clone(changes, &source, new, change)
    }

    fn make_parked_clone(
        &self,
        changes: MutexGuard<'_, ()>,
        source: &Arc<Volume>,
        new: &CloneVolume,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<Arc<Volume>, VolumeError> {
        let id = self.free_number(source.partition())?;
        self.make_clone(changes, source, &CloneVolume { id, ..new.clone() }, Batch::new(), |header| {
            header.stands_for = stands_for(new.kind, new.id);
            change(header);
        })
    }

    /// Returns the volume with this number, if one of this kind and family may be parked for its place.
    fn check_apart(
        &self,
        partition: PartitionId,
        id: VolumeId,
        kind: VolumeType,
        parent: VolumeId,
    ) -> Result<Arc<Volume>, VolumeError> {
        let other = self.get_any_state(id)?;
        let may_be_apart = match kind {
            VolumeType::ReadWrite => parent == id,
            VolumeType::ReadOnly => other.kind() == kind && other.header().parent == parent,
            VolumeType::Backup => false,
        };
        self.check_unused(partition, id, may_be_apart).map(|()| other)
    }

    fn free_number(&self, partition: PartitionId) -> Result<VolumeId, VolumeError> {
        let id = numbers(partition).find(|id| !self.index.read().contains(*id));
        id.ok_or(VolumeError::Invalid("too many volumes are parked on the partition"))
    }

    /// Gives a parked volume its number, durably, if no other volume has it any more. Holders of the old
    /// [`Volume`] then get `NoVolume`. Returns `None` if another volume still has the number.
    ///
    /// # Errors
    /// `NoVolume` (it was deleted), `Invalid` (it is not parked), `Store`.
    pub fn take_place(&self, parked: &Arc<Volume>) -> Result<Option<Arc<Volume>>, VolumeError> {
        if !is_parked(parked.id()) {
            return Err(VolumeError::Invalid("the volume is not parked"));
        }
        let _changes = self.lock_changes();
        let id = parked.header().number();
        if self.index.read().contains(id) {
            return Ok(None);
        }
        self.renumber(parked, id, None).map(Some)
    }

    /// Gives a parked volume its number while another one has it, which is parked instead. Both are read-only
    /// volumes on different partitions. A crash in between leaves both parked.
    ///
    /// # Errors
    /// `NoVolume` (one of them was deleted), `Invalid` (not such a pair), `Store`; then either one has the
    /// number, or neither, which [`Volumes::take_place`] repairs.
    pub fn displace(&self, parked: &Arc<Volume>, holder: &Arc<Volume>) -> Result<Arc<Volume>, VolumeError> {
        let _changes = self.lock_changes();
        let id = parked.header().number();
        let are_read_only = [parked, holder].iter().all(|volume| volume.kind() == VolumeType::ReadOnly);
        if !is_parked(parked.id()) || holder.id() != id || !are_read_only {
            return Err(VolumeError::Invalid("not a parked read-only volume of the other one"));
        }
        let aside = self.free_number(holder.partition())?;
        self.sync_partition(parked.partition())?;
        parked.check_is_there()?;
        self.renumber(holder, aside, stands_for(VolumeType::ReadOnly, id))?;
        self.renumber(parked, id, None)
    }

    /// Gives a volume another id, durably, which must be free. The caller holds the lock of changes.
    fn renumber(
        &self,
        old: &Arc<Volume>,
        id: VolumeId,
        stands_for: Option<VolumeId>,
    ) -> Result<Arc<Volume>, VolumeError> {
        let group = Arc::clone(&old.group);
        let mut writer = group.writer.lock();
        old.check_is_there()?;
        let mut counters = old.counters();
        let mut stored: StoredHeader = old.stored(VolumeHeader { id, stands_for, ..old.header() });
        let now = stored.header.updated;
        self.continue_above_past(&mut stored, &mut counters, now)?;
        if stored.header.in_service && !is_parked(id) {
            stored.header.unseen = None;
        }
        let mut batch = Batch::new();
        delete_volume(&mut batch, old.id());
        put_volume(&mut batch, &stored, &counters);
        let number = old.meta().commit(batch)?;
        old.set_deleted();
        if old.kind() == VolumeType::ReadWrite {
            writer.epochs.take_writer(stored.read_view.clone());
        }
        drop(writer);
        let volume = Arc::new(Volume::new(&old.shared, &old.home, group, stored, &counters));
        self.swap_in_index(old.id(), Arc::clone(&volume));
        volume.settle(number, vec![])?;
        volume.meta().sync(number)?;
        Ok(volume)
    }

    /// Makes parked volumes durable before a volume is deleted. Returns whether there may be any.
    pub(crate) fn secure_apart(&self) -> Result<bool, VolumeError> {
        let may_have_any = self.index.read().parked().next().is_some();
        if may_have_any {
            self.sync()?;
        }
        Ok(may_have_any)
    }
}
