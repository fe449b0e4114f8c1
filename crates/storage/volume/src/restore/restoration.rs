//! Builds new contents for a volume next to the old ones, and takes them into use atomically.
//!
//! The new records are in a new group, or laid over existing ones, see `overlaying.rs` and `continuing.rs`. A
//! job to purge them is stored before anything else, and deleted in the batch that makes the volume use them.
//! Until then the purger is kept away only while the [`Restoration`] exists. So if it ends early, even by a
//! crash, the volume is unchanged.

use crate::core::appenders::Gathering;
use crate::core::replacement::{NewContents, put_job};
use crate::core::shared::Partition;
use crate::core::volume::Volume;
use crate::core::volumes::Volumes;
use crate::dedup::{Changes, Look, Offers, Outcome};
use crate::interface::error::damage;
use crate::interface::source::{DataSource, receive_pieces};
use crate::read::reader::FileReader;
use crate::restore::continuation;
use crate::restore::overlay::{self, Base};
use crate::restore::receipts::{Noted, Received};
use crate::{FileKind, NewVolume, VnodeStatus, VolumeError, VolumeHeader};
use afs_format::acl::Acl;
use afs_format::directory::DirectoryBlob;
use base::limits::PATH_BYTES_MAX;
use base::{Fid, UnixTime, VnodeId, VolumeId};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, EncodedChunk, Family, Import};
use volume_records::codec::{self, Counters, Entry, Extent, Job, StoredHeader, Vnode};
use volume_records::totals::{OwnSums, Unfolded};
use volume_records::{Past, ReadView, epochs, families, keys, quota};

/// Bytes of records committed together.
const BATCH_BYTES: usize = 4 << 20;

/// Highest vnode number that is accepted.
const VNODE_MAX: u32 = i32::MAX as u32;

/// Vnodes that [`Restoration::keep_all`] processes in one step.
const STEP_VNODES: usize = 1000;

/// Facts about a vnode that was added.
struct Known {
    unique: u32,
    /// Parent directory according to its status.
    parent: u32,
    links: u32,
    /// Number of names found; for a directory, 2 plus one for each subdirectory.
    names: u32,
    is_named: bool,
}

/// New contents of a volume that are not yet in use. Dropping it leaves the volume unchanged.
pub struct Restoration {
    pub(crate) target: Arc<Volume>,
    pub(crate) group: u64,
    /// Epoch in which the new records are born.
    epoch: u64,
    /// The contents they are laid over, unless they are built in a new group.
    pub(crate) base: Option<Base>,
    /// Whether the old extents of the current file had another chunk size and were deleted.
    pub(crate) cut_otherwise: bool,
    batch: Batch,
    batch_bytes: usize,
    has_chunks: bool,
    /// Chunks of the latest files, with the keys of their extents and their lengths.
    gathering: Gathering<(keys::Prefix, u32)>,
    /// Rows that the batch refers to.
    sharing: Changes,
    offers: Offers,
    /// Files that were only partly added.
    unfinished: HashSet<u32>,
    vnodes: HashMap<u32, Known>,
    /// Vnodes whose parent directory had not been added yet.
    unresolved: Vec<VnodeId>,
    used_kib: u64,
    data_version_max: u64,
    sums: OwnSums,
    /// Whether clients cannot have seen the replaced contents, so that their numbers may be allocated again.
    pub(crate) is_unseen: bool,
    /// The history of a target that only mirrors another volume; `None` once a vnode was added that does not
    /// continue it.
    continued: Option<Past>,
    /// Set if received data is kept when the restoration is interrupted.
    pub(crate) noted: Option<Noted>,
    /// Chunks of another partition that are taken over.
    pub(crate) import: Option<Import>,
}

impl Volumes {
    /// Creates an independent volume with the contents of another one on the same partition, which should not
    /// change meanwhile. `header` returns the new header; counts in it are recomputed. All contents are
    /// copied. Until that is done the volume exists as specified by `new`, empty.
    ///
    /// # Errors
    /// `NoVolume`, `VolumeExists`, `Store`, `PartitionFull`; the new volume does not exist then.
    pub fn copy_volume(
        &self,
        source: VolumeId,
        new: &NewVolume,
        header: impl FnOnce(VolumeHeader) -> VolumeHeader,
    ) -> Result<Arc<Volume>, VolumeError> {
        let source = self.get_any_state(source)?;
        self.create(source.partition(), new)?;
        let copied = self.fill(&source, new, header(source.header()));
        if copied.is_err() {
            self.delete(new.id)?;
        }
        copied
    }

