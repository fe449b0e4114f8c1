//! Hundreds of seeded histories of file data in a bucket that refuses, delays, loses, repeats and never answers
//! requests and whose answers break off, of processes that crash, and of processes that go on after another has taken
//! over. A bucket that permits nothing, or denies that objects exist, is served again by the same process afterwards.
//! After every open, each chunk that the metadata references reads back correctly; every other chunk reads back
//! correctly or is reported as not there, and never returns other bytes. At the end the bucket has no object that
//! nothing references.
//!
//! Each process has a runtime and a clock of its own that runs only while it is called, so a history takes
//! milliseconds. `CELLAR_BUCKET_COUNT=n` sets the number of histories.

use bucket::faulty::{Away, Faults, FaultyBucket, Met};
use bucket::{Objects, ObjectsConfig};
use bytes::Bytes;
use disk::{Disk, FaultyDisk, Garbling};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Batch, Bucket, BucketError, Change, ChunkAddress, ChunkNames, ChunkOwner, ChunkStore, Codec,
    CommitNumber, DiskCache, DiskCacheConfig, EncodedChunk, Family, FileData, KeyRange, MemoryMeta,
    MetaStore, ObjectChunks, ObjectConfig, ObjectPart, Snapshot, StoreError, Visit, VisitObject,
};
use tokio::runtime::{Builder, Runtime};

const HISTORIES: u64 = 600;
/// Its records name chunks.
const NAMES: Family = Family::new(4, "names");
const STEPS: u32 = 60;
const KEYS: u8 = 12;
const PATIENCE: Duration = Duration::from_secs(30);
/// Attempts to open a store, each as long as `PATIENCE`.
const OPENS_MAX: u32 = 20;

type Files = BTreeMap<u8, ChunkAddress>;

/// A fault of the program, to show that the histories find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    None,
    /// A sync returns before its objects exist.
    EarlySync,
    /// The account of an object is lost.
    LostAccount,
    /// With a dead object, one that is in use is removed.
    RemovesAnother,
    /// One release in eleven is lost.
    LostRelease,
}

/// The bucket of one process, perhaps with a planted fault.
struct Planted {
    objects: Objects,
    plant: Plant,
}

impl Bucket for Planted {
    fn begin(&self, name: &str, contents: &Bytes) {
        self.objects.begin(name, contents);
    }

    fn finish(&self, names: &[String]) -> Result<(), BucketError> {
        match self.plant {
            Plant::EarlySync => Ok(()),
            _ => self.objects.finish(names),
        }
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.objects.read(name, range)
    }

    fn read_other(&self, from: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.objects.read_other(from, range)
    }

    fn copy(&self, from: &str, name: &str) -> Result<u64, BucketError> {
        self.objects.copy(from, name)
    }

    fn remove(&self, names: &[String]) -> Result<(), BucketError> {
        self.objects.remove(names)?;
        if self.plant == Plant::RemovesAnother {
            let mut other = None;
            self.objects.list("", &mut |name, _| {
                other = Some(name.to_owned());
                ControlFlow::Break(())
            })?;
            return self.objects.remove(&other.into_iter().collect::<Vec<_>>());
        }
        Ok(())
    }

    fn list(&self, after: &str, visit: VisitObject<'_>) -> Result<(), BucketError> {
        self.objects.list(after, visit)
    }

    fn place(&self) -> String {
        self.objects.place()
    }
}

/// The metadata of one process, perhaps with a planted fault.
struct PlantedMeta {
    meta: Arc<MemoryMeta>,
    plant: Plant,
}

impl MetaStore for PlantedMeta {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.meta.get(family, key)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.meta.scan(family, range, visit)
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.meta.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        if self.plant != Plant::LostAccount {
            return self.meta.commit(batch);
        }
        let mut rest = Batch::new();
        for change in batch.changes() {
            match change {
                Change::Put(family, key, value) if *family != Family::SEGMENTS => {
                    rest.put(*family, key.clone(), value.clone());
                }
                Change::Put(..) => {}
                Change::Delete(family, key) => rest.delete(*family, key.clone()),
            }
        }
        self.meta.commit(rest)
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        self.meta.sync(number)
    }
}

