//! Lays new contents over those of a volume, so that only differences are written.
//!
//! A [`Restoration`] usually builds in a new group. If the volume is the only one of its group and is not
//! being written to, such as a read-only site that gets the next release, the new contents are versions in
//! the same group instead, born in an epoch far after all others. The volume does not see them until its
//! header has that epoch; contents that the new version lacks are deleted in that epoch. Equal data is not
//! written, whether it was sent or not.
//!
//! During the construction, a job marks versions without readers for purging, and the purger is kept away
//! only while the [`Restoration`] exists. So if it ends early, even by a crash, the volume is unchanged. The
//! epoch is so far ahead that the volume does not reach it before those versions are purged, even if it is
//! cloned constantly. A volume is not built upon while any version younger than its view is still to be
//! purged, because that version would become visible with the new epoch. Purging of older ones may be
//! pending: the releases of a large volume may follow each other faster than the purger can process it.

use crate::core::replacement::{NewContents, delete_volume, forget_snapshot, leave, put_job};
use crate::core::shared::Partition;
use crate::core::volume::Volume;
use crate::core::volumes::Volumes;
use crate::interface::error::damage;
use crate::read::reader::read_extent;
use crate::restore::continuation::Continued;
use crate::restore::receipts::{Noted, Received};
use crate::restore::restoration::Restoration;
use crate::{VnodeStatus, VolumeError};
use afs_format::directory::DirectoryBlob;
use base::{Fid, VnodeId, VolumeType};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, Family, KeyRange};
use volume_records::codec::{self, Entry, Extent, Job, Vnode};
use volume_records::{ReadView, epochs, families, keys};

/// Distance of the new epoch from the volume's.
const EPOCHS: u64 = 1 << 32;

/// Records processed in one step.
const STEP_RECORDS: usize = 1000;

/// The contents that new contents are laid over.
pub(crate) struct Base {
    read_view: ReadView,
    /// Data of an interrupted transfer, in its own group or over the volume's contents.
    continued: Option<Continued>,
}

/// Starts laying new contents over those of a volume and over data received before, if any; returns `noted`
/// if they must be built in a new group.
pub(crate) fn begin(
    target: &Arc<Volume>,
    noted: Option<Noted>,
    received: Option<&Received>,
) -> Result<ControlFlow<Restoration, Option<Noted>>, VolumeError> {
    let (home, group) = (&target.home, &target.group);
    let received = received.filter(|received| received.group() == group.id);
    let writer = group.writer.lock();
    target.check_is_there()?;
    let (header, read_view) = (target.header(), target.view().read_view);
    let is_written = header.kind == VolumeType::ReadWrite && header.in_service;
    let is_alone = writer.epochs.readers() == [read_view.clone()];
    let is_fit = !is_written && is_alone && read_view.rollbacks.is_empty() && header.file_count > 0;
    let came = received.map(Received::epoch);
    let job_of = |epoch| Job::Versions { group: group.id, epoch };
    let mut younger = jobs(home, group.id)?;
    younger.retain(|job| !is_of_versions_to(*job, read_view.epoch));
    let is_free = match came {
        Some(came) => came > read_view.epoch && younger == [Some(job_of(came))],
        None => !home.is_staged(group.id) && younger.is_empty(),
    };
    let epoch = came.map_or(read_view.epoch.checked_add(EPOCHS), |came| came.checked_add(1));
    let Some(epoch) = epoch.filter(|_| is_fit && is_free) else { return Ok(ControlFlow::Continue(noted)) };
    let continued = match received {
        Some(received) => Some(Continued::new(target, received.clone(), Some(&read_view))?),
        None => None,
    };
    home.stage(group.id);
    let base = Base { read_view: came.map_or(read_view, ReadView::up_to), continued };
    let mut restoration = Restoration::new(Arc::clone(target), group.id, epoch, Some(base));
    let mut batch = Batch::new();
    restoration.noted = noted.map(|noted| noted.begin(&mut batch, group.id, epoch, received));
    if let Some(came) = came {
        batch.delete(families::VOLUMES, keys::job(&codec::put_job(&job_of(came))));
    }
    put_job(&mut batch, &job_of(epoch));
    home.handle.meta.commit(batch)?;
    Ok(ControlFlow::Break(restoration))
}

