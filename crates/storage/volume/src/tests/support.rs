//! A test server with one in-memory partition.

use super::crashing::{Crashing, Place};
use super::segments::Segments;
use crate::{
    Acknowledge, Actor, CloneVolume, CompactionPolicy, Durability, Kept, NewSnapshot, NewVolume,
    PartitionHandle, ScrubPolicy, SetStatus, Space, StoreRequest, VnodeStatus, Volume, VolumeError,
    VolumeOptions, Volumes,
};
use base::{AbortCode, Fid, PartitionId, UnixTime, UserId, VolumeId, VolumeType};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{
    Batch, Change, ChunkStore, CommitNumber, Family, KeyRange, MemoryChunks, MetaStore, Snapshot, StoreError,
};
use volume_check::{CheckOptions, check};
use volume_records::codec::{self, Counters};
use volume_records::{families, keys};

pub(crate) const RW: VolumeId = VolumeId(536_870_915);

/// Metadata with injected failures of commits and syncs.
pub(crate) struct Meta {
    pub(crate) inner: Arc<Crashing>,
    pub(crate) failures: Mutex<u32>,
    /// While this is locked no sync starts; if true, syncs fail.
    pub(crate) syncs_fail: Mutex<bool>,
    /// Number of syncs requested.
    pub(crate) syncs: AtomicU64,
    reads: AtomicU64,
    /// Number of records read or scanned.
    pub(crate) records_read: AtomicU64,
    /// Number of requests to drop the system's cache.
    pub(crate) read_anew: AtomicU64,
    /// Number of records put into each family.
    puts: Mutex<BTreeMap<Family, u64>>,
}

impl Default for Meta {
    fn default() -> Meta {
        Meta::on(Crashing::new(Place::in_memory()))
    }
}

impl Meta {
    pub(crate) fn on(inner: Crashing) -> Meta {
        Meta {
            inner: Arc::new(inner),
            failures: Mutex::default(),
            syncs_fail: Mutex::default(),
            syncs: AtomicU64::default(),
            reads: AtomicU64::default(),
            records_read: AtomicU64::default(),
            read_anew: AtomicU64::default(),
            puts: Mutex::default(),
        }
    }

    /// Returns the number of reads.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the number of records put into a family.
    pub(crate) fn puts(&self, family: Family) -> u64 {
        self.puts.lock().get(&family).copied().unwrap_or(0)
    }
}

impl MetaStore for Meta {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.records_read.fetch_add(1, Ordering::Relaxed);
        self.inner.get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.reads.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.records_read.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.inner.get_many(family, keys)
    }

    fn scan(
        &self,
        family: Family,
        range: KeyRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.scan(family, range, &mut |key, value| {
            self.records_read.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.inner.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        let mut failures = self.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            return Err(StoreError::Meta("made to fail".into()));
        }
        for change in batch.changes() {
            if let Change::Put(family, ..) = change {
                *self.puts.lock().entry(*family).or_default() += 1;
            }
        }
        self.inner.commit(batch)
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if *self.syncs_fail.lock() {
            return Err(StoreError::Meta("made to fail".into()));
        }
        self.inner.sync(number)
    }

    fn read_anew(&self) -> Result<(), StoreError> {
        self.read_anew.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }
}

pub(crate) struct Server {
    pub(crate) meta: Arc<Meta>,
    /// Store of file data, unless it is in `segments`.
    pub(crate) chunks: Arc<MemoryChunks>,
    pub(crate) segments: Option<Segments>,
    pub(crate) space: Arc<Mutex<Space>>,
    pub(crate) options: VolumeOptions,
    pub(crate) volumes: Volumes,
}

pub(crate) fn options() -> VolumeOptions {
    let append_threads = 0;
    VolumeOptions {
        spare_kib: 0,
        chunk_shift: 8,
        inline_bytes_max: 32,
        append_threads,
        ..VolumeOptions::default()
    }
}

pub(crate) fn partition() -> PartitionId {
    PartitionId::from_index(0).unwrap()
}

fn open(
    meta: &Arc<Meta>,
    chunks: Arc<dyn ChunkStore>,
    space: &Arc<Mutex<Space>>,
    options: VolumeOptions,
) -> Volumes {
    let asked = Arc::clone(space);
    let handle = PartitionHandle {
        id: partition(),
        meta: meta.clone(),
        chunks,
        space: Arc::new(move || *asked.lock()),
    };
    Volumes::open(vec![handle], options).unwrap()
}

impl Server {
    pub(crate) fn new(options: VolumeOptions) -> Server {
        Server::on(MemoryChunks::new(), options)
    }

    pub(crate) fn on(chunks: MemoryChunks, options: VolumeOptions) -> Server {
        Server::at(Place::in_memory(), chunks, options)
    }

