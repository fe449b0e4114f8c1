//! One change of a volume: built under the group's writer lock, committed as one batch.
//!
//! A change first reads whatever it needs. The first edit of a directory takes the `publish` lock, for which
//! readers then wait until the commit; from then on only memory is accessed. If a transaction is dropped
//! without a commit, the directories that it edited are evicted from the cache, and the next reader rebuilds
//! them from the store.

use crate::change::quota;
use crate::change::results::Recordable;
use crate::core::call_results::CallResults;
use crate::core::group::Writer;
use crate::core::numbers::Place;
use crate::core::pending::Pending;
use crate::core::volume::{View, Volume};
use crate::dedup::{Changes, Obsolete, Offers, Outcome};
use crate::{Actor, FileKind, RepeatableCall, VnodeStatus, VolumeError};
use afs_format::directory::{DirectoryBlob, DirectoryError, EntryTarget};
use base::{Fid, UnixTime, UserId, VnodeId};
use parking_lot::{MutexGuard, RwLock, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Batch, ChunkAddress, CommitNumber, Family};
use volume_records::codec::{self, Counters, Entry, Extent, Job, Vnode};
use volume_records::rows::RowKey;
use volume_records::totals::{Step, steps};
use volume_records::{RecordedCall, families, keys};

/// Maximum number of extents that a deletion removes itself; the data of larger files is purged in the
/// background.
const EXTENTS_AT_ONCE_MAX: usize = 1024;

/// Space needed by a change.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    /// Blocks that count against the quota: those of a file's length, including holes.
    pub(crate) blocks: u64,
    /// Space needed on the partition.
    pub(crate) data_kib: u64,
    /// Amount by which the quota may be exceeded.
    pub(crate) spare_kib: u64,
}

/// A vnode before and after the change.
struct Touched {
    before: Option<Vnode>,
    now: Option<Vnode>,
}

impl Touched {
    fn steps(&self) -> Vec<Step> {
        let status = |vnode: &'_ Option<Vnode>| vnode.as_ref().map(|vnode| vnode.status);
        steps(status(&self.before).as_ref(), status(&self.now).as_ref())
    }
}

/// A committed change that is not yet durable.
#[must_use]
pub(crate) struct Committed {
    number: CommitNumber,
    obsolete: Obsolete,
    /// Offered chunks that metadata now names.
    pub(crate) used: Vec<ChunkAddress>,
}

pub(crate) struct Transaction<'v> {
    pub(crate) volume: &'v Volume,
    // Declared in drop order: readers continue before the next writer does.
    publish: Option<RwLockWriteGuard<'v, ()>>,
    pub(crate) writer: MutexGuard<'v, Writer>,
    pub(crate) view: View,
    actor: Actor,
    /// Update date of the change: now, or the date of the latest change or clone if the clock was set back
    /// since.
    date: UnixTime,
    pub(crate) batch: Batch,
    pub(crate) counters: Counters,
    new_owner: Option<UserId>,
    touched: BTreeMap<VnodeId, Touched>,
    edited: BTreeMap<VnodeId, Arc<RwLock<DirectoryBlob>>>,
    obsolete: Vec<ChunkAddress>,
    sharing: Changes,
    /// The call whose result is in the batch.
    recorded: Option<RepeatableCall>,
}