    fn fill(
        &self,
        source: &Arc<Volume>,
        new: &NewVolume,
        header: VolumeHeader,
    ) -> Result<Arc<Volume>, VolumeError> {
        let mut copy = self.restore(new.id)?;
        copy.take_over_all(source)?;
        copy.finish(self, header, new.now)
    }

    /// Starts building new contents for a volume. Current contents are carried over only by
    /// [`Restoration::keep`].
    pub fn restore(&self, volume: VolumeId) -> Result<Restoration, VolumeError> {
        self.begin_restoration(volume, None, None)
    }

    /// Starts a restoration; with `noted` it keeps a receipt, and resumes from `received` data if possible.
    pub(crate) fn begin_restoration(
        &self,
        volume: VolumeId,
        noted: Option<Noted>,
        received: Option<Received>,
    ) -> Result<Restoration, VolumeError> {
        let target = self.get_any_state(volume)?;
        let mut noted = match overlay::begin(&target, noted, received.as_ref())? {
            ControlFlow::Break(restoration) => return Ok(restoration),
            ControlFlow::Continue(noted) => noted,
        };
        if let Some(received) = received
            && let Some(fresh) = noted.take()
        {
            noted = match continuation::begin_beside(&target, received, fresh)? {
                ControlFlow::Break(restoration) => return Ok(restoration),
                ControlFlow::Continue(noted) => Some(noted),
            };
        }
        let home = Arc::clone(&target.home);
        let registry = home.registry.lock();
        let mut batch = Batch::new();
        let group = home.new_ids(&mut batch, 1)?;
        put_job(&mut batch, &Job::Group { group });
        home.stage(group);
        let epoch = keys::FIRST_EPOCH;
        let mut restoration = Restoration::new(target, group, epoch, None);
        restoration.noted = noted.map(|noted| noted.begin(&mut batch, group, epoch, None));
        home.handle.meta.commit(batch)?;
        drop(registry);
        Ok(restoration)
    }
}

impl Restoration {
    pub(crate) fn new(target: Arc<Volume>, group: u64, epoch: u64, base: Option<Base>) -> Restoration {
        let (header, counters) = (target.header(), target.counters());
        let is_mirror = header.restored_at == Some(counters.changes);
        let continued = Past::of(&header, &counters).filter(|_| is_mirror);
        Restoration {
            target,
            group,
            epoch,
            base,
            cut_otherwise: false,
            batch: Batch::new(),
            batch_bytes: 0,
            has_chunks: false,
            gathering: Gathering::default(),
            sharing: Changes::default(),
            offers: Offers::default(),
            unfinished: HashSet::new(),
            vnodes: HashMap::new(),
            unresolved: Vec::new(),
            used_kib: 0,
            data_version_max: 0,
            sums: OwnSums::default(),
            is_unseen: false,
            continued,
            noted: None,
            import: None,
        }
    }

    /// Returns the volume that gets the contents, in its current state.
    pub fn target(&self) -> &Arc<Volume> {
        &self.target
    }

    pub(crate) fn home(&self) -> &Partition {
        &self.target.home
    }

    /// Adds a directory. The length and the parent's uniquifier in `status` are recomputed.
    ///
    /// # Errors
    /// `Invalid` (not a directory's number, a number already added, no entry for itself or its parent),
    /// `Store`.
    pub fn directory(
        &mut self,
        status: VnodeStatus,
        acl: Acl,
        blob: &DirectoryBlob,
    ) -> Result<(), VolumeError> {
        let status = VnodeStatus { kind: FileKind::Directory, length: blob.length_bytes(), ..status };
        if blob.placed_entries().iter().any(|placed| placed.sequence > status.data_version) {
            return Err(unsound(status.vnode, "a data version below that of an entry"));
        }
        if [b".", &b".."[..]].iter().any(|name| blob.lookup(name).is_none()) {
            return Err(unsound(status.vnode, "a directory without an entry for itself or its parent"));
        }
        if self.base.is_some() {
            self.overlay_entries(status.vnode, blob)?;
            return self.vnode(status, Some(Arc::new(acl)));
        }
        for placed in blob.placed_entries() {
            let entry = Entry { target: placed.target, slot: placed.slot, sequence: placed.sequence };
            let key = keys::entry(self.group, status.vnode, &placed.name);
            self.put(families::ENTRIES, &key, codec::put_entry(&entry))?;
        }
        self.vnode(status, Some(Arc::new(acl)))
    }

