//! The volumes of all partitions of one server.

use crate::core::continuity::note_past;
use crate::core::creation::{
    clone_header, date_of_clone, new_counters, new_header, put_root, put_volume, with_counters,
};
use crate::core::group::Group;
use crate::core::homes::Homes;
use crate::core::host_list::MayLeave;
use crate::core::index::{Index, ToLoad};
use crate::core::loader::{self, readers};
use crate::core::permit::{Permit, ReplyKind};
use crate::core::replacement::{forget_snapshots, leave, leaving_job, put_job};
use crate::core::shared::{Partition, Shared};
use crate::core::usage;
use crate::core::volume::Volume;
use crate::upkeep::purger::Purger;
use crate::{CloneVolume, NewVolume, PartitionHandle, Space, VolumeError, VolumeHeader, VolumeOptions};
use base::{Monotonic, PartitionId, VolumeId, VolumeName, VolumeType};
use events::parts::Part;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use store::Batch;
use volume_records::codec::{self, StoredHeader};
use volume_records::epochs::Epochs;
use volume_records::is_parked;
use volume_records::{ReadView, families, keys};

/// State of a volume for file service. Not stored: after a restart every volume is online unless its header
/// takes it out of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeState {
    /// In service.
    #[default]
    Online,
    /// In use by a volume transaction for a while (VBUSY).
    Busy,
    /// Taken offline by a volume transaction or the operator (VOFFLINE).
    Offline,
    /// Moved to another server (VMOVED).
    Moved,
}

/// The volumes of all partitions of one server. Opening reads the location of each volume and keeps some 30
/// bytes for it; everything else is loaded when the volume is first used. All methods may be called from any
/// thread.
pub struct Volumes {
    pub(crate) shared: Arc<Shared>,
    pub(crate) partitions: Homes,
    pub(crate) index: RwLock<Index>,
    /// Held while the set of volumes changes.
    changes: Mutex<()>,
    purger: Mutex<Purger>,
    /// Held while a volume's totals are counted.
    counting: Mutex<()>,
}

impl Volumes {
    /// Finds the volumes of all partitions, concurrently. A volume whose header cannot be read is skipped,
    /// and so is a partition that cannot be read; both are logged. Afterwards call [`Volumes::purge_step`]
    /// from a background thread.
    ///
    /// # Errors
    /// `Store`, if none of the partitions can be read.
    pub fn open(partitions: Vec<PartitionHandle>, options: VolumeOptions) -> Result<Volumes, VolumeError> {
        let shared = Arc::new(Shared::new(options));
        let partitions: Vec<_> =
            partitions.into_iter().map(|handle| Arc::new(Partition::new(handle))).collect();
        let (partitions, index) = find_all(partitions)?;
        let (index, purger) = (RwLock::new(index), Mutex::new(Purger::default()));
        let (changes, counting) = Default::default();
        let partitions = Homes::new(partitions);
        Ok(Volumes { shared, partitions, index, changes, purger, counting })
    }

    /// From now on, replies about this partition depend on `permit`: those of calls within [`Commits::collect`]. Hosts get
    /// promises only if they are in its durable list, and the results of forwarded calls are kept.
    ///
    /// # Errors
    /// `NoPartition`; `Invalid` if it has a permit; `Store` if the list or the results cannot be read.
    ///
    /// [`Commits::collect`]: crate::Commits::collect
    pub fn limit(&self, partition: PartitionId, permit: Arc<dyn Permit>) -> Result<(), VolumeError> {
        self.partition(partition)?.limit(permit)
    }

    /// Whether what is read from a partition may be shown now. Otherwise reading it waits, perhaps in vain.
    pub fn may_read(&self, partition: PartitionId) -> bool {
        self.partition(partition).is_ok_and(|home| home.may_reply(ReplyKind::Read))
    }

    /// Removes hosts that hold no promises from the durable lists; `may_leave` returns which. To be called every few
    /// minutes.
    pub fn forget_hosts(&self, now: Monotonic, may_leave: MayLeave<'_>) {
        for home in self.homes() {
            let Some(limits) = home.limits.get() else { continue };
            if let Err(error) = limits.hosts.forget(now, may_leave) {
                tracing::warn!(partition = %home.handle.id, %error, "clients without promises stay in its list");
            }
        }
    }

