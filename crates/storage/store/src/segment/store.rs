//! A [`ChunkStore`] in segment files.

use super::accounts::{self, Account, Accounts};
use super::audit::SegmentAudit;
use super::cache::ChunkCache;
use super::codec::{self, Encoded, Stored};
use super::config::SegmentConfig;
use super::files::{Files, Packing};
use super::header::HEADER_BYTES;
use super::reading;
use super::recount::{self, ChunkNames, Recount};
use super::room::{self, Purpose, Room};
use super::statistics::{ChunkStatistics, Counters};
use super::unsynced::Unsynced;
use crate::digest::{Digest, digest};
use crate::group_sync::GroupSync;
use crate::health::Health;
use crate::home::failed;
use crate::{
    CacheStatistics, ChunkAddress, ChunkOwner, ChunkStore, EncodedChunk, FileData, IdAllocator, KeyRing,
    MetaStore, SegmentRecords, SegmentUse, Snapshot, StoreError, gauge,
};
use bytes::Bytes;
use disk::{Disk, File, Space};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use waits::{Lock, LockName};

/// A folder of segment files.
///
/// Call [`FileData::maintain`] every few seconds: it records released chunks and deletes segments in
/// which nothing is live, including the active ones.
pub struct SegmentStore {
    pub(super) files: Files,
    meta: Arc<dyn MetaStore>,
    ids: IdAllocator,
    segment_bytes: u64,
    unsynced_bytes_max: u64,
    aligned_bytes_min: u32,
    /// Segments below this id belong to earlier runs.
    pub(super) first_id: u64,
    /// Whether segments of earlier runs may have chunks that no metadata references and nothing will release.
    pub(super) has_orphans: AtomicBool,
    /// Position of the next record. Held while space is reserved and while a segment is created; taken before
    /// `accounts`.
    active: Lock<InUse>,
    pub(super) accounts: Mutex<Accounts>,
    /// Files with unsynced data. Held only to read or change the map.
    dirty: Mutex<BTreeMap<u64, Arc<dyn File>>>,
    /// Held throughout `maintain`, so that only one runs at a time; guards nothing else.
    maintaining: Mutex<()>,
    /// Number of appends whose write has finished and whose file is in `dirty`.
    appended: AtomicU64,
    /// Bytes of these appends, and how many of them no sync has covered yet.
    unsynced: Unsynced,
    group: GroupSync,
    pub(super) health: Arc<Health>,
    room: Room,
    pub(super) cache: ChunkCache,
    pub(super) counters: Counters,
    /// Called before the first chunk is shared, then taken out. Held during the call.
    begin_sharing: Mutex<Option<BeginSharing>>,
}

/// Raises the format of the partition.
pub(crate) type BeginSharing = Box<dyn Fn() -> Result<(), StoreError> + Send + Sync>;

/// The segments that are appended to.
///
/// A file written with direct I/O must not be written through the system's cache at the same time: if its
/// cached pages cannot be dropped, Linux reports an error to the next sync. So there are two segments.
#[derive(Default)]
struct InUse {
    dense: Option<Active>,
    aligned: Option<Active>,
}

impl InUse {
    fn of(&mut self, packing: Packing) -> &mut Option<Active> {
        match packing {
            Packing::Dense => &mut self.dense,
            Packing::Aligned => &mut self.aligned,
        }
    }

    fn both(&mut self) -> [&mut Option<Active>; 2] {
        [&mut self.dense, &mut self.aligned]
    }
}

struct Active {
    id: u64,
    file: Arc<dyn File>,
    end: u64,
}

/// Space for one record and the filler after it.
struct Place {
    address: ChunkAddress,
    packing: Packing,
    filler_bytes: u32,
    file: Arc<dyn File>,
}