    /// Adds a file or symbolic link of `status.length` bytes, which `source` provides.
    ///
    /// # Errors
    /// `Unsound` (not a file's number, or a number already added), `NameTooLong` (a link), `PartitionFull`,
    /// `Transfer` (the error of `source`, or RXGEN_SS_UNMARSHAL if it ended early), `Store`.
    pub fn file(&mut self, status: VnodeStatus, source: &mut dyn DataSource) -> Result<(), VolumeError> {
        let is_link = status.kind == FileKind::SymbolicLink;
        if is_link && status.length > PATH_BYTES_MAX as u64 {
            return Err(VolumeError::NameTooLong { got: status.length as usize });
        }
        // Each chunk may be written only once.
        let VnodeId(number) = status.vnode;
        if self.vnodes.contains_key(&number) || !self.unfinished.insert(number) {
            return Err(unsound(status.vnode, "a vnode comes twice"));
        }
        let shift = self.target.shared.options.chunk_shift;
        let file = keys::FileKey { group: self.group, vnode: status.vnode, unique: status.unique };
        self.begin_overlaid_file(&status, shift)?;
        let (mut at, mut index) = (0, 0);
        while at < status.length {
            let length = (status.length - at).min(1 << shift) as usize;
            match source.stored(length).map_err(VolumeError::Transfer)? {
                Some(chunk) if !is_link => self.take_chunk(&file.extent(index), length as u32, chunk)?,
                Some(_) => return Err(unsound(status.vnode, "a symbolic link in a chunk")),
                None => self.chunk(file, index, &receive_pieces(length, source)?, is_link)?,
            }
            let step = self.target.shared.options.received_step_bytes;
            if self.noted.as_mut().is_some_and(|noted| noted.count(length as u64, step)) {
                self.checkpoint()?;
            }
            at += length as u64;
            index += 1;
        }
        self.end_overlaid_file(file, index)?;
        self.vnode(status, None)?;
        self.unfinished.remove(&number);
        Ok(())
    }

    /// Stores a chunk of a file, or gathers it with those of other files: call [`Restoration::append_gathered`]
    /// before anything relies on them.
    fn chunk(
        &mut self,
        file: keys::FileKey,
        index: u64,
        pieces: &[Bytes],
        is_link: bool,
    ) -> Result<(), VolumeError> {
        let key = file.extent(index);
        let is_hole = !is_link && pieces.iter().all(|piece| piece.iter().all(|&byte| byte == 0));
        if self.is_below(&key, (!is_hole).then_some(pieces))? || is_hole {
            return Ok(());
        }
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let options = &self.target.shared.options;
        if is_link || length <= options.inline_bytes_max && length < 1 << options.chunk_shift {
            return self.put_extent(&key, &Extent::Inline(pieces.concat().into()));
        }
        if (self.home().handle.space)().free_kib < (length as u64).div_ceil(1024) {
            return Err(VolumeError::PartitionFull);
        }
        if self.target.deduplicates() {
            // Not gathered, because offers live until the next flush.
            let target = Arc::clone(&self.target);
            let look =
                self.offers.look(&target.home.handle, &target.home.sharing, self.group, pieces, None)?;
            if let Look::Append(row, _) = look {
                self.offers.append(row, &*target.home.handle.chunks, pieces, target.compression())?;
            }
            if let Look::Shared(extent) | Look::Append(_, extent) = look {
                return self.put_extent(&key, &extent);
            }
        }
        let chunk = EncodedChunk::new(file.owner(index), pieces, self.target.compression())?;
        self.gathering.add((key, length as u32), chunk);
        if self.gathering.is_enough() { self.append_gathered() } else { Ok(()) }
    }