/// What all histories together covered, to prove that the test exercises everything.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    appended: u64,
    synced: u64,
    unavailable: u64,
    crashes: u64,
    lost_commits: u64,
    removed_objects: u64,
    swept_objects: u64,
    missing_unsynced: u64,
    whole_unsynced: u64,
    recounts: u64,
    orphaned_bytes: u64,
    orderly_ends: u64,
    moved: u64,
    takeovers: u64,
    fenced: u64,
    outages: u64,
    cache_hits: u64,
}

impl Seen {
    fn all(&self) -> [u64; 17] {
        [
            self.appended,
            self.synced,
            self.unavailable,
            self.crashes,
            self.lost_commits,
            self.removed_objects,
            self.swept_objects,
            self.missing_unsynced,
            self.whole_unsynced,
            self.recounts,
            self.orphaned_bytes,
            self.orderly_ends,
            self.moved,
            self.takeovers,
            self.fenced,
            self.outages,
            self.cache_hits,
        ]
    }
}

/// A process with the store open.
struct Node {
    runtime: Arc<Runtime>,
    bucket: Arc<Planted>,
    meta: Arc<MemoryMeta>,
    store: ObjectChunks,
}

impl Node {
    fn rest(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Ends the process as a crash does.
    fn crash(self) {
        self.bucket.objects.abandon();
    }
}

struct History {
    rng: SmallRng,
    plant: Plant,
    bucket: FaultyBucket,
    faults: Faults,
    cut: u32,
    config: ObjectConfig,
    disk: Option<FaultyDisk>,
    node: Option<Node>,
    zombie: Option<Node>,
    /// Contents of every chunk ever appended.
    contents: BTreeMap<ChunkAddress, Bytes>,
    /// Chunks appended and neither referenced nor released; true once a sync covered them.
    unnamed: BTreeMap<ChunkAddress, bool>,
    /// The metadata after every commit since the last open, starting with the state at the open.
    states: Vec<Files>,
    /// Number of these commits that are certainly durable.
    durable: usize,
    /// Replaced chunks, to be released once the commit is durable.
    replaced: Vec<ChunkAddress>,
    /// Lowest segment id of this process.
    first_segment: u64,
    /// Whether this process has searched for orphans.
    recounted: bool,
    released: u64,
    /// Whether the bucket denies that objects exist, and number of calls that failed since it did.
    is_hiding: bool,
    hidden_errors: u64,
    seen: Seen,
}

fn faults(rng: &mut SmallRng) -> Faults {
    // A third of the histories has one kind of fault only, often; the others have all.
    let mut share = |most: u32| rng.random_range(0..=most);
    let all = Faults {
        refused: share(80),
        lost: share(80),
        own_conflict: share(60),
        late: share(60),
        repeated: share(80),
        delayed: share(80),
        hung: share(8),
    };
    match rng.random_range(0..15) {
        0 => Faults { lost: 300, ..Faults::default() },
        1 => Faults { late: 300, ..Faults::default() },
        2 => Faults { repeated: 500, ..Faults::default() },
        3 => Faults { own_conflict: 400, ..Faults::default() },
        4 => Faults::default(),
        _ => all,
    }
}

fn named(meta: &MemoryMeta) -> Files {
    let mut files = Files::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        files.insert(key[0], ChunkAddress::from_bytes(value).unwrap());
        ControlFlow::Continue(())
    };
    meta.scan(NAMES, KeyRange::ascending(&[0], &[KEYS]), &mut visit).unwrap();
    files
}

/// The metadata as of the open.
struct Named(Files);