impl SegmentStore {
    /// Opens the segments in `folder`, which must exist. `meta` must be the metadata that references their
    /// chunks: ids and accounts of segments are stored there too.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        meta: Arc<dyn MetaStore>,
        config: SegmentConfig,
    ) -> Result<SegmentStore, StoreError> {
        SegmentStore::open_encrypted(disk, folder, meta, config, None)
    }

    /// Opens the segments; with `keys`, new chunks are encrypted, and encrypted ones can be read.
    pub fn open_encrypted(
        disk: Arc<dyn Disk>,
        folder: &Path,
        meta: Arc<dyn MetaStore>,
        config: SegmentConfig,
        keys: Option<Arc<KeyRing>>,
    ) -> Result<SegmentStore, StoreError> {
        let files = Files::new(disk, folder, keys, config.open_files_max);
        let found = files.list()?;
        let was_closed = accounts::take_closed(&*meta)?;
        let ids = IdAllocator::open(Arc::clone(&meta), "segment")?;
        ids.skip_to(found.last().map_or(1, |last| last.saturating_add(1)));
        let first_id = ids.next()?;
        let accounts = take_over(&files, &found, &*meta)?;
        let segment_bytes = config.segment_bytes_on(room::space(&*files.disk, &files.folder)?.total_bytes);
        Ok(SegmentStore {
            files,
            meta,
            ids,
            segment_bytes,
            unsynced_bytes_max: config.unsynced_bytes_max,
            aligned_bytes_min: config.aligned_bytes_min,
            first_id,
            has_orphans: AtomicBool::new(!was_closed && !found.is_empty()),
            active: Lock::new(LockName::Segment, InUse::default()),
            accounts: Mutex::new(accounts),
            dirty: Mutex::default(),
            maintaining: Mutex::default(),
            appended: AtomicU64::new(0),
            unsynced: Unsynced::default(),
            group: GroupSync::default(),
            health: Arc::new(Health::of(folder)),
            room: Room::new(config.reserve, segment_bytes),
            cache: ChunkCache::new(config.cache_bytes),
            counters: Counters::default(),
            begin_sharing: Mutex::default(),
        })
    }

    /// Shares `health` with another store, so that either stops writing when the other fails.
    #[must_use]
    pub(crate) fn failing_with(mut self, health: &Arc<Health>) -> SegmentStore {
        self.health = Arc::clone(health);
        self
    }

    /// Sets the function to call before the first chunk is shared.
    #[must_use]
    pub(crate) fn before_sharing(mut self, begin: BeginSharing) -> SegmentStore {
        *self.begin_sharing.get_mut() = Some(begin);
        self
    }

    /// Returns the error that made it read-only, if any.
    pub fn failure(&self) -> Option<String> {
        self.health.failure()
    }

    fn write_accounts(&self) -> Result<crate::CommitNumber, StoreError> {
        let batch = self.accounts.lock().changed_rows();
        self.meta.commit(batch.clone()).inspect_err(|_| self.accounts.lock().not_written(&batch))
    }

    /// Marks the run as cleanly closed; the last write of a run.
    fn write_closed(&self) -> Result<(), StoreError> {
        let mut batch = self.accounts.lock().changed_rows();
        if !self.has_orphans.load(Acquire) {
            accounts::put_closed(&mut batch);
        }
        self.meta.commit(batch).map(|_| ())
    }

    /// Writes a record; returns its address.
    pub(super) fn put(&self, encoded: Encoded, purpose: Purpose) -> Result<ChunkAddress, StoreError> {
        let addresses = self.put_all(vec![encoded], purpose)?;
        // There is one address per record.
        addresses.first().copied().ok_or(StoreError::Full)
    }

    /// Writes all records or none; returns their addresses.
    fn put_all(&self, encoded: Vec<Encoded>, purpose: Purpose) -> Result<Vec<ChunkAddress>, StoreError> {
        if self.unsynced.bytes() >= self.unsynced_bytes_max {
            self.sync()?;
        }
        let lengths = encoded.iter().map(Encoded::record_bytes);
        let places = self.reserve(lengths, purpose)?;
        let addresses: Vec<ChunkAddress> = places.iter().map(|place| place.address).collect();
        self.write_all(&places, encoded).inspect_err(|_| self.give_up(&addresses))?;
        let mut dirty = self.dirty.lock();
        for Place { address, file, .. } in places {
            dirty.insert(address.segment, file);
            self.unsynced.appended(u64::from(address.stored_bytes));
        }
        drop(dirty);
        self.appended.fetch_add(addresses.len() as u64, AcqRel);
        Ok(addresses)
    }

    /// Marks reserved space as dead, since no metadata will reference it.
    fn give_up(&self, addresses: &[ChunkAddress]) {
        let mut accounts = self.accounts.lock();
        for address in addresses {
            accounts.release(*address);
        }
    }

    /// Reserves space for records of these lengths, adjacent to each other as far as a segment has space.
    fn reserve(
        &self,
        lengths: impl Iterator<Item = u32>,
        purpose: Purpose,
    ) -> Result<Vec<Place>, StoreError> {
        let packed = |bytes: u32| {
            let packing = if bytes < self.aligned_bytes_min { Packing::Dense } else { Packing::Aligned };
            (bytes, packing, packing.filler_bytes(bytes))
        };
        let lengths: Vec<(u32, Packing, u32)> = lengths.map(packed).collect();
        let taken = |bytes: u32, filler_bytes: u32| u64::from(bytes) + u64::from(filler_bytes);
        let sum = lengths.iter().map(|&(bytes, _, filler_bytes)| taken(bytes, filler_bytes)).sum();
        self.room.take(sum, purpose, &*self.files.disk, &self.files.folder)?;
        let mut places = Vec::with_capacity(lengths.len());
        let mut in_use = self.active.lock();
        for (bytes, packing, filler_bytes) in lengths {
            let taken = taken(bytes, filler_bytes);
            let fits = |active: &Active| active.end + taken <= self.segment_bytes;
            let active = match in_use.of(packing) {
                Some(active) if fits(active) => active,
                other => self.begin_segment(other, packing).inspect_err(|_| {
                    let reserved: Vec<_> = places.iter().map(|place: &Place| place.address).collect();
                    self.give_up(&reserved);
                })?,
            };
            let address = ChunkAddress { segment: active.id, offset: active.end, stored_bytes: bytes };
            active.end += taken;
            self.accounts.lock().set_end(active.id, active.end, filler_bytes);
            places.push(Place { address, packing, filler_bytes, file: Arc::clone(&active.file) });
        }
        Ok(places)
    }

    fn begin_segment<'a>(
        &self,
        active: &'a mut Option<Active>,
        packing: Packing,
    ) -> Result<&'a mut Active, StoreError> {
        if let Some(full) = active.take() {
            self.accounts.lock().seal(full.id);
        }
        let id = self.ids.next()?;
        let file = self.files.create(id, packing).map_err(|error| self.write_failed(error))?;
        let end = packing.first_offset();
        self.accounts.lock().begin(id, end);
        Ok(active.insert(Active { id, file, end }))
    }

    /// Seals an active segment if everything in it is dead, so that a small partition gets its space back.
    /// Records still being written count as live.
    fn retire(&self) {
        let mut in_use = self.active.lock();
        let mut accounts = self.accounts.lock();
        for active in in_use.both() {
            if let Some(used_up) = active.take_if(|active| accounts.is_used_up(active.id)) {
                accounts.seal(used_up.id);
            }
        }
    }

    fn write_all(&self, places: &[Place], encoded: Vec<Encoded>) -> Result<(), StoreError> {
        let mut frames = Vec::new();
        for (place, Encoded { record, stored }) in places.iter().zip(encoded) {
            let ChunkAddress { segment, offset, .. } = place.address;
            match (place.packing, stored) {
                (Packing::Aligned, stored) => {
                    let mut frame = stored.into_frame();
                    frame.finish(&record, segment, offset, place.filler_bytes);
                    frames.push((place, frame));
                }
                (Packing::Dense, Stored::Framed(mut frame)) => {
                    frame.finish(&record, segment, offset, 0);
                    self.written(place, place.file.write_all_at(&mut [IoSlice::new(frame.whole())], offset))?;
                }
                (Packing::Dense, Stored::Apart(bytes)) => {
                    let header = record.build(segment, offset);
                    let mut slices = [IoSlice::new(&header), IoSlice::new(&bytes)];
                    self.written(place, place.file.write_all_at(&mut slices, offset))?;
                }
            }
        }
        // These records are adjacent: reserved together, and each filled up to the start of the next.
        for run in frames.chunk_by(|(one, _), (next, _)| one.address.segment == next.address.segment) {
            let mut slices: Vec<IoSlice<'_>> =
                run.iter().map(|(_, frame)| IoSlice::new(frame.whole())).collect();
            if let Some((first, _)) = run.first() {
                self.written(first, first.file.write_all_direct_at(&mut slices, first.address.offset))?;
            }
        }
        Ok(())
    }

    /// Handles the result of a write to that place.
    fn written(&self, place: &Place, result: io::Result<()>) -> Result<(), StoreError> {
        let path = || self.files.path(place.address.segment);
        result.map_err(|error| self.write_failed(failed("write", &path(), error)))
    }

    /// A full disk does not fail the store; every other failed write does.
    fn write_failed(&self, error: StoreError) -> StoreError {
        let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
        match error {
            StoreError::Io { ref source, .. } if full.contains(&source.kind()) => {
                self.room.forget();
                StoreError::Full
            }
            other => self.health.fail(other),
        }
    }

    /// Makes durable what was appended before the call; returns the number of the last append covered.
    fn sync_dirty(&self) -> Result<u64, StoreError> {
        self.health.check()?;
        let (covered, covered_bytes) = (self.appended.load(Acquire), self.unsynced.seen());
        let dirty = std::mem::take(&mut *self.dirty.lock());
        for (id, file) in dirty {
            file.sync_data()
                .map_err(|error| self.health.fail(failed("sync", &self.files.path(id), error)))?;
        }
        self.unsynced.synced(covered_bytes);
        Ok(covered)
    }

    fn load(&self, address: ChunkAddress) -> Result<Bytes, StoreError> {
        let loaded = reading::read(&self.files, address);
        if let Err(error @ StoreError::Damaged { .. }) = &loaded {
            self.counters.damaged_reads.fetch_add(1, Relaxed);
            tracing::error!(%error, "cannot read a chunk");
        }
        loaded
    }
}