    /// Appends the gathered chunks and writes their extents.
    pub(crate) fn append_gathered(&mut self) -> Result<(), VolumeError> {
        let (extents, new) = self.gathering.take();
        if new.is_empty() {
            return Ok(());
        }
        let appended = self.home().handle.chunks.append_all(new);
        if let (Some(noted), Err(_)) = (&mut self.noted, &appended) {
            // Vnodes of files may have been written that need these chunks.
            noted.set_lost();
        }
        let addresses = appended?;
        self.has_chunks = true;
        for ((key, length), address) in extents.into_iter().zip(addresses) {
            self.put_extent(&key, &Extent::Chunk { address, length })?;
        }
        Ok(())
    }

    pub(crate) fn put_extent(&mut self, key: &[u8], extent: &Extent) -> Result<(), VolumeError> {
        let value = self.home().extent_record(key, extent)?;
        if let Extent::Shared { row, .. } = extent {
            self.sharing.add(*row);
        }
        self.put_as_it_is(families::EXTENTS, key, value)
    }

    fn vnode(&mut self, status: VnodeStatus, acl: Option<Arc<Acl>>) -> Result<(), VolumeError> {
        let status = self.note(status, acl.is_some())?;
        let vnode = Vnode { status, chunk_shift: self.target.shared.options.chunk_shift, acl };
        self.put(families::VNODES, &keys::vnode(self.group, status.vnode), codec::put_vnode(&vnode))
    }

    /// Registers a vnode; returns its status with the uniquifier of its parent, if that is known.
    pub(crate) fn note(
        &mut self,
        mut status: VnodeStatus,
        is_directory: bool,
    ) -> Result<VnodeStatus, VolumeError> {
        let VnodeId(number) = status.vnode;
        let is_odd = number % 2 == 1;
        if is_odd != is_directory || number == 0 || number > VNODE_MAX || status.unique == 0 {
            return Err(unsound(status.vnode, "a vnode's number or kind"));
        }
        self.continued = self.continued.filter(|past| self.target.is_continued_by(past, &status));
        status.parent_unique = 0;
        if status.parent != VnodeId(0) {
            match self.vnodes.get(&status.parent.0) {
                Some(parent) => status.parent_unique = parent.unique,
                None => self.unresolved.push(status.vnode),
            }
        }
        let names = if is_odd { 2 } else { 0 };
        let VnodeStatus { unique, links, parent: VnodeId(parent), .. } = status;
        let known = Known { unique, parent, links, names, is_named: false };
        if self.vnodes.insert(number, known).is_some() {
            return Err(unsound(status.vnode, "a vnode comes twice"));
        }
        self.used_kib += quota::blocks(status.length);
        self.data_version_max = self.data_version_max.max(status.data_version);
        self.sums.add(&status);
        Ok(status)
    }

    /// Returns the uniquifier of the vnode with this number in the new contents.
    pub(crate) fn unique_of(&self, vnode: VnodeId) -> Option<u32> {
        self.vnodes.get(&vnode.0).map(|known| known.unique)
    }

    pub(crate) fn put_vnode(&mut self, vnode: &Vnode) -> Result<(), VolumeError> {
        let prefix = keys::vnode(self.group, vnode.status.vnode);
        self.put_as_it_is(families::VNODES, &prefix, codec::put_vnode(vnode))
    }

    /// Writes a record, unless the base already has the same value. Each record is written once.
    fn put(&mut self, family: Family, prefix: &[u8], value: Vec<u8>) -> Result<(), VolumeError> {
        let is_below = self.below(family, prefix)?.is_some_and(|below| below == value);
        if is_below { Ok(()) } else { self.put_as_it_is(family, prefix, value) }
    }

