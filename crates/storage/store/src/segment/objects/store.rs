//! A [`ChunkStore`] in a bucket.

use super::super::accounts::{self, Accounts};
use super::super::cache::ChunkCache;
use super::super::codec::{self, Encoded, Stored};
use super::super::compaction::deadest_first;
use super::super::header::HEADER_BYTES;
use super::super::reading;
use super::super::record::{RECORD_BYTES_MIN, Record};
use super::super::recount::{self, ChunkNames, Recount};
use super::super::statistics::{ChunkStatistics, Counters};
use super::borrowed::{self, Borrowed, Located};
use super::bucket::{Bucket, BucketError};
use super::disk_cache::{DiskCache, DiskCacheStatistics};
use super::import::{Import, Loan, SharedAs};
use super::lent::{Borrower, LentObjects, Loans};
use super::loading;
use super::name::{self, object_name};
use super::reserve::{ObjectTerms, Reservations};
use super::rounds::Rounds;
use super::small;
use super::unsaved::Unsaved;
use super::windows::{Source, Windows};
use crate::digest::{Digest, digest};
use crate::health::Health;
use crate::tenure::{Permit, Tenure};
use crate::{
    Batch, CacheStatistics, ChunkAddress, ChunkOwner, ChunkPlace, ChunkStore, EncodedChunk, Family, FileData,
    KeyRing, MetaStore, SegmentAudit, SegmentRecords, SegmentUse, Snapshot, StoreError, gauge,
};
use bytes::Bytes;
use disk::Space;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Key in the family System of the number of opens.
const EPOCH_KEY: &[u8] = b"objects/epoch";

/// Follows the number in a partition that lends or borrows objects. Programs that know nothing of that refuse it.
const LENDS: u8 = 1;

/// Limits of file data in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectConfig {
    /// Size of an object in bytes at which the next one is begun.
    pub object_bytes_max: u32,
    /// Maximum number of bytes in memory that are not in the bucket yet. A writer that would exceed it waits until
    /// they are; concurrent writers may exceed it by what each appends at once.
    pub unsaved_bytes_max: u64,
    /// Maximum size of decoded chunks kept in memory, in bytes.
    pub cache_bytes: u64,
    /// Size of the partition in bytes, since a bucket has none: new chunks are refused when this much is live.
    /// [`UNLIMITED_BYTES`] if there is no limit.
    pub size_bytes: u64,
}

/// The size of a partition without a limit: 1 EiB. Sizes in blocks of 1 KiB stay far from the largest number that the
/// protocol has for them.
pub const UNLIMITED_BYTES: u64 = 1 << 60;

impl Default for ObjectConfig {
    fn default() -> ObjectConfig {
        ObjectConfig {
            object_bytes_max: 8 << 20,
            unsaved_bytes_max: 32 << 20,
            cache_bytes: 256 << 20,
            size_bytes: UNLIMITED_BYTES,
        }
    }
}

/// Maximum number of new objects that wait to be copied to the cache on the local disk.
const TO_CACHE_MAX: usize = 4;

/// The file data of a partition in a bucket.
///
/// Call [`FileData::maintain`] every few seconds, and [`FileData::sweep`] after the open and about once a day: it lists
/// the bucket, and removes the objects of this and of earlier epochs that have no account and are not lent. If accounts could not be read
/// at the open, objects of earlier epochs without one get a new one instead, and what of them is dead is found by the
/// recount after the next start that follows a crash.
///
/// # Errors
/// A bucket that does not answer is `Unavailable`, which is not final: appended chunks stay in memory, creating them
/// goes on, and a later sync may succeed. An object that exists with contents that this process did not write is
/// final: the store is then read-only, together with the metadata if they share a [`Health`].
pub struct ObjectChunks {
    pub(super) bucket: Arc<dyn Bucket>,
    pub(super) meta: Arc<dyn MetaStore>,
    pub(super) keys: Option<Arc<KeyRing>>,
    pub(super) config: ObjectConfig,
    /// The number of this open.
    pub(super) epoch: u64,
    /// Ids of objects that other processes create. Taken before `unsaved` and `accounts`.
    pub(super) reserved: Reservations,
    /// Chunks that are not in the bucket. Held to copy a chunk into it, and to begin a full object; taken before
    /// `accounts`.
    pub(super) unsaved: Mutex<Unsaved>,
    pub(super) accounts: Mutex<Accounts>,
    /// Objects of other partitions that have accounts here.
    pub(super) borrowed: Arc<Borrowed>,
    /// Objects that other partitions use.
    pub(super) lent: Loans,
    /// Held while borrowed objects are brought home; guards nothing else.
    pub(super) homing: Mutex<()>,
    /// Whether an object without an account may be one whose account was damaged.
    pub(super) adopts: AtomicBool,
    /// Whether objects of earlier runs may have chunks that no metadata references and nothing will release.
    pub(super) has_orphans: AtomicBool,
    /// Held while account rows are taken and committed, so that an older row never follows a newer one.
    pub(super) writing: Mutex<()>,
    /// Held throughout `maintain` and `sweep`, so that only one runs at a time; guards nothing else.
    pub(super) maintaining: Mutex<()>,
    rounds: Rounds,
    pub(super) health: Arc<Health>,
    permit: Permit,
    cache: ChunkCache,
    windows: Windows,
    disk_cache: Option<DiskCache>,
    /// New objects, for the cache on the local disk.
    to_cache: Mutex<Vec<(u64, Bytes)>>,
    /// The objects whose records were listed last: compaction copies chunks of them next.
    listed: Mutex<Listed>,
    /// `None` if no other process reads chunks of this partition, and no other partition takes over its objects.
    pub(super) shared_as: Option<SharedAs>,
    /// Held by transfers that name objects, which are not removed meanwhile.
    pub(super) loans: Arc<()>,
    pub(super) counters: Counters,
}

