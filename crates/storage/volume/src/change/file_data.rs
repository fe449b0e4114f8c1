//! StoreData.
//!
//! Data is received from the client without any lock: whole chunks are encoded and appended to the chunk
//! store as they arrive, 1 MiB at a time; at most two partial chunks wait in memory. Then the partial chunks
//! are merged with the file's current data, everything is synced, and only then is the writer lock taken to
//! commit the new extents. If the file's data changed meanwhile, the partial chunks are merged again with the
//! newer data. So a slow client blocks nothing, and of two concurrent stores, the one that ends last wins
//! wherever both wrote.

use crate::change::attributes;
use crate::change::transaction::{Growth, Transaction};
use crate::core::appenders::{Appending, Gathering};
use crate::dedup::{Look, Offers};
use crate::interface::source::{DataSource, Landing, receive_pieces};
use crate::read::reader::{push_zeros, read_extent};
use crate::{
    Acknowledge, Actor, FileKind, Pending, StoreRequest, StoreTerms, VnodeStatus, Volume, VolumeError,
};
use base::Fid;
use base::limits::PATH_BYTES_MAX;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::slice;
use std::sync::Arc;
use store::{ChunkAddress, ChunkOwner, ChunkPlace, Codec, Import, RawChunk, StoreError};
use volume_records::codec::{Extent, Vnode};
use volume_records::keys::{self, FileKey};
use volume_records::quota;
use volume_records::rows::RowKey;

/// New bytes for part of a chunk.
struct Part {
    begin: usize,
    pieces: Vec<Bytes>,
    length: usize,
}

/// Chunks that no metadata names yet; dropping this releases them unless they were committed.
struct Staged<'v> {
    volume: &'v Volume,
    file: FileKey,
    extents: BTreeMap<u64, Extent>,
    /// Chunks that may be shared.
    offers: Offers,
    /// Whole chunks to append together.
    gathering: Gathering<Gathered>,
    coming: VecDeque<Coming>,
    /// Objects that another process has created.
    reserved: Option<Import>,
}

/// Information on a chunk that is not yet in the store.
struct Gathered {
    index: u64,
    length: u32,
    /// Row of a chunk to be shared, whose extent is already known.
    row: Option<RowKey>,
}

/// A chunk that is being appended.
struct Coming {
    chunk: Gathered,
    appending: Appending,
}