    /// Creates a server whose metadata is in a database of the engine of `place`.
    pub(crate) fn at(place: Place, chunks: MemoryChunks, options: VolumeOptions) -> Server {
        let (meta, chunks) = (Arc::new(Meta::on(Crashing::new(place))), Arc::new(chunks));
        let space = Arc::new(Mutex::new(Space { total_kib: 1 << 40, free_kib: 1 << 40 }));
        let volumes = open(&meta, Arc::clone(&chunks) as _, &space, options);
        Server { meta, chunks, segments: None, space, options, volumes }
    }

    /// Creates a server whose file data is in segments on a faulty disk.
    pub(crate) fn on_segments(place: Place, segments: Segments, options: VolumeOptions) -> Server {
        let server = Server::at(place, MemoryChunks::new(), options);
        let mut server = Server { segments: Some(segments), ..server };
        server.begin();
        server
    }

    /// Creates a server with one read-write volume.
    pub(crate) fn with_volume(options: VolumeOptions) -> (Server, Arc<Volume>) {
        let server = Server::new(options);
        let volume = server.create(RW, "user.alice");
        (server, volume)
    }

    pub(crate) fn create(&self, id: VolumeId, name: &str) -> Arc<Volume> {
        self.volumes.create(partition(), &new_volume(id, name)).unwrap()
    }

    /// Creates a volume that waits for a restore.
    pub(crate) fn create_empty(&self, id: VolumeId, name: &str) -> Arc<Volume> {
        let new = NewVolume { with_root: false, in_service: false, ..new_volume(id, name) };
        self.volumes.create(partition(), &new).unwrap()
    }

    pub(crate) fn clone_rw(&self, id: u32) -> Arc<Volume> {
        let new = CloneVolume {
            id: VolumeId(id),
            name: format!("clone.{id}").parse().unwrap(),
            kind: VolumeType::ReadOnly,
            now: UnixTime(2000),
        };
        self.volumes.clone_volume(RW, &new).unwrap()
    }

    /// Makes a manual snapshot `s{id}` of the volume.
    pub(crate) fn snapshot_rw(&self, id: u32) -> Result<Arc<Volume>, VolumeError> {
        self.snapshot_kept(id, Kept::default(), UnixTime(2000 + id))
    }

    pub(crate) fn snapshot_kept(
        &self,
        id: u32,
        kept: Kept,
        now: UnixTime,
    ) -> Result<Arc<Volume>, VolumeError> {
        let new = NewSnapshot {
            id: VolumeId(id),
            parent: VolumeId(id - 1),
            volume_name: format!("snap.{id}").parse().unwrap(),
            name: format!("s{id}").parse().unwrap(),
            kept,
            expires: UnixTime(0),
            now,
        };
        self.volumes.snapshot(RW, &new)
    }

    /// Restarts the server. With segments, the caller must hold no reference to a volume.
    pub(crate) fn reopen(&mut self) {
        if self.segments.is_some() {
            self.volumes = Server::new(self.options).volumes;
        }
        self.segments.iter_mut().for_each(Segments::close);
        self.begin();
    }

    fn begin(&mut self) {
        let chunks: Arc<dyn ChunkStore> = match &mut self.segments {
            Some(segments) => {
                segments.open(&self.meta);
                segments.store() as _
            }
            None => Arc::clone(&self.chunks) as _,
        };
        self.volumes = open(&self.meta, chunks, &self.space, self.options);
    }

    /// Crashes and restarts the server, and checks that the store is consistent in between.
    pub(crate) fn crash(&mut self, kept: usize) {
        self.meta = Arc::new(Meta::on(self.meta.inner.crash(kept)));
        self.segments.iter_mut().for_each(Segments::crash);
        self.check();
        self.begin();
    }

    /// Checks that the partition has no damage, including that of chunks if they are in segments.
    pub(crate) fn check(&self) {
        let audit = self.segments.as_ref().map(|segments| segments.audit(&self.meta).unwrap());
        let options = CheckOptions { data: audit.is_some() };
        let report = check(&*self.meta, audit.as_ref(), options, &mut |_| {});
        assert!(report.is_clean(), "{report:#?}");
    }

    /// Reclaims dead segments; returns whether there are segments and all of them were reclaimed.
    pub(crate) fn maintain(&self) -> bool {
        let Some(segments) = &self.segments else { return false };
        let store = segments.store();
        // The first call records dead data, the second deletes it.
        (0..2).for_each(|_| _ = store.maintain());
        store.statistics().segments == 0
    }