/// Loads the accounts of the segments of earlier runs.
fn take_over(files: &Files, found: &[u64], meta: &dyn MetaStore) -> Result<Accounts, StoreError> {
    let (mut rows, _) = Accounts::load(meta)?;
    let mut accounts = Accounts::default();
    for id in found {
        match rows.remove(id) {
            Some(row) if row.sealed => accounts.take_over(*id, row),
            row => take_over_unsealed(files, *id, row, &mut accounts)?,
        }
    }
    for id in rows.into_keys() {
        accounts.forget_row(id);
    }
    Ok(accounts)
}

fn take_over_unsealed(
    files: &Files,
    id: u64,
    row: Option<Account>,
    accounts: &mut Accounts,
) -> Result<(), StoreError> {
    let length = files.length(id)?;
    if row.is_none() && length < HEADER_BYTES {
        // Its creation was interrupted, so nothing was ever appended to it.
        return files.remove(id).map(drop);
    }
    let mut account = row.unwrap_or(Account::new(HEADER_BYTES));
    account.end = account.end.max(length);
    accounts.take_over(id, account);
    Ok(())
}

impl ChunkStore for SegmentStore {
    fn append_all(&self, chunks: Vec<EncodedChunk>) -> Result<Vec<ChunkAddress>, StoreError> {
        self.health.check()?;
        let seal = |chunk: EncodedChunk| match &self.files.keys {
            Some(keys) => codec::seal(&chunk.0, keys),
            None => Ok(chunk.0),
        };
        let encoded: Vec<Encoded> = chunks.into_iter().map(seal).collect::<Result<_, _>>()?;
        let raw_bytes: Vec<u32> = encoded.iter().map(|encoded| encoded.record.raw_bytes).collect();
        let addresses = self.put_all(encoded, Purpose::Data)?;
        for (raw_bytes, address) in raw_bytes.into_iter().zip(&addresses) {
            self.counters.appended(raw_bytes, address.stored_bytes);
        }
        Ok(addresses)
    }