impl<'v> Staged<'v> {
    fn new(volume: &'v Volume, vnode: &Vnode) -> Staged<'v> {
        Staged {
            volume,
            file: volume.file_key(vnode),
            extents: BTreeMap::new(),
            offers: Offers::default(),
            gathering: Gathering::default(),
            coming: VecDeque::new(),
            reserved: None,
        }
    }

    /// Stores a chunk. Offers in `beside` belong to the same change.
    fn put(&mut self, index: u64, pieces: &[Bytes], beside: Option<&Offers>) -> Result<(), VolumeError> {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let extent = if length <= self.volume.shared.options.inline_bytes_max {
            Extent::Inline(pieces.concat().into())
        } else {
            self.append(index, pieces, length as u32, beside)?
        };
        self.extents.insert(index, extent);
        Ok(())
    }

    /// Appends a chunk, unless an existing one can be shared.
    fn append(
        &mut self,
        index: u64,
        pieces: &[Bytes],
        length: u32,
        beside: Option<&Offers>,
    ) -> Result<Extent, VolumeError> {
        let (chunks, codec) = (&self.volume.home.handle.chunks, self.volume.compression());
        match self.look(pieces, beside)? {
            Look::Shared(extent) => Ok(extent),
            Look::Append(row, extent) => {
                self.offers.append(row, &**chunks, pieces, codec)?;
                Ok(extent)
            }
            Look::Apart => {
                let address = chunks.append_for(self.file.owner(index), pieces, codec)?;
                Ok(Extent::Chunk { address, length })
            }
        }
    }

    fn look(&mut self, pieces: &[impl AsRef<[u8]>], beside: Option<&Offers>) -> Result<Look, VolumeError> {
        if !self.volume.deduplicates() {
            return Ok(Look::Apart);
        }
        self.offers.look(&self.volume.home.handle, &self.volume.home.sharing, self.file.group, pieces, beside)
    }

    /// Queues a whole chunk, to be stored together with the next ones unless it is the last. Call
    /// [`Staged::collect`] at the end.
    fn put_soon(&mut self, index: u64, contents: RawChunk, is_last: bool) -> Result<(), VolumeError> {
        let length = contents.as_ref().len() as u32;
        let (row, owner) = match self.look(slice::from_ref(&contents), None)? {
            Look::Shared(extent) => {
                self.extents.insert(index, extent);
                return Ok(());
            }
            Look::Append(row, extent) => {
                self.extents.insert(index, extent);
                (Some(row), keys::row_owner(row))
            }
            Look::Apart => (None, self.file.owner(index)),
        };
        let (chunk, codec) = (Gathered { index, length, row }, self.volume.compression());
        if is_slow(codec) && !is_last {
            return self.append_meanwhile(chunk, owner, contents, codec);
        }
        match contents.encode(owner, codec) {
            Ok(encoded) => self.gathering.add(chunk, encoded),
            Err(error) => return self.appended(vec![chunk], Err(error)),
        }
        if self.gathering.is_enough() { self.append_gathered() } else { Ok(()) }
    }

    /// Takes a whole chunk over that another process has stored.
    fn take(&mut self, index: u64, length: u32, chunk: ChunkPlace) -> Result<(), VolumeError> {
        let reserved = self.reserved.get_or_insert_default();
        let address = self.volume.home.handle.chunks.take_chunk(reserved, chunk)?;
        self.extents.insert(index, Extent::Chunk { address, length });
        Ok(())
    }

    /// Encodes and appends a chunk in the background while the next ones arrive.
    fn append_meanwhile(
        &mut self,
        chunk: Gathered,
        owner: ChunkOwner,
        contents: RawChunk,
        codec: Codec,
    ) -> Result<(), VolumeError> {
        let appenders = &self.volume.shared.appenders;
        while self.coming.len() >= appenders.concurrency() {
            self.collect_one()?;
        }
        let appending = appenders.append(&self.volume.home.handle.chunks, owner, contents, codec);
        self.coming.push_back(Coming { chunk, appending });
        Ok(())
    }

    /// Appends the gathered chunks.
    fn append_gathered(&mut self) -> Result<(), VolumeError> {
        let (chunks, new) = self.gathering.take();
        let appended = self.volume.home.handle.chunks.append_all(new);
        self.appended(chunks, appended)
    }

    fn appended(
        &mut self,
        chunks: Vec<Gathered>,
        appended: Result<Vec<ChunkAddress>, StoreError>,
    ) -> Result<(), VolumeError> {
        for (number, Gathered { index, length, row }) in chunks.into_iter().enumerate() {
            let address = appended.as_ref().ok().and_then(|addresses| addresses.get(number)).copied();
            match (row, address) {
                (Some(row), address) => self.offers.appended(row, address),
                (None, Some(address)) => _ = self.extents.insert(index, Extent::Chunk { address, length }),
                (None, None) => {}
            }
        }
        appended.map(drop).map_err(VolumeError::from)
    }

    fn collect_one(&mut self) -> Result<(), VolumeError> {
        let Some(Coming { chunk, appending }) = self.coming.pop_front() else { return Ok(()) };
        self.appended(vec![chunk], appending.wait().map(|address| vec![address]))
    }

    fn collect(&mut self) -> Result<(), VolumeError> {
        self.append_gathered()?;
        while !self.coming.is_empty() {
            self.collect_one()?;
        }
        Ok(())
    }

    /// Records that metadata now names all extents and, of the offered chunks, those in `used`.
    fn taken(&mut self, used: &[ChunkAddress]) {
        self.extents.clear();
        self.offers.settle(used);
    }

    fn has_chunks(&self) -> bool {
        self.offers.has_own() || self.extents.values().any(|extent| extent.address().is_some())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        while !self.coming.is_empty() {
            // Chunks that were not appended need no release.
            _ = self.collect_one();
        }
        let release = |address: ChunkAddress| self.volume.home.handle.chunks.release(address);
        self.extents.values().filter_map(Extent::address).for_each(release);
        if let Some(reserved) = self.reserved.take() {
            self.volume.home.handle.chunks.end_import(reserved);
        }
        self.offers.clear(&*self.volume.home.handle.chunks);
    }
}

/// Objects that another process may create for a store. Dropping this releases those from which no chunk was taken.
pub struct ClaimedObjects {
    volume: Arc<Volume>,
    ids: Vec<u64>,
    /// Those that the process has begun to create.
    pub begun: Vec<u64>,
}

impl Drop for ClaimedObjects {
    fn drop(&mut self) {
        self.volume.home.handle.chunks.give_up_objects(&self.ids, &self.begun);
    }
}

/// File lengths before, during and after a store.
#[derive(Clone, Copy)]
struct Lengths {
    old: u64,
    /// Length after the cut.
    cut: u64,
    new: u64,
}

impl Lengths {
    fn of(status: &VnodeStatus, request: &StoreRequest) -> Lengths {
        let old = status.length;
        let cut = old.min(request.file_length);
        Lengths { old, cut, new: cut.max(request.offset + request.length) }
    }
}

impl Volume {
    /// StoreData: reads the data from `source`. All of it becomes visible atomically or, on an error, none.
    /// The data version increases by one.
    ///
    /// # Errors
    /// `NoVnode`, `IsDirectory`, `ReadOnly`, `OverQuota`, `PartitionFull`, `FileTooLarge`, `NameTooLong` (a link), `Transfer` (the
    /// error of `source`, or RXGEN_SS_UNMARSHAL if it ended early), `Store`.
    pub fn store(
        &self,
        by: &impl Acknowledge,
        fid: Fid,
        request: &StoreRequest,
        source: &mut dyn DataSource,
    ) -> Result<VnodeStatus, VolumeError> {
        by.acknowledge(self.store_data(by.actor(), fid, request, source)?)
    }

