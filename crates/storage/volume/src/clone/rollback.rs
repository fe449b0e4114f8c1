//! Rolls a volume back to a snapshot.
//!
//! The read-write volume gets the snapshot's view and continues writing at the group's next epoch
//! ([`ReadView::back_to_this`]): two records change, whatever the size of the volume. Records that only it saw
//! are purged.
//!
//! Clients have seen the discarded contents, under FIDs and data versions that must not be reused. So
//! uniquifiers continue from the highest one allocated, and every vnode is shown with a data version above
//! any that a vnode of the volume ever had. The creation date changes, as after a restore.

use crate::core::creation::put_volume;
use crate::core::group::Writer;
use crate::core::numbers::Numbers;
use crate::core::replacement::{leave, leaving_job, put_job};
use crate::core::shared::Partition;
use crate::core::volume::{View, Volume};
use crate::core::volumes::Volumes;
use crate::{SnapshotOf, VolumeError, VolumeHeader};
use base::{UnixTime, VolumeId, VolumeType};
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, KeyRange};
use volume_records::codec::{self, Counters, Job, StoredHeader};
use volume_records::{ReadView, families, keys};

/// The new state of the volume.
struct Target {
    stored: StoredHeader,
    counters: Counters,
}

impl Volumes {
    /// Rolls a read-write volume back to one of its snapshots, durably and in constant time. Id, name, quota
    /// and similar fields are unchanged; all snapshots and clones stay, including younger ones. The caller
    /// must then break all callback promises for the volume.
    ///
    /// # Errors
    /// `NoVolume`, `Invalid` (not a snapshot of the volume, on another partition, or too many rollbacks),
    /// `Store`.
    pub fn roll_back(
        &self,
        volume: VolumeId,
        snapshot: VolumeId,
        now: UnixTime,
    ) -> Result<Arc<Volume>, VolumeError> {
        let _changes = self.lock_changes();
        let (volume, snapshot) = (self.get_any_state(volume)?, self.get_any_state(snapshot)?);
        check(&volume, &snapshot)?;
        if Arc::ptr_eq(&volume.group, &snapshot.group) {
            roll_back_here(&volume, &snapshot, now)?;
            return Ok(volume);
        }
        self.roll_back_over(&volume, &snapshot, now)
    }

    /// Rolls back a volume that was restored since: it returns to the group of the snapshot.
    fn roll_back_over(
        &self,
        old: &Arc<Volume>,
        snapshot: &Volume,
        now: UnixTime,
    ) -> Result<Arc<Volume>, VolumeError> {
        let mut old_writer = old.group.writer.lock();
        let mut writer = snapshot.group.writer.lock();
        if !writer.epochs.is_read_write_gone {
            return Err(VolumeError::Invalid("another read-write volume shares the snapshot's records"));
        }
        let newest = newest_epoch(&old.home, snapshot.group.id, writer.epochs.current)?;
        let Target { stored, counters } = target(old, snapshot, newest, now)?;
        let epoch = old.view().read_view.epoch;
        let mut batch = Batch::new();
        put_job(&mut batch, &leaving_job(&old_writer.epochs, old.group.id, epoch, old.kind()));
        put_volume(&mut batch, &stored, &counters);
        let publish = old.group.publish.write();
        let number = old.meta().commit(batch)?;
        old.set_deleted();
        leave(&mut old_writer.epochs, epoch, old.kind());
        writer.take_over(stored.read_view.clone());
        drop((publish, writer, old_writer));
        let group = Arc::clone(&snapshot.group);
        let volume = Arc::new(Volume::new(&old.shared, &old.home, group, stored, &counters));
        volume.set_state(old.state());
        self.swap_in_index(old.id(), Arc::clone(&volume));
        volume.settle(number, vec![])?;
        Ok(volume)
    }
}

