//! Thousands of seeded histories of a segment store on a faulty disk, with metadata in memory that can also
//! crash. After every crash, the metadata is a prefix of its commits that contains every acknowledged one;
//! every chunk that it references reads back correctly; every other chunk reads back correctly or is reported
//! damaged, and never returns other bytes.

use bytes::Bytes;
use disk::{Disk, FaultyDisk, Garbling, Torn};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use store::{
    Batch, ChunkAddress, ChunkNames, ChunkOwner, ChunkStore, Codec, EncodedChunk, Family, FileData, KeyRange,
    MemoryMeta, MetaStore, Reserve, SegmentConfig, SegmentStore, Snapshot, StoreError, Visit,
};

const HISTORIES: u64 = 3000;
/// Its records name chunks.
const NAMES: Family = Family::new(4, "names");
const STEPS: u32 = 60;
const KEYS: u8 = 12;
const FOLDER: &str = "/segments";

type Files = BTreeMap<u8, ChunkAddress>;

/// What all histories together covered, to prove that the test exercises everything.
#[derive(Debug, Default)]
struct Seen {
    crashes: u64,
    lost_commits: u64,
    deleted_segments: u64,
    damaged_unsynced: u64,
    whole_unsynced: u64,
    refused_writes: u64,
    full: u64,
    recounts: u64,
    orphaned_bytes: u64,
    orderly_ends: u64,
    moved: u64,
}

struct History {
    rng: SmallRng,
    disk: FaultyDisk,
    meta: Arc<MemoryMeta>,
    store: SegmentStore,
    config: SegmentConfig,
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
    /// Lowest segment id of this run.
    first_segment: u64,
    /// Whether a disk error may occur now.
    faults: bool,
    /// Whether this run has searched for orphans.
    recounted: bool,
    seen: Seen,
}

fn garbling(rng: &mut SmallRng) -> Garbling {
    let torn = if rng.random() { Torn::Sector } else { Torn::Byte };
    Garbling { torn, noise: rng.random(), short: rng.random() }
}

fn config(rng: &mut SmallRng) -> SegmentConfig {
    SegmentConfig {
        segment_bytes: rng.random_range(1..20_000),
        // Hardly anything is cached, so that reads go to the disk.
        cache_bytes: rng.random_range(0..2000),
        open_files_max: rng.random_range(1..4),
        reserve: Reserve { bytes: 0, permille: 0 },
        unsynced_bytes_max: rng.random_range(0..50_000),
        aligned_bytes_min: if rng.random() { 64 << 10 } else { rng.random_range(0..1500) },
    }
}

