//! Keeps what clients may have cached of a read-write volume valid when its contents are replaced.
//!
//! # Invariant
//! On one server, a FID with a data version never refers to two different contents, whatever is done to the
//! volume: stores, rollbacks, restores over it, deletion and re-creation with the same id, moves away and
//! back. Clients cache data by FID and data version, so breaking callbacks alone does not protect them.
//!
//! Within one history of changes, each change raises the data version, and no uniquifier is allocated twice.
//! If older or foreign contents replace those of a volume, uniquifiers continue above the highest one
//! allocated, and every vnode gets a data version above any that a vnode of the volume ever had. This is a
//! rollback (`ReadView::back_to_this`) that hides nothing, so its cost does not depend on the size of the
//! volume. Update dates continue in the same way, so that incremental dumps and releases include everything.
//!
//! Deleting a volume leaves a record of its highest numbers, because `vos restore -overwrite full` deletes
//! the volume and creates it again. A volume that only mirrors another one, by restores and without changes
//! of its own, keeps the versions of the contents that it receives if they continue its history: every vnode
//! has a higher data version than before or is unchanged, and new vnodes have new uniquifiers
//! (`Past::is_continued_by_vnode`). A volume that moves away and comes back keeps its versions, because its
//! history continued elsewhere. Read-only volumes have the versions of their read-write volume, and are never
//! renumbered.

use crate::core::volume::Volume;
use crate::core::volumes::Volumes;
use crate::interface::error::damage;
use crate::{VnodeStatus, VolumeError, VolumeState};
use base::{Fid, UnixTime, VolumeId, VolumeType};
use store::Batch;
use volume_records::codec::{self, Counters, StoredHeader};
use volume_records::is_parked;
use volume_records::{Past, families, keys};

impl Volume {
    /// Returns whether a vnode of new contents belongs to the history of this volume, which they replace.
    /// Then no client has seen its FID with this data version and other data.
    pub(crate) fn is_continued_by(&self, past: &Past, new: &VnodeStatus) -> bool {
        let fid = Fid { volume: self.id(), vnode: new.vnode, unique: new.unique };
        match self.status(fid) {
            Ok(old) if new.data_version == old.data_version => {
                (new.length, new.client_modified) == (old.length, old.client_modified)
            }
            Ok(old) => new.data_version > old.data_version,
            Err(VolumeError::NoVnode(..)) => new.unique >= past.next_unique,
            Err(_) => false,
        }
    }
}

/// Makes new contents continue above the highest numbers, unless they belong to the same history.
///
/// # Errors
/// `Invalid` after too many rollbacks.
pub(crate) fn continue_above(
    past: &Past,
    stored: &mut StoredHeader,
    counters: &mut Counters,
    now: UnixTime,
) -> Result<(), VolumeError> {
    if counters.changes <= past.changes {
        counters.changes = past.changes + 1;
    }
    stored.header.dated = stored.header.dated.max(past.dated);
    if past.is_continued_by(stored, counters) {
        counters.version_max = counters.version_max.max(past.version_max);
        return Ok(());
    }
    counters.next_unique = counters.next_unique.max(past.next_unique);
    counters.version_max = counters.version_max.max(past.version_max) + 1;
    counters.updated = counters.updated.max(past.dated).max(now);
    let (read_view, header) = (&stored.read_view, &mut stored.header);
    let read_view = read_view.back_to_this(read_view.epoch, counters.version_max, counters.updated);
    stored.read_view = read_view.ok_or(VolumeError::Invalid("the volume was rolled back too often"))?;
    header.next_unique = counters.next_unique;
    header.updated = counters.updated;
    header.copied = counters.updated;
    Ok(())
}

impl Volumes {
    /// Returns the highest numbers that clients may have seen of a read-write volume with this id that was
    /// deleted here.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
    pub(crate) fn past(&self, id: VolumeId) -> Result<Option<Past>, VolumeError> {
        let mut all: Option<Past> = None;
        let key = keys::past(id);
        for home in self.homes() {
            let Some(value) = home.handle.meta.get(families::VOLUMES, &key)? else { continue };
            let past = codec::get_past(&value)
                .ok_or_else(|| damage(families::VOLUMES, &key, "a deleted volume's past"))?;
            all = Some(all.map_or(past, |all| all.and(past)));
        }
        Ok(all)
    }

    /// Makes a volume that gets its id continue above earlier volumes with that id. The caller holds the lock
    /// of changes.
    ///
    /// # Errors
    /// `Invalid` after too many rollbacks, `Damaged`, `Store`.
    pub(crate) fn continue_above_past(
        &self,
        stored: &mut StoredHeader,
        counters: &mut Counters,
        now: UnixTime,
    ) -> Result<(), VolumeError> {
        if stored.header.kind != VolumeType::ReadWrite
            || is_parked(stored.header.id)
            || counters.used_kib == 0
        {
            return Ok(());
        }
        match self.past(stored.header.id)? {
            Some(past) => continue_above(&past, stored, counters, now),
            None => Ok(()),
        }
    }

    /// Returns whether a volume that is about to be deleted continues elsewhere: on another server, or on
    /// another partition from which it takes the place of this one. May load volumes, so the caller must not
    /// hold the lock of any group.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
    pub(crate) fn goes_on(&self, volume: &Volume, may_be_succeeded: bool) -> Result<bool, VolumeError> {
        if volume.state() == VolumeState::Moved || !may_be_succeeded {
            return Ok(volume.state() == VolumeState::Moved);
        }
        let parked = self.apart_from(volume.id())?;
        Ok(parked.iter().any(|other| other.kind() == VolumeType::ReadWrite))
    }
}

/// Records the highest numbers that clients may have seen of a volume that is deleted. The caller holds the
/// writer lock.
pub(crate) fn note_past(batch: &mut Batch, volume: &Volume, went_on: bool) {
    if let Some(past) = Past::of(&volume.header(), &volume.counters()) {
        let past = Past { went_on, ..past };
        batch.put(families::VOLUMES, keys::past(volume.id()), codec::put_past(&past));
    }
}