fn roll_back_here(volume: &Volume, snapshot: &Volume, now: UnixTime) -> Result<(), VolumeError> {
    let group = &volume.group;
    let mut writer = group.writer.lock();
    volume.check_writable()?;
    let Target { stored, counters } = target(volume, snapshot, writer.epochs.current, now)?;
    let epoch = writer.epochs.current;
    let mut batch = Batch::new();
    put_job(&mut batch, &Job::Versions { group: group.id, epoch });
    put_volume(&mut batch, &stored, &counters);
    let publish = group.publish.write();
    let number = volume.meta().commit(batch)?;
    writer.take_over(stored.read_view.clone());
    let caches = &volume.shared.caches;
    let (before, instance) = (volume.view().instance, caches.new_instance());
    volume.change_live(|live| {
        live.header = stored.header;
        live.set_counters(&counters);
        live.view = View { read_view: stored.read_view, instance };
    });
    if counters.unfolded.is_none() {
        volume.shared.uncounted.lock().insert(volume.id());
    }
    drop((publish, writer));
    caches.bury(before);
    volume.settle(number, vec![])
}

impl Writer {
    /// Prepares for writing to another state, in which other vnode numbers may be in use.
    pub(crate) fn take_over(&mut self, read_view: ReadView) {
        self.epochs.take_writer(read_view);
        (self.files, self.directories) = (Numbers::files(), Numbers::directories());
        // A running count of totals has read the previous state.
        self.noted = None;
    }
}

fn check(volume: &Volume, snapshot: &Volume) -> Result<(), VolumeError> {
    let header = snapshot.header();
    if volume.kind() != VolumeType::ReadWrite
        || !matches!(&header.snapshot, Some(SnapshotOf { volume: of, .. }) if *of == volume.id())
    {
        return Err(VolumeError::Invalid("not a snapshot of the volume"));
    }
    if !Arc::ptr_eq(&volume.home, &snapshot.home) {
        return Err(VolumeError::Invalid("the snapshot is on another partition than the volume"));
    }
    Ok(())
}

fn target(volume: &Volume, snapshot: &Volume, newest: u64, now: UnixTime) -> Result<Target, VolumeError> {
    let (old, back) = (volume.counters(), snapshot.counters());
    let (header, back_header) = (volume.header(), snapshot.header());
    let now = now.max(header.updated).max(header.dated).max(back_header.updated);
    let counters = Counters {
        next_unique: old.next_unique.max(back.next_unique),
        changes: old.changes.max(back.changes) + 1,
        version_max: old.version_max.max(back.version_max) + 1,
        update_counter: old.update_counter.wrapping_add(1),
        updated: now,
        accessed: old.accessed,
        day_use: old.day_use,
        day_use_date: old.day_use_date,
        week_use: old.week_use,
        ..back
    };
    let read_view = snapshot.view().read_view.back_to_this(newest, counters.version_max, now);
    let read_view = read_view
        .ok_or(VolumeError::Invalid("the volume was rolled back too often; restore a dump of it"))?;
    let created = UnixTime(header.created.0.saturating_add(1)).max(now);
    let header = VolumeHeader {
        created,
        owner: back_header.owner,
        updated: now,
        update_counter: counters.update_counter,
        next_unique: counters.next_unique,
        used_kib: counters.used_kib,
        file_count: counters.file_count,
        directory_count: counters.directory_count,
        ..header
    };
    Ok(Target { stored: StoredHeader { group: snapshot.group.id, read_view, header }, counters })
}

/// Returns the newest epoch that a version in a group without a read-write volume can have. Each volume that
/// has left the group has a job with its epoch until everything is purged.
fn newest_epoch(home: &Partition, group: u64, known: u64) -> Result<u64, VolumeError> {
    let (from, to) = keys::registry_range(keys::Registry::Job);
    let mut newest = known;
    home.handle.meta.scan(families::VOLUMES, KeyRange::ascending(&from, &to), &mut |_, value| {
        match codec::get_job(value) {
            Some(Job::Versions { group: of, epoch } | Job::File { group: of, epoch, .. }) if of == group => {
                newest = newest.max(epoch);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(newest)
}