    fn store_data(
        &self,
        actor: &Actor,
        fid: Fid,
        request: &StoreRequest,
        source: &mut dyn DataSource,
    ) -> Result<Pending<VnodeStatus>, VolumeError> {
        if let Some(earlier) = self.earlier(actor)? {
            source.skip(request.length).map_err(VolumeError::Transfer)?;
            return Ok(earlier);
        }
        request.check_range()?;
        let vnode = self.storable(fid, request)?;
        let (mut whole, parts) = self.receive(&vnode, request, source)?;
        loop {
            let vnode = self.storable(fid, request)?;
            let mut merged = self.merge(&vnode, request, &parts, &whole)?;
            if whole.has_chunks() || merged.has_chunks() {
                self.home.handle.chunks.sync()?;
            }
            if let Some(stored) = self.commit_store(actor, &vnode, request, &mut whole, &mut merged)? {
                return Ok(stored);
            }
        }
    }

    /// Returns how another process may store whole chunks of a file for this store; `None` if all data has to be received.
    ///
    /// # Errors
    /// Those of [`Volume::store`] that are known before the data.
    pub fn store_terms(&self, fid: Fid, request: &StoreRequest) -> Result<Option<StoreTerms>, VolumeError> {
        request.check_range()?;
        let vnode = self.storable(fid, request)?;
        let terms = self.home.handle.chunks.object_terms().filter(|_| !self.deduplicates());
        let owner = self.file_key(&vnode).owner(0);
        let (chunk_shift, codec) = (vnode.chunk_shift, self.compression());
        Ok(terms.map(|objects| StoreTerms { objects, chunk_shift, codec, owner }))
    }

    /// Returns ids of objects that another process may create; see [`store::ChunkStore::reserve_objects`].
    ///
    /// # Errors
    /// `Store`.
    pub fn reserve_objects(&self, count: usize) -> Result<Vec<u64>, VolumeError> {
        Ok(self.home.handle.chunks.reserve_objects(count)?)
    }

    /// Keeps ids for a store, until the result is dropped; `None` if one of them is not reserved.
    pub fn claim_objects(self: &Arc<Self>, ids: &[u64]) -> Option<ClaimedObjects> {
        let is_claimed = self.home.handle.chunks.claim_objects(ids);
        let claimed = || ClaimedObjects { volume: Arc::clone(self), ids: ids.to_vec(), begun: Vec::new() };
        is_claimed.then(claimed)
    }