impl ObjectChunks {
    /// Opens the objects in `bucket`. `meta` must be the metadata that references their chunks; it must be open for
    /// this process only. With `keys`, new chunks are encrypted, and encrypted ones can be read.
    ///
    /// # Errors
    /// `Unavailable` if the bucket does not answer; errors of the metadata.
    pub fn open(
        bucket: Arc<dyn Bucket>,
        meta: Arc<dyn MetaStore>,
        config: ObjectConfig,
        keys: Option<Arc<KeyRing>>,
    ) -> Result<ObjectChunks, StoreError> {
        let was_closed = accounts::take_closed(&*meta)?;
        let epoch = begin_epoch(&*bucket, &*meta)?;
        let (rows, damaged) = Accounts::load(&*meta)?;
        let mut accounts = Accounts::default();
        let adopts = !damaged.is_empty();
        let has_orphans = !was_closed && (!rows.is_empty() || adopts);
        for (id, row) in rows {
            accounts.take_over(id, row);
        }
        // After the first commit: then no other process can begin a loan.
        let lent = Loans::load(&*bucket, &*meta)?;
        let (borrowed, is_adopted) = borrowed::load(&*meta, &mut accounts, adopts)?;
        if lent.count() > 0 {
            // The mark may be missing from metadata that was restored from a copy.
            let mut batch = Batch::new();
            batch.put(Family::SYSTEM, EPOCH_KEY, epoch_row(epoch, true));
            meta.commit(batch)?;
        }
        let bucket: Arc<dyn Bucket> = Arc::new(Located { bucket, borrowed: Arc::clone(&borrowed) });
        let (place, windows) = (bucket.place(), Windows::new(&bucket));
        Ok(ObjectChunks {
            bucket,
            meta,
            keys,
            config,
            epoch,
            reserved: Reservations::default(),
            unsaved: Mutex::new(Unsaved::of(epoch, config.object_bytes_max)),
            accounts: Mutex::new(accounts),
            borrowed,
            lent,
            homing: Mutex::default(),
            adopts: AtomicBool::new(adopts),
            has_orphans: AtomicBool::new(has_orphans || is_adopted),
            writing: Mutex::default(),
            maintaining: Mutex::default(),
            rounds: Rounds::default(),
            health: Arc::new(Health::of(Path::new(&place))),
            permit: Permit::default(),
            cache: ChunkCache::new(config.cache_bytes),
            windows,
            disk_cache: None,
            to_cache: Mutex::default(),
            listed: Mutex::default(),
            shared_as: None,
            loans: Arc::default(),
            counters: Counters::default(),
        })
    }

    /// Lets other processes read the chunks of this partition (see [`ForeignChunks`](crate::ForeignChunks)), and this partition
    /// and others in the bucket borrow objects of each other. `partition` is its UUID, `folder` the
    /// name of the folder of objects below the prefix of each of them, next to its `VERSION`.
    #[must_use]
    pub fn shared_as(mut self, partition: [u8; 16], folder: &'static str) -> ObjectChunks {
        self.shared_as = Some(SharedAs { partition, folder });
        self
    }

