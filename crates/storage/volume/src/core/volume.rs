//! One volume: its state, and reading from it.

use crate::core::group::Group;
use crate::core::host_list::{HostPin, Promisee};
use crate::core::pending::{Pending, PendingCommit};
use crate::core::shared::{Partition, Shared};
use crate::core::usage;
use crate::core::vnode_read_ahead::VnodeReadAhead;
use crate::dedup::Obsolete;
use crate::interface::error::damage;
use crate::{Found, VnodeStatus, VolumeError, VolumeHeader, VolumeState};
use afs_format::acl::Acl;
use afs_format::directory::{DirectoryBlob, PAGE_BYTES, PlacedEntry};
use base::{Fid, PartitionId, UnixTime, VnodeId, VolumeId, VolumeType};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Batch, ChunkAddress, Codec, CommitNumber, MetaStore};
use volume_records::codec::{self, Counters, StoredHeader, Vnode};
use volume_records::is_parked;
use volume_records::totals::{Totals, Unfolded};
use volume_records::{ReadView, epochs, families, keys};

/// Maximum length of offline message and message of the day (VMSGSIZE less its NUL).
const MESSAGE_BYTES_MAX: usize = 127;

/// One volume. All methods may be called from any thread; a changing method returns when its change is
/// durable, except as part of a call ([`crate::Acknowledge`]). FIDs are accepted as they come from the wire: `fid.volume` is ignored, `fid.vnode` and
/// `fid.unique` must both match, or the error is `NoVnode`.
///
/// Rights are not checked here; the file server does that.
pub struct Volume {
    id: VolumeId,
    kind: VolumeType,
    pub(crate) shared: Arc<Shared>,
    pub(crate) home: Arc<Partition>,
    pub(crate) group: Arc<Group>,
    live: RwLock<Live>,
    state: Mutex<VolumeState>,
    /// Set while holding the group's writer lock.
    is_deleted: AtomicBool,
    /// Commit number of the last change since the volume was loaded, or zero.
    newest_commit: AtomicU64,
    pub(crate) vnodes_ahead: VnodeReadAhead,
}

/// State of a volume that changes while it is loaded. Written while holding the group's `publish`.
pub(crate) struct Live {
    pub(crate) header: VolumeHeader,
    pub(crate) view: View,
    pub(crate) next_file: u32,
    pub(crate) next_directory: u32,
    pub(crate) changes: u64,
    pub(crate) version_max: u64,
    /// Whether accesses were counted that are not stored yet.
    has_unstored_usage: bool,
    /// Changes of directory totals that are not yet in the records; `None` if there are no totals.
    pub(crate) unfolded: Option<Unfolded>,
    /// These changes for all ancestors of the directories; computed on demand.
    pub(crate) overlay: Option<Arc<HashMap<VnodeId, Totals>>>,
}

/// A volume's read view, and the instance under which its records are cached.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) read_view: ReadView,
    pub(crate) instance: u64,
}

impl Live {
    pub(crate) fn counters(&self) -> Counters {
        let h = &self.header;
        Counters {
            used_kib: h.used_kib,
            file_count: h.file_count,
            directory_count: h.directory_count,
            next_unique: h.next_unique,
            next_file: self.next_file,
            next_directory: self.next_directory,
            updated: h.updated,
            update_counter: h.update_counter,
            accessed: h.accessed,
            day_use: h.day_use,
            day_use_date: h.day_use_date,
            week_use: h.week_use,
            changes: self.changes,
            version_max: self.version_max,
            unfolded: self.unfolded,
        }
    }

    /// Enters the next epoch after a clone with this date was made.
    pub(crate) fn moved_on(&mut self, dated: UnixTime) {
        self.view.read_view.epoch += 1;
        self.header.dated = dated;
    }

    pub(crate) fn set_unfolded(&mut self, unfolded: Option<&Unfolded>) {
        self.unfolded = unfolded.copied();
        // Invalidated, because a directory may have moved.
        self.overlay = None;
    }