    /// Removes the totals of the read-write volume, as if an older program had stored it last, and restarts.
    pub(crate) fn forget_totals(&mut self) {
        let key = keys::counters(RW);
        let counters = self.meta.get(families::VOLUMES, &key).unwrap().unwrap();
        let old = Counters { unfolded: None, ..codec::get_counters(&counters).unwrap() };
        let mut batch = Batch::new();
        batch.put(families::VOLUMES, key, codec::put_counters(&old));
        self.meta.inner.sync(self.meta.inner.commit(batch).unwrap()).unwrap();
        self.reopen();
    }

    pub(crate) fn purge(&self) {
        while self.volumes.purge_step().unwrap() {}
    }

    /// Compacts until there is nothing left to do.
    pub(crate) fn compact(&self, dead_percent: u8) {
        let policy = CompactionPolicy { dead_percent, ..CompactionPolicy::default() };
        let is_idle = || self.volumes.compact_step(partition(), policy, UnixTime(1)).unwrap().is_idle;
        assert!((0..100_000).any(|_| is_idle()), "compaction comes to no end");
        self.check_compaction(1);
    }

    /// Checks the upper bound of compaction's writes, if only segments with at least `least` percent dead
    /// data were compacted.
    pub(crate) fn check_compaction(&self, least: u64) {
        let done = self.volumes.compaction_statistics(partition()).unwrap();
        assert!(done.copied_bytes * least <= done.dead_bytes * (100 - least), "{done:?}");
    }

    /// Scrubs to the end of a pass.
    pub(crate) fn scrub(&self, now: u32) {
        let policy = ScrubPolicy { period_seconds: 0 };
        let passes = || self.volumes.scrub_statistics(partition()).unwrap().passes;
        let before = passes();
        while passes() == before {
            let step = self.volumes.scrub_step(partition(), policy, UnixTime(now)).unwrap();
            assert!(!step.is_idle, "time goes backwards");
        }
    }

    /// Returns the records of a family that are not deletions.
    pub(crate) fn records(&self, family: Family) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let range = KeyRange::ascending(&[0; 1], &[0xff; 16]);
        self.meta
            .scan(family, range, &mut |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            })
            .unwrap();
        found
    }

    /// Checks that every stored chunk is named by exactly one record, an extent or a row.
    pub(crate) fn check_chunks(&self) {
        let named = self.records(families::EXTENTS).iter().filter(|(_, value)| is_chunk(value)).count();
        assert_eq!(self.chunks.live_chunks(), named, "chunks in the store and chunks named");
    }

    pub(crate) fn registry_jobs(&self) -> usize {
        let (from, to) = keys::registry_range(keys::Registry::Job);
        self.records(families::VOLUMES).iter().filter(|(key, _)| *key >= from && *key < to).count()
    }
}

pub(crate) fn new_volume(id: VolumeId, name: &str) -> NewVolume {
    NewVolume {
        id,
        name: name.parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: VolumeId(0),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1000),
    }
}

fn is_chunk(value: &[u8]) -> bool {
    codec::extent_address(value).is_some_and(|address| address.is_some())
}

pub(crate) fn actor(now: u32) -> Actor {
    Actor { user: UserId(7), privileged: false, in_transaction: false, call: None, now: UnixTime(now) }
}

pub(crate) const fn nothing() -> SetStatus {
    SetStatus { mode: None, owner: None, group: None, client_modified: None }
}

/// Stores `data` at `offset`, in pieces of odd sizes.
pub(crate) fn store_at(
    volume: &Volume,
    fid: Fid,
    offset: u64,
    data: &[u8],
    file_length: u64,
) -> Result<VnodeStatus, VolumeError> {
    store_as(&actor(5000), volume, fid, offset, data, file_length)
}

/// Like [`store_at`], by this actor.
pub(crate) fn store_as(
    by: &impl Acknowledge,
    volume: &Volume,
    fid: Fid,
    offset: u64,
    data: &[u8],
    file_length: u64,
) -> Result<VnodeStatus, VolumeError> {
    let request = StoreRequest { offset, length: data.len() as u64, file_length, set: nothing() };
    let mut rest = Bytes::copy_from_slice(data);
    volume.store(by, fid, &request, &mut |most: usize| Ok(rest.split_to(rest.len().min(most).min(97))))
}

pub(crate) fn read_all(volume: &Arc<Volume>, fid: Fid) -> Vec<u8> {
    let mut reader = volume.reader(fid, 0, u64::MAX).unwrap();
    let mut out = Vec::new();
    while reader.remaining() > 0 {
        let pieces = reader.next(1000).unwrap();
        let got: usize = pieces.iter().map(Bytes::len).sum();
        assert!((1..=1000).contains(&got));
        out.extend(pieces.concat());
    }
    assert!(reader.next(1).unwrap().is_empty());
    out
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, VolumeError>) -> AbortCode {
    result.unwrap_err().abort_code()
}

pub(crate) fn interval() -> VolumeOptions {
    VolumeOptions { durability: Durability::Interval, ..options() }
}
