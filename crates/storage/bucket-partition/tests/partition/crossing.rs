//! Volumes that move between two partitions of one bucket, whose objects the bucket copies: no chunk is read or written by a
//! process.

use crate::support::{config, runtime};
use crate::writers::{Files, contents, create, options, partition_id};
use base::{AbortCode, Fid, UnixTime, VnodeId, VolumeId, VolumeType};
use bucket::faulty::{Faults, FaultyBucket};
use bucket_partition::{BucketConfig, Foreign, LoadKey, Opener};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path as Name;
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::{ChunkAddress, ChunkOwner, ChunkPlace, MasterKey, Partition, StoreError};
use volume::{
    CHUNK_NAMES, CompactionPolicy, DataSource, NewVolume, PartitionHandle, Space, StoredChunk, VnodeStatus,
    Volume, VolumeError, VolumeHeader, VolumeOptions, Volumes,
};
use volume_check::{CheckOptions, check};

const PREFIXES: [&str; 2] = ["cells/a", "cells/b"];
const HISTORIES: u64 = 40;
const EVENTS: u32 = 40;
const OPENS_MAX: u32 = 20;

/// A process that has one of the partitions.
struct Side {
    // Dropped in this order.
    volumes: Volumes,
    partition: Partition,
    opener: Opener,
    prefix: &'static str,
}

impl Side {
    fn opener(bucket: &FaultyBucket, side: usize, seed: u64) -> Opener {
        let (prefix, request_limit) = (PREFIXES[side], Duration::from_secs(5));
        let options = BucketConfig {
            request_limit,
            object_bytes_max: 40_000,
            patience: Duration::from_secs(20),
            seed: Some(seed),
            ..BucketConfig::default()
        };
        Opener::with_runtime(runtime(), Arc::new(bucket.clone()), prefix, prefix, &options)
    }

    fn try_open(bucket: &FaultyBucket, side: usize, seed: u64) -> Option<Side> {
        let opener = Side::opener(bucket, side, seed);
        let partition = opener.open(&config(), None).ok()?;
        partition.recount(CHUNK_NAMES).ok()?;
        let handle = PartitionHandle {
            id: partition_id(),
            meta: partition.meta(),
            chunks: partition.chunks(),
            space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
        };
        let volumes = Volumes::open(vec![handle], VolumeOptions { append_threads: 0, ..options() }).ok()?;
        Some(Side { volumes, partition, opener, prefix: PREFIXES[side] })
    }

    fn open(bucket: &FaultyBucket, side: usize) -> Side {
        // Each process draws other names of objects.
        let open = |_| Side::try_open(bucket, side, bucket.met().requests << 1 | side as u64);
        (0..OPENS_MAX).find_map(open).expect("it opens")
    }

    fn crash(self) {
        self.opener.abandon();
    }

    fn get(&self, id: VolumeId) -> Arc<Volume> {
        self.volumes.get_any_state(id).unwrap()
    }

    /// Returns the volume with this id, creating it if it is missing.
    fn volume(&self, id: VolumeId, kind: VolumeType) -> Result<Arc<Volume>, VolumeError> {
        if let Ok(volume) = self.volumes.get_any_state(id) {
            return Ok(volume);
        }
        let new = NewVolume {
            id,
            name: format!("volume.{}", id.0).parse().unwrap(),
            kind,
            parent: id,
            quota_max_kib: 0,
            with_root: true,
            in_service: true,
            destroy_me: 0,
            now: UnixTime(1),
        };
        self.volumes.create(partition_id(), &new)
    }

    /// Does all upkeep; what the bucket refuses is left.
    fn keep_up(&self) {
        while self.volumes.purge_step().unwrap_or(false) {}
        let policy = CompactionPolicy::default();
        let step = || self.volumes.compact_step(partition_id(), policy, UnixTime(1));
        _ = (0..1000).find(|_| step().is_ok_and(|step| step.is_idle));
        (0..3).for_each(|_| _ = self.partition.maintain());
    }

    /// Removes what requests of ended processes have left.
    fn sweep(&self) {
        self.partition.sweep().unwrap();
    }
}