    /// Shares `health` with the metadata, so that either stops writing when the other fails.
    #[must_use]
    pub fn failing_with(mut self, health: &Arc<Health>) -> ObjectChunks {
        self.health = Arc::clone(health);
        self
    }

    /// Answers only during a tenure; see [`Tenure::limit`]. The metadata has to have the same.
    #[must_use]
    pub fn during(mut self, tenure: &Tenure, patience: Duration) -> ObjectChunks {
        self.permit = Permit { tenure: tenure.clone(), patience };
        self
    }

    /// Keeps copies of chunks on the local disk. The cache must be of this partition only.
    #[must_use]
    pub fn with_disk_cache(mut self, cache: DiskCache) -> ObjectChunks {
        self.disk_cache = Some(cache);
        self
    }

    /// Returns the error that made it read-only, if any.
    pub fn failure(&self) -> Option<String> {
        self.health.failure()
    }

    /// Whether anything may be read.
    pub(super) fn may_read(&self) -> Result<(), StoreError> {
        self.permit.check(&self.health)
    }

    /// Whether anything may be written.
    pub(super) fn may_write(&self) -> Result<(), StoreError> {
        self.may_read()?;
        self.health.check()
    }

    /// Whether this many bytes of new chunks fit.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.room_now().usable_bytes >= bytes
    }

    fn room_now(&self) -> gauge::Room {
        let (_, bytes, dead_bytes) = self.accounts.lock().totals();
        let total_bytes = self.config.size_bytes;
        gauge::Room { total_bytes, usable_bytes: total_bytes.saturating_sub(bytes - dead_bytes) }
    }

    /// Whether a call had no answer in time, so that its caller may have left chunks to which nothing refers. The end of
    /// this run then leaves them to the recount of the next one.
    pub fn is_interrupted(&self) -> bool {
        self.health.is_interrupted()
    }

    /// Returns the bytes in memory that are not in the bucket yet.
    pub fn unsaved_bytes(&self) -> u64 {
        self.unsaved.lock().bytes()
    }

    /// Appends the epoch of a partition that lends or borrows.
    pub(super) fn put_epoch(&self, batch: &mut Batch) {
        batch.put(Family::SYSTEM, EPOCH_KEY, epoch_row(self.epoch, true));
    }

    fn write_accounts(&self) -> Result<crate::CommitNumber, StoreError> {
        self.write_accounts_with(|_| {})
    }

    /// Commits the changed accounts of objects that exist, and what `add` adds.
    pub(super) fn write_accounts_with(
        &self,
        add: impl FnOnce(&mut Batch),
    ) -> Result<crate::CommitNumber, StoreError> {
        let _one = self.writing.lock();
        let below = self.unsaved.lock().first_missing();
        let mut batch = self.accounts.lock().changed_rows_below(below);
        add(&mut batch);
        let committed = self.meta.commit(batch.clone());
        match &committed {
            Ok(_) => self.saved(below),
            Err(_) => self.accounts.lock().not_written(&batch),
        }
        committed
    }

    /// Commits the changed accounts, and that borrowed objects which have none any more are given back.
    fn give_back(&self) -> Result<(), StoreError> {
        let returned = self.borrowed.returned();
        self.write_accounts_with(|batch| {
            for id in &returned {
                self.borrowed.delete_row(*id, batch);
            }
        })?;
        for id in returned {
            self.borrowed.forget(id);
        }
        Ok(())
    }

    /// Drops the objects below this id, which exist and have accounts.
    fn saved(&self, below: u64) {
        let saved = self.unsaved.lock().take_saved(below);
        if self.disk_cache.is_some() {
            let mut to_cache = self.to_cache.lock();
            let left = TO_CACHE_MAX.saturating_sub(to_cache.len());
            to_cache.extend(saved.into_iter().take(left));
        }
    }

    /// Makes durable what was appended before the call; returns the number of the last append covered.
    fn save(&self) -> Result<u64, StoreError> {
        self.may_write()?;
        let (covered, objects) = {
            let mut unsaved = self.unsaved.lock();
            unsaved.seal(&mut self.accounts.lock());
            (unsaved.appended(), unsaved.to_create())
        };
        let names: Vec<String> = objects.iter().map(|(id, _)| object_name(*id)).collect();
        for (name, (_, contents)) in names.iter().zip(&objects) {
            self.bucket.begin(name, contents);
        }
        if !names.is_empty() {
            self.bucket.finish(&names).map_err(|error| self.not_created(&error))?;
        }
        self.unsaved.lock().created(objects.iter().map(|(id, _)| *id));
        self.write_accounts()?;
        Ok(covered)
    }

    /// Returns the error of objects that could not be created.
    pub(super) fn not_created(&self, error: &BucketError) -> StoreError {
        match error {
            BucketError::Unavailable(_) | BucketError::Refused(_) => self.unanswered(error),
            BucketError::Differs { name } | BucketError::Missing { name } => {
                self.health.fail(StoreError::Damaged {
                    place: self.place_of(name),
                    what: format!("{error}, and its name is this process's own"),
                })
            }
        }
    }

    /// Returns the error of a request that may succeed later.
    pub(super) fn unanswered(&self, error: &BucketError) -> StoreError {
        self.health.interrupt();
        StoreError::Unavailable { place: self.bucket.place(), what: error.to_string() }
    }

    pub(super) fn place_of(&self, name: &str) -> String {
        format!("{}/{name}", self.bucket.place())
    }

    fn damaged(&self, address: ChunkAddress, what: String) -> StoreError {
        loading::damaged(&*self.bucket, address, what)
    }

    /// Appends all records or none; returns their addresses.
    fn put_all(&self, encoded: &[Encoded]) -> Result<Vec<ChunkAddress>, StoreError> {
        if self.unsaved_bytes() >= self.config.unsaved_bytes_max {
            self.sync()?;
        }
        let mut full = Vec::new();
        let mut unsaved = self.unsaved.lock();
        let addresses = unsaved.append(encoded, &mut self.accounts.lock(), &mut full);
        // Under the lock: a sync that has already finished one must not find it begun again.
        for (id, contents) in full {
            self.bucket.begin(&object_name(id), &contents);
        }
        addresses
    }

    fn load(&self, address: ChunkAddress) -> Result<Bytes, StoreError> {
        let (copies, keys) = (self.disk_cache.as_ref(), self.keys.as_deref());
        let decode = |record: &Bytes| {
            let decoded = self.as_written(address, |written| reading::decode(record, written, keys));
            decoded.map(|(chunk, _)| chunk)
        };
        let damaged = |what| self.damaged(address, what);
        let loaded = loading::load(copies, address, |source| self.fetch(address, source), decode, damaged);
        if let Err(error @ StoreError::Damaged { .. }) = &loaded {
            self.counters.damaged_reads.fetch_add(1, Relaxed);
            tracing::error!(%error, "cannot read a chunk");
        }
        loaded
    }

    /// Returns the address at which a record was written: its own, unless it is in a copy.
    fn written(&self, address: ChunkAddress) -> ChunkAddress {
        ChunkAddress { segment: self.accounts.lock().origin(address.segment), ..address }
    }

    /// Calls `work` with the address at which a record was written. The error describes what is wrong with the record.
    fn as_written<T>(
        &self,
        address: ChunkAddress,
        work: impl Fn(ChunkAddress) -> Result<T, String>,
    ) -> Result<T, String> {
        work(self.written(address)).or_else(|what| match self.find_origin(address.segment) {
            Some(origin) => work(ChunkAddress { segment: origin, ..address }),
            None => Err(what),
        })
    }

    /// Returns a record from memory if it is not in the bucket yet, else from the bucket.
    fn fetch(&self, address: ChunkAddress, source: Source) -> Result<Bytes, StoreError> {
        let range = loading::range(address).map_err(|what| self.damaged(address, what))?;
        let length = range.end - range.start;
        let unsaved = self.unsaved.lock().read(address.segment, address.offset, length);
        let record = match unsaved {
            Some(record) => record,
            None => self.fetch_range(address.segment, range, source).map_err(|error| match error {
                BucketError::Missing { .. } => self.damaged(address, loading::MISSING.into()),
                other => self.unanswered(&other),
            })?,
        };
        loading::whole(record, length).map_err(|what| self.damaged(address, what))
    }

    fn fetch_range(&self, id: u64, range: Range<u64>, source: Source) -> Result<Bytes, BucketError> {
        // Without a request for something that cannot be there.
        let bytes = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        let address = ChunkAddress { segment: id, offset: range.start, stored_bytes: bytes };
        if self.accounts.lock().ends_before(address) {
            return Ok(Bytes::new());
        }
        self.windows.read(source, id, range)
    }

    /// Returns a whole object, from its header on.
    fn whole(&self, id: u64) -> Result<Bytes, StoreError> {
        if let Some(contents) = self.unsaved.lock().read(id, 0, u64::MAX) {
            return Ok(contents);
        }
        if let Some(contents) = self.listed.lock().get(id) {
            return Ok(contents);
        }
        let place = || self.place_of(&object_name(id));
        let none = || StoreError::Damaged { place: place(), what: "no such object".into() };
        let end = self.accounts.lock().end(id).ok_or_else(none)?;
        let read = self.bucket.read(&object_name(id), 0..end).map_err(|error| match error {
            BucketError::Missing { .. } => none(),
            other => self.unanswered(&other),
        })?;
        let contents = read.bytes;
        if contents.len() as u64 != end {
            let what = format!("expected {end} bytes, got {}", contents.len());
            return Err(StoreError::Damaged { place: place(), what });
        }
        self.listed.lock().add(id, contents.clone());
        Ok(contents)
    }

    /// Returns a record for a copy.
    fn fetch_listed(&self, address: ChunkAddress) -> Result<Bytes, StoreError> {
        let length = reading::record_length(address).map_err(|what| self.damaged(address, what))?;
        let start = usize::try_from(address.offset).unwrap_or(usize::MAX);
        let listed = self.listed.lock().get(address.segment);
        let end = start.checked_add(length);
        match listed.zip(end).filter(|(contents, end)| *end <= contents.len()) {
            Some((contents, end)) => Ok(contents.slice(start..end)),
            None => self.fetch(address, Source::Request),
        }
    }

    /// Copies the chunks of new objects to the local disk: they are likely to be read soon.
    fn copy_to_disk_cache(&self) {
        let Some(cache) = &self.disk_cache else { return };
        for (segment, contents) in std::mem::take(&mut *self.to_cache.lock()) {
            walk(&contents, segment, HEADER_BYTES, |address, _| {
                cache.insert(address, &contents[address.offset as usize..][..address.stored_bytes as usize]);
                ControlFlow::Continue(())
            });
        }
    }
}