    /// Deletes results of forwarded calls that no node repeats any more. To be called every few minutes or more often.
    pub fn forget_results(&self, now: Monotonic) {
        for home in self.homes() {
            let Some(limits) = home.limits.get() else { continue };
            if let Err(error) = limits.results.forget(now) {
                tracing::warn!(partition = %home.handle.id, %error, "old results of calls stay in it");
            }
        }
    }

    /// Returns the number of results of forwarded calls that a partition has; 0 if it keeps none.
    ///
    /// # Errors
    /// `NoPartition`.
    pub fn results_count(&self, partition: PartitionId) -> Result<usize, VolumeError> {
        Ok(self.partition(partition)?.limits.get().map_or(0, |limits| limits.results.len()))
    }

    /// Returns the number of hosts in the durable list of a partition; 0 if it has none.
    pub fn listed_hosts_count(&self, partition: PartitionId) -> Result<usize, VolumeError> {
        Ok(self.partition(partition)?.limits.get().map_or(0, |limits| limits.hosts.len()))
    }

    /// Adds a partition that was opened after the others, with its permit; see [`Volumes::limit`]. A group with a volume
    /// that is on another partition, too, is left out, which is logged: that volume may be in use.
    ///
    /// # Errors
    /// `Store` if it cannot be read; `Invalid` if it is there.
    pub fn add(
        &self,
        partition: PartitionHandle,
        permit: Option<Arc<dyn Permit>>,
    ) -> Result<(), VolumeError> {
        let home = Arc::new(Partition::new(partition));
        if let Some(permit) = permit {
            home.limit(permit)?;
        }
        let found = loader::find(&home)?;
        let _changes = self.changes.lock();
        let id = home.handle.id;
        let mut index = self.index.write();
        self.partitions.add(home)?;
        index.add_found(id, &found);
        Ok(())
    }

    /// Removes a partition whose stores answer nothing any more, and forgets its volumes; returns their ids. The stores are closed when
    /// the last call that uses one of them has ended. Another handle of the partition may be added then.
    ///
    /// # Errors
    /// `NoPartition`.
    pub fn remove(&self, partition: PartitionId) -> Result<Vec<VolumeId>, VolumeError> {
        let _changes = self.changes.lock();
        let home = self.partition(partition)?;
        // A group that is being loaded must not be put into the index afterwards.
        let _loading = home.loading.lock();
        let mut index = self.index.write();
        self.partitions.remove(partition);
        Ok(index.remove_partition(partition))
    }

    /// Loads the volumes again of each partition whose store has failed since they were loaded: changes that did not become
    /// durable, and never will, must not stay in memory. Until then, calls that read such a change fail with `Reverting`.
    /// To be called every second or more often. Partitions that another server can take over are left out.
    ///
    /// # Errors
    /// `Store` if one cannot be read; the others were done.
    pub fn revert_failed(&self) -> Result<(), VolumeError> {
        let mut result = Ok(());
        for home in self.homes() {
            let is_due = !home.is_reverted && home.limits.get().is_none();
            if is_due && home.handle.meta.failure().is_some() {
                result = result.and(self.revert(&home));
            }
        }
        result
    }

    fn revert(&self, old: &Arc<Partition>) -> Result<(), VolumeError> {
        let id = old.handle.id;
        let new = Arc::new(Partition::new(old.handle.clone()));
        let found = loader::find(&new)?;
        let _changes = self.changes.lock();
        let _loading = old.loading.lock();
        let mut index = self.index.write();
        self.partitions.replace(old, new);
        index.remove_partition(id);
        index.add_found(id, &found);
        tracing::warn!(partition = %id, "it is read in the state that was durable when it failed");
        Ok(())
    }

    /// Returns the volume for file service.
    pub fn get(&self, id: VolumeId) -> Result<Arc<Volume>, VolumeError> {
        let volume = self.get_any_state(id)?;
        volume.check_state()?;
        Ok(volume)
    }