fn open(
    disk: &FaultyDisk,
    meta: &Arc<MemoryMeta>,
    config: SegmentConfig,
) -> Result<SegmentStore, StoreError> {
    SegmentStore::open(Arc::new(disk.clone()), Path::new(FOLDER), Arc::clone(meta) as _, config)
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
    fn new(seed: u64) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = FaultyDisk::new(seed, garbling(&mut rng));
        disk.create_dir(Path::new(FOLDER)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let (meta, config) = (Arc::new(MemoryMeta::new()), config(&mut rng));
        let store = open(&disk, &meta, config).unwrap();
        let (contents, unnamed) = (BTreeMap::new(), BTreeMap::new());
        let (states, replaced, seen) = (vec![Files::new()], Vec::new(), Seen::default());
        History {
            rng,
            disk,
            meta,
            store,
            config,
            contents,
            unnamed,
            states,
            durable: 0,
            replaced,
            first_segment: 0,
            faults: false,
            recounted: false,
            seen,
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..106) {
            0..40 => _ = self.append(),
            40..70 => self.write_file(),
            70..76 => self.sync(),
            76..80 => self.release_unnamed(),
            80..90 => self.maintain(),
            90..93 => self.inject(),
            93..95 => self.limit(),
            95..98 => self.crash(),
            98..104 => self.move_chunk(),
            _ => self.restart(),
        }
    }

    /// Records an error, which must be one that this disk can cause.
    fn note(&mut self, error: &StoreError) {
        match error {
            StoreError::Full => self.seen.full += 1,
            StoreError::Io { .. } | StoreError::ReadOnly(_) if self.faults => self.seen.refused_writes += 1,
            other => panic!("{other}"),
        }
    }

    fn noted<T>(&mut self, result: Result<T, StoreError>) -> Option<T> {
        result.map_err(|error| self.note(&error)).ok()
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
        let new: Vec<Vec<Bytes>> = (0..count).map(|_| self.some_pieces()).collect();
        let codec = [Codec::Raw, Codec::Lz4, Codec::Zstd(1)][self.rng.random_range(0..3)];
        let encode = |pieces: &Vec<Bytes>| EncodedChunk::new(ChunkOwner::default(), pieces, codec).unwrap();
        let appended = match &new[..] {
            [one] => self.store.append(one, codec).map(|address| vec![address]),
            several => self.store.append_all(several.iter().map(encode).collect()),
        };
        let addresses = self.noted(appended)?;
        assert_eq!(addresses.len(), new.len());
        for (address, pieces) in addresses.iter().zip(&new) {
            let reused = self.contents.insert(*address, pieces.concat().into());
            assert!(
                reused.is_none() && address.segment >= self.first_segment,
                "{address:?} was given out twice"
            );
            self.unnamed.insert(*address, false);
            self.check(*address, !self.faults);
        }
        addresses.last().copied()
    }

    fn some_pieces(&mut self) -> Vec<Bytes> {
        (0..self.rng.random_range(1..4)).map(|_| self.some_bytes()).collect()
    }

    /// Appends a chunk, syncs, commits, perhaps syncs again, and releases the replaced chunk.
    fn write_file(&mut self) {
        let Some(address) = self.append() else { return };
        let synced = self.store.sync();
        if self.noted(synced).is_none() {
            return;
        }
        self.unnamed.values_mut().for_each(|synced| *synced = true);
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
        let number = self.meta.commit(batch).unwrap();
        self.states.push(files);
        if self.rng.random() {
            self.meta.sync(number).unwrap();
            self.durable = self.states.len() - 1;
            self.replaced.drain(..).for_each(|address| self.store.release(address));
        }
    }

    /// Copies a chunk, syncs, commits its new address, syncs that, and releases the old one.
    fn move_chunk(&mut self) {
        let mut files = self.states.last().unwrap().clone();
        let keys: Vec<u8> = files.keys().copied().collect();
        if keys.is_empty() {
            return;
        }
        let key = keys[self.rng.random_range(0..keys.len())];
        let old = files[&key];
        let copied = self.store.copy(old, ChunkOwner([key; 24]));
        let Some(new) = self.noted(copied) else { return };
        assert!(self.contents.insert(new, self.contents[&old].clone()).is_none());
        self.unnamed.insert(new, false);
        let synced = self.store.sync();
        if self.noted(synced).is_none() {
            return;
        }
        self.unnamed.values_mut().for_each(|synced| *synced = true);
        let mut batch = Batch::new();
        batch.put(NAMES, [key], new.to_bytes());
        self.unnamed.remove(&new);
        files.insert(key, new);
        self.replaced.push(old);
        let number = self.meta.commit(batch).unwrap();
        self.states.push(files);
        self.meta.sync(number).unwrap();
        self.durable = self.states.len() - 1;
        self.replaced.drain(..).for_each(|address| self.store.release(address));
        self.seen.moved += 1;
    }

    fn sync(&mut self) {
        let synced = self.store.sync();
        if self.noted(synced).is_some() {
            self.unnamed.values_mut().for_each(|synced| *synced = true);
        }
    }

    /// Simulates an aborted transaction.
    fn release_unnamed(&mut self) {
        // Only chunks of this run: those of earlier runs are not tracked.
        let first = ChunkAddress { segment: self.first_segment, ..ChunkAddress::default() };
        let found = self.unnamed.range(first..).next().map(|(address, _)| *address);
        if let Some(address) = found {
            self.unnamed.remove(&address);
            self.store.release(address);
        }
    }

    fn maintain(&mut self) {
        if self.rng.random_ratio(1, 4) && !self.recounted && self.store.needs_recount() {
            self.recount();
        }
        let deleted = self.store.maintain();
        self.seen.deleted_segments += self.noted(deleted).unwrap_or(0) as u64;
        // The store may have synced the metadata.
        if self.meta.unsynced_commits() == 0 {
            self.durable = self.states.len() - 1;
        }
        if self.recounted && !self.faults {
            self.check_accounts();
        }
        self.check_all(!self.faults);
    }

    /// Counts the chunks referenced at the open. Other chunks of earlier runs may disappear from here on.
    fn recount(&mut self) {
        let state = Named(self.states[0].clone());
        let found = self
            .store
            .recount(&state, ChunkNames { family: NAMES, chunk_of }, &mut || true)
            .unwrap()
            .unwrap();
        assert_eq!((found.chunks, found.missing), (self.states[0].len() as u64, 0));
        self.seen.recounts += 1;
        self.seen.orphaned_bytes += found.orphaned_bytes;
        self.unnamed.retain(|address, _| address.segment >= self.first_segment);
        self.recounted = true;
    }

    /// After a recount, exactly the chunks that are referenced or will be released are not dead.
    fn check_accounts(&self) {
        let files = self.states.last().unwrap();
        let unnamed = self.unnamed.keys().filter(|address| address.segment >= self.first_segment);
        let live = files.values().chain(&self.replaced).chain(unnamed);
        let live: u64 = live.map(|address| u64::from(address.stored_bytes)).sum();
        let statistics = self.store.statistics();
        assert_eq!(statistics.segment_bytes - 32 * statistics.segments - statistics.dead_bytes, live);
    }

    fn inject(&mut self) {
        let kind =
            [ErrorKind::Other, ErrorKind::StorageFull, ErrorKind::Interrupted][self.rng.random_range(0..3)];
        let soon = self.disk.operations() + self.rng.random_range(0..20);
        if self.rng.random_ratio(1, 3) {
            self.disk.cut_power_at(soon);
        } else {
            self.disk.fail_at(soon, kind);
        }
        self.faults = true;
    }

    fn limit(&mut self) {
        let used = self.contents.values().map(|bytes| bytes.len() as u64).sum::<u64>();
        self.disk.set_capacity(if self.rng.random() { used } else { u64::MAX });
    }

    fn crash(&mut self) {
        self.seen.crashes += 1;
        let pending = self.meta.unsynced_commits();
        let kept = self.rng.random_range(0..=pending);
        let disk = self.disk.crash();
        let meta = Arc::new(self.meta.crash(kept));
        let found = named(&meta);
        let commits = self.states[self.durable..].iter().position(|files| *files == found);
        let survived = commits.expect("the metadata is a prefix of the commits, not before the durable one");
        self.seen.lost_commits += (self.states.len() - 1 - self.durable - survived) as u64;
        self.reopen(disk, meta);
    }

    /// Restarts the program, cleanly or not; the system keeps running.
    fn restart(&mut self) {
        let disk = self.disk.clone();
        if self.faults {
            return self.crash();
        }
        let is_orderly = self.rng.random();
        let is_exact = is_orderly && (self.recounted || !self.store.needs_recount());
        if is_orderly {
            self.close();
        }
        let meta = Arc::new(self.meta.crash(self.meta.unsynced_commits()));
        self.reopen(disk, meta);
        if is_exact {
            assert!(!self.store.needs_recount(), "it was closed in order");
            self.seen.orderly_ends += 1;
            self.recounted = true;
            self.check_accounts();
        }
    }

    /// Releases unreferenced chunks and closes the store.
    fn close(&mut self) {
        let newest = self.meta.commit(Batch::new()).unwrap();
        self.states.push(self.states.last().unwrap().clone());
        self.meta.sync(newest).unwrap();
        self.durable = self.states.len() - 1;
        self.replaced.drain(..).for_each(|address| self.store.release(address));
        let mine =
            self.unnamed.split_off(&ChunkAddress { segment: self.first_segment, ..Default::default() });
        for address in mine.into_keys() {
            self.store.release(address);
        }
        drop(std::mem::replace(&mut self.store, History::scratch(self.config)));
    }

    fn scratch(config: SegmentConfig) -> SegmentStore {
        let disk = FaultyDisk::new(0, Garbling::default());
        disk.create_dir(Path::new(FOLDER)).unwrap();
        open(&disk, &Arc::new(MemoryMeta::new()), config).unwrap()
    }

    fn reopen(&mut self, disk: FaultyDisk, meta: Arc<MemoryMeta>) {
        disk.set_capacity(u64::MAX);
        self.store = open(&disk, &meta, self.config).unwrap();
        let files = named(&meta);
        // Chunks without a reference now never had one, or will never be released.
        let live: BTreeSet<_> = files.values().copied().collect();
        self.unnamed.retain(|address, _| !live.contains(address));
        (self.disk, self.meta, self.states, self.durable) = (disk, meta, vec![files], 0);
        self.replaced.clear();
        self.first_segment = self.contents.keys().next_back().map_or(0, |last| last.segment + 1);
        self.faults = false;
        self.recounted = false;
        self.check_all(true);
        // No later sync covers them, since the run that wrote them has ended.
        self.unnamed.retain(|_, synced| *synced);
    }

    fn check_all(&mut self, expect_good: bool) {
        let files = self.states.last().unwrap().clone();
        for address in files.into_values().chain(self.replaced.clone()) {
            self.check(address, expect_good);
        }
        for (address, synced) in self.unnamed.clone() {
            let intact = self.check(address, synced && expect_good);
            if !synced {
                self.seen.whole_unsynced += u64::from(intact);
                self.seen.damaged_unsynced += u64::from(!intact);
            }
        }
    }

    /// Reads a chunk: it never has other bytes than were written, and is there if it must be.
    fn check(&mut self, address: ChunkAddress, expect_good: bool) -> bool {
        match self.store.read(address) {
            Ok(bytes) => {
                assert_eq!(bytes, self.contents[&address], "{address:?}");
                true
            }
            Err(error) if expect_good => panic!("{address:?}: {error}"),
            Err(StoreError::Damaged { .. }) => false,
            Err(error) => {
                self.note(&error);
                false
            }
        }
    }
}