impl<'v> Transaction<'v> {
    /// Starts a change. The volume may have been taken out of file service since the caller looked it up, and
    /// may be in the process of being copied: then the change is rejected, because the copy would lack it.
    pub(crate) fn begin(volume: &'v Volume, actor: &Actor) -> Result<Transaction<'v>, VolumeError> {
        let writer = volume.group.writer.lock();
        // The state is checked first, because its error is more specific than that of a deleted volume.
        if !actor.in_transaction {
            volume.check_state()?;
        }
        volume.check_writable()?;
        let (counters, latest) =
            volume.read_live(|live| (live.counters(), live.header.updated.max(live.header.dated)));
        Ok(Transaction {
            volume,
            publish: None,
            writer,
            view: volume.view(),
            actor: *actor,
            date: actor.now.max(latest),
            batch: Batch::new(),
            counters,
            new_owner: None,
            touched: BTreeMap::new(),
            edited: BTreeMap::new(),
            obsolete: Vec::new(),
            sharing: Changes::default(),
            recorded: None,
        })
    }

    /// Returns a vnode with the changes made so far.
    pub(crate) fn vnode(&self, fid: Fid) -> Result<Vnode, VolumeError> {
        match self.touched.get(&fid.vnode) {
            Some(touched) => match &touched.now {
                Some(vnode) if vnode.status.unique == fid.unique => Ok(vnode.clone()),
                _ => Err(VolumeError::NoVnode(fid.vnode, fid.unique)),
            },
            None => self.volume.vnode(fid),
        }
    }

    pub(crate) fn directory(&self, fid: Fid) -> Result<Vnode, VolumeError> {
        let vnode = self.vnode(fid)?;
        if vnode.status.is_directory() { Ok(vnode) } else { Err(VolumeError::NotDirectory) }
    }

    /// Returns the vnode of an entry. That it exists is an invariant of the store.
    pub(crate) fn target(&self, target: EntryTarget) -> Result<Vnode, VolumeError> {
        self.vnode(Fid { volume: self.volume.id(), vnode: target.vnode, unique: target.unique })
    }

    pub(crate) fn blob(&self, directory: &Vnode) -> Result<Arc<RwLock<DirectoryBlob>>, VolumeError> {
        match self.edited.get(&directory.status.vnode) {
            Some(blob) => Ok(Arc::clone(blob)),
            None => self.volume.directory(directory),
        }
    }

    pub(crate) fn lookup(&self, directory: &Vnode, name: &[u8]) -> Result<Option<EntryTarget>, VolumeError> {
        Ok(self.blob(directory)?.read().lookup(name))
    }

    /// Puts a new or changed vnode, and sets its server time to that of this change.
    pub(crate) fn put(&mut self, mut vnode: Vnode) -> Result<VnodeStatus, VolumeError> {
        vnode.status.server_modified = self.date;
        let status = vnode.status;
        self.touch(status.vnode)?.now = Some(vnode);
        Ok(status)
    }

    /// Puts a vnode whose number was just allocated, without looking for an old one.
    pub(crate) fn put_new(&mut self, mut vnode: Vnode) -> VnodeStatus {
        vnode.status.server_modified = self.date;
        let status = vnode.status;
        self.touched.insert(status.vnode, Touched { before: None, now: Some(vnode) });
        status
    }

    fn touch(&mut self, number: VnodeId) -> Result<&mut Touched, VolumeError> {
        if !self.touched.contains_key(&number) {
            let before = self.volume.vnode_by_number(number)?;
            self.touched.insert(number, Touched { now: before.clone(), before });
        }
        let touched = self.touched.get_mut(&number);
        Ok(touched.unwrap_or_else(|| unreachable!("just inserted")))
    }

    /// Removes a vnode with its data; a directory must be empty.
    pub(crate) fn remove(&mut self, vnode: &Vnode) -> Result<(), VolumeError> {
        if vnode.status.is_directory() {
            self.remove_own_entries(vnode)?;
        } else {
            self.remove_data(vnode)?;
        }
        self.touch(vnode.status.vnode)?.now = None;
        Ok(())
    }

    fn remove_own_entries(&mut self, directory: &Vnode) -> Result<(), VolumeError> {
        for name in [&b"."[..], b".."] {
            let key = keys::entry(self.volume.group.id, directory.status.vnode, name);
            self.write(families::ENTRIES, &key, None)?;
        }
        Ok(())
    }

    fn remove_data(&mut self, vnode: &Vnode) -> Result<(), VolumeError> {
        // All extents are within the length.
        if vnode.status.length == 0 {
            return Ok(());
        }
        let extents = self.volume.extents(vnode, 0, u64::MAX, EXTENTS_AT_ONCE_MAX + 1)?;
        if extents.len() > EXTENTS_AT_ONCE_MAX {
            let VnodeStatus { vnode, unique, .. } = vnode.status;
            let (group, epoch) = (self.volume.group.id, self.view.read_view.epoch);
            self.put_job(&Job::File { group, vnode, unique, epoch });
            return Ok(());
        }
        for (index, extent) in extents {
            self.put_extent(vnode, index, None, Some(&extent))?;
        }
        Ok(())
    }

    /// Adds a purge job, whose key is derived from its value.
    fn put_job(&mut self, job: &Job) {
        let value = codec::put_job(job);
        self.batch.put(families::VOLUMES, keys::job(&value), value);
    }

    /// Replaces one chunk of a file, `old`, by `new`.
    pub(crate) fn put_extent(
        &mut self,
        vnode: &Vnode,
        index: u64,
        new: Option<&Extent>,
        old: Option<&Extent>,
    ) -> Result<(), VolumeError> {
        let key = self.volume.file_key(vnode).extent(index);
        let value = new.map(|extent| self.volume.home.extent_record(&key, extent)).transpose()?;
        let is_gone = self.write(families::EXTENTS, &key, value)?;
        if let Some(Extent::Shared { row, .. }) = new {
            self.sharing.add(*row);
        }
        match old.filter(|_| is_gone) {
            Some(Extent::Shared { row, .. }) => self.sharing.take_away(*row),
            Some(old) => self.obsolete.extend(old.address()),
            None => {}
        }
        Ok(())
    }

    /// Returns the parent directory of a vnode after this change; `None` if the vnode does not exist.
    pub(crate) fn parent_of(&self, number: VnodeId) -> Result<Option<VnodeId>, VolumeError> {
        let vnode = match self.touched.get(&number) {
            Some(touched) => touched.now.clone(),
            None => self.volume.vnode_by_number(number)?,
        };
        Ok(vnode.map(|vnode| vnode.status.parent))
    }

    pub(crate) fn write(
        &mut self,
        family: Family,
        prefix: &[u8],
        value: Option<Vec<u8>>,
    ) -> Result<bool, VolumeError> {
        Ok(self.writer.epochs.write(self.volume.meta(), &mut self.batch, family, prefix, value)?)
    }

    /// Rejects growth for which there is not enough space.
    pub(crate) fn check_growth(&self, growth: Growth) -> Result<(), VolumeError> {
        self.volume.check_growth(growth)
    }

    /// Allocates a vnode number and a uniquifier.
    pub(crate) fn new_number(&mut self, kind: FileKind) -> Result<EntryTarget, VolumeError> {
        let place =
            Place { meta: self.volume.meta(), group: self.volume.group.id, read_view: &self.view.read_view };
        let counters = &mut self.counters;
        let vnode = if kind == FileKind::Directory {
            self.writer.directories.take(&place, &mut counters.next_directory, counters.directory_count)?
        } else {
            let files = counters.file_count.saturating_sub(counters.directory_count);
            self.writer.files.take(&place, &mut counters.next_file, files)?
        };
        let unique = counters.next_unique;
        // Uniquifier 1 belongs to the root directory.
        counters.next_unique = unique.checked_add(1).unwrap_or(2);
        Ok(EntryTarget { vnode, unique })
    }

    /// Marks a directory as changed by the actor, before its entries are edited.
    pub(crate) fn change_directory(&mut self, directory: &Vnode) -> Result<(), VolumeError> {
        let mut vnode = directory.clone();
        vnode.status.data_version += 1;
        vnode.status.author = self.actor.user;
        vnode.status.client_modified = self.actor.now;
        self.put(vnode)?;
        Ok(())
    }

    /// Changes the link count of a directory.
    pub(crate) fn add_links(&mut self, number: VnodeId, more: i32) -> Result<(), VolumeError> {
        if let Some(vnode) = &mut self.touch(number)?.now {
            vnode.status.links = vnode.status.links.saturating_add_signed(more);
        }
        Ok(())
    }

    /// Adds an entry to a directory. [`Transaction::change_directory`] must have been called for it.
    pub(crate) fn insert(
        &mut self,
        number: VnodeId,
        name: &[u8],
        target: EntryTarget,
    ) -> Result<(), VolumeError> {
        let blob = self.edit(number)?;
        let slot = blob.write().insert(name, target).map_err(|error| match error {
            DirectoryError::Full => VolumeError::DirectoryFull,
            DirectoryError::Exists => VolumeError::Exists,
            DirectoryError::InvalidName => VolumeError::InvalidName,
            error @ (DirectoryError::Entry { .. } | DirectoryError::Damaged { .. }) => {
                VolumeError::Directory { directory: number, error }
            }
        })?;
        let length = blob.read().length_bytes();
        let mut sequence = 0;
        if let Some(vnode) = &mut self.touch(number)?.now {
            vnode.status.length = length;
            sequence = vnode.status.data_version;
        }
        let key = keys::entry(self.volume.group.id, number, name);
        self.write(families::ENTRIES, &key, Some(codec::put_entry(&Entry { target, slot, sequence })))?;
        Ok(())
    }

    /// Removes an entry from a directory. [`Transaction::change_directory`] must have been called for it.
    pub(crate) fn remove_entry(&mut self, number: VnodeId, name: &[u8]) -> Result<(), VolumeError> {
        let blob = self.edit(number)?;
        blob.write().remove(name).ok_or(VolumeError::NoEntry)?;
        self.write(families::ENTRIES, &keys::entry(self.volume.group.id, number, name), None)?;
        Ok(())
    }

    /// Puts the entries of a new directory.
    pub(crate) fn new_directory(&mut self, number: VnodeId, blob: DirectoryBlob) -> Result<(), VolumeError> {
        for mut placed in blob.placed_entries() {
            placed.sequence = 0;
            let entry = Entry { target: placed.target, slot: placed.slot, sequence: placed.sequence };
            let key = keys::entry(self.volume.group.id, number, &placed.name);
            self.write(families::ENTRIES, &key, Some(codec::put_entry(&entry)))?;
        }
        self.edited.insert(number, Arc::new(RwLock::new(blob)));
        Ok(())
    }

    fn edit(&mut self, number: VnodeId) -> Result<Arc<RwLock<DirectoryBlob>>, VolumeError> {
        if let Some(blob) = self.edited.get(&number) {
            return Ok(Arc::clone(blob));
        }
        let vnode = self.touch(number)?.before.clone().ok_or(VolumeError::NoVnode(number, 0))?;
        let blob = self.volume.directory(&vnode)?;
        self.publish.get_or_insert_with(|| self.volume.group.publish.write());
        self.edited.insert(number, Arc::clone(&blob));
        Ok(blob)
    }

    /// Sets the volume's owner, which is the owner of its root directory.
    pub(crate) fn set_owner(&mut self, owner: UserId) {
        self.new_owner = Some(owner);
    }

    /// Returns a vnode's status as left by this change.
    pub(crate) fn status(&self, number: VnodeId) -> Result<VnodeStatus, VolumeError> {
        let vnode = self.touched.get(&number).and_then(|touched| touched.now.as_ref());
        vnode.map(|vnode| vnode.status).ok_or(VolumeError::NoVnode(number, 0))
    }

    /// Adds the result of the change to its batch, if the call may be repeated to another server.
    pub(crate) fn record(&mut self, returned: &impl Recordable) {
        let (Some(call), Some(result)) = (self.actor.call, returned.result()) else { return };
        if self.volume.home.limits.get().is_some() {
            let recorded = RecordedCall { volume: self.volume.id(), user: self.actor.user, result };
            CallResults::record(&mut self.batch, call.id, &recorded);
            self.recorded = Some(call);
        }
    }

    /// Makes the change visible, atomically.
    pub(crate) fn commit(self) -> Result<Committed, VolumeError> {
        // Rows can be missing only if chunks were offered.
        self.commit_with(&[])?.map_err(|_| VolumeError::DigestsCollide)
    }

    /// Commits a change that may put extents of offered chunks. The inner error contains the rows that no
    /// longer exist; nothing was changed then.
    pub(crate) fn commit_with(
        mut self,
        offers: &[&Offers],
    ) -> Result<Result<Committed, Vec<RowKey>>, VolumeError> {
        let steps: Vec<Step> = self.touched.values().flat_map(Touched::steps).collect();
        let totals = self.keep_totals(&steps)?;
        let touched = std::mem::take(&mut self.touched);
        for (number, vnode) in &touched {
            let key = keys::vnode(self.volume.group.id, *number);
            if vnode.now.is_some() || vnode.before.is_some() {
                self.write(families::VNODES, &key, vnode.now.as_ref().map(codec::put_vnode))?;
            }
            count(&mut self.counters, vnode);
        }
        self.counters.updated = self.date;
        self.counters.update_counter = self.counters.update_counter.wrapping_add(1);
        self.counters.changes += 1;
        self.put_volume();
        self.publish.get_or_insert_with(|| self.volume.group.publish.write());
        let done = match self.volume.home.commit(&mut self.batch, &self.sharing, offers)? {
            Outcome::Done(done) => done,
            Outcome::Missing(rows) => return Ok(Err(rows)),
        };
        self.volume.note_commit(done.number, touched.keys().copied());
        if let (Some(call), Some(limits)) = (self.recorded, self.volume.home.limits.get()) {
            limits.results.committed(call.id, call.client);
        }
        self.take_effect(touched);
        self.keep_totals_in_memory(totals, steps);
        let obsolete = Obsolete { own: std::mem::take(&mut self.obsolete), shared: done.obsolete };
        Ok(Ok(Committed { number: done.number, obsolete, used: done.used }))
    }

    fn put_volume(&mut self) {
        let id = self.volume.id();
        self.batch.put(families::VOLUMES, keys::counters(id), codec::put_counters(&self.counters));
        if let Some(owner) = self.new_owner {
            let mut header = self.volume.header();
            header.owner = owner.0;
            let stored = self.volume.stored(header);
            self.batch.put(families::VOLUMES, keys::header(id), codec::put_header(&stored));
        }
    }

    /// Updates memory after the commit.
    fn take_effect(&mut self, touched: BTreeMap<VnodeId, Touched>) {
        let (caches, instance) = (&self.volume.shared.caches, self.view.instance);
        for (number, blob) in std::mem::take(&mut self.edited) {
            caches.put_directory(instance, number, blob);
        }
        for (number, vnode) in touched {
            match vnode.now {
                Some(vnode) => caches.put_vnode(instance, vnode),
                None => caches.forget(instance, number),
            }
        }
        let (counters, owner) = (self.counters, self.new_owner);
        self.volume.change_live(|live| {
            live.set_counters(&counters);
            live.header.owner = owner.map_or(live.header.owner, |owner| owner.0);
        });
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        for number in self.edited.keys() {
            self.volume.shared.caches.forget_directory(self.view.instance, *number);
        }
    }
}

fn count(counters: &mut Counters, vnode: &Touched) {
    let blocks = |vnode: &Option<Vnode>| vnode.as_ref().map_or(0, |vnode| vnode.status.blocks());
    let version = vnode.now.as_ref().map_or(0, |vnode| vnode.status.data_version);
    counters.version_max = counters.version_max.max(version);
    counters.used_kib = (counters.used_kib + blocks(&vnode.now)).saturating_sub(blocks(&vnode.before));
    let is_directory = |vnode: &Vnode| u64::from(vnode.status.is_directory());
    if let Some(new) = &vnode.now {
        counters.file_count += 1;
        counters.directory_count += is_directory(new);
    }
    if let Some(old) = &vnode.before {
        counters.file_count = counters.file_count.saturating_sub(1);
        counters.directory_count = counters.directory_count.saturating_sub(is_directory(old));
    }
}

impl Volume {
    /// Commits a change with this result.
    pub(crate) fn finish<T: Recordable>(
        &self,
        mut transaction: Transaction<'_>,
        result: T,
    ) -> Result<Pending<T>, VolumeError> {
        transaction.record(&result);
        let Committed { number, obsolete, .. } = transaction.commit()?;
        Ok(self.pending(number, obsolete).map(|()| result))
    }

    /// Returns the commit of a store of file data, which is to be waited for as the durability policy
    /// requires.
    pub(crate) fn pending_data(&self, committed: Committed) -> Pending<()> {
        let waits = self.shared.options.durability.waits_for_data();
        self.home.pending(waits, &self.group, committed.number, committed.obsolete)
    }

    /// Rejects growth for which there is not enough space.
    pub(crate) fn check_growth(&self, growth: Growth) -> Result<(), VolumeError> {
        if growth.blocks == 0 {
            return Ok(());
        }
        if (self.home.handle.space)().free_kib < growth.data_kib {
            return Err(VolumeError::PartitionFull);
        }
        let (used, most) = self.read_live(|live| (live.header.used_kib, live.header.quota_max_kib));
        quota::check(used, growth.blocks, most, growth.spare_kib)
    }
}