/// Maximum size of the objects in [`Listed`] together, besides the newest.
const LISTED_BYTES_MAX: usize = 8 << 20;

/// Whole objects, oldest first.
#[derive(Default)]
struct Listed(VecDeque<(u64, Bytes)>);

impl Listed {
    fn get(&self, id: u64) -> Option<Bytes> {
        self.0.iter().rev().find(|(listed, _)| *listed == id).map(|(_, contents)| contents.clone())
    }

    fn add(&mut self, id: u64, contents: Bytes) {
        self.0.retain(|(listed, _)| *listed != id);
        let mut bytes: usize = self.0.iter().map(|(_, contents)| contents.len()).sum();
        while bytes + contents.len() > LISTED_BYTES_MAX
            && let Some((_, oldest)) = self.0.pop_front()
        {
            bytes -= oldest.len();
        }
        self.0.push_back((id, contents));
    }
}

/// Durably begins the next epoch, and returns it.
fn begin_epoch(bucket: &dyn Bucket, meta: &dyn MetaStore) -> Result<u64, StoreError> {
    let (last, lends) = match meta.get(Family::SYSTEM, EPOCH_KEY)? {
        None => (0, false),
        Some(value) => parse_epoch(&value).ok_or_else(|| StoreError::Damaged {
            place: "system objects/epoch".into(),
            what: format!("expected 8 bytes, or 9 with a mark that this program knows, got {} (a newer program may have written them)", value.len()),
        })?,
    };
    let mut epoch = last.saturating_add(1);
    // Metadata that was restored from a copy is older than the objects, whose names must not be used again.
    loop {
        let mut later = None;
        let listed = bucket.list(&name::before_epoch(epoch), &mut |name, _| {
            let id = name::parse_name(name).or_else(|| name::parse_loan_name(name));
            later = id.map(name::epoch_of).filter(|found| *found >= epoch);
            if later.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        listed.map_err(|error| StoreError::Unavailable { place: bucket.place(), what: error.to_string() })?;
        match later {
            Some(later) => {
                tracing::warn!(
                    place = bucket.place(),
                    epoch,
                    later,
                    "the bucket has objects that are newer \
                    than the metadata"
                );
                epoch = later.saturating_add(1);
            }
            None => break,
        }
    }
    if epoch > name::EPOCH_MAX {
        return Err(StoreError::Meta(format!("{} was opened too often: no epochs left", bucket.place())));
    }
    let mut batch = Batch::new();
    batch.put(Family::SYSTEM, EPOCH_KEY, epoch_row(epoch, lends));
    meta.sync(meta.commit(batch)?)?;
    Ok(epoch)
}

fn epoch_row(epoch: u64, lends: bool) -> Vec<u8> {
    let mut row = epoch.to_be_bytes().to_vec();
    row.extend(lends.then_some(LENDS));
    row
}

/// Returns the epoch, and whether the partition lends or borrows.
fn parse_epoch(row: &[u8]) -> Option<(u64, bool)> {
    let (number, mark) = row.split_first_chunk()?;
    let lends = match mark {
        [] => false,
        [LENDS] => true,
        _ => return None,
    };
    Some((u64::from_be_bytes(*number), lends))
}

/// Visits the records of an object from an offset on, until one that cannot be read; returns its offset, or the
/// object's length.
fn walk(
    contents: &[u8],
    segment: u64,
    from: u64,
    mut visit: impl FnMut(ChunkAddress, &Record) -> ControlFlow<()>,
) -> u64 {
    let mut at = from;
    loop {
        let rest = usize::try_from(at).ok().and_then(|at| contents.get(at..)).unwrap_or_default();
        if rest.len() < RECORD_BYTES_MIN {
            return at;
        }
        let Ok(record) = Record::parse(rest, segment, at) else { return at };
        let stored_bytes = record.layout.bytes() as u32 + record.stored_bytes;
        if stored_bytes as usize > rest.len() {
            return at;
        }
        if visit(ChunkAddress { segment, offset: at, stored_bytes }, &record).is_break() {
            return at;
        }
        at += u64::from(stored_bytes);
    }
}

impl ChunkStore for ObjectChunks {
    fn append_all(&self, chunks: Vec<EncodedChunk>) -> Result<Vec<ChunkAddress>, StoreError> {
        self.may_write()?;
        let seal = |chunk: EncodedChunk| match &self.keys {
            Some(keys) => codec::seal(&chunk.0, keys),
            None => Ok(chunk.0),
        };
        let encoded: Vec<Encoded> = chunks.into_iter().map(seal).collect::<Result<_, _>>()?;
        if !self.fits(encoded.iter().map(|encoded| u64::from(encoded.record_bytes())).sum()) {
            return Err(StoreError::Full);
        }
        let addresses = self.put_all(&encoded)?;
        for (encoded, address) in encoded.iter().zip(&addresses) {
            self.counters.appended(encoded.record.raw_bytes, address.stored_bytes);
        }
        Ok(addresses)
    }

    fn digest(&self, pieces: &[&[u8]]) -> Digest {
        digest(self.keys.as_ref().map(|keys| keys.digest_key()), pieces)
    }

    fn read(&self, address: ChunkAddress) -> Result<Bytes, StoreError> {
        self.read_for(0, address)
    }

    fn read_for(&self, owner: u64, address: ChunkAddress) -> Result<Bytes, StoreError> {
        self.may_read()?;
        self.cache.get_or_load(owner, address, || self.load(address))
    }

    fn is_at_hand(&self, address: ChunkAddress) -> bool {
        self.cache.contains(address)
    }

    fn shared_at(&self, address: ChunkAddress) -> Option<([u8; 16], ChunkPlace)> {
        let own = self.shared_as.as_ref()?;
        let origin = self.written(address).segment;
        if let Some(object) = self.borrowed.get(address.segment) {
            let address = ChunkAddress { segment: object.object, ..address };
            return Some((object.lender, ChunkPlace { address, origin }));
        }
        let is_saved = address.segment < self.unsaved.lock().first_missing();
        is_saved.then_some((own.partition, ChunkPlace { address, origin }))
    }

    fn forget_owner(&self, owner: u64) -> usize {
        self.cache.purge(owner)
    }

    fn audit(&self, state: &dyn MetaStore) -> Result<Option<SegmentAudit>, StoreError> {
        self.may_read()?;
        SegmentAudit::of_bucket(Arc::clone(&self.bucket), state, self.keys.clone()).map(Some)
    }

    fn cache_statistics(&self) -> CacheStatistics {
        self.cache.statistics()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.may_read()?;
        let number = self.unsaved.lock().appended();
        self.rounds.wait(number, || self.save())
    }

    fn seal(&self, context: &[u8], contents: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.keys.as_ref().map(|keys| keys.seal_value(context, contents)).transpose()
    }

    fn unseal(&self, context: &[u8], sealed: &[u8]) -> Result<Bytes, String> {
        self.keys.as_ref().ok_or("encrypted, but no key is given")?.unseal_value(context, sealed)
    }

    fn verify(&self, address: ChunkAddress) -> Result<(), StoreError> {
        self.may_read()?;
        let record = self.fetch(address, Source::Request)?;
        let keys = self.keys.as_deref();
        let verified = self.as_written(address, |written| reading::verify_record(&record, written, keys));
        verified.map(drop).map_err(|what| self.damaged(address, what))
    }

    fn copy(&self, address: ChunkAddress, owner: ChunkOwner) -> Result<ChunkAddress, StoreError> {
        self.may_write()?;
        let whole = self.fetch_listed(address)?;
        let checked = self.as_written(address, |written| {
            let (record, stored) = reading::split(&whole, written)?;
            codec::check(&record, stored)?;
            Ok((record, whole.slice_ref(stored), written != address))
        });
        let (mut record, stored, is_copy) = checked.map_err(|what| self.damaged(address, what))?;
        // An owner in a copy is one of another partition.
        if !record.owner.is_known() || is_copy {
            record.owner = owner;
        }
        let copies = self.put_all(&[Encoded { record, stored: Stored::Apart(stored) }])?;
        // There is one address per record.
        let copy = copies.first().copied().ok_or(StoreError::Full)?;
        self.counters.moved(copy.stored_bytes);
        self.cache.copy(address, copy);
        Ok(copy)
    }

    fn sparse_segments(&self, dead_percent: u8) -> Vec<SegmentUse> {
        // One that is lent could not be removed.
        let mut sparse = deadest_first(self.accounts.lock().sparse(dead_percent));
        sparse.retain(|used| !self.lent.has(used.segment));
        sparse
    }

    fn small_segments(&self) -> Vec<SegmentUse> {
        let below = self.unsaved.lock().first_missing();
        let sealed: Vec<SegmentUse> = self.accounts.lock().sealed_below(below).collect();
        let own = sealed.into_iter().filter(|used| !self.lent.has(used.segment));
        small::choose(own, self.config.object_bytes_max.into())
    }

    fn doomed_bytes(&self) -> u64 {
        self.accounts.lock().doomed_bytes()
    }

    fn records(&self, segment: u64, from: u64, most: usize) -> Result<SegmentRecords, StoreError> {
        self.may_read()?;
        let contents = self.whole(segment)?;
        let mut records = SegmentRecords::default();
        let mut is_full = false;
        let (origin, is_copy) = {
            let accounts = self.accounts.lock();
            (accounts.origin(segment), accounts.is_copy(segment))
        };
        let end = walk(&contents, origin, from.max(HEADER_BYTES), |address, record| {
            is_full = records.found.len() >= most;
            if is_full {
                return ControlFlow::Break(());
            }
            // The owners in a copy are those of the other partition.
            let owner = if record.is_shared || is_copy { ChunkOwner::default() } else { record.owner };
            records.found.push((ChunkAddress { segment, ..address }, owner));
            ControlFlow::Continue(())
        });
        records.next = is_full.then_some(end);
        records.is_cut = !is_full && end < contents.len() as u64;
        Ok(records)
    }

    fn lend(&self) -> Option<Loan> {
        self.begin_loan()
    }

    fn keep_lent(&self, loan: &Loan, borrower: Borrower, objects: &[u64]) -> Result<(), StoreError> {
        self.record_loan(loan, borrower, objects)
    }

    fn lent(&self, is_unneeded: bool) -> Vec<LentObjects> {
        self.list_lent(is_unneeded)
    }

    fn disk_cache_statistics(&self) -> Option<DiskCacheStatistics> {
        self.disk_cache.as_ref().map(DiskCache::statistics)
    }

    fn loans(&self) -> (u64, u64) {
        (self.lent.count(), self.borrowed.count())
    }

    fn end_loan(&self, loan: u64, objects: &[u64]) -> Result<(), StoreError> {
        self.end_loan_of(loan, objects)
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.shared_as.map(|own| own.partition)
    }

    fn import(&self, prefix: &str, partition: [u8; 16], loan: u64) -> Result<Import, StoreError> {
        self.begin_import(prefix, partition, loan)
    }

    fn check_import(&self, import: &Import) -> Result<(), StoreError> {
        self.check_borrowed(import)
    }

    fn used_of_loan(
        &self,
        of: ([u8; 16], u64),
        objects: &[u64],
        brings_home: bool,
    ) -> Result<Vec<u64>, StoreError> {
        self.used_under(of, objects, brings_home)
    }

    fn lendable(&self, address: ChunkAddress) -> Result<ChunkPlace, StoreError> {
        if self.borrowed.get(address.segment).is_some() {
            self.bring_home(address.segment)?;
            if self.borrowed.get(address.segment).is_some() {
                return Err(self.damaged(address, "nothing in it is in use".into()));
            }
        }
        Ok(ChunkPlace { address, origin: self.written(address).segment })
    }

    fn take_chunk(&self, import: &mut Import, chunk: ChunkPlace) -> Result<ChunkAddress, StoreError> {
        self.take(import, chunk)
    }

    fn object_terms(&self) -> Option<ObjectTerms> {
        self.terms()
    }

    fn reserve_objects(&self, count: usize) -> Result<Vec<u64>, StoreError> {
        self.reserve(count)
    }

    fn claim_objects(&self, ids: &[u64]) -> bool {
        self.claim(ids)
    }

    fn give_up_objects(&self, ids: &[u64], begun: &[u64]) {
        self.give_up(ids, begun);
    }

    fn end_import(&self, import: Import) {
        self.finish_import(&import);
    }

    fn release(&self, address: ChunkAddress) {
        self.cache.remove(address);
        if let Some(cache) = &self.disk_cache {
            cache.remove(address);
        }
        if self.accounts.lock().release(address) {
            self.counters.chunks_released.fetch_add(1, Relaxed);
        } else {
            tracing::warn!(?address, "release of a missing chunk");
        }
    }
}

impl FileData for ObjectChunks {
    fn maintain_resting(&self, rest: &mut dyn FnMut() -> bool) -> Result<usize, StoreError> {
        let _one = self.maintaining.lock();
        if self.may_write().is_err() {
            return Ok(0);
        }
        self.copy_to_disk_cache();
        self.end_old_reservations();
        self.give_back()?;
        let mut dead = self.accounts.lock().collect();
        // A transfer that begins after this names nothing that is dead already, and the loans of those that have ended are known.
        if self.is_lent() {
            dead.clear();
        }
        dead.retain(|id| !self.lent.has(*id));
        if dead.is_empty() {
            return self.bring_wanted_home(rest).map(|()| 0);
        }
        // Chunks are released only after a durable commit; this sync is for the account rows. It also shows that no
        // other process has the metadata.
        let number = self.write_accounts()?;
        self.meta.sync(number)?;
        let names: Vec<String> = dead.iter().map(|id| object_name(*id)).collect();
        self.bucket.remove(&names).map_err(|error| self.unanswered(&error))?;
        let mut accounts = self.accounts.lock();
        for id in &dead {
            accounts.remove(*id);
        }
        drop(accounts);
        self.borrowed.set_returned(&dead);
        self.give_back()?;
        self.counters.segments_deleted.fetch_add(dead.len() as u64, Relaxed);
        self.bring_wanted_home(rest)?;
        Ok(dead.len())
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
        let orphaned_bytes = self.accounts.lock().recount(name::first_id(self.epoch), &count.named);
        self.counters.orphaned_bytes.fetch_add(orphaned_bytes, Relaxed);
        self.has_orphans.store(false, Relaxed);
        Ok(Some(Recount { orphaned_bytes, ..count.result }))
    }

    fn sweep(&self, go_on: &mut dyn FnMut() -> bool) -> Result<u64, StoreError> {
        self.remove_orphans(go_on)
    }

    fn space(&self) -> Result<Space, StoreError> {
        let gauge::Room { total_bytes, usable_bytes } = self.room_now();
        Ok(Space { total_bytes, free_bytes: usable_bytes })
    }

    fn room(&self) -> Result<gauge::Room, StoreError> {
        Ok(self.room_now())
    }

    fn statistics(&self) -> ChunkStatistics {
        let totals = self.accounts.lock().totals();
        ChunkStatistics {
            sync_requests: self.rounds.requests(),
            syncs: self.rounds.rounds(),
            ..self.counters.statistics(totals, self.cache.statistics())
        }
    }
}

impl Drop for ObjectChunks {
    /// Marks the run as cleanly closed if everything is in the bucket.
    fn drop(&mut self) {
        if self.sync().is_err() {
            return;
        }
        // A change that was given up without an answer has left its chunks to the recount of the next run.
        let is_complete = !self.has_orphans.load(Relaxed) && !self.is_interrupted();
        let closed = self.write_accounts_with(|batch| {
            if is_complete {
                accounts::put_closed(batch);
            }
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "cannot write the accounts of objects while closing");
        }
        self.copy_to_disk_cache();
    }
}

#[cfg(test)]
mod tests;
