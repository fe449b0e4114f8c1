//! Volumes that are held apart: of the same number as one on another partition, whose place they may take.
//!
//! A number names one volume to whoever uses the server, but a volume that moves from one partition to
//! another is on both for a while. The newer of the two has a number of its own until then, from a range
//! that nobody else may use and that file service does not know; its parent is the number that it is known
//! by to administration. When the older one is deleted, [`Volumes::take_place`] gives it that number.
//!
//! The two partitions have no commit in common, so the order makes it safe: what is held apart is on the
//! medium before the older volume goes, and that is on the medium before the newer one takes its place. So
//! a crash leaves both, or the newer one alone, under either number; and one number never leads to two.

use crate::making::put_volume;
use crate::record::StoredHeader;
use crate::replacing::delete_volume;
use crate::{NewVolume, Volume, VolumeError, VolumeHeader, Volumes};
use base::{PartitionId, VolumeId, VolumeType};
use std::sync::Arc;
use store::Batch;

/// The first of the numbers of volumes that are held apart.
const FIRST: u32 = 0xffff_0000;
/// Numbers for each partition; so they never meet, even if a partition is away for a while.
const NUMBERS_PER_PARTITION: u32 = 1 << 8;

/// Whether this is the number of a volume that is held apart.
pub(crate) fn is_apart(id: VolumeId) -> bool {
    id.0 >= FIRST
}

/// The numbers of a partition.
fn numbers(partition: PartitionId) -> impl Iterator<Item = VolumeId> {
    let first = FIRST + partition.index() * NUMBERS_PER_PARTITION;
    (first..=first + (NUMBERS_PER_PARTITION - 1)).map(VolumeId)
}

impl VolumeHeader {
    /// The number that administration knows the volume by: its own, or, if it is held apart, that of the
    /// volume whose place it may take.
    pub fn number(&self) -> VolumeId {
        if is_apart(self.id) { self.parent } else { self.id }
    }
}

impl Volumes {
    /// The volume of this number on a partition, whatever its state; also one that is held apart there.
    ///
    /// # Errors
    /// `NoVolume`; `Damaged`, `Store` if it cannot be read.
    pub fn find_on(&self, id: VolumeId, partition: PartitionId) -> Result<Arc<Volume>, VolumeError> {
        let is_served_there = self.index.read().is_on(id, partition);
        if is_served_there && !is_apart(id) {
            return self.get_any_state(id);
        }
        let apart = self.apart_from(id)?;
        apart.into_iter().find(|volume| volume.partition() == partition).ok_or(VolumeError::NoVolume(id))
    }

    /// The volumes that are held apart from the one of this number.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
    pub fn apart_from(&self, id: VolumeId) -> Result<Vec<Arc<Volume>>, VolumeError> {
        Ok(self.all_apart()?.into_iter().filter(|volume| volume.header().parent == id).collect())
    }

    /// All volumes that are held apart.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
    pub fn all_apart(&self) -> Result<Vec<Arc<Volume>>, VolumeError> {
        let ids: Vec<VolumeId> = self.index.read().apart().collect();
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

    /// Makes a read-write volume of the number of one that is on another partition, and holds it apart. Its
    /// file data is stored as that of the other one.
    ///
    /// # Errors
    /// `VolumeExists` (on this partition, or what is wanted is no read-write volume), `NoVolume` (there is no
    /// other one), `NoPartition`, `Invalid` (too many on the partition), `Store`.
    pub fn create_apart(&self, partition: PartitionId, new: &NewVolume) -> Result<Arc<Volume>, VolumeError> {
        let changes = self.lock_changes();
        let other = self.get_any_state(new.id)?;
        let parent = if new.parent == VolumeId(0) { new.id } else { new.parent };
        if parent != new.id || new.kind != VolumeType::ReadWrite || self.find_on(new.id, partition).is_ok() {
            return Err(VolumeError::VolumeExists(new.id));
        }
        let id = numbers(partition).find(|id| !self.index.read().contains(*id));
        let id = id.ok_or(VolumeError::Invalid("too many volumes are held apart on the partition"))?;
        let volume = self.make(changes, partition, &NewVolume { id, parent, ..new.clone() })?;
        let header = other.header();
        volume.update_header(|new| {
            new.compression = header.compression;
            new.deduplicates = header.deduplicates;
        })?;
        Ok(volume)
    }

    /// Gives a volume that is held apart the number that it is to have, durably, if no other volume has it
    /// any more. Who held it is told that it is gone. `None` if there still is another one.
    ///
    /// # Errors
    /// `NoVolume` (it is gone itself), `Invalid` (it is not held apart), `Store`.
    pub fn take_place(&self, apart: &Arc<Volume>) -> Result<Option<Arc<Volume>>, VolumeError> {
        if !is_apart(apart.id()) {
            return Err(VolumeError::Invalid("the volume is not held apart"));
        }
        let _changes = self.lock_changes();
        let id = apart.header().parent;
        if self.index.read().contains(id) {
            return Ok(None);
        }
        let group = Arc::clone(&apart.group);
        let writer = group.writer.lock();
        apart.check_is_there()?;
        let counters = apart.counters();
        let stored: StoredHeader = apart.stored(VolumeHeader { id, ..apart.header() });
        let mut batch = Batch::new();
        delete_volume(&mut batch, apart.id());
        put_volume(&mut batch, &stored, &counters);
        let number = apart.meta().commit(batch)?;
        apart.set_deleted();
        drop(writer);
        let volume = Arc::new(Volume::new(&apart.shared, &apart.home, group, stored, &counters));
        self.swap_in_index(apart.id(), Arc::clone(&volume));
        volume.settle(number, vec![])?;
        Ok(Some(volume))
    }

    /// Before a volume is deleted: what may take its place is on the medium. Whether there may be any.
    pub(crate) fn secure_apart(&self) -> Result<bool, VolumeError> {
        let may_have_any = self.index.read().apart().next().is_some();
        if may_have_any {
            self.sync()?;
        }
        Ok(may_have_any)
    }
}