    /// Returns the file if it currently permits the store.
    fn storable(&self, fid: Fid, request: &StoreRequest) -> Result<Vnode, VolumeError> {
        self.check_writable()?;
        let _publish = self.group.publish.read();
        let vnode = self.vnode(fid)?;
        if vnode.status.is_directory() {
            return Err(VolumeError::IsDirectory);
        }
        let lengths = Lengths::of(&vnode.status, request);
        // A volume with a longer link can be neither restored nor moved.
        if vnode.status.kind == FileKind::SymbolicLink && lengths.new > PATH_BYTES_MAX as u64 {
            return Err(VolumeError::NameTooLong { got: lengths.new as usize });
        }
        self.check_growth(self.growth(lengths, request))?;
        Ok(vnode)
    }

    /// Returns the space needed. OpenAFS also requires space for holes; here a hole takes none.
    fn growth(&self, lengths: Lengths, request: &StoreRequest) -> Growth {
        let blocks = quota::blocks(lengths.new).saturating_sub(quota::blocks(lengths.old));
        let data_kib = blocks.min(request.length.div_ceil(1024));
        Growth { blocks, data_kib, spare_kib: self.shared.options.spare_kib }
    }

    /// Receives all data: stores whole chunks and returns partial ones.
    fn receive(
        &self,
        vnode: &Vnode,
        request: &StoreRequest,
        source: &mut dyn DataSource,
    ) -> Result<(Staged<'_>, BTreeMap<u64, Part>), VolumeError> {
        let chunk_bytes = 1u64 << vnode.chunk_shift;
        let mut whole = Staged::new(self, vnode);
        let mut parts = BTreeMap::new();
        let (mut at, end) = (request.offset, request.offset + request.length);
        let mut landing = Landing::new(chunk_bytes as usize);
        while at < end {
            let begin = at % chunk_bytes;
            let length = (chunk_bytes - begin).min(end - at);
            let index = at >> vnode.chunk_shift;
            if length < chunk_bytes {
                let length = length as usize;
                let pieces = receive_pieces(length, source)?;
                parts.insert(index, Part { begin: begin as usize, pieces, length });
            } else if let Some(chunk) = source.stored(length as usize).map_err(VolumeError::Transfer)? {
                whole.take(index, length as u32, chunk)?;
            } else {
                let contents = landing.next((end - at) / chunk_bytes, source)?;
                whole.put_soon(index, contents, at + length == end)?;
            }
            at += length;
        }
        whole.collect()?;
        Ok((whole, parts))
    }

    /// Stores the chunks that combine old and new data: partial ones, and the one in which a cut ends.
    fn merge(
        &self,
        vnode: &Vnode,
        request: &StoreRequest,
        parts: &BTreeMap<u64, Part>,
        whole: &Staged<'_>,
    ) -> Result<Staged<'_>, VolumeError> {
        let lengths = Lengths::of(&vnode.status, request);
        let mut merged = Staged::new(self, vnode);
        for (&index, part) in parts {
            let old = self.old_contents(vnode, index, lengths.cut)?;
            merged.put(index, &merge_part(part, &old), Some(&whole.offers))?;
        }
        let last = lengths.cut >> vnode.chunk_shift;
        let is_cut = lengths.cut < lengths.old && lengths.cut & ((1 << vnode.chunk_shift) - 1) != 0;
        if is_cut && !parts.contains_key(&last) && !whole.extents.contains_key(&last) {
            let old = self.old_contents(vnode, last, lengths.cut)?;
            if !old.is_empty() {
                merged.put(last, &[old], Some(&whole.offers))?;
            }
        }
        Ok(merged)
    }

    /// Returns a chunk's current contents up to `cut`. If the file is changing, they may be from a later
    /// state; the commit detects that.
    fn old_contents(&self, vnode: &Vnode, index: u64, cut: u64) -> Result<Bytes, VolumeError> {
        let pin = self.group.pins.pin();
        let publish = self.group.publish.read();
        let mut found = self.extents(vnode, index, index, 1)?;
        let shared = self.home.resolve(&mut found)?;
        drop(publish);
        let Some((_, extent)) = found.pop() else { return Ok(Bytes::new()) };
        let contents = read_extent(&extent, &*self.home.handle.chunks, self.group.id)?;
        drop((pin, shared));
        let left = cut.saturating_sub(index << vnode.chunk_shift);
        Ok(contents.slice(..contents.len().min(left as usize)))
    }