/// A file of a volume, with the places of its chunks.
struct Lending<'a> {
    volume: &'a Arc<Volume>,
    status: VnodeStatus,
    at: u64,
    taken: u64,
}

impl DataSource for Lending<'_> {
    fn next(&mut self, most: usize) -> Result<Bytes, AbortCode> {
        let fid = self.status.fid(self.volume.id());
        let read = self.volume.read(fid, self.at, most as u64).map_err(AbortCode::from)?.1.concat();
        self.at += read.len() as u64;
        Ok(read.into())
    }

    fn stored(&mut self, length: usize) -> Result<Option<ChunkPlace>, AbortCode> {
        let index = self.at >> options().chunk_shift;
        let found = self.volume.stored_chunks(&self.status, index).map_err(AbortCode::from)?;
        let place = found.places.first().filter(|(first, _)| *first == index).map(|(_, place)| place);
        match place {
            Some(StoredChunk::Own(chunk, bytes)) if *bytes as usize == length => {
                self.at += length as u64;
                self.taken += 1;
                Ok(Some(*chunk))
            }
            _ => Ok(None),
        }
    }
}

/// Sends a volume to the other partition, as the volume `id` there; returns the number of chunks that were taken over.
fn send(
    from: &Side,
    source: VolumeId,
    to: &Side,
    id: VolumeId,
    kind: VolumeType,
) -> Result<u64, VolumeError> {
    let source = from.volumes.get_any_state(source)?;
    let loan = source.lend_chunks().unwrap();
    let target = to.volume(id, kind)?;
    let mut restoration = to.volumes.restore(id)?;
    restoration.set_import(target.import_chunks(from.prefix, loan.partition, options().chunk_shift)?);
    let mut found = Vec::new();
    source.vnodes(VnodeId(0), &mut |status| {
        found.push(*status);
        true
    })?;
    let mut taken = 0;
    found.sort_by_key(|status| !status.is_directory());
    for status in found {
        if status.is_directory() {
            let fid = status.fid(source.id());
            let blob = source.reader(fid, 0, u64::MAX)?.directory()?;
            let (status, acl) = source.status_and_acl(fid)?;
            restoration.directory(status, (*acl).clone(), &blob)?;
        } else {
            let mut data = Lending { volume: &source, status, at: 0, taken: 0 };
            restoration.file(status, &mut data)?;
            taken += data.taken;
        }
    }
    let old = target.header();
    let header = VolumeHeader { id, parent: id, kind, name: old.name, ..source.header() };
    restoration.finish(&to.volumes, header, UnixTime(2))?;
    drop(loan);
    Ok(taken)
}

fn noise(rng: &mut SmallRng, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    rng.fill_bytes(&mut data);
    data
}

/// Returns the names of the objects of file data of both partitions.
fn objects(bucket: &FaultyBucket) -> Vec<String> {
    let list = |prefix: &str| {
        let folder = Name::from(format!("{prefix}/chunks"));
        let found = runtime().block_on(async { bucket.list(Some(&folder)).try_collect::<Vec<_>>().await });
        found.unwrap().into_iter().map(|object| object.location.to_string())
    };
    PREFIXES.iter().flat_map(|prefix| list(prefix)).collect()
}

fn is_clean(bucket: &FaultyBucket, side: usize) -> u64 {
    let inspection = Side::opener(bucket, side, 7).inspect(None).unwrap();
    let (meta, segments) = (inspection.meta(), inspection.segments());
    let report = check(meta, Some(segments), CheckOptions { data: true }, &mut |_| {});
    assert!(report.is_clean(), "{report:#?}");
    report.chunks_read
}

/// Deletes all volumes; nothing is left then.
fn delete_all(bucket: &FaultyBucket) {
    for side in 0..2 {
        let side = Side::open(bucket, side);
        for volume in side.volumes.list(partition_id()) {
            side.volumes.delete(volume.id()).unwrap();
        }
        side.keep_up();
        side.sweep();
    }
    // What a crash has left is found after the next start.
    for side in 0..2 {
        let side = Side::open(bucket, side);
        side.keep_up();
        side.sweep();
    }
    assert_eq!(objects(bucket), Vec::<String>::new());
}