    /// Sets the counters of a change, but keeps accesses counted meanwhile.
    pub(crate) fn set_counters(&mut self, counters: &Counters) {
        let h = &mut self.header;
        h.used_kib = counters.used_kib;
        h.file_count = counters.file_count;
        h.directory_count = counters.directory_count;
        h.next_unique = counters.next_unique;
        h.updated = counters.updated;
        h.update_counter = counters.update_counter;
        self.next_file = counters.next_file;
        self.next_directory = counters.next_directory;
        self.changes = counters.changes;
        self.version_max = counters.version_max;
        self.set_unfolded(counters.unfolded.as_ref());
    }
}

impl Volume {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        home: &Arc<Partition>,
        group: Arc<Group>,
        stored: StoredHeader,
        counters: &Counters,
    ) -> Volume {
        let view = View { read_view: stored.read_view, instance: shared.caches.new_instance() };
        if counters.unfolded.is_none() {
            shared.uncounted.lock().insert(stored.header.id);
        }
        Volume {
            id: stored.header.id,
            kind: stored.header.kind,
            shared: Arc::clone(shared),
            home: Arc::clone(home),
            group,
            live: RwLock::new(Live {
                header: stored.header,
                view,
                next_file: counters.next_file,
                next_directory: counters.next_directory,
                changes: counters.changes,
                version_max: counters.version_max,
                has_unstored_usage: false,
                unfolded: counters.unfolded,
                overlay: None,
            }),
            state: Mutex::default(),
            is_deleted: AtomicBool::new(false),
            newest_commit: AtomicU64::new(0),
            vnodes_ahead: VnodeReadAhead::default(),
        }
    }

    /// Returns the volume id.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Returns the type of the volume.
    pub fn kind(&self) -> VolumeType {
        self.kind
    }

    /// Returns the partition of the volume.
    pub fn partition(&self) -> PartitionId {
        self.home.handle.id
    }

    /// Returns the current header, including usage.
    pub fn header(&self) -> VolumeHeader {
        self.live.read().header.clone()
    }

    /// Returns creation and update date for AFSVolSync, which is cheaper than the whole header.
    pub fn dates(&self) -> (UnixTime, UnixTime) {
        let live = self.live.read();
        (live.header.created, live.header.updated)
    }

    /// Changes the header durably. Ids of volume and parent, kind, counts, used blocks and the next
    /// uniquifier are kept, whatever `change` sets.
    pub fn update_header(&self, change: impl FnOnce(&mut VolumeHeader)) -> Result<VolumeHeader, VolumeError> {
        self.update_header_if(|| self.check_is_there(), change)?.wait()
    }

    /// Like [`Volume::update_header`], for file service: fails while the volume is not in service, and does
    /// not wait until the change is durable.
    pub fn update_header_in_service(
        &self,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<Pending<VolumeHeader>, VolumeError> {
        self.update_header_if(|| self.check_is_there().and_then(|()| self.check_state()), change)
    }

    fn update_header_if(
        &self,
        check: impl FnOnce() -> Result<(), VolumeError>,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<Pending<VolumeHeader>, VolumeError> {
        let writer = self.group.writer.lock();
        check()?;
        let old = self.header();
        let mut new = old.clone();
        change(&mut new);
        // A parked volume is not served.
        if new.in_service && !is_parked(self.id) {
            new.unseen = None;
        }
        if new.updated < old.updated {
            // Read-only sites may have that date.
            new.dated = new.dated.max(old.updated);
        }
        keep_fixed_fields(&mut new, &old);
        let mut batch = Batch::new();
        let mut counters = self.counters();
        usage::copy(&mut counters, &new);
        batch.put(families::VOLUMES, keys::header(self.id), codec::put_header(&self.stored(new.clone())));
        batch.put(families::VOLUMES, keys::counters(self.id), codec::put_counters(&counters));
        let publish = self.group.publish.write();
        let number = self.meta().commit(batch)?;
        self.live.write().header = new.clone();
        drop((publish, writer));
        Ok(self.pending(number, Obsolete::default()).map(|()| new))
    }

    /// Returns the compression of newly written file data: [`VolumeHeader::compression`], or the server's
    /// default.
    pub fn compression(&self) -> Codec {
        self.read_live(|live| live.header.compression).unwrap_or(self.shared.options.codec)
    }

    /// Returns whether newly written file data shares chunks of equal contents
    /// ([`VolumeHeader::deduplicates`]).
    pub fn deduplicates(&self) -> bool {
        self.read_live(|live| live.header.deduplicates)
    }

    /// Returns the stored form of `header`.
    pub(crate) fn stored(&self, header: VolumeHeader) -> StoredHeader {
        StoredHeader { group: self.group.id, read_view: self.view().read_view, header }
    }

    /// Returns the state that determines whether file service may use the volume.
    pub fn state(&self) -> VolumeState {
        *self.state.lock()
    }

    /// Sets the state for file service. If it forbids use, then on return every change by file service has
    /// been committed or will be rejected, even from calls that looked the volume up before: a copy made
    /// afterwards is complete.
    pub fn set_state(&self, state: VolumeState) {
        let _writer = (state != VolumeState::Online).then(|| self.group.writer.lock());
        *self.state.lock() = state;
    }

    /// Marks the volume as deleted; holders can no longer change it.
    pub(crate) fn set_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }

    /// Fails if the volume was deleted: its records may already be purged.
    pub(crate) fn check_is_there(&self) -> Result<(), VolumeError> {
        if self.is_deleted.load(Ordering::Acquire) { Err(VolumeError::NoVolume(self.id)) } else { Ok(()) }
    }

    /// Fails if the volume cannot be changed. The caller holds the writer lock.
    pub(crate) fn check_writable(&self) -> Result<(), VolumeError> {
        self.check_is_there()?;
        if self.kind == VolumeType::ReadWrite { Ok(()) } else { Err(VolumeError::ReadOnly) }
    }

    /// Fails if file service may not use the volume. Changes check this again while holding the writer lock.
    pub(crate) fn check_state(&self) -> Result<(), VolumeError> {
        if is_parked(self.id) {
            return Err(VolumeError::NoVolume(self.id));
        }
        match self.state() {
            VolumeState::Busy => Err(VolumeError::Busy(self.id)),
            VolumeState::Offline => Err(VolumeError::Offline(self.id)),
            VolumeState::Moved => Err(VolumeError::Moved(self.id)),
            VolumeState::Online => {
                let live = self.live.read();
                let is_on = live.header.in_service && live.header.blessed;
                if is_on { Ok(()) } else { Err(VolumeError::Offline(self.id)) }
            }
        }
    }

    /// Counts an access for the day's use; stored with the next change, or when the volume is unloaded.
    pub fn count_access(&self, now: UnixTime) {
        self.count_accesses(now, 1);
    }

    /// Counts several accesses.
    pub fn count_accesses(&self, now: UnixTime, count: u32) {
        let mut live = self.live.write();
        usage::count_accesses(&mut live.header, now, count);
        live.has_unstored_usage = true;
    }

    /// Stores the counted accesses.
    pub(crate) fn store_usage(&self) -> Result<(), VolumeError> {
        let _writer = self.group.writer.lock();
        if !self.live.read().has_unstored_usage || self.is_deleted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.put(families::VOLUMES, keys::counters(self.id), codec::put_counters(&self.counters()));
        self.meta().commit(batch)?;
        self.live.write().has_unstored_usage = false;
        Ok(())
    }

    /// Returns whether all state except accesses is stored, so that the volume may be unloaded.
    pub(crate) fn may_be_unloaded(&self) -> bool {
        self.state() == VolumeState::Online && self.live.read().header.destroy_me == 0
    }

    /// Returns the FID of the root directory.
    pub fn root(&self) -> Fid {
        Fid::root(self.id)
    }

    /// Returns the status of a vnode.
    ///
    /// # Errors
    /// `NoVnode` if it was deleted or the uniquifier differs, `Store`.
    pub fn status(&self, fid: Fid) -> Result<VnodeStatus, VolumeError> {
        self.check_is_there()?;
        let instance = self.instance();
        if let Some(vnode) = self.shared.caches.try_vnode(instance, fid.vnode) {
            return expect(Some(vnode), fid).map(|vnode| vnode.status);
        }
        let _publish = self.group.publish.read();
        Ok(self.vnode(fid)?.status)
    }

    /// Returns the status together with the access list that governs the vnode: its own for a directory, that
    /// of its parent for anything else.
    pub fn status_and_acl(&self, fid: Fid) -> Result<(VnodeStatus, Arc<Acl>), VolumeError> {
        self.check_is_there()?;
        // One record of a directory contains both, so no lock against writers is needed.
        if let Some(Vnode { status, acl: Some(acl), .. }) =
            self.shared.caches.try_vnode(self.instance(), fid.vnode)
            && status.unique == fid.unique
        {
            return Ok((status, acl));
        }
        let _publish = self.group.publish.read();
        let vnode = self.vnode(fid)?;
        let status = vnode.status;
        let governor = match vnode.acl {
            Some(acl) => return Ok((status, acl)),
            None => Fid { volume: self.id, vnode: status.parent, unique: status.parent_unique },
        };
        let acl = self.vnode(governor)?.acl.ok_or(VolumeError::NotDirectory)?;
        Ok((status, acl))
    }

    /// Like [`Volume::status_and_acl`], but only if everything is cached, the vnode's last change is durable and
    /// no change to the group is being published. Never blocks, and no change takes effect before `use_status`
    /// returns. `None` allows no conclusion about the vnode.
    pub fn with_cached_status<T>(
        &self,
        fid: Fid,
        use_status: impl FnOnce(&VnodeStatus, &Acl) -> Option<T>,
    ) -> Option<T> {
        let _publish = self.group.publish.try_read()?;
        if !self.is_durable(fid.vnode) {
            return None;
        }
        let Vnode { status, acl, .. } = self.vnode_at_hand(fid)?;
        if let Some(acl) = acl {
            return use_status(&status, &acl);
        }
        let governor = Fid { volume: self.id, vnode: status.parent, unique: status.parent_unique };
        use_status(&status, &*self.vnode_at_hand(governor)?.acl?)
    }

    pub(crate) fn vnode_at_hand(&self, fid: Fid) -> Option<Vnode> {
        let vnode = self.shared.caches.vnode(self.view().instance, fid.vnode)?;
        (vnode.status.unique == fid.unique).then_some(vnode)
    }

    /// Looks up `name` in `directory`, including `.` and `..`.
    pub fn lookup(&self, directory: Fid, name: &[u8]) -> Result<Found, VolumeError> {
        let _publish = self.group.publish.read();
        let vnode = self.directory_vnode(directory)?;
        let found = self.directory(&vnode)?.read().lookup(name);
        found.map(|target| Found { vnode: target.vnode, unique: target.unique }).ok_or(VolumeError::NoEntry)
    }

    /// Calls `visit` with every entry of `directory` in name order, including `.` and `..`.
    pub fn entries(&self, directory: Fid, visit: &mut dyn FnMut(&[u8], Found)) -> Result<(), VolumeError> {
        let mut entries = {
            let _publish = self.group.publish.read();
            let vnode = self.directory_vnode(directory)?;
            let blob = self.directory(&vnode)?;
            let blob = blob.read();
            blob.entries().map(|(name, target)| (name.to_vec(), target)).collect::<Vec<_>>()
        };
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (name, target) in entries {
            visit(&name, Found { vnode: target.vnode, unique: target.unique });
        }
        Ok(())
    }

    /// Calls `visit` with the status of every vnode in ascending order from `from`, until it returns `false`.
    /// For dumps and checks; changes made meanwhile are not seen.
    pub fn vnodes(
        &self,
        from: VnodeId,
        visit: &mut dyn FnMut(&VnodeStatus) -> bool,
    ) -> Result<(), VolumeError> {
        let from = keys::vnode(self.group.id, from);
        let (_, to) = keys::group_range(self.group.id);
        let mut damaged = None;
        let read_view = self.view().read_view;
        epochs::scan_born(
            self.meta(),
            families::VNODES,
            (&from, &to),
            &read_view,
            &mut |prefix, born, value| {
                let vnode = keys::vnode_of(prefix).and_then(|vnode| codec::get_vnode(vnode, value));
                let Some(Vnode { mut status, .. }) = vnode else {
                    damaged = Some(damage(families::VNODES, prefix, "the vnode"));
                    return ControlFlow::Break(());
                };
                read_view.lift(&mut status, born);
                if visit(&status) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        )?;
        damaged.map_or(Ok(()), Err)
    }

    pub(crate) fn meta(&self) -> &dyn MetaStore {
        &*self.home.handle.meta
    }

    pub(crate) fn view(&self) -> View {
        self.live.read().view.clone()
    }

    pub(crate) fn instance(&self) -> u64 {
        self.live.read().view.instance
    }

    pub(crate) fn counters(&self) -> Counters {
        self.live.read().counters()
    }

    pub(crate) fn read_live<T>(&self, read: impl FnOnce(&Live) -> T) -> T {
        read(&self.live.read())
    }

    /// Changes the live state. The caller holds the group's `publish`.
    pub(crate) fn change_live<T>(&self, change: impl FnOnce(&mut Live) -> T) -> T {
        change(&mut self.live.write())
    }

    /// Waits until a commit is durable, as the options require. Call this without holding any lock.
    pub(crate) fn settle(&self, number: CommitNumber, own: Vec<ChunkAddress>) -> Result<(), VolumeError> {
        self.pending(number, Obsolete { own, shared: vec![] }).wait()
    }

    /// Returns a commit that is to be waited for as the options require.
    pub(crate) fn pending(&self, number: CommitNumber, obsolete: Obsolete) -> Pending<()> {
        let waits = self.shared.options.durability.waits_for_metadata();
        self.home.pending(waits, &self.group, number, obsolete)
    }

    /// Makes everything durable that was acknowledged for any volume of this partition.
    pub fn sync(&self) -> Result<(), VolumeError> {
        self.home.sync()
    }

    /// Returns the vnode of a FID. Callers hold `publish` or are the writer, here and below.
    pub(crate) fn vnode(&self, fid: Fid) -> Result<Vnode, VolumeError> {
        self.check_is_there()?;
        expect(self.vnode_by_number(fid.vnode)?, fid)
    }

    /// Returns the commit of the last change since the volume was loaded, if clients wait for such commits.
    pub(crate) fn newest_commit(&self) -> Option<PendingCommit> {
        let number = CommitNumber(self.newest_commit.load(Ordering::Acquire));
        if number.0 == 0 || !self.shared.options.durability.waits_for_metadata() {
            return None;
        }
        let (partition, group) = (Arc::clone(&self.home), Some(Arc::clone(&self.group)));
        Some(PendingCommit { partition, number, group, obsolete: Obsolete::default() })
    }

    /// Returns the commit of a vnode's last change if it may not be durable, and clients wait for such commits.
    pub(crate) fn unsynced_commit(&self, vnode: VnodeId) -> Option<PendingCommit> {
        let number = self.home.recent.unsynced(self.group.id, vnode)?;
        let (partition, group) = (Arc::clone(&self.home), Some(Arc::clone(&self.group)));
        Some(PendingCommit { partition, number, group, obsolete: Obsolete::default() })
    }

    /// Pins a host in the durable list of the partition while a promise to it is being made, if it is there. Does not wait.
    /// Costs one load if the partition has no list.
    pub fn try_pin_host(&self, promisee: impl FnOnce() -> Promisee) -> Option<HostPin<'_>> {
        let Some(limits) = self.home.limits.get() else { return Some(HostPin::unneeded()) };
        limits.hosts.try_pin(&promisee(), self.home.recent.durable()).map(HostPin::of)
    }

    /// Returns whether a change of this vnode may be shown now.
    pub(crate) fn is_durable(&self, vnode: VnodeId) -> bool {
        self.home.recent.unsynced(self.group.id, vnode).is_none()
    }

    /// Records the commit of a change to these vnodes before the change can be read. Call this while holding
    /// the group's `publish`.
    pub(crate) fn note_commit(&self, number: CommitNumber, vnodes: impl Iterator<Item = VnodeId>) {
        self.newest_commit.fetch_max(number.0, Ordering::Release);
        if self.shared.options.durability.waits_for_metadata() {
            self.home.recent.note(self.group.id, vnodes, number);
        }
    }

    pub(crate) fn directory_vnode(&self, fid: Fid) -> Result<Vnode, VolumeError> {
        let vnode = self.vnode(fid)?;
        if vnode.status.is_directory() { Ok(vnode) } else { Err(VolumeError::NotDirectory) }
    }

    pub(crate) fn vnode_by_number(&self, number: VnodeId) -> Result<Option<Vnode>, VolumeError> {
        if let Some(vnode) = self.shared.caches.vnode(self.instance(), number) {
            return Ok(Some(vnode));
        }
        let view = self.view();
        let prefix = keys::vnode(self.group.id, number);
        let Some((born, value)) = epochs::get(self.meta(), families::VNODES, &prefix, &view.read_view)?
        else {
            return Ok(None);
        };
        let vnode = codec::get_vnode(number, &value);
        let mut vnode = vnode.ok_or_else(|| damage(families::VNODES, &prefix, "the vnode"))?;
        view.read_view.lift(&mut vnode.status, born);
        self.shared.caches.put_vnode(view.instance, vnode.clone());
        Ok(Some(vnode))
    }

    /// Returns the blob of a directory.
    pub(crate) fn directory(&self, vnode: &Vnode) -> Result<Arc<RwLock<DirectoryBlob>>, VolumeError> {
        let (view, number) = (self.view(), vnode.status.vnode);
        if let Some(blob) = self.shared.caches.directory(view.instance, number) {
            return Ok(blob);
        }
        let blob = Arc::new(RwLock::new(self.load_directory(vnode, &view.read_view)?));
        self.shared.caches.put_directory(view.instance, number, Arc::clone(&blob));
        Ok(blob)
    }

    fn load_directory(&self, vnode: &Vnode, read_view: &ReadView) -> Result<DirectoryBlob, VolumeError> {
        let (from, to) = keys::entry_range(self.group.id, vnode.status.vnode);
        let mut entries = Vec::new();
        let mut is_damaged = false;
        epochs::scan(self.meta(), families::ENTRIES, (&from, &to), read_view, &mut |prefix, value| {
            let placed =
                keys::name_of(prefix).zip(codec::get_entry(value)).map(|(name, entry)| PlacedEntry {
                    name: name.to_vec(),
                    target: entry.target,
                    slot: entry.slot,
                    sequence: entry.sequence,
                });
            is_damaged |= placed.is_none();
            entries.extend(placed);
            ControlFlow::Continue(())
        })?;
        let pages = vnode.status.length as usize / PAGE_BYTES;
        if is_damaged {
            return Err(damage(families::ENTRIES, &from, "the directory's entries"));
        }
        let directory = vnode.status.vnode;
        DirectoryBlob::rebuild(pages, entries).map_err(|error| VolumeError::Directory { directory, error })
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.shared.caches.bury(self.view().instance);
    }
}

/// Checks that `vnode` is the vnode of a FID.
pub(crate) fn expect(vnode: Option<Vnode>, fid: Fid) -> Result<Vnode, VolumeError> {
    let vnode = vnode.filter(|vnode| vnode.status.unique == fid.unique);
    vnode.ok_or(VolumeError::NoVnode(fid.vnode, fid.unique))
}

fn keep_fixed_fields(new: &mut VolumeHeader, old: &VolumeHeader) {
    new.id = old.id;
    new.kind = old.kind;
    new.parent = old.parent;
    new.snapshot.clone_from(&old.snapshot);
    new.file_count = old.file_count;
    new.directory_count = old.directory_count;
    new.used_kib = old.used_kib;
    new.next_unique = old.next_unique;
    for message in [&mut new.offline_message, &mut new.message_of_the_day] {
        // In a dump, they end with a NUL.
        let end = message.iter().position(|&byte| byte == 0).unwrap_or(MESSAGE_BYTES_MAX);
        message.truncate(end.min(MESSAGE_BYTES_MAX));
    }
}