    fn digest(&self, pieces: &[&[u8]]) -> Digest {
        digest(self.files.keys.as_ref().map(|keys| keys.digest_key()), pieces)
    }

    fn begin_sharing(&self) -> Result<(), StoreError> {
        let mut begin = self.begin_sharing.lock();
        if let Some(raise) = &*begin {
            raise()?;
            *begin = None;
        }
        Ok(())
    }

    fn read(&self, address: ChunkAddress) -> Result<Bytes, StoreError> {
        self.read_for(0, address)
    }

    fn read_for(&self, owner: u64, address: ChunkAddress) -> Result<Bytes, StoreError> {
        self.cache.get_or_load(owner, address, || self.load(address))
    }

    fn is_at_hand(&self, address: ChunkAddress) -> bool {
        self.cache.contains(address)
    }

    fn forget_owner(&self, owner: u64) -> usize {
        self.cache.purge(owner)
    }

    fn audit(&self, state: &dyn MetaStore) -> Result<Option<SegmentAudit>, StoreError> {
        let (disk, keys) = (Arc::clone(&self.files.disk), self.files.keys.clone());
        SegmentAudit::open_encrypted(disk, &self.files.folder, state, keys).map(Some)
    }

    fn cache_statistics(&self) -> CacheStatistics {
        self.cache.statistics()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.group.wait(self.appended.load(Acquire), || self.sync_dirty())
    }