    /// Commits if the data version is still that of `base`; `None` otherwise.
    fn commit_store(
        &self,
        actor: &Actor,
        base: &Vnode,
        request: &StoreRequest,
        whole: &mut Staged<'_>,
        merged: &mut Staged<'_>,
    ) -> Result<Option<Pending<VnodeStatus>>, VolumeError> {
        let mut transaction = Transaction::begin(self, actor)?;
        let mut vnode = transaction.vnode(base.status.fid(self.id()))?;
        if vnode.status.data_version != base.status.data_version {
            return Ok(None);
        }
        let lengths = Lengths::of(&vnode.status, request);
        transaction.check_growth(self.growth(lengths, request))?;
        self.replace_extents(&mut transaction, &vnode, lengths, [&whole.extents, &merged.extents])?;
        let status = &mut vnode.status;
        status.length = lengths.new;
        status.data_version += 1;
        status.author = actor.user;
        status.client_modified = actor.now;
        attributes::clear_set_id(status, actor);
        attributes::apply(status, actor, &request.set);
        let status = transaction.put(vnode)?;
        transaction.record(&status);
        let committed = match transaction.commit_with(&[&whole.offers, &merged.offers])? {
            Ok(committed) => committed,
            Err(missing) => {
                // Merged chunks are looked up again on the next attempt.
                whole.offers.rescue(&*self.home.handle.chunks, &missing, self.compression())?;
                return Ok(None);
            }
        };
        // From here on metadata names the chunks.
        whole.taken(&committed.used);
        merged.taken(&committed.used);
        Ok(Some(self.pending_data(committed).map(|()| status)))
    }

    /// Writes the new extents and removes those after the cut.
    fn replace_extents(
        &self,
        transaction: &mut Transaction<'_>,
        vnode: &Vnode,
        lengths: Lengths,
        new: [&BTreeMap<u64, Extent>; 2],
    ) -> Result<(), VolumeError> {
        let is_new = |index: &u64| new.iter().any(|extents| extents.contains_key(index));
        if lengths.cut < lengths.old {
            let first = lengths.cut.div_ceil(1 << vnode.chunk_shift);
            for (index, old) in self.extents(vnode, first, u64::MAX, usize::MAX)? {
                if !is_new(&index) {
                    transaction.put_extent(vnode, index, None, Some(&old))?;
                }
            }
        }
        for new in new {
            let old = self.extents_at(vnode, new.keys())?;
            for (&index, extent) in new {
                transaction.put_extent(vnode, index, Some(extent), old.get(&index))?;
            }
        }
        Ok(())
    }

    /// Returns the file's extents at these ascending indices, with one lookup for each consecutive range.
    fn extents_at<'i>(
        &self,
        vnode: &Vnode,
        indexes: impl Iterator<Item = &'i u64>,
    ) -> Result<BTreeMap<u64, Extent>, VolumeError> {
        let mut rows: Vec<(u64, u64)> = Vec::new();
        for &index in indexes {
            match rows.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
                _ => rows.push((index, index)),
            }
        }
        let mut found = BTreeMap::new();
        for (first, last) in rows {
            found.extend(self.extents(vnode, first, last, usize::MAX)?);
        }
        Ok(found)
    }
}

/// Returns whether compression is slow enough to use another thread. For lz4 the handover costs as much as it
/// gains.
fn is_slow(codec: Codec) -> bool {
    matches!(codec, Codec::Zstd(_))
}

/// Returns a chunk's old contents with a part replaced.
fn merge_part(part: &Part, old: &Bytes) -> Vec<Bytes> {
    let end = part.begin + part.length;
    let mut out = Vec::with_capacity(part.pieces.len() + 3);
    let before = old.slice(..old.len().min(part.begin));
    let gap = part.begin - before.len();
    if !before.is_empty() {
        out.push(before);
    }
    push_zeros(&mut out, gap);
    out.extend(part.pieces.iter().cloned());
    if old.len() > end {
        out.push(old.slice(end..));
    }
    out
}