const HOME: VolumeId = VolumeId(1000);
const OTHER: VolumeId = VolumeId(2000);
const SITE: VolumeId = VolumeId(3000);

/// Puts some files into a volume, among them one with a hole and one that is in no chunk.
fn fill(side: &Side, id: VolumeId, rng: &mut SmallRng) -> Files {
    let volume = side.volume(id, VolumeType::ReadWrite).unwrap();
    for (name, length) in [("tiny", 50), ("one", 4096), ("long", 30_000), ("longer", 90_001)] {
        create(&volume, name, &noise(rng, length)).unwrap();
    }
    create(&volume, "hole", &[vec![0; 20_000], noise(rng, 5000)].concat()).unwrap();
    contents(&volume)
}

#[test]
fn a_move_killed_at_any_request_loses_nothing() {
    let mut ends = [0; 2];
    for requests in 0.. {
        let bucket = FaultyBucket::new(requests, Faults::default());
        let mut rng = SmallRng::seed_from_u64(requests);
        let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
        let (files, others) = (fill(&from, HOME, &mut rng), fill(&from, OTHER, &mut rng));
        bucket.set_away_after(requests);
        let sent = send(&from, HOME, &to, HOME, VolumeType::ReadWrite);
        let is_over = sent.is_ok() && bucket.met().away == 0;
        to.crash();
        bucket.set_away(None);
        let to = Side::open(&bucket, 1);
        let found = to.volumes.get_any_state(HOME).map(|volume| contents(&volume)).unwrap_or_default();
        assert!(found == files || (sent.is_err() && found.is_empty()), "killed after {requests} requests");
        ends[usize::from(found == files)] += 1;
        if found.is_empty() {
            to.sweep();
            assert!(send(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap() > 30);
        }
        // The source deletes the volume and all objects in which nothing else is.
        from.volumes.delete(HOME).unwrap();
        from.keep_up();
        to.keep_up();
        assert_eq!(contents(&to.get(HOME)), files);
        assert_eq!(contents(&from.get(OTHER)), others);
        drop((from, to));
        assert!(is_clean(&bucket, 0) > 30 && is_clean(&bucket, 1) > 30);
        assert_eq!(contents(&Side::open(&bucket, 1).get(HOME)), files);
        delete_all(&bucket);
        if is_over {
            println!("{requests} requests; {} moves were not made, {} were", ends[0], ends[1]);
            assert!(requests > 20 && ends[0] > 20);
            return;
        }
    }
}

#[test]
fn no_data_is_read_or_written_for_a_move() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let mut rng = SmallRng::seed_from_u64(1);
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    let volume = from.volume(HOME, VolumeType::ReadWrite).unwrap();
    let data = noise(&mut rng, 4_000_000);
    create(&volume, "large", &data).unwrap();
    drop(volume);
    drop(from);
    // Without what is in memory.
    let from = Side::open(&bucket, 0);
    let (before, objects_before) = (bucket.met().requests, objects(&bucket).len());
    assert_eq!(send(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap(), 977);
    let (requests, copies) = (bucket.met().requests - before, objects(&bucket).len() - objects_before);
    println!("977 chunks in {objects_before} objects: {requests} requests");
    assert_eq!((to.partition.statistics().chunks.chunks_appended, copies), (0, objects_before));
    assert!(requests < 4 * objects_before as u64 + 60, "{requests} requests");
    from.volumes.delete(HOME).unwrap();
    from.keep_up();
    assert_eq!(objects(&bucket).len(), copies);
    assert_eq!(contents(&to.get(HOME)), BTreeMap::from([("large".to_owned(), data)]));
}

#[test]
fn objects_on_loan_stay_although_nothing_refers_to_them() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let side = Side::open(&bucket, 0);
    fill(&side, HOME, &mut SmallRng::seed_from_u64(1));
    let loan = side.get(HOME).lend_chunks().unwrap();
    side.volumes.delete(HOME).unwrap();
    side.keep_up();
    side.keep_up();
    assert!(!objects(&bucket).is_empty());
    drop(loan);
    side.keep_up();
    assert_eq!(objects(&bucket), Vec::<String>::new());
}