fn run(seed: u64) -> Seen {
    let mut history = History::new(seed);
    (0..STEPS).for_each(|_| history.step());
    history.crash();
    history.seen
}

#[test]
fn synced_chunks_survive_and_no_read_is_wrong() {
    let mut total = Seen::default();
    seeds::play(HISTORIES, |seed| {
        let seen = run(seed);
        total.crashes += seen.crashes;
        total.lost_commits += seen.lost_commits;
        total.deleted_segments += seen.deleted_segments;
        total.damaged_unsynced += seen.damaged_unsynced;
        total.whole_unsynced += seen.whole_unsynced;
        total.refused_writes += seen.refused_writes;
        total.full += seen.full;
        total.recounts += seen.recounts;
        total.orphaned_bytes += seen.orphaned_bytes;
        total.orderly_ends += seen.orderly_ends;
        total.moved += seen.moved;
    });
    println!("{total:?}");
    let counts = [
        total.crashes,
        total.lost_commits,
        total.deleted_segments,
        total.damaged_unsynced,
        total.whole_unsynced,
        total.refused_writes,
        total.full,
        total.recounts,
        total.orphaned_bytes,
        total.orderly_ends,
        total.moved,
    ];
    assert!(counts.iter().all(|count| *count > 100), "{total:?}");
}