    fn seal(&self, context: &[u8], contents: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.files.keys.as_ref().map(|keys| keys.seal_value(context, contents)).transpose()
    }

    fn unseal(&self, context: &[u8], sealed: &[u8]) -> Result<Bytes, String> {
        self.files.keys.as_ref().ok_or("encrypted, but no key is given")?.unseal_value(context, sealed)
    }

    fn verify(&self, address: ChunkAddress) -> Result<(), StoreError> {
        reading::verify(&self.files, address).map(|_| ())
    }

    fn copy(&self, address: ChunkAddress, owner: ChunkOwner) -> Result<ChunkAddress, StoreError> {
        self.copy_chunk(address, owner)
    }

    fn sparse_segments(&self, dead_percent: u8) -> Vec<SegmentUse> {
        self.find_sparse(dead_percent)
    }

    fn doomed_bytes(&self) -> u64 {
        self.accounts.lock().doomed_bytes()
    }

    fn records(&self, segment: u64, from: u64, most: usize) -> Result<SegmentRecords, StoreError> {
        self.list_records(segment, from, most)
    }

    fn release(&self, address: ChunkAddress) {
        self.cache.remove(address);
        if self.accounts.lock().release(address) {
            self.counters.chunks_released.fetch_add(1, Relaxed);
        } else {
            tracing::warn!(?address, "release of a missing chunk");
        }
    }
}

impl FileData for SegmentStore {
    /// Deletes the files of segments, and frees the space of each piece by piece. There are no pauses if more space is
    /// dead than free.
    fn maintain_resting(&self, rest: &mut dyn FnMut() -> bool) -> Result<usize, StoreError> {
        let _one = self.maintaining.lock();
        if self.health.is_failed() {
            return Ok(0);
        }
        self.room.forget();
        self.retire();
        self.write_accounts()?;
        let dead = self.accounts.lock().collect();
        if dead.is_empty() {
            return Ok(0);
        }
        // Chunks are released only after a durable commit; this sync is for the account rows.
        let number = self.write_accounts()?;
        self.meta.sync(number)?;
        let is_short = self.usable_bytes()? < self.accounts.lock().totals().2;
        let mut deleted = 0;
        for id in dead {
            let leaving = self.files.remove(id)?;
            // An abandoned append is never synced; an open file would keep its space allocated.
            self.dirty.lock().remove(&id);
            // After a crash, the name must not refer to a truncated file.
            self.files.sync_names()?;
            self.accounts.lock().remove(id);
            deleted += 1;
            if !is_short && !leaving.shorten(rest)? {
                break;
            }
        }
        self.write_accounts()?;
        self.counters.segments_deleted.fetch_add(deleted, Relaxed);
        Ok(deleted as usize)
    }

    fn needs_recount(&self) -> bool {
        self.has_orphans.load(Relaxed)
    }

    fn recount(
        &self,
        state: &dyn Snapshot,
        names: ChunkNames,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Recount>, StoreError> {
        let Some(count) = recount::count(&self.accounts, state, names, go_on)? else { return Ok(None) };
        let orphaned_bytes = self.accounts.lock().recount(self.first_id, &count.named);
        self.counters.orphaned_bytes.fetch_add(orphaned_bytes, Relaxed);
        self.has_orphans.store(false, Release);
        Ok(Some(Recount { orphaned_bytes, ..count.result }))
    }

    fn space(&self) -> Result<Space, StoreError> {
        room::space(&*self.files.disk, &self.files.folder)
    }

    fn room(&self) -> Result<gauge::Room, StoreError> {
        Ok(self.room.for_data(self.space()?))
    }

    fn statistics(&self) -> ChunkStatistics {
        let totals = self.accounts.lock().totals();
        ChunkStatistics {
            sync_requests: self.group.requests(),
            syncs: self.group.rounds(),
            ..self.counters.statistics(totals, self.cache.statistics())
        }
    }
}

impl Drop for SegmentStore {
    /// Seals the active segments, so that the next open need not read them.
    fn drop(&mut self) {
        if self.sync().is_err() {
            return;
        }
        let accounts = self.accounts.get_mut();
        for active in self.active.get_mut().both().into_iter().filter_map(Option::take) {
            accounts.seal(active.id);
        }
        if let Err(error) = self.write_closed() {
            tracing::warn!(%error, "cannot write the accounts of segments while closing");
        }
    }
}

#[cfg(test)]
mod tests;