    pub(crate) fn put_as_it_is(
        &mut self,
        family: Family,
        prefix: &[u8],
        value: Vec<u8>,
    ) -> Result<(), VolumeError> {
        self.batch_bytes += prefix.len() + value.len();
        self.batch.put(family, keys::versioned(prefix, self.epoch), value);
        if self.batch_bytes < BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    pub(crate) fn flush(&mut self) -> Result<(), VolumeError> {
        let flushed = self.flush_batch();
        if let (Some(noted), Err(_)) = (&mut self.noted, &flushed) {
            noted.set_lost();
        }
        flushed
    }

    fn flush_batch(&mut self) -> Result<(), VolumeError> {
        self.batch_bytes = 0;
        let (mut batch, sharing) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.sharing));
        if batch.is_empty() {
            return Ok(());
        }
        let target = Arc::clone(&self.target);
        let chunks = &*target.home.handle.chunks;
        let mut has_chunks = std::mem::take(&mut self.has_chunks);
        loop {
            if has_chunks || self.offers.has_own() {
                chunks.sync()?;
            }
            has_chunks = false;
            match target.home.commit(&mut batch, &sharing, &[&self.offers])? {
                Outcome::Missing(missing) => self.offers.rescue(chunks, &missing, target.compression())?,
                Outcome::Done(done) => {
                    self.offers.settle(&done.used);
                    self.offers.clear(chunks);
                    if !done.obsolete.is_empty() {
                        // Damaged chunks that were replaced.
                        target.home.handle.meta.sync(done.number)?;
                        target.home.sharing.pins.release(done.obsolete);
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Carries over a vnode in the volume's current state.
    pub fn keep(&mut self, vnode: VnodeId, unique: u32) -> Result<(), VolumeError> {
        if self.base.as_ref().is_some_and(|base| base.shows(vnode)) {
            return self.keep_below(vnode, unique);
        }
        self.take_over(&Arc::clone(&self.target), vnode, unique)
    }

    /// Carries over a vnode of another volume.
    pub(crate) fn take_over(
        &mut self,
        volume: &Arc<Volume>,
        vnode: VnodeId,
        unique: u32,
    ) -> Result<(), VolumeError> {
        let fid = Fid { volume: volume.id(), vnode, unique };
        if vnode.0 % 2 == 1 {
            let mut reader: FileReader = volume.reader(fid, 0, u64::MAX)?;
            let (status, acl) = volume.status_and_acl(fid)?;
            let blob = reader.directory()?;
            return self.directory(status, Acl::clone(&acl), &blob);
        }
        self.take_over_file(volume, fid, &|_| {})
    }

    /// Carries over a file or symbolic link of a volume, with a changed status.
    pub(crate) fn take_over_file(
        &mut self,
        volume: &Arc<Volume>,
        fid: Fid,
        change: &dyn Fn(&mut VnodeStatus),
    ) -> Result<(), VolumeError> {
        let mut reader: FileReader = volume.reader(fid, 0, u64::MAX)?;
        let mut status = *reader.status();
        change(&mut status);
        let mut pieces = Vec::new().into_iter();
        self.file(status, &mut |most: usize| {
            loop {
                if let Some(piece) = pieces.next() {
                    return Ok(piece);
                }
                pieces = reader.next(most)?.into_iter();
                if pieces.len() == 0 {
                    return Ok(Bytes::new());
                }
            }
        })
    }

    /// Carries over all vnodes.
    pub fn keep_all(&mut self) -> Result<(), VolumeError> {
        self.take_over_all(&Arc::clone(&self.target))
    }

    /// Carries over all vnodes of a volume, which should not change meanwhile.
    pub(crate) fn take_over_all(&mut self, source: &Arc<Volume>) -> Result<(), VolumeError> {
        let mut from = VnodeId(0);
        loop {
            let mut found = Vec::new();
            source.vnodes(from, &mut |status| {
                found.push((status.vnode, status.unique));
                found.len() < STEP_VNODES
            })?;
            let Some(&(VnodeId(last), _)) = found.last() else { return Ok(()) };
            for (vnode, unique) in found {
                self.take_over(source, vnode, unique)?;
            }
            from = VnodeId(last + 1);
        }
    }

    /// Returns the number of vnodes added.
    pub fn vnodes(&self) -> u64 {
        self.vnodes.len() as u64
    }

    /// Checks that the contents are consistent, and takes them into use with this header, durably. Counts in
    /// the header are recomputed. Contents of a read-write volume continue above what clients have seen of
    /// it, as if changed at `now`, unless they continue its history. Holders of the old volume get
    /// `NoVolume`.
    ///
    /// # Errors
    /// `Unsound` (no root directory, a name without a vnode, a vnode without a name or in another directory
    /// than its status says, a wrong link count, a cycle), `NoVolume` (deleted or restored meanwhile),
    /// `Store`.
    pub fn finish(
        mut self,
        volumes: &Volumes,
        mut header: VolumeHeader,
        now: UnixTime,
    ) -> Result<Arc<Volume>, VolumeError> {
        self.check_import()?;
        self.append_gathered()?;
        self.resolve()?;
        self.delete_missing()?;
        self.flush()?;
        self.check_names()?;
        self.put_totals()?;
        let highest = |odd: u32| self.vnodes.keys().filter(move |&&vnode| vnode % 2 == odd).max();
        let unique = self.vnodes.values().map(|known| known.unique).max().unwrap_or(1);
        header.used_kib = self.used_kib;
        header.file_count = self.vnodes.len() as u64 - 1;
        header.directory_count = self.vnodes.keys().filter(|&&vnode| vnode % 2 == 1).count() as u64 - 1;
        header.next_unique = header.next_unique.max(unique.checked_add(1).unwrap_or(2)).max(2);
        let old = self.target.counters();
        let counters = Counters {
            used_kib: header.used_kib,
            file_count: header.file_count,
            directory_count: header.directory_count,
            next_unique: header.next_unique,
            next_file: highest(0).map_or(2, |vnode| vnode + 2),
            next_directory: highest(1).map_or(3, |vnode| vnode + 2),
            updated: header.updated,
            update_counter: header.update_counter,
            accessed: header.accessed,
            day_use: header.day_use,
            day_use_date: header.day_use_date,
            week_use: header.week_use,
            changes: old.changes + 1,
            version_max: self.data_version_max,
            unfolded: Some(Unfolded::default()),
        };
        let stored = StoredHeader { group: self.group, read_view: ReadView::up_to(self.epoch), header };
        let mut batch = self.forgetting();
        let leftover = self.base.as_ref().and_then(Base::leftover);
        if let Some(job) = &leftover {
            put_job(&mut batch, job);
        }
        let (replaces_unseen, continued) = (self.is_unseen, self.continued);
        let new = NewContents { stored, counters, now, replaces_unseen, continued };
        if self.base.is_some() && leftover.is_none() {
            volumes.replace_below(&self.target, new, batch)
        } else {
            volumes.replace(&self.target, new, batch)
        }
    }

    fn put_totals(&mut self) -> Result<(), VolumeError> {
        let mut sums = std::mem::take(&mut self.sums);
        for (directory, totals) in sums.totals() {
            self.put(families::TOTALS, &keys::vnode(self.group, directory), codec::put_totals(&totals))?;
        }
        self.flush()
    }

    /// Fills in the uniquifiers of directories that were added after their entries.
    fn resolve(&mut self) -> Result<(), VolumeError> {
        let unresolved = std::mem::take(&mut self.unresolved);
        if !unresolved.is_empty() {
            self.flush()?;
        }
        for number in unresolved {
            let prefix = keys::vnode(self.group, number);
            let read_view = ReadView::up_to(self.epoch);
            let found = epochs::get(&*self.home().handle.meta, families::VNODES, &prefix, &read_view)?;
            let vnode = found.and_then(|(_, value)| codec::get_vnode(number, &value));
            let mut vnode = vnode.ok_or_else(|| damage(families::VNODES, &prefix, "the vnode"))?;
            let parent = self.vnodes.get(&vnode.status.parent.0).filter(|_| vnode.status.parent.0 % 2 == 1);
            let parent = parent.ok_or_else(|| unsound(number, "a vnode in no directory"))?;
            if vnode.status.parent_unique != parent.unique {
                vnode.status.parent_unique = parent.unique;
                self.put_vnode(&vnode)?;
            }
        }
        Ok(())
    }

    /// Checks that every name refers to a vnode, every vnode has its names, and all directories are below the
    /// root.
    fn check_names(&mut self) -> Result<(), VolumeError> {
        let (from, to) = keys::group_range(self.group);
        let mut wrong = None;
        let vnodes = &mut self.vnodes;
        let meta = &*self.target.home.handle.meta;
        let scanned = (&from[..], &to[..]);
        let read_view = ReadView::up_to(self.epoch);
        epochs::scan(meta, families::ENTRIES, scanned, &read_view, &mut |prefix, value| {
            let found = keys::entry_of(prefix).zip(codec::get_entry(value));
            let Some(((directory, name), entry)) = found else {
                wrong = Some(damage(families::ENTRIES, prefix, "a directory's entry"));
                return ControlFlow::Break(());
            };
            let place = || format!("directory vnode {}, entry `{}`", directory.0, name.escape_ascii());
            let counted = count_name(vnodes, directory, name, &entry);
            wrong = counted.map(|what| VolumeError::Unsound { place: place(), what });
            if wrong.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let root = Fid::root(self.target.id());
        if let Some(error) = wrong {
            return Err(error);
        }
        if vnodes.get(&root.vnode.0).is_none_or(|known| known.unique != root.unique) {
            return Err(unsound(root.vnode, "no root directory"));
        }
        if let Some(directory) = outside_tree(vnodes, root.vnode.0) {
            return Err(unsound(
                VnodeId(directory),
                "the parent directories do not lead to the root \
                directory",
            ));
        }
        vnodes.iter().try_for_each(|(&number, known)| {
            let is_named = known.is_named || number == root.vnode.0;
            // Dumps contain only the lowest 16 bits of the link count.
            let has_links = known.links & 0xffff == known.names & 0xffff;
            let what = if is_named { "a wrong count of links" } else { "a vnode without a name" };
            if is_named && has_links { Ok(()) } else { Err(unsound(VnodeId(number), what)) }
        })
    }
}

/// Returns the error for a vnode that is inconsistent with the others.
fn unsound(vnode: VnodeId, what: &'static str) -> VolumeError {
    VolumeError::Unsound { place: format!("vnode {}", vnode.0), what }
}

/// Counts one entry; returns what is wrong with it, if anything.
fn count_name(
    vnodes: &mut HashMap<u32, Known>,
    directory: VnodeId,
    name: &[u8],
    entry: &Entry,
) -> Option<&'static str> {
    let VnodeId(target) = entry.target.vnode;
    let Some(known) = vnodes.get(&target).filter(|known| known.unique == entry.target.unique) else {
        return Some("a name that refers to no vnode");
    };
    let is_in_place = known.parent == directory.0;
    if matches!(name, b"." | b"..") {
        let above = vnodes.get(&directory.0).map(|known| known.parent).filter(|&parent| parent != 0);
        let wanted = if name == b"." { directory.0 } else { above.unwrap_or(directory.0) };
        return (target != wanted).then_some("a directory's entry for itself or its parent");
    }
    if !is_in_place {
        return Some("a vnode whose parent is another directory");
    }
    if target % 2 == 1 && known.is_named {
        return Some("a directory with two names");
    }
    if let Some(known) = vnodes.get_mut(&target) {
        known.is_named = true;
        known.names += u32::from(target % 2 == 0);
    }
    if target % 2 == 1
        && let Some(parent) = vnodes.get_mut(&directory.0)
    {
        parent.names += 1;
    }
    None
}

/// Returns a directory whose chain of parents does not end at the root, if there is one.
fn outside_tree(vnodes: &HashMap<u32, Known>, root: u32) -> Option<u32> {
    let mut reached = HashSet::from([root]);
    for &directory in vnodes.keys().filter(|&&vnode| vnode % 2 == 1) {
        let (mut way, mut at) = (Vec::new(), directory);
        while !reached.contains(&at) {
            if way.len() > vnodes.len() {
                return Some(directory);
            }
            way.push(at);
            let Some(known) = vnodes.get(&at) else { return Some(directory) };
            at = known.parent;
        }
        reached.extend(way);
    }
    None
}

impl Drop for Restoration {
    fn drop(&mut self) {
        // Records must name the chunks that were stored, so that the purger finds them.
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "the data of an unfinished restore stays until it is found to be \
                unreferenced");
        }
        let target = Arc::clone(&self.target);
        self.offers.clear(&*target.home.handle.chunks);
        self.end_import();
        if self.noted.as_ref().is_some_and(Noted::is_kept) {
            return;
        }
        if let Some(noted) = &self.noted
            && let Err(error) = noted.forget(&target.home)
        {
            tracing::warn!(%error, "received data of a transfer may be kept longer than needed");
        }
        target.home.unstage(self.group);
    }
}