/// The next owner of the source may remove what a superseded one names.
#[test]
fn nothing_is_taken_of_objects_that_are_gone() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    let target = to.volume(HOME, VolumeType::ReadWrite).unwrap();
    let (chunk, loan) = (places(&from, "longer")[0], from.get(HOME).lend_chunks().unwrap());
    from.crash();
    let next = Side::open(&bucket, 0);
    next.volumes.delete(HOME).unwrap();
    next.keep_up();
    assert_eq!(objects(&bucket), Vec::<String>::new());
    let mut import = target.import_chunks(PREFIXES[0], loan.partition, options().chunk_shift).unwrap();
    let chunks = to.partition.chunks();
    for _ in 0..2 {
        let error = chunks.take_chunk(&mut import, chunk).unwrap_err().to_string();
        assert!(error.contains("there is no such object"), "{error}");
    }
    chunks.end_import(import);
    drop((target, chunks));
    to.keep_up();
    assert_eq!(objects(&bucket), Vec::<String>::new());
}

#[test]
fn only_the_named_partition_of_the_bucket_is_a_source() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    let (loan, target) =
        (from.get(HOME).lend_chunks().unwrap(), to.volume(SITE, VolumeType::ReadWrite).unwrap());
    let import = |prefix: &str, partition| {
        target.import_chunks(prefix, partition, options().chunk_shift).map_err(|error| error.to_string())
    };
    import(PREFIXES[0], loan.partition).unwrap();
    for (prefix, partition) in
        [(PREFIXES[1], loan.partition), ("cells/c", loan.partition), (PREFIXES[0], [1; 16])]
    {
        import(prefix, partition).unwrap_err();
    }
    target.import_chunks(PREFIXES[0], loan.partition, 18).unwrap_err();
    // Addresses of no chunk, and of one that was taken.
    let mut import = import(PREFIXES[0], loan.partition).unwrap();
    let chunk = places(&from, "longer")[0];
    let chunks = to.partition.chunks();
    let address = chunk.address;
    let wrong = [
        ChunkAddress { segment: address.segment + 1000, ..address },
        ChunkAddress { offset: 0, ..address },
        ChunkAddress { offset: u64::MAX, ..address },
        ChunkAddress { stored_bytes: 5, ..address },
        ChunkAddress { stored_bytes: 1 << 20, ..address },
    ];
    for address in wrong {
        chunks.take_chunk(&mut import, ChunkPlace { address, ..chunk }).unwrap_err();
    }
    // Another object at its place.
    let mut other = target.import_chunks(PREFIXES[0], loan.partition, options().chunk_shift).unwrap();
    let moved = ChunkPlace { origin: chunk.origin + 1, ..chunk };
    let error = chunks.take_chunk(&mut other, moved).unwrap_err().to_string();
    assert!(error.contains("as the object that is meant"), "{error}");
    chunks.end_import(other);
    chunks.take_chunk(&mut import, moved).unwrap_err();
    let taken = chunks.take_chunk(&mut import, chunk).unwrap();
    chunks.take_chunk(&mut import, chunk).unwrap_err();
    assert_eq!(chunks.read(taken).unwrap(), from.partition.chunks().read(chunk.address).unwrap());
    chunks.release(taken);
    chunks.end_import(import);
    drop((loan, target, chunks));
    to.keep_up();
    assert!(objects(&bucket).iter().all(|name| name.starts_with(PREFIXES[0])), "{:?}", objects(&bucket));
}

#[test]
fn encrypted_partitions_neither_lend_nor_take() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let from = Side::open(&bucket, 0);
    let loan = from.get(fill_one(&from)).lend_chunks().unwrap();
    let key = MasterKey::parse(&[7; 32]).unwrap();
    let opener = Side::opener(&bucket, 1, 1);
    let partition = opener.open(&config(), Some(&key)).unwrap();
    let chunks = partition.chunks();
    assert!(chunks.lend().is_none());
    assert!(
        chunks.import(PREFIXES[0], loan.partition).unwrap_err().to_string().contains("takes over no objects")
    );
}