impl Snapshot for Named {
    fn scan(&self, family: Family, _range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        assert_eq!(family, NAMES);
        for (key, address) in &self.0 {
            if visit(&[*key], &address.to_bytes()).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it must be a ChunkOf")]
fn chunk_of(_key: &[u8], value: &[u8]) -> Result<Option<ChunkAddress>, StoreError> {
    Ok(Some(ChunkAddress::from_bytes(value).unwrap()))
}

impl History {
    fn new(seed: u64, plant: Plant) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (faults, cut) = (faults(&mut rng), rng.random_range(0..=150));
        let config = ObjectConfig {
            object_bytes_max: rng.random_range(1..20_000),
            unsaved_bytes_max: rng.random_range(0..50_000),
            // Hardly anything is cached, so that reads go to the bucket.
            cache_bytes: rng.random_range(0..2000),
            ..ObjectConfig::default()
        };
        let disk = rng.random_ratio(1, 3).then(|| {
            let disk =
                FaultyDisk::new(seed, Garbling { noise: seed.is_multiple_of(2), ..Garbling::default() });
            disk.create_dir(Path::new("/cache")).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            disk
        });
        let mut history = History {
            rng,
            plant,
            bucket: FaultyBucket::new(seed, Faults::default()),
            faults,
            cut,
            config,
            disk,
            node: None,
            zombie: None,
            contents: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            states: vec![Files::new()],
            durable: 0,
            replaced: Vec::new(),
            first_segment: 0,
            recounted: false,
            released: 0,
            is_hiding: false,
            hidden_errors: 0,
            seen: Seen::default(),
        };
        history.open(Arc::new(MemoryMeta::new()));
        history.set_faults(true);
        history
    }

    fn set_faults(&self, is_faulty: bool) {
        let faults = if is_faulty { self.faults } else { Faults::default() };
        self.bucket.set_faults(faults);
        self.bucket.set_cut(if is_faulty { self.cut } else { 0 });
    }

    fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    fn store(&self) -> &ObjectChunks {
        &self.node().store
    }

    fn disk_cache(&self) -> Option<DiskCache> {
        let config =
            DiskCacheConfig { folder: "/cache".into(), bytes_max: 100_000, entries_max: 50, owner: [1; 16] };
        self.disk.as_ref().map(|disk| DiskCache::open(Arc::new(disk.clone()), config).unwrap())
    }

    /// Opens the store in a new process.
    fn open(&mut self, meta: Arc<MemoryMeta>) {
        for _ in 0..OPENS_MAX {
            let runtime =
                Arc::new(Builder::new_current_thread().enable_time().start_paused(true).build().unwrap());
            let config = ObjectsConfig { patience: PATIENCE, request_limit: Duration::from_secs(5) };
            let objects =
                Objects::new(Arc::clone(&runtime), Arc::new(self.bucket.clone()), "p1/chunks", config);
            let bucket = Arc::new(Planted { objects, plant: self.plant });
            let planted = Arc::new(PlantedMeta { meta: Arc::clone(&meta), plant: self.plant });
            match ObjectChunks::open(Arc::clone(&bucket) as _, planted, self.config, None) {
                Ok(mut store) => {
                    if let Some(cache) = self.disk_cache() {
                        store = store.with_disk_cache(cache);
                    }
                    self.node = Some(Node { runtime, bucket, meta, store });
                    return;
                }
                Err(StoreError::Unavailable { .. }) => self.seen.unavailable += 1,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("it does not open any more");
    }

    fn step(&mut self) {
        match self.rng.random_range(0..116) {
            0..36 => _ = self.append(),
            36..66 => self.write_file(),
            66..72 => _ = self.sync(),
            72..76 => self.release_unnamed(),
            76..86 => self.maintain(),
            86..89 => self.sweep(),
            89..93 => self.crash(),
            93..98 => self.move_chunk(),
            98..101 => self.restart(),
            101..104 => self.take_over(),
            104..109 => self.wake_zombie(),
            109..112 => {
                let time = Duration::from_millis(self.rng.random_range(0..20_000));
                self.node().rest(time);
            }
            _ => self.outage(),
        }
    }

    /// Counts a call that had no answer; any other error is one that must not happen.
    fn noted<T>(&mut self, result: Result<T, StoreError>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(StoreError::Unavailable { .. }) => {
                self.seen.unavailable += 1;
                None
            }
            Err(StoreError::Damaged { place, .. }) if self.is_hiding => {
                assert!(place.contains("p1/chunks"), "the error names no object: {place}");
                self.hidden_errors += 1;
                None
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn some_bytes(&mut self) -> Bytes {
        let length =
            if self.rng.random() { self.rng.random_range(0..100) } else { self.rng.random_range(0..6000) };
        let mut bytes = vec![self.rng.random(); length];
        if self.rng.random() {
            self.rng.fill_bytes(&mut bytes);
        }
        bytes.into()
    }

    /// Appends one or several chunks in one call; returns the last.
    fn append(&mut self) -> Option<ChunkAddress> {
        let count = if self.rng.random_ratio(1, 4) { self.rng.random_range(2..6) } else { 1 };
        let new: Vec<Vec<Bytes>> = (0..count)
            .map(|_| (0..self.rng.random_range(1..4)).map(|_| self.some_bytes()).collect())
            .collect();
        let codec = [Codec::Raw, Codec::Lz4, Codec::Zstd(1)][self.rng.random_range(0..3)];
        let encode = |pieces: &Vec<Bytes>| EncodedChunk::new(ChunkOwner::default(), pieces, codec).unwrap();
        let appended = self.store().append_all(new.iter().map(encode).collect());
        let addresses = self.noted(appended)?;
        assert_eq!(addresses.len(), new.len());
        for (address, pieces) in addresses.iter().zip(&new) {
            let reused = self.contents.insert(*address, pieces.concat().into());
            assert!(
                reused.is_none() && address.segment >= self.first_segment,
                "{address:?} was given out twice"
            );
            self.unnamed.insert(*address, false);
            self.check(*address, true);
            self.seen.appended += 1;
        }
        addresses.last().copied()
    }

    fn sync(&mut self) -> bool {
        let synced = self.store().sync();
        let is_synced = self.noted(synced).is_some();
        if is_synced {
            self.unnamed.values_mut().for_each(|synced| *synced = true);
            self.seen.synced += 1;
        }
        is_synced
    }

    fn release(&mut self, address: ChunkAddress) {
        self.released += 1;
        if self.plant != Plant::LostRelease || !self.released.is_multiple_of(11) {
            self.store().release(address);
        }
    }

    /// Makes everything committed durable, and releases the replaced chunks.
    fn settle(&mut self, number: CommitNumber) {
        self.node().meta.sync(number).unwrap();
        self.durable = self.states.len() - 1;
        for address in std::mem::take(&mut self.replaced) {
            self.release(address);
        }
    }

    /// Appends a chunk, syncs, commits, perhaps syncs again, and releases the replaced chunk.
    fn write_file(&mut self) {
        let Some(address) = self.append() else { return };
        if !self.sync() {
            return;
        }
        let key = self.rng.random_range(0..KEYS);
        let mut files = self.states.last().unwrap().clone();
        let mut batch = Batch::new();
        if self.rng.random_ratio(1, 4) {
            batch.delete(NAMES, [key]);
            self.replaced.extend(files.remove(&key));
        } else {
            batch.put(NAMES, [key], address.to_bytes());
            self.unnamed.remove(&address);
            self.replaced.extend(files.insert(key, address));
        }
        let number = self.node().meta.commit(batch).unwrap();
        self.states.push(files);
        if self.rng.random() {
            self.settle(number);
        }
    }

    /// Copies a chunk as compaction does: syncs, commits its new address, syncs that, and releases the old one.
    fn move_chunk(&mut self) {
        let mut files = self.states.last().unwrap().clone();
        let keys: Vec<u8> = files.keys().copied().collect();
        if keys.is_empty() {
            return;
        }
        let key = keys[self.rng.random_range(0..keys.len())];
        let old = files[&key];
        if self.rng.random() {
            let listed = self.store().records(old.segment, 0, usize::MAX);
            let Some(listed) = self.noted(listed) else { return };
            assert!(listed.found.iter().any(|(address, _)| *address == old) && !listed.is_cut);
        }
        let copied = self.store().copy(old, ChunkOwner([key; 24]));
        let Some(new) = self.noted(copied) else { return };
        assert!(self.contents.insert(new, self.contents[&old].clone()).is_none());
        self.unnamed.insert(new, false);
        if !self.sync() {
            return;
        }
        let mut batch = Batch::new();
        batch.put(NAMES, [key], new.to_bytes());
        self.unnamed.remove(&new);
        files.insert(key, new);
        self.replaced.push(old);
        let number = self.node().meta.commit(batch).unwrap();
        self.states.push(files);
        self.settle(number);
        self.seen.moved += 1;
    }

    /// Simulates an aborted transaction.
    fn release_unnamed(&mut self) {
        // Only chunks of this process: those of earlier ones are not tracked.
        let first = ChunkAddress { segment: self.first_segment, ..ChunkAddress::default() };
        let found = self.unnamed.range(first..).next().map(|(address, _)| *address);
        if let Some(address) = found {
            self.unnamed.remove(&address);
            self.release(address);
        }
    }

    fn maintain(&mut self) {
        if self.rng.random_ratio(1, 4) && !self.recounted && self.store().needs_recount() {
            self.recount();
        }
        let removed = self.store().maintain();
        self.seen.removed_objects += self.noted(removed).unwrap_or(0) as u64;
        // The store may have synced the metadata.
        if self.node().meta.unsynced_commits() == 0 {
            self.durable = self.states.len() - 1;
        }
        if self.recounted {
            self.check_accounts();
        }
        self.check_all();
    }

    /// Counts the chunks referenced at the open. Other chunks of earlier processes may disappear from here on.
    fn recount(&mut self) {
        let state = Named(self.states[0].clone());
        let names = ChunkNames { family: NAMES, chunk_of };
        let found = self.store().recount(&state, names, &mut || true).unwrap().unwrap();
        assert_eq!((found.chunks, found.missing), (self.states[0].len() as u64, 0));
        self.seen.recounts += 1;
        self.seen.orphaned_bytes += found.orphaned_bytes;
        self.forget_earlier();
        self.recounted = true;
    }

    fn forget_earlier(&mut self) {
        self.unnamed.retain(|address, _| address.segment >= self.first_segment);
    }

    /// Removes what nothing knows of. Objects of earlier processes may disappear from here on.
    fn sweep(&mut self) {
        self.forget_earlier();
        let swept = self.store().sweep(&mut || true);
        self.seen.swept_objects += self.noted(swept).unwrap_or(0);
        self.check_all();
    }

    /// After a recount, exactly the chunks that are referenced or will be released are not dead.
    fn check_accounts(&self) {
        let files = self.states.last().unwrap();
        let unnamed = self.unnamed.keys().filter(|address| address.segment >= self.first_segment);
        let live = files.values().chain(&self.replaced).chain(unnamed);
        let live: u64 = live.map(|address| u64::from(address.stored_bytes)).sum();
        let statistics = self.store().statistics();
        assert_eq!(statistics.segment_bytes - 32 * statistics.segments - statistics.dead_bytes, live);
    }

    /// Ends the process as a crash does, and opens the store that it left.
    fn crash(&mut self) {
        self.seen.crashes += 1;
        let node = self.node.take().unwrap();
        self.count_hits(&node);
        let kept = self.rng.random_range(0..=node.meta.unsynced_commits());
        let meta = Arc::new(node.meta.crash(kept));
        node.crash();
        self.disk = self.disk.as_ref().map(FaultyDisk::crash);
        self.reopen(meta);
    }

    fn count_hits(&mut self, node: &Node) {
        self.seen.cache_hits += node.store.disk_cache_statistics().map_or(0, |statistics| statistics.hits);
    }

    /// Opens the store in another process, while this one sleeps.
    fn take_over(&mut self) {
        let node = self.node.take().unwrap();
        self.count_hits(&node);
        let kept = self.rng.random_range(0..=node.meta.unsynced_commits());
        let meta = Arc::new(node.meta.taken_over(kept));
        // The copies on the disk are those of one machine.
        self.disk = self.disk.as_ref().map(FaultyDisk::crash);
        self.end_zombie();
        self.zombie = Some(node);
        self.seen.takeovers += 1;
        self.reopen(meta);
    }

    fn end_zombie(&mut self) {
        if let Some(zombie) = self.zombie.take() {
            // Half of them end in order, as far as they can.
            if self.rng.random() {
                zombie.crash();
            }
        }
    }

    /// Lets the process that slept go on. Nothing that it does may affect its successor.
    fn wake_zombie(&mut self) {
        let Some(zombie) = self.zombie.take() else { return };
        for _ in 0..self.rng.random_range(1..4) {
            let done = match self.rng.random_range(0..5) {
                0 => zombie.store.append(&[self.some_bytes()], Codec::Raw).map(drop),
                1 => zombie.store.sync(),
                2 => zombie.store.maintain().map(|removed| assert_eq!(removed, 0)),
                3 => {
                    // It knows no more of earlier processes' objects than its successor.
                    self.forget_earlier();
                    zombie.store.sweep(&mut || true).map(drop)
                }
                _ => {
                    zombie.rest(Duration::from_millis(self.rng.random_range(0..5000)));
                    Ok(())
                }
            };
            match done {
                Err(StoreError::Fenced { .. }) => self.seen.fenced += 1,
                Ok(()) | Err(StoreError::Unavailable { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        self.check_all();
        self.zombie = Some(zombie);
        if self.rng.random() {
            self.end_zombie();
        }
    }

    /// Ends the process in order, and opens the store again, while nothing fails.
    fn restart(&mut self) {
        self.set_faults(false);
        // A call without an answer may have left chunks that are never released.
        let is_exact = (self.recounted || !self.store().needs_recount()) && !self.store().is_interrupted();
        let newest = self.node().meta.commit(Batch::new()).unwrap();
        self.settle(newest);
        let first = ChunkAddress { segment: self.first_segment, ..ChunkAddress::default() };
        for address in self.unnamed.split_off(&first).into_keys() {
            self.release(address);
        }
        let node = self.node.take().unwrap();
        self.count_hits(&node);
        let meta = Arc::clone(&node.meta);
        drop(node);
        let meta = Arc::new(meta.crash(meta.unsynced_commits()));
        self.reopen(meta);
        if is_exact {
            assert!(!self.store().needs_recount(), "it was closed in order");
            self.seen.orderly_ends += 1;
            self.recounted = true;
            self.check_accounts();
        }
        self.set_faults(true);
    }

    fn reopen(&mut self, meta: Arc<MemoryMeta>) {
        let files = named(&meta);
        let commits = self.states[self.durable..].iter().position(|state| *state == files);
        let survived = commits.expect("the metadata is a prefix of the commits, not before the durable one");
        self.seen.lost_commits += (self.states.len() - 1 - self.durable - survived) as u64;
        self.open(meta);
        // Chunks without a reference now never had one, or will never be released.
        let live: BTreeSet<_> = files.values().copied().collect();
        self.unnamed.retain(|address, _| !live.contains(address));
        (self.states, self.durable) = (vec![files], 0);
        self.replaced.clear();
        self.first_segment = self.contents.keys().next_back().map_or(0, |last| last.segment + 1);
        self.recounted = false;
        self.check_all();
        // No later sync covers them, since the process that wrote them has ended.
        self.unnamed.retain(|_, synced| *synced);
    }

    /// Makes the bucket unreachable for some time. Afterwards the same process serves again.
    fn outage(&mut self) {
        self.seen.outages += 1;
        let away = [Away::Failing, Away::Silent, Away::Denied, Away::Hiding][self.rng.random_range(0..4)];
        self.bucket.set_away(Some(away));
        self.is_hiding = away == Away::Hiding;
        for _ in 0..self.rng.random_range(1..6) {
            match self.rng.random_range(0..6) {
                0 => _ = self.append(),
                1 => self.write_file(),
                2 => _ = self.sync(),
                3 => self.maintain(),
                4 => self.sweep(),
                _ => {
                    let most = if self.rng.random_ratio(1, 20) { 600 } else { 20 };
                    let time = Duration::from_secs(self.rng.random_range(0..most));
                    self.node().rest(time);
                }
            }
        }
        self.bucket.set_away(None);
        self.is_hiding = false;
        self.set_faults(false);
        assert!(self.sync(), "it does not serve again after an outage");
        let unavailable = self.seen.unavailable;
        self.check_all();
        assert_eq!(self.seen.unavailable, unavailable, "reads fail after an outage");
        self.set_faults(true);
    }

    fn check_all(&mut self) {
        let files = self.states.last().unwrap().clone();
        for address in files.into_values().chain(self.replaced.clone()) {
            self.check(address, true);
        }
        for (address, synced) in self.unnamed.clone() {
            // Those of earlier processes that were not synced may be there or not.
            let is_own = address.segment >= self.first_segment;
            let is_whole = self.check(address, synced || is_own);
            if !synced && !is_own {
                self.seen.whole_unsynced += u64::from(is_whole);
                self.seen.missing_unsynced += u64::from(!is_whole);
            }
        }
    }

    /// Reads a chunk: it never has other bytes than were written, and is there if it must be.
    fn check(&mut self, address: ChunkAddress, expect_good: bool) -> bool {
        match self.store().read(address) {
            Ok(bytes) => {
                assert_eq!(bytes, self.contents[&address], "{address:?}");
                true
            }
            Err(StoreError::Unavailable { .. }) => {
                self.seen.unavailable += 1;
                false
            }
            Err(StoreError::Damaged { place, .. }) if self.is_hiding => {
                assert!(place.contains("p1/chunks"), "the error names no object: {place}");
                self.hidden_errors += 1;
                false
            }
            Err(error) if expect_good => panic!("{address:?}: {error}"),
            Err(StoreError::Damaged { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Checks in a bucket without faults that everything is there, and that nothing else is.
    fn end(mut self) -> (Seen, Met) {
        self.set_faults(false);
        self.end_zombie();
        self.crash();
        if self.store().needs_recount() {
            self.recount();
        }
        // Until all late requests are done.
        for _ in 0..40 {
            self.check_all();
            let listed = self.node().bucket.list("", &mut |_, _| ControlFlow::Continue(()));
            listed.unwrap();
        }
        self.sweep();
        self.store().maintain().unwrap();
        self.store().maintain().unwrap();
        let mut objects = 0;
        self.node()
            .bucket
            .list("", &mut |_, _| {
                objects += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(self.store().statistics().segments, objects, "each object has an account");
        let live: BTreeSet<u64> = self.states[0].values().map(|address| address.segment).collect();
        assert_eq!(objects, live.len() as u64, "each object has a chunk that is referenced");
        self.check_all();
        let node = self.node.take().unwrap();
        self.count_hits(&node);
        (self.seen, self.bucket.met())
    }
}

fn run(seed: u64, plant: Plant) -> (Seen, Met) {
    let mut history = History::new(seed, plant);
    (0..STEPS).for_each(|_| history.step());
    history.end()
}

fn count() -> u64 {
    std::env::var("CELLAR_BUCKET_COUNT")
        .map_or(HISTORIES, |text| text.parse().expect("CELLAR_BUCKET_COUNT is a number"))
}

#[test]
fn synced_chunks_survive_and_no_read_is_wrong() {
    let mut all = [0; 17];
    let mut met = Met::default();
    let histories = count();
    let mut seen = Seen::default();
    seeds::play(histories, |seed| {
        let (one, faults) = run(seed, Plant::None);
        all.iter_mut().zip(one.all()).for_each(|(sum, count)| *sum += count);
        seen = one;
        met.add(&faults);
    });
    println!("{histories} histories: {all:?}, the last: {seen:?}\n{met:?}");
    if histories >= HISTORIES {
        let others = [met.cut, met.denied, met.hidden];
        assert!(all.iter().chain(&met.all()).chain(&others).all(|count| *count > 20), "{all:?} {met:?}");
    }
}

#[test]
fn planted_faults_are_found() {
    let plants = [Plant::EarlySync, Plant::LostAccount, Plant::RemovesAnother, Plant::LostRelease];
    for plant in plants {
        let finds = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed, plant))).is_err();
        let seed = (0..300).find(finds);
        println!("{plant:?} is found by history {seed:?}");
        assert!(seed.is_some(), "{plant:?} is not found");
    }
}