/// Returns whether the job purges only versions born in this epoch or before.
fn is_of_versions_to(job: Option<Job>, last: u64) -> bool {
    matches!(job, Some(Job::Versions { epoch, .. }) if epoch <= last)
}

/// Returns the purge jobs of a group; `None` for unreadable ones.
fn jobs(home: &Partition, group: u64) -> Result<Vec<Option<Job>>, VolumeError> {
    let (from, to) = keys::registry_range(keys::Registry::Job);
    let mut found = Vec::new();
    home.handle.meta.scan(families::VOLUMES, KeyRange::ascending(&from, &to), &mut |_, value| {
        let job = codec::get_job(value);
        if job.is_none_or(|job| job.group() == group) {
            found.push(job);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

impl Base {
    /// Creates the base for received data in its own group.
    pub(crate) fn of_received(read_view: ReadView, continued: Continued) -> Base {
        Base { read_view, continued: Some(continued) }
    }

    /// Returns whether a vnode of the volume is visible in the base.
    pub(crate) fn shows(&self, vnode: VnodeId) -> bool {
        self.continued.as_ref().is_none_or(|continued| continued.shows(vnode))
    }

    /// Returns the job that purges the base's leftovers, if it is in a group other than the volume's.
    pub(crate) fn leftover(&self) -> Option<Job> {
        self.continued.as_ref().and_then(Continued::leftover)
    }

    pub(crate) fn continued(&self) -> Option<&Continued> {
        self.continued.as_ref()
    }
}

/// Receives the prefix and the value of a record.
type Take<'a> = dyn FnMut(&mut Restoration, &[u8], &[u8]) -> Result<(), VolumeError> + 'a;

impl Restoration {
    /// Returns the current value of a record in the base; `None` if the new contents are built in a new
    /// group.
    pub(crate) fn below(&self, family: Family, prefix: &[u8]) -> Result<Option<Bytes>, VolumeError> {
        let Some(base) = &self.base else { return Ok(None) };
        let found = epochs::get(&*self.home().handle.meta, family, prefix, &base.read_view)?;
        Ok(found.map(|(_, value)| value))
    }

    /// Calls a function with the base's records in a range, some at a time.
    fn all_below(
        &mut self,
        family: Family,
        (from, to): (Vec<u8>, Vec<u8>),
        take: &mut Take<'_>,
    ) -> Result<(), VolumeError> {
        let Some(read_view) = self.base.as_ref().map(|base| base.read_view.clone()) else { return Ok(()) };
        let (target, mut from) = (Arc::clone(self.target()), from);
        loop {
            let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            epochs::scan(target.meta(), family, (&from, &to), &read_view, &mut |prefix, value| {
                found.push((prefix.to_vec(), value.to_vec()));
                if found.len() < STEP_RECORDS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            for (prefix, value) in &found {
                take(self, prefix, value)?;
            }
            match found.pop() {
                // Continues after all versions of the last record.
                Some((last, _)) if found.len() + 1 == STEP_RECORDS => {
                    from = [keys::versioned(&last, 0), vec![0]].concat();
                }
                _ => return Ok(()),
            }
        }
    }

    /// Deletes all of the base's records in a range.
    pub(crate) fn delete_below(
        &mut self,
        family: Family,
        range: (Vec<u8>, Vec<u8>),
    ) -> Result<(), VolumeError> {
        self.all_below(family, range, &mut |restoration, prefix, _| {
            restoration.put_as_it_is(family, prefix, vec![])
        })
    }

    /// Carries over a vnode without writing anything, except for a changed uniquifier of its parent.
    pub(crate) fn keep_below(&mut self, vnode: VnodeId, unique: u32) -> Result<(), VolumeError> {
        let fid = Fid { volume: self.target().id(), vnode, unique };
        let status = self.target().status(fid)?;
        let stored = status.parent_unique;
        let noted = self.note(status, status.is_directory())?;
        if noted.parent_unique == stored || noted.parent_unique == 0 {
            // If the uniquifier is 0, the vnode is checked again at the end.
            return Ok(());
        }
        let below = self.below(families::VNODES, &keys::vnode(self.group, vnode))?;
        let below = below.and_then(|value| codec::get_vnode(vnode, &value));
        let below = below.ok_or(VolumeError::NoVnode(vnode, unique))?;
        self.put_vnode(&Vnode { status: noted, ..below })
    }

    /// Writes the entries of a directory, and deletes those that it no longer has.
    pub(crate) fn overlay_entries(
        &mut self,
        directory: VnodeId,
        blob: &DirectoryBlob,
    ) -> Result<(), VolumeError> {
        let mut old: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        self.all_below(
            families::ENTRIES,
            keys::entry_range(self.group, directory),
            &mut |_, prefix, value| {
                old.insert(prefix.to_vec(), value.to_vec());
                Ok(())
            },
        )?;
        for placed in blob.placed_entries() {
            let entry = Entry { target: placed.target, slot: placed.slot, sequence: placed.sequence };
            let (key, value) = (keys::entry(self.group, directory, &placed.name), codec::put_entry(&entry));
            if old.remove(&key[..]).as_ref() != Some(&value) {
                self.put_as_it_is(families::ENTRIES, &key, value)?;
            }
        }
        old.into_keys().try_for_each(|key| self.put_as_it_is(families::ENTRIES, &key, vec![]))
    }

    /// Prepares for the data of a file: deletes the old extents if their chunk size differs.
    pub(crate) fn begin_overlaid_file(&mut self, status: &VnodeStatus, shift: u8) -> Result<(), VolumeError> {
        let below = self.below(families::VNODES, &keys::vnode(self.group, status.vnode))?;
        let below = below.and_then(|value| codec::get_vnode(status.vnode, &value));
        let is_cut_otherwise = |old: &Vnode| old.status.unique == status.unique && old.chunk_shift != shift;
        if below.is_some_and(|old| is_cut_otherwise(&old)) {
            let file = keys::FileKey { group: self.group, vnode: status.vnode, unique: status.unique };
            self.delete_below(families::EXTENTS, file.extents(0, u64::MAX))?;
            self.cut_otherwise = true;
        }
        Ok(())
    }

    /// Deletes the old extents after the end of a file.
    pub(crate) fn end_overlaid_file(&mut self, file: keys::FileKey, chunks: u64) -> Result<(), VolumeError> {
        if std::mem::take(&mut self.cut_otherwise) {
            return Ok(());
        }
        self.delete_below(families::EXTENTS, file.extents(chunks, u64::MAX))
    }

    /// Returns whether an extent of the base already has these contents. If the new file has a hole there,
    /// the old extent is deleted.
    pub(crate) fn is_below(&mut self, key: &[u8], pieces: Option<&[Bytes]>) -> Result<bool, VolumeError> {
        if self.base.is_none() || self.cut_otherwise {
            return Ok(false);
        }
        let below = self.below(families::EXTENTS, key)?;
        let Some(pieces) = pieces else {
            if below.is_some() {
                self.put_as_it_is(families::EXTENTS, key, vec![])?;
            }
            return Ok(true);
        };
        Ok(below.is_some_and(|value| self.holds(key, &value, pieces)))
    }

    /// Returns whether an extent has these contents. Unreadable contents count as different and are written
    /// again.
    fn holds(&self, key: &[u8], value: &[u8], pieces: &[Bytes]) -> bool {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let Ok(extent) = self.home().extent(key, value) else { return false };
        if let Extent::Chunk { length: old, .. } | Extent::Shared { length: old, .. } = extent
            && old as usize != length
        {
            return false;
        }
        let mut found = [(0, extent)];
        let Ok(_pin) = self.home().resolve(&mut found) else { return false };
        let [(_, extent)] = found;
        let Ok(old) = read_extent(&extent, &*self.home().handle.chunks, self.group) else { return false };
        let mut rest = &old[..];
        rest.len() == length
            && pieces.iter().all(|piece| {
                let (begin, end) = rest.split_at(piece.len());
                rest = end;
                begin == &piece[..]
            })
    }

    /// Deletes vnodes and their data that the new contents lack.
    pub(crate) fn delete_missing(&mut self) -> Result<(), VolumeError> {
        let (group, (_, to)) = (self.group, keys::group_range(self.group));
        let vnodes = (keys::vnode(group, VnodeId(0)), to);
        self.all_below(families::VNODES, vnodes, &mut |restoration, prefix, value| {
            let vnode = keys::vnode_of(prefix).and_then(|number| codec::get_vnode(number, value));
            let damaged = || damage(families::VNODES, prefix, "the vnode");
            restoration.delete_if_gone(&vnode.ok_or_else(damaged)?)
        })?;
        self.delete_received()
    }

    fn delete_if_gone(&mut self, old: &Vnode) -> Result<(), VolumeError> {
        let VnodeStatus { vnode, unique, .. } = old.status;
        let now = self.unique_of(vnode);
        if now == Some(unique) {
            return Ok(());
        }
        let prefix = keys::vnode(self.group, vnode);
        if now.is_none() {
            self.put_as_it_is(families::VNODES, &prefix, vec![])?;
        }
        if !old.status.is_directory() {
            let file = keys::FileKey { group: self.group, vnode, unique };
            return self.delete_below(families::EXTENTS, file.extents(0, u64::MAX));
        }
        // Otherwise a new directory with this number has written its own entries.
        if now.is_none() {
            if self.below(families::TOTALS, &prefix)?.is_some() {
                self.put_as_it_is(families::TOTALS, &prefix, vec![])?;
            }
            return self.delete_below(families::ENTRIES, keys::entry_range(self.group, vnode));
        }
        Ok(())
    }
}

impl Volumes {
    /// Takes new contents into use that were laid over those of `old`, together with the changes in `batch`.
    pub(crate) fn replace_below(
        &self,
        old: &Arc<Volume>,
        mut new: NewContents,
        mut batch: Batch,
    ) -> Result<Arc<Volume>, VolumeError> {
        let _changes = self.lock_changes();
        self.check_replaceable(old, new.stored.header.id)?;
        let group = Arc::clone(&old.group);
        let mut writer = group.writer.lock();
        // `epoch` is the epoch of the new records.
        let (before, epoch) = (old.view().read_view.epoch, new.stored.read_view.epoch);
        new.continue_above(self, old)?;
        let NewContents { stored, counters, .. } = new;
        let (unseen, left) =
            (Job::Versions { group: group.id, epoch }, Job::Versions { group: group.id, epoch: before });
        batch.delete(families::VOLUMES, keys::job(&codec::put_job(&unseen)));
        // The new purge job includes the work of the earlier ones.
        for job in
            jobs(&old.home, group.id)?.into_iter().filter(|job| is_of_versions_to(*job, before)).flatten()
        {
            batch.delete(families::VOLUMES, keys::job(&codec::put_job(&job)));
        }
        put_job(&mut batch, &left);
        delete_volume(&mut batch, old.id());
        forget_snapshot(&mut batch, &old.header());
        if stored.header.kind != VolumeType::ReadWrite {
            batch.delete(families::VOLUMES, keys::policy(old.id()));
        }
        crate::core::creation::put_volume(&mut batch, &stored, &counters);
        let publish = group.publish.write();
        let number = old.meta().commit(batch)?;
        old.set_deleted();
        leave(&mut writer.epochs, before, old.kind());
        if stored.header.kind == VolumeType::ReadWrite {
            writer.take_over(stored.read_view.clone());
        } else {
            writer.epochs.current = epoch;
            writer.epochs.others.push(stored.read_view.clone());
        }
        drop((publish, writer));
        let volume = Arc::new(Volume::new(&old.shared, &old.home, group, stored, &counters));
        volume.set_state(old.state());
        self.swap_in_index(old.id(), Arc::clone(&volume));
        volume.settle(number, vec![])?;
        Ok(volume)
    }
}