/// Returns where the chunks of a file are.
fn places(side: &Side, name: &str) -> Vec<ChunkPlace> {
    let volume = side.get(HOME);
    let found = volume.lookup(volume.root(), name.as_bytes()).unwrap();
    let status = volume.status(Fid { volume: HOME, vnode: found.vnode, unique: found.unique }).unwrap();
    let found = volume.stored_chunks(&status, 0).unwrap();
    let place = |(_, chunk)| match chunk {
        StoredChunk::Own(place, _) => place,
        StoredChunk::Elsewhere => panic!("it is small, or shared"),
    };
    found.places.into_iter().map(place).collect()
}

/// Another process reads the chunks of copies by their origins, and those that compaction has moved.
#[test]
fn chunks_of_copies_are_read_by_other_processes() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    send(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap();
    from.volumes.delete(HOME).unwrap();
    from.keep_up();
    let store: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let (place, key) = (PREFIXES[1], (Box::new(|| Ok(None)) as LoadKey, 1 << 20));
    let reader = Foreign::new(&runtime(), &store, (place, place), &BucketConfig::default(), key);
    let chunks = to.partition.chunks();
    let found = places(&to, "longer");
    assert!(found.len() > 20 && found.iter().all(|chunk| chunk.origin != chunk.address.segment), "{found:?}");
    for chunk in found {
        let identity = chunks.shared_in(chunk.address).unwrap();
        let own = ChunkPlace { origin: chunk.address.segment, ..chunk };
        assert!(matches!(reader.read(identity, own), Err(StoreError::Damaged { .. })));
        let data = chunks.read(chunk.address).unwrap();
        assert_eq!(reader.read(identity, chunk).unwrap(), data);
        let moved = chunks.copy(chunk.address, ChunkOwner::default()).unwrap();
        chunks.sync().unwrap();
        let moved = chunks.chunk_place(moved);
        assert_eq!(moved.origin, moved.address.segment);
        assert_eq!(reader.read(identity, moved).unwrap(), data);
        chunks.release(moved.address);
    }
}

fn fill_one(side: &Side) -> VolumeId {
    fill(side, HOME, &mut SmallRng::seed_from_u64(1));
    HOME
}

/// A volume that moves to and fro while it changes, with a read-only site on the other partition now and then, while both
/// partitions are kept up, processes crash, and the bucket fails.
struct History {
    rng: SmallRng,
    bucket: FaultyBucket,
    faults: Faults,
    sides: [Option<Side>; 2],
    home: usize,
    files: Files,
    /// The contents of the site on each side.
    sites: [Option<Files>; 2],
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    moves: u64,
    releases: u64,
    failures: u64,
    crashes: u64,
    taken: u64,
}