    /// Returns the volume for file service if it is in memory and in service. Does not wait for the store.
    pub fn get_at_hand(&self, id: VolumeId) -> Option<Arc<Volume>> {
        let volume = self.index.try_read()?.loaded(id).cloned()?;
        volume.check_state().is_ok().then_some(volume)
    }

    /// Returns the partition of a volume that is in the list, whatever its state.
    pub fn partition_of(&self, id: VolumeId) -> Option<PartitionId> {
        self.index.read().partition_of(id)
    }

    /// Returns the volume for administration, whatever its state.
    pub fn get_any_state(&self, id: VolumeId) -> Result<Arc<Volume>, VolumeError> {
        let loaded = self.index.read().loaded(id).cloned();
        if let Some(volume) = loaded {
            return Ok(volume);
        }
        let (span, begun) = (waits::enter(Part::Load), Instant::now());
        let volume = self.load(id);
        span.leave(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let volume = volume?;
        self.keep_few_loaded();
        Ok(volume)
    }

    /// Loads a volume with its whole group.
    fn load(&self, id: VolumeId) -> Result<Arc<Volume>, VolumeError> {
        let find = || -> Result<_, VolumeError> {
            let index = self.index.read();
            let to_load = index.to_load(id).ok_or(VolumeError::NoVolume(id))?;
            // Under the lock: the volumes of a partition that is being removed go with it.
            let home = self.partition(to_load.partition)?;
            Ok((index.loaded(id).cloned(), to_load, home))
        };
        loop {
            let (_, _, home) = find()?;
            let _loading = home.loading.lock();
            match find()? {
                (Some(volume), ..) => return Ok(volume),
                (None, to_load, open) if Arc::ptr_eq(&home, &open) => {
                    return self.load_group(&home, &to_load, id);
                }
                // It was replaced by one on another partition meanwhile, or the partition was opened again.
                (None, ..) => {}
            }
        }
    }

    /// Loads a group, one of whose volumes is `id`. The caller holds the lock of loading.
    fn load_group(
        &self,
        home: &Arc<Partition>,
        to_load: &ToLoad,
        id: VolumeId,
    ) -> Result<Arc<Volume>, VolumeError> {
        let volumes = loader::load(&self.shared, home, to_load)?;
        let mut index = self.index.write();
        for volume in volumes {
            index.put(Arc::new(volume));
        }
        index.loaded(id).cloned().ok_or(VolumeError::NoVolume(id))
    }

    /// Returns the id of the volume with this name. Reads every header.
    pub fn find_name(&self, name: &VolumeName) -> Result<Option<VolumeId>, VolumeError> {
        for home in self.homes() {
            if let Some(id) = loader::find_name(&home, name)? {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Returns all volumes of a partition in id order. Unreadable ones are logged and skipped. For small
    /// partitions and tests: all of them stay in memory as long as the result exists.
    /// [`Volumes::list_headers`] avoids that.
    pub fn list(&self, partition: PartitionId) -> Vec<Arc<Volume>> {
        let mut ids = Vec::new();
        let listed = self.list_headers(partition, &mut |listed| {
            ids.push(listed.header.id);
            ControlFlow::Continue(())
        });
        if let Err(error) = listed {
            tracing::error!(%partition, %error, "the volumes cannot be listed");
        }
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            match self.get_any_state(id) {
                Ok(volume) => found.push(volume),
                Err(VolumeError::NoVolume(_)) => {}
                Err(error) => tracing::error!(volume = %id, %error, "a volume cannot be read"),
            }
        }
        found
    }

    /// Returns the volumes whose header marks them for destruction ([`VolumeHeader::destroy_me`]).
    ///
    /// [`VolumeHeader::destroy_me`]: crate::VolumeHeader::destroy_me
    pub fn marked(&self) -> Vec<Arc<Volume>> {
        let ids: Vec<VolumeId> = self.index.read().marked().collect();
        for id in ids {
            // Loads it, if it can be read.
            _ = self.get_any_state(id);
        }
        let index = self.index.read();
        let is_marked = |volume: &&Arc<Volume>| volume.read_live(|live| live.header.destroy_me != 0);
        index.all_loaded().filter(is_marked).cloned().collect()
    }

    /// Returns the number of volumes in memory.
    pub fn loaded_count(&self) -> usize {
        self.index.read().loaded_count()
    }

    /// Returns the partitions in order.
    pub fn partitions(&self) -> Vec<PartitionId> {
        let mut ids: Vec<PartitionId> = self.homes().iter().map(|home| home.handle.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the space on a partition.
    pub fn space(&self, partition: PartitionId) -> Result<Space, VolumeError> {
        Ok((self.partition(partition)?.handle.space)())
    }

    /// Locks the set of volumes against changes.
    pub(crate) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    /// Replaces a volume by another one, with the same id or a different one. The caller holds the lock of
    /// changes.
    pub(crate) fn swap_in_index(&self, old: VolumeId, new: Arc<Volume>) {
        let mut index = self.index.write();
        index.remove(old);
        index.put(new);
    }

    pub(crate) fn homes(&self) -> Vec<Arc<Partition>> {
        self.partitions.all()
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Result<Arc<Partition>, VolumeError> {
        self.partitions.find(id).ok_or(VolumeError::NoPartition(id))
    }

    /// Creates a volume, durably.
    pub fn create(&self, partition: PartitionId, new: &NewVolume) -> Result<Arc<Volume>, VolumeError> {
        self.partition(partition)?;
        let changes = self.changes.lock();
        self.check_new_id(new.id)?;
        self.make(changes, partition, new, None)
    }

    /// Creates a volume whose id the caller has checked to be free and which may be a parked one. The caller
    /// holds the lock of changes.
    pub(crate) fn make(
        &self,
        changes: MutexGuard<'_, ()>,
        partition: PartitionId,
        new: &NewVolume,
        stands_for: Option<VolumeId>,
    ) -> Result<Arc<Volume>, VolumeError> {
        let home = self.partition(partition)?;
        let mut batch = Batch::new();
        let registry = home.registry.lock();
        let group = home.new_ids(&mut batch, 1)?;
        let header = VolumeHeader { stands_for, ..new_header(new) };
        let mut counters = new_counters(new);
        let mut stored = StoredHeader { group, read_view: ReadView::up_to(keys::FIRST_EPOCH), header };
        self.continue_above_past(&mut stored, &mut counters, new.now)?;
        put_volume(&mut batch, &stored, &counters);
        if new.with_root {
            put_root(&mut batch, group, new.now, self.shared.options.chunk_shift);
        }
        let number = home.handle.meta.commit(batch)?;
        drop(registry);
        let stored = StoredHeader { header: with_counters(stored.header, &counters), ..stored };
        let epochs = Epochs {
            current: stored.read_view.epoch,
            rollbacks: Arc::clone(&stored.read_view.rollbacks),
            others: readers(&stored),
            is_read_write_gone: new.kind != VolumeType::ReadWrite,
        };
        let group = Arc::new(Group::new(group, epochs, Arc::clone(&home.handle.chunks)));
        let volume = Arc::new(Volume::new(&self.shared, &home, group, stored, &counters));
        self.index.write().put(Arc::clone(&volume));
        drop(changes);
        self.keep_few_loaded();
        volume.settle(number, vec![])?;
        Ok(volume)
    }

    fn check_new_id(&self, id: VolumeId) -> Result<(), VolumeError> {
        if id == VolumeId(0) {
            return Err(VolumeError::Invalid("0 is no volume id"));
        }
        if is_parked(id) {
            return Err(VolumeError::Invalid("a volume id above 4294901759"));
        }
        if self.index.read().contains(id) { Err(VolumeError::VolumeExists(id)) } else { Ok(()) }
    }

    /// Creates a clone of a volume on the same partition, durably and in constant time. The clone has the
    /// current contents of the source and shares its records.
    pub fn clone_volume(&self, source: VolumeId, new: &CloneVolume) -> Result<Arc<Volume>, VolumeError> {
        self.clone_volume_with(source, new, |_| {})
    }

    /// Like [`Volumes::clone_volume`]; `change` can modify the clone's header, except for counts and the
    /// fields given by `new`.
    pub fn clone_volume_with(
        &self,
        source: VolumeId,
        new: &CloneVolume,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<Arc<Volume>, VolumeError> {
        if new.kind == VolumeType::ReadWrite {
            return Err(VolumeError::Invalid("a clone cannot be written to"));
        }
        let changes = self.changes.lock();
        let source = self.get_any_state(source)?;
        self.clone_locked(changes, &source, new, Batch::new(), change)
    }

    /// Creates a clone, committing `batch` with it. The caller holds the lock of changes.
    pub(crate) fn clone_locked(
        &self,
        changes: MutexGuard<'_, ()>,
        source: &Arc<Volume>,
        new: &CloneVolume,
        batch: Batch,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<Arc<Volume>, VolumeError> {
        self.check_new_id(new.id)?;
        self.make_clone(changes, source, new, batch, change)
    }

    /// Creates a clone whose id the caller has checked to be free.
    pub(crate) fn make_clone(
        &self,
        changes: MutexGuard<'_, ()>,
        source: &Arc<Volume>,
        new: &CloneVolume,
        mut batch: Batch,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<Arc<Volume>, VolumeError> {
        let group = Arc::clone(&source.group);
        let mut writer = group.writer.lock();
        let (view, mut counters) = (source.view(), source.counters());
        let source_header = source.header();
        let now = date_of_clone(&source_header, new.now);
        let mut header = clone_header(source_header.clone(), &CloneVolume { now, ..new.clone() });
        change(&mut header);
        let dated = source_header.dated.max(header.created);
        usage::copy(&mut counters, &header);
        let read_view = view.read_view;
        let stored = StoredHeader { group: group.id, read_view: read_view.clone(), header };
        put_volume(&mut batch, &stored, &counters);
        let is_read_write = source.kind() == VolumeType::ReadWrite;
        if is_read_write {
            let moved_on = StoredHeader {
                read_view: read_view.at(read_view.epoch + 1),
                ..source.stored(VolumeHeader { dated, ..source_header })
            };
            batch.put(families::VOLUMES, keys::header(source.id()), codec::put_header(&moved_on));
        }
        let publish = group.publish.write();
        let number = source.meta().commit(batch)?;
        if is_read_write {
            writer.epochs.current += 1;
            source.change_live(|live| live.moved_on(dated));
        }
        writer.epochs.others.push(read_view);
        drop((publish, writer));
        let volume = Arc::new(Volume::new(&self.shared, &source.home, group, stored, &counters));
        self.index.write().put(Arc::clone(&volume));
        drop(changes);
        self.keep_few_loaded();
        volume.settle(number, vec![])?;
        Ok(volume)
    }

    /// Deletes a volume, durably and in constant time; [`Volumes::purge_step`] reclaims its space later.
    pub fn delete(&self, id: VolumeId) -> Result<(), VolumeError> {
        let changes = self.changes.lock();
        let volume = self.get_any_state(id)?;
        let may_be_succeeded = self.secure_apart()?;
        let goes_on = self.goes_on(&volume, may_be_succeeded)?;
        let group = Arc::clone(&volume.group);
        let mut writer = group.writer.lock();
        let epoch = volume.view().read_view.epoch;
        let job = leaving_job(&writer.epochs, group.id, epoch, volume.kind());
        let mut batch = Batch::new();
        batch.delete(families::VOLUMES, keys::header(id));
        batch.delete(families::VOLUMES, keys::counters(id));
        forget_snapshots(&mut batch, &volume);
        note_past(&mut batch, &volume, goes_on);
        put_job(&mut batch, &job);
        let number = volume.meta().commit(batch)?;
        volume.set_deleted();
        leave(&mut writer.epochs, epoch, volume.kind());
        self.index.write().remove(id);
        drop(writer);
        if may_be_succeeded {
            // Durable before a parked volume can take the place.
            volume.meta().sync(number)?;
        }
        drop(changes);
        volume.settle(number, vec![])
    }

    /// Reclaims some of the data of deleted volumes and huge deleted files, in memory and in the store.
    /// Returns whether there is more to do. Use one background thread. A failed partition does not affect the
    /// others.
    pub fn purge_step(&self) -> Result<bool, VolumeError> {
        let is_more = self.shared.caches.clear_buried();
        let mut purger = self.purger.lock();
        let mut outcome = Ok(is_more);
        for home in self.homes() {
            match purger.step(&home, |group| self.find_group(home.handle.id, group)) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Counts the directory totals of a volume that an older program created, once the volume is in memory,
    /// while changes of it continue. Returns whether there was such a volume. Use one background thread.
    ///
    /// # Errors
    /// `Store`, `Damaged`. The count is retried when the volume is next loaded or changed.
    pub fn count_step(&self) -> Result<bool, VolumeError> {
        let _counting = self.counting.lock();
        loop {
            let Some(id) = self.shared.uncounted.lock().pop_first() else { return Ok(false) };
            // A change just before an earlier count began may have added the volume again.
            let counts = |volume: Arc<Volume>| {
                if volume.is_counted() { Ok(false) } else { volume.count_totals().map(|_| true) }
            };
            match self.get_any_state(id).and_then(counts) {
                Ok(true) => return Ok(true),
                Ok(false) | Err(VolumeError::NoVolume(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns a group with volumes, loading it if necessary.
    fn find_group(&self, partition: PartitionId, group: u64) -> Result<Option<Arc<Group>>, VolumeError> {
        let known = self.index.read().group(partition, group).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let member = self.index.read().find_member(partition, group);
        member.map(|id| Ok(Arc::clone(&self.get_any_state(id)?.group))).transpose()
    }

    /// Returns the volumes of a group.
    pub(crate) fn members(&self, partition: PartitionId, group: u64) -> Vec<VolumeId> {
        let index = self.index.read();
        let member = index.find_member(partition, group);
        member.and_then(|id| index.to_load(id)).map_or_else(Vec::new, |to_load| to_load.members)
    }

    /// Calls `work` while nothing else can change the records of a group. Its argument is the group if that
    /// is in memory; otherwise the group stays unloaded and has no readers. Returns `None` without a call if
    /// the last volume of the group was deleted.
    pub(crate) fn with_group<T>(
        &self,
        home: &Partition,
        id: u64,
        work: impl FnOnce(Option<&Arc<Group>>) -> Result<Option<T>, VolumeError>,
    ) -> Result<Option<T>, VolumeError> {
        let find = || self.index.read().group(home.handle.id, id).cloned();
        let mut known = find();
        if known.is_none() {
            // A change would load the group first, and no volume can be created meanwhile.
            let _changes = self.changes.lock();
            let _loading = home.loading.lock();
            known = find();
            if known.is_none() {
                return work(None);
            }
        }
        let Some(group) = known else { return Ok(None) };
        let writer = group.writer.lock();
        if writer.epochs.readers().is_empty() { Ok(None) } else { work(Some(&group)) }
    }

    /// Makes everything acknowledged so far durable. Needed only with `Durability::Close` and
    /// `Durability::Interval`. A failed partition does not affect the others.
    ///
    /// # Errors
    /// `Store`: the first failure.
    pub fn sync(&self) -> Result<(), VolumeError> {
        self.homes().iter().map(|home| home.sync()).fold(Ok(()), Result::and)
    }

    /// Makes everything acknowledged on one partition durable; free of cost if there is nothing to do.
    pub fn sync_partition(&self, id: PartitionId) -> Result<(), VolumeError> {
        self.partition(id)?.sync()
    }
}

/// Finds all volumes, and the partitions that could be read.
fn find_all(partitions: Vec<Arc<Partition>>) -> Result<(Vec<Arc<Partition>>, Index), VolumeError> {
    let found: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = partitions.iter().map(|home| scope.spawn(|| loader::find(home))).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let (mut usable, mut failure) = (Vec::new(), None);
    for (home, found) in partitions.into_iter().zip(found) {
        match found.unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(found) => usable.push((home, found)),
            Err(error) => {
                let partition = home.handle.id;
                tracing::error!(%partition, %error, "the partition cannot be read; its volumes are offline");
                failure = Some(error);
            }
        }
    }
    if let Some(failure) = failure.filter(|_| usable.is_empty()) {
        return Err(failure);
    }
    let (homes, found): (Vec<_>, Vec<_>) =
        usable.into_iter().map(|(home, found)| (Arc::clone(&home), (home.handle.id, found))).unzip();
    Ok((homes, Index::of_found(&found)))
}