fn compare(what: &str, found: &Files, wanted: &Files) {
    let lengths = |files: &Files| -> Vec<(String, usize)> {
        files.iter().map(|(name, data)| (name.clone(), data.len())).collect()
    };
    assert_eq!(lengths(found), lengths(wanted), "{what}");
    let differs = |(name, data): &(&String, &Vec<u8>)| wanted.get(*name) != Some(*data);
    let other: Vec<&String> = found.iter().filter(differs).map(|(name, _)| name).collect();
    assert!(other.is_empty(), "{what}: other bytes in {other:?}");
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut some = |most: u32| if rng.random() { rng.random_range(0..=most) } else { 0 };
        let faults = Faults {
            refused: some(60),
            lost: some(60),
            own_conflict: some(60),
            late: some(60),
            repeated: some(80),
            delayed: some(40),
            hung: some(8),
        };
        let bucket = FaultyBucket::new(seed, Faults::default());
        let sides = [0, 1].map(|side| Some(Side::open(&bucket, side)));
        let files = fill(sides[0].as_ref().unwrap(), HOME, &mut rng);
        let (home, sites, seen) = (0, [None, None], Seen::default());
        History { rng, bucket, faults, sides, home, files, sites, seen }
    }

    fn side(&self, side: usize) -> &Side {
        self.sides[side].as_ref().unwrap()
    }

    fn reopen(&mut self, side: usize) {
        self.sides[side].take().unwrap().crash();
        self.sides[side] = Some(Side::open(&self.bucket, side));
        self.seen.crashes += 1;
    }

    /// Sends with faults; after a failure, perhaps as one of a process that ended.
    fn send(&mut self, id: VolumeId, kind: VolumeType) -> bool {
        let to = 1 - self.home;
        if self.rng.random_range(0..4) == 0 {
            self.bucket.set_away_after(self.rng.random_range(0..60));
        }
        self.bucket.set_faults(self.faults);
        let sent = send(self.side(self.home), HOME, self.side(to), id, kind);
        self.bucket.set_faults(Faults::default());
        self.bucket.set_away(None);
        let is_crash = self.rng.random_range(0..3) == 0;
        if is_crash || sent.is_err() {
            let side = if self.rng.random() { to } else { self.home };
            self.reopen(side);
        }
        self.seen.taken += sent.as_ref().copied().unwrap_or(0);
        self.seen.failures += u64::from(sent.is_err());
        sent.is_ok()
    }

    fn change(&mut self) {
        let name = ["tiny", "one", "long", "new"].into_iter().choose(&mut self.rng).unwrap();
        let length = self.rng.random_range(1..30_000);
        let data = noise(&mut self.rng, length);
        let volume = self.side(self.home).get(HOME);
        if self.files.contains_key(name) {
            volume.remove_file(&crate::writers::actor(), volume.root(), name.as_bytes()).unwrap();
        }
        create(&volume, name, &data).unwrap();
        self.files.insert(name.to_owned(), data);
    }

    fn relocate(&mut self) {
        if !self.send(HOME, VolumeType::ReadWrite) {
            return;
        }
        self.seen.moves += 1;
        self.side(self.home).volumes.delete(HOME).unwrap();
        self.home = 1 - self.home;
    }

    fn release(&mut self) {
        let to = 1 - self.home;
        if self.send(SITE, VolumeType::ReadOnly) {
            self.seen.releases += 1;
            self.sites[to] = Some(self.files.clone());
            return;
        }
        // An error may come after the change.
        let found = self.side(to).volumes.get_any_state(SITE).ok().map(|site| contents(&site));
        if found.as_ref() == Some(&self.files) {
            self.sites[to] = found;
        } else if self.sites[to].is_none() {
            assert!(found.is_none_or(|files| files.is_empty()), "the site has a part of the release");
            _ = self.side(to).volumes.delete(SITE);
        }
    }

    fn event(&mut self) {
        let side = self.rng.random_range(0..2);
        match self.rng.random_range(0..10) {
            0..=2 => self.change(),
            3 | 4 => self.relocate(),
            5 => self.release(),
            6 => self.reopen(side),
            7 => self.side(side).sweep(),
            _ => {
                self.bucket.set_faults(self.faults);
                self.side(side).keep_up();
                self.bucket.set_faults(Faults::default());
            }
        }
    }

    fn check(&self) {
        compare("the volume", &contents(&self.side(self.home).get(HOME)), &self.files);
        for (side, site) in self.sites.iter().enumerate() {
            if let Some(files) = site {
                compare("the site", &contents(&self.side(side).get(SITE)), files);
            }
        }
    }

    fn play(mut self) -> Seen {
        for _ in 0..EVENTS {
            self.event();
            self.check();
        }
        for side in 0..2 {
            self.side(side).keep_up();
        }
        self.check();
        self.sides = [None, None];
        for side in 0..2 {
            is_clean(&self.bucket, side);
        }
        delete_all(&self.bucket);
        self.seen
    }
}

#[test]
fn volumes_that_move_to_and_fro_keep_every_byte() {
    let mut all = Seen::default();
    seeds::play(HISTORIES, |seed| {
        let Seen { moves, releases, failures, crashes, taken } = History::new(seed).play();
        all.moves += moves;
        all.releases += releases;
        all.failures += failures;
        all.crashes += crashes;
        all.taken += taken;
    });
    println!("{all:?}");
    let Seen { moves, releases, failures, crashes, taken } = all;
    assert!(moves > 100 && releases > 50 && failures > 20 && crashes > 100 && taken > 2000, "{all:?}");
}
