use super::*;
use crate::segment::objects::{DiskCacheConfig, ObjectPart, VisitObject};
use crate::test_families::NAMES;
use crate::{Codec, MemoryMeta};
use disk::{Disk, FaultyDisk, Garbling};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::thread;

/// A bucket in memory that can be made to fail. Clones are the same bucket.
#[derive(Clone, Default)]
struct MemoryBucket(Arc<Mutex<World>>);

#[derive(Default)]
struct World {
    objects: BTreeMap<String, Bytes>,
    /// Objects begun and not finished.
    begun: BTreeMap<String, Bytes>,
    error: Option<BucketError>,
    creations: u64,
    reads: u64,
}

impl MemoryBucket {
    fn fail(&self, error: Option<BucketError>) {
        self.0.lock().error = error;
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }

    fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    fn flip(&self, name: &str, at: usize) {
        let mut world = self.0.lock();
        let object = world.objects.get_mut(name).unwrap();
        let mut bytes = object.to_vec();
        bytes[at] ^= 1 << (at % 8);
        *object = bytes.into();
    }
}

impl Bucket for MemoryBucket {
    fn begin(&self, name: &str, contents: &Bytes) {
        self.0.lock().begun.insert(name.to_owned(), contents.clone());
    }

    fn finish(&self, names: &[String]) -> Result<(), BucketError> {
        let mut world = self.0.lock();
        world.error.clone().map_or(Ok(()), Err)?;
        for name in names {
            let contents = world.begun.remove(name).ok_or(BucketError::Missing { name: name.clone() })?;
            match world.objects.get(name) {
                Some(found) if *found != contents => return Err(BucketError::Differs { name: name.clone() }),
                _ => _ = world.objects.insert(name.clone(), contents),
            }
            world.creations += 1;
        }
        Ok(())
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        let mut world = self.0.lock();
        world.error.clone().map_or(Ok(()), Err)?;
        world.reads += 1;
        let object = world.objects.get(name).ok_or(BucketError::Missing { name: name.to_owned() })?;
        let end = object.len().min(range.end as usize);
        let bytes = object.slice(end.min(range.start as usize)..end);
        Ok(ObjectPart { bytes, object_bytes: object.len() as u64 })
    }

    fn read_other(&self, from: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.read(from.rsplit('/').next().unwrap_or_default(), range)
    }

    fn copy(&self, from: &str, name: &str) -> Result<u64, BucketError> {
        let mut world = self.0.lock();
        world.error.clone().map_or(Ok(()), Err)?;
        let source = from.rsplit('/').next().unwrap_or_default();
        let found = world.objects.get(source).ok_or(BucketError::Missing { name: from.to_owned() })?.clone();
        let length = found.len() as u64;
        world.objects.insert(name.to_owned(), found);
        Ok(length)
    }

    fn remove(&self, names: &[String]) -> Result<(), BucketError> {
        let mut world = self.0.lock();
        world.error.clone().map_or(Ok(()), Err)?;
        for name in names {
            world.objects.remove(name);
        }
        Ok(())
    }

    fn list(&self, after: &str, visit: VisitObject<'_>) -> Result<(), BucketError> {
        let (objects, error) = {
            let world = self.0.lock();
            (world.objects.clone(), world.error.clone())
        };
        for (name, contents) in objects.iter().filter(|(name, _)| name.as_str() > after) {
            if visit(name, contents.len() as u64).is_break() {
                return Ok(());
            }
        }
        error.map_or(Ok(()), Err)
    }

    fn place(&self) -> String {
        "memory/p1".into()
    }
}

fn config() -> ObjectConfig {
    let (object_bytes_max, unsaved_bytes_max, cache_bytes) = (4096, 1 << 20, 0);
    ObjectConfig { object_bytes_max, unsaved_bytes_max, cache_bytes, ..ObjectConfig::default() }
}

fn open_with(bucket: &MemoryBucket, meta: &Arc<MemoryMeta>, config: ObjectConfig) -> ObjectChunks {
    ObjectChunks::open(Arc::new(bucket.clone()), Arc::clone(meta) as _, config, None).unwrap()
}

fn open(bucket: &MemoryBucket, meta: &Arc<MemoryMeta>) -> ObjectChunks {
    open_with(bucket, meta, config())
}

fn fresh() -> (MemoryBucket, Arc<MemoryMeta>, ObjectChunks) {
    let (bucket, meta) = (MemoryBucket::default(), Arc::new(MemoryMeta::new()));
    let store = open(&bucket, &meta);
    (bucket, meta, store)
}

/// Damages the account of an object.
fn damage(meta: &MemoryMeta, id: u64) {
    let mut batch = Batch::new();
    batch.put(Family::SEGMENTS, id.to_be_bytes(), [9]);
    meta.commit(batch).unwrap();
}

#[test]
fn a_copy_is_read_although_its_account_is_damaged() {
    let (bucket, meta, store) = fresh();
    let chunk = store.append(&[Bytes::from(vec![7; 500])], Codec::Raw).unwrap();
    store.sync().unwrap();
    let copy = name::first_id(1) + 100;
    bucket.copy(&object_name(chunk.segment), &object_name(copy)).unwrap();
    let copied = ChunkAddress { segment: copy, ..chunk };
    drop(store);
    damage(&meta, copy);
    let works = |store: &ObjectChunks| {
        store.verify(copied).unwrap();
        assert_eq!(store.read(copied).unwrap(), vec![7; 500]);
        let moved = store.copy(copied, ChunkOwner([3; 24])).unwrap();
        assert_eq!(store.read(moved).unwrap(), vec![7; 500]);
    };
    let store = open(&bucket, &meta);
    works(&store);
    // The object is not kept with an account that lacks the origin.
    bucket.fail(Some(BucketError::Unavailable("away".into())));
    store.sweep(&mut || true).unwrap_err();
    assert!(!store.accounts.lock().has(copy));
    bucket.fail(None);
    store.sweep(&mut || true).unwrap();
    works(&store);
    assert_eq!(store.lendable(copied).unwrap().origin, chunk.segment);
    store.write_accounts().unwrap();
    crash(store, &bucket);
    works(&open(&bucket, &meta));
}

/// An object that is not a copy cannot pass for another one, as a whole object that the bucket mixes up.
#[test]
fn the_header_of_an_object_does_not_make_it_a_copy() {
    let (bucket, meta, store) = fresh();
    let append = |byte: u8| {
        let address = store.append(&[Bytes::from(vec![byte; 500])], Codec::Raw).unwrap();
        store.sync().unwrap();
        address
    };
    let (chunk, other) = (append(1), append(2));
    assert_ne!(chunk.segment, other.segment);
    drop(store);
    bucket.copy(&object_name(other.segment), &object_name(chunk.segment)).unwrap();
    // Another account is damaged, so objects without one are kept.
    damage(&meta, name::first_id(1) + 100);
    let store = open(&bucket, &meta);
    for _ in 0..2 {
        assert!(matches!(store.read(chunk), Err(StoreError::Damaged { .. })));
        assert!(matches!(store.verify(chunk), Err(StoreError::Damaged { .. })));
        assert!(matches!(store.copy(chunk, ChunkOwner::default()), Err(StoreError::Damaged { .. })));
        assert_eq!(store.read(other).unwrap(), vec![2; 500]);
        store.sweep(&mut || true).unwrap();
    }
}

/// Ends a store as a crash does: it neither writes what it holds nor marks the run as closed.
fn crash(store: ObjectChunks, bucket: &MemoryBucket) {
    std::mem::forget(store);
    bucket.0.lock().begun.clear();
}

fn away() -> BucketError {
    BucketError::Unavailable("503 Slow Down".into())
}

fn noise(seed: u32, count: u32) -> Bytes {
    let mix = |n: u32| (n ^ n >> 15).wrapping_mul(0x85eb_ca6b);
    (0..count).map(|n| (mix(mix(n + seed * 10_007)) >> 13) as u8).collect()
}

fn append(store: &ObjectChunks, seed: u32) -> ChunkAddress {
    store.append(&[noise(seed, 1000)], Codec::Lz4).unwrap()
}

fn put(meta: &MemoryMeta, key: u64, address: ChunkAddress) {
    let mut batch = Batch::new();
    batch.put(NAMES, key.to_be_bytes(), address.to_bytes());
    meta.sync(meta.commit(batch).unwrap()).unwrap();
}

fn names() -> ChunkNames {
    ChunkNames { family: NAMES, chunk_of: |_, value| Ok(ChunkAddress::from_bytes(value)) }
}

#[test]
fn chunks_are_read_before_and_after_they_are_in_the_bucket() {
    let (bucket, meta, store) = fresh();
    let mut chunks = Vec::new();
    for codec in [Codec::Raw, Codec::Lz4, Codec::Zstd(1)] {
        for pieces in
            [vec![], vec![noise(1, 700)], vec![Bytes::from(vec![3; 900]), noise(2, 9), Bytes::new()]]
        {
            chunks.push((store.append(&pieces, codec).unwrap(), pieces.concat()));
        }
    }
    let check = |store: &ObjectChunks| {
        for (address, expected) in &chunks {
            assert_eq!(store.read(*address).unwrap(), *expected);
        }
        for (address, _) in &chunks {
            store.verify(*address).unwrap();
        }
    };
    check(&store);
    assert_eq!((bucket.names().len(), bucket.reads()), (0, 0));
    store.sync().unwrap();
    store.sync().unwrap();
    assert_eq!(bucket.names(), ["0000001-000000000.seg"]);
    assert_eq!(store.unsaved_bytes(), 0);
    check(&store);
    // Each verification is a request, and records in a row come together.
    assert_eq!(bucket.reads(), 9 + 4);
    drop(store);
    check(&open(&bucket, &meta));
}

#[test]
fn encrypted_chunks_need_the_key() {
    let (bucket, meta) = (MemoryBucket::default(), Arc::new(MemoryMeta::new()));
    let keys = Some(Arc::new(KeyRing::random()));
    let open =
        |keys| ObjectChunks::open(Arc::new(bucket.clone()), Arc::clone(&meta) as _, config(), keys).unwrap();
    let store = open(keys.clone());
    let address = append(&store, 1);
    assert_eq!(store.read(address).unwrap(), noise(1, 1000));
    drop(store);
    assert_eq!(open(keys).read(address).unwrap(), noise(1, 1000));
    let without = open(None);
    without.verify(address).unwrap();
    assert!(without.read(address).unwrap_err().to_string().contains("no key is given"));
    let copy = without.copy(address, ChunkOwner::default()).unwrap();
    without.verify(copy).unwrap();
}

#[test]
fn an_object_is_full_at_its_size_and_each_sync_ends_one() {
    let (bucket, meta, store) = fresh();
    let addresses: Vec<_> = (0..8).map(|n| append(&store, n)).collect();
    assert_eq!(bucket.0.lock().begun.len(), 2, "three records of 1,064 bytes fit into one");
    store.sync().unwrap();
    assert_eq!(bucket.names().len(), 3);
    append(&store, 8);
    store.sync().unwrap();
    assert_eq!(bucket.names().len(), 4);
    assert!(addresses.is_sorted());
    // A chunk larger than an object gets one of its own.
    let large = store.append(&[noise(1, 10_000)], Codec::Raw).unwrap();
    assert_eq!((store.read(large).unwrap(), large.offset), (noise(1, 10_000), HEADER_BYTES));
    crash(store, &bucket);
    let store = open(&bucket, &meta);
    assert_eq!(append(&store, 9).segment, name::first_id(2), "names show the epoch");
    assert!(store.read(large).unwrap_err().to_string().contains("no such object"));
    assert_eq!(store.read(addresses[7]).unwrap(), noise(7, 1000));
}

#[test]
fn one_object_serves_many_callers() {
    let (bucket, meta) = (MemoryBucket::default(), Arc::new(MemoryMeta::new()));
    let store = open_with(&bucket, &meta, ObjectConfig { object_bytes_max: 8 << 20, ..config() });
    thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..50 {
                    let seed = thread * 50 + n;
                    let address = append(store, seed);
                    store.sync().unwrap();
                    assert_eq!(store.read(address).unwrap(), noise(seed, 1000));
                }
            });
        }
    });
    let statistics = store.statistics();
    assert_eq!((statistics.sync_requests, statistics.chunks_appended), (400, 400));
    assert!(bucket.names().len() <= 400 && statistics.segments == bucket.names().len() as u64);
}

#[test]
fn unsaved_bytes_are_bounded() {
    let (bucket, meta) = (MemoryBucket::default(), Arc::new(MemoryMeta::new()));
    let store = open_with(&bucket, &meta, ObjectConfig { unsaved_bytes_max: 3000, ..config() });
    (0..4).for_each(|n| _ = append(&store, n));
    assert_eq!(bucket.names().len(), 1, "the fourth found three");
    bucket.fail(Some(away()));
    (4..6).for_each(|n| _ = append(&store, n));
    for _ in 0..3 {
        let refused = store.append(&[noise(6, 1000)], Codec::Raw).unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused}");
        assert!(refused.to_string().contains("memory/p1 cannot be reached: 503 Slow Down"), "{refused}");
        assert!(store.unsaved_bytes() < 4000);
    }
    bucket.fail(None);
    append(&store, 6);
    store.sync().unwrap();
    assert_eq!(store.unsaved_bytes(), 0);
}

#[test]
fn an_outage_is_not_final_and_loses_nothing() {
    let (bucket, meta, store) = fresh();
    for error in [away(), BucketError::Refused("403 Forbidden".into())] {
        let address = append(&store, 1);
        bucket.fail(Some(error.clone()));
        let failed = store.sync().unwrap_err();
        assert!(matches!(failed, StoreError::Unavailable { .. }), "{failed}");
        assert!(failed.to_string().contains(&error.to_string()));
        assert_eq!(store.read(address).unwrap(), noise(1, 1000), "it is still in memory");
        bucket.fail(None);
        store.sync().unwrap();
        assert_eq!(store.read(address).unwrap(), noise(1, 1000));
    }
    assert_eq!(store.failure(), None);
    let saved = append(&store, 2);
    store.sync().unwrap();
    bucket.fail(Some(away()));
    assert!(matches!(store.read(saved), Err(StoreError::Unavailable { .. })));
    assert!(matches!(store.maintain(), Ok(0)));
    drop(store);
    let opened = ObjectChunks::open(Arc::new(bucket.clone()), Arc::clone(&meta) as _, config(), None);
    assert!(matches!(opened.err(), Some(StoreError::Unavailable { .. })));
    bucket.fail(None);
    assert_eq!(open(&bucket, &meta).read(saved).unwrap(), noise(2, 1000));
}

#[test]
fn an_object_of_somebody_else_under_an_own_name_is_final() {
    let (bucket, _, store) = fresh();
    let address = append(&store, 1);
    let other = Bytes::from_static(b"other");
    bucket.0.lock().objects.insert(object_name(address.segment), other.clone());
    let error = store.sync().unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("memory/p1/0000001-000000000.seg"), "{error}");
    assert!(matches!(store.append(&[noise(2, 10)], Codec::Raw), Err(StoreError::ReadOnly(_))));
    assert!(matches!(store.sync(), Err(StoreError::ReadOnly(_))));
    assert!(store.failure().unwrap().contains("exists with other contents"));
    assert_eq!(bucket.0.lock().objects[&object_name(address.segment)], other);
}

#[test]
fn metadata_older_than_the_bucket_uses_no_name_twice() {
    let (bucket, old) = (MemoryBucket::default(), Arc::new(MemoryMeta::new()));
    drop(open(&bucket, &old));
    let restored = Arc::new(old.crash(9));
    for _ in 0..3 {
        let store = open(&bucket, &old);
        append(&store, 1);
        store.sync().unwrap();
    }
    let store = open(&bucket, &restored);
    assert_eq!(store.epoch, 5, "the objects are of the epochs 2 to 4");
    append(&store, 2);
    store.sync().unwrap();
}

#[test]
fn every_damaged_byte_is_reported_with_its_place() {
    let (bucket, meta, store) = fresh();
    let address = append(&store, 1);
    drop(store);
    let name = object_name(address.segment);
    for at in (HEADER_BYTES as usize..HEADER_BYTES as usize + address.stored_bytes as usize).step_by(3) {
        bucket.flip(&name, at);
        let store = open(&bucket, &meta);
        for error in [store.read(address).unwrap_err(), store.verify(address).unwrap_err()] {
            let StoreError::Damaged { place, .. } = &error else { panic!("{error}") };
            assert_eq!(*place, "memory/p1/0000001-000000000.seg at offset 32");
        }
        assert!(store.copy(address, ChunkOwner::default()).is_err());
        bucket.flip(&name, at);
    }
    let store = open(&bucket, &meta);
    bucket.0.lock().objects.insert(name, noise(1, 500));
    assert!(store.read(address).unwrap_err().to_string().contains("the object ends before its 1064 bytes"));
    let strange = [
        ChunkAddress { offset: 0, ..address },
        ChunkAddress { offset: u64::MAX, ..address },
        ChunkAddress { stored_bytes: u32::MAX, ..address },
        ChunkAddress { stored_bytes: 0, ..address },
        ChunkAddress { offset: 5000, ..address },
        ChunkAddress { segment: u64::MAX, ..address },
        ChunkAddress::default(),
    ];
    for address in strange {
        assert!(matches!(store.read(address), Err(StoreError::Damaged { .. })), "{address:?}");
    }
}

#[test]
fn a_fully_released_object_is_removed_after_a_delay() {
    let (bucket, meta, store) = fresh();
    let addresses: Vec<_> = (0..4).map(|n| append(&store, n)).collect();
    store.sync().unwrap();
    store.release(addresses[0]);
    store.release(addresses[1]);
    assert_eq!((store.maintain().unwrap(), store.maintain().unwrap()), (0, 0));
    drop(store);
    // Releases survive a restart.
    let store = open(&bucket, &meta);
    assert!(!store.needs_recount());
    store.release(addresses[2]);
    assert_eq!(store.maintain().unwrap(), 0, "readers get time");
    assert_eq!(store.read(addresses[1]).unwrap(), noise(1, 1000));
    bucket.fail(Some(away()));
    assert!(matches!(store.maintain(), Err(StoreError::Unavailable { .. })));
    bucket.fail(None);
    assert_eq!(store.maintain().unwrap(), 1);
    assert_eq!(bucket.names(), ["0000001-000000001.seg"]);
    assert_eq!(store.read(addresses[3]).unwrap(), noise(3, 1000));
    assert!(store.read(addresses[0]).unwrap_err().to_string().contains("no such object"));
    assert_eq!((store.statistics().segments_deleted, Accounts::load(&*meta).unwrap().0.len()), (1, 1));
}

#[test]
fn no_account_is_committed_before_its_object_exists() {
    let (bucket, meta, store) = fresh();
    append(&store, 1);
    store.maintain().unwrap();
    assert!(Accounts::load(&*meta).unwrap().0.is_empty());
    bucket.fail(Some(away()));
    assert!(store.sync().is_err());
    store.maintain().unwrap();
    assert!(Accounts::load(&*meta).unwrap().0.is_empty());
    bucket.fail(None);
    store.sync().unwrap();
    assert_eq!(Accounts::load(&*meta).unwrap().0.len(), 1);
}

#[test]
fn orphans_of_a_crash_are_removed() {
    let (bucket, meta, store) = fresh();
    let named = append(&store, 0);
    let orphans: Vec<_> = (1..9).map(|n| append(&store, n)).collect();
    store.sync().unwrap();
    put(&meta, 1, named);
    crash(store, &bucket);
    // An object whose account was not committed, and other things that are not this store's.
    bucket.0.lock().objects.insert(object_name(name::first_id(1) + 77), noise(1, 9));
    for other in ["VERSION", "0000001-000000000.seg.tmp"] {
        bucket.0.lock().objects.insert(other.into(), noise(1, 9));
    }
    let store = open(&bucket, &meta);
    let later = object_name(name::first_id(3));
    bucket.0.lock().objects.insert(later.clone(), noise(1, 9));
    let state = meta.snapshot();
    let new = append(&store, 10);
    assert_eq!(store.sweep(&mut || false).unwrap(), 0);
    assert_eq!(store.sweep(&mut || true).unwrap(), 1);
    store.sync().unwrap();
    put(&meta, 2, new);
    assert_eq!(store.sweep(&mut || true).unwrap(), 0);
    assert!(bucket.names().contains(&later), "it is of a process that has taken over");
    assert!(store.needs_recount());
    assert_eq!(store.recount(&*state, names(), &mut || false).unwrap(), None);
    let found = store.recount(&*state, names(), &mut || true).unwrap().unwrap();
    assert_eq!(found, Recount { chunks: 1, bytes: 1064, orphaned_bytes: 8 * 1064, missing: 0 });
    assert!(!store.needs_recount());
    assert_eq!((store.maintain().unwrap(), store.maintain().unwrap()), (0, 2));
    assert_eq!(store.read(named).unwrap(), noise(0, 1000));
    assert_eq!(store.read(new).unwrap(), noise(10, 1000));
    assert!(store.read(orphans[7]).is_err());
    // Created once more by a request that arrives late.
    let again = object_name(orphans[7].segment);
    bucket.0.lock().objects.insert(again.clone(), noise(1, 9));
    assert_eq!(store.sweep(&mut || true).unwrap(), 1);
    assert!(!bucket.names().contains(&again));
    drop((state, store));
    bucket.0.lock().objects.remove(&later);
    assert!(!open(&bucket, &meta).needs_recount(), "it was closed in order");
}

#[test]
fn many_orphans_are_removed_in_parts() {
    let (bucket, _, store) = fresh();
    let address = append(&store, 1);
    store.sync().unwrap();
    for number in 0..2500 {
        bucket.0.lock().objects.insert(object_name(number), Bytes::new());
    }
    assert_eq!(store.sweep(&mut || true).unwrap(), 2500);
    assert_eq!(bucket.names(), [object_name(address.segment)]);
}

#[test]
fn an_object_whose_account_is_damaged_is_kept() {
    let (bucket, meta, store) = fresh();
    let addresses: Vec<_> = (0..4).map(|n| append(&store, n)).collect();
    store.sync().unwrap();
    addresses.iter().zip(0..).for_each(|(address, key)| put(&meta, key, *address));
    drop(store);
    let mut batch = Batch::new();
    batch.put(Family::SEGMENTS, addresses[0].segment.to_be_bytes(), "damaged");
    meta.commit(batch).unwrap();
    let store = open(&bucket, &meta);
    assert_eq!(store.sweep(&mut || true).unwrap(), 0);
    assert_eq!((bucket.names().len(), store.statistics().segments), (2, 2));
    for (address, seed) in addresses.iter().zip(0..) {
        assert_eq!(store.read(*address).unwrap(), noise(seed, 1000));
    }
    assert!(store.needs_recount());
    let found = store.recount(&*meta.snapshot(), names(), &mut || true).unwrap().unwrap();
    assert_eq!((found.chunks, found.orphaned_bytes, found.missing), (4, 0, 0));
    store.maintain().unwrap();
    assert_eq!(Accounts::load(&*meta).unwrap().0.len(), 2);
}

#[test]
fn records_come_in_pages_and_are_copied_without_another_read() {
    let (bucket, _, store) = fresh();
    let owner = |n: u8| ChunkOwner([n + 1; 24]);
    let append = |n: u8| store.append_for(owner(n), &[noise(n.into(), 1000)], Codec::Raw).unwrap();
    let addresses: Vec<_> = (0..3).map(append).collect();
    let segment = addresses[0].segment;
    let pages = || {
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let page = store.records(segment, at, 2).unwrap();
            assert!(page.found.len() <= 2 && !page.is_cut);
            found.extend(page.found);
            from = page.next;
        }
        found
    };
    let expected: Vec<_> = addresses.iter().copied().zip((0..3).map(owner)).collect();
    assert_eq!(pages(), expected, "from memory");
    store.sync().unwrap();
    assert_eq!(pages(), expected);
    assert_eq!(bucket.reads(), 1);
    for (address, seed) in addresses.iter().zip(0..) {
        let copy = store.copy(*address, ChunkOwner::default()).unwrap();
        assert_eq!(store.read(copy).unwrap(), noise(seed, 1000));
    }
    assert_eq!(bucket.reads(), 1);
    assert_eq!((store.statistics().chunks_moved, store.statistics().chunks_appended), (3, 3));
    assert!(matches!(store.records(99, 0, 9), Err(StoreError::Damaged { .. })));
    store.release(addresses[0]);
    store.release(addresses[1]);
    let sparse = store.sparse_segments(50);
    assert_eq!(sparse, [SegmentUse { segment, bytes: 3 * 1064, dead: 2 * 1064 }]);
    assert!(store.sparse_segments(70).is_empty());
    store.release(addresses[2]);
    assert_eq!((store.sparse_segments(50).len(), store.doomed_bytes()), (0, 32 + 3 * 1064));
}

#[test]
fn a_cut_object_lists_the_records_before_the_cut() {
    let (bucket, meta, store) = fresh();
    let addresses: Vec<_> = (0..3).map(|n| append(&store, n)).collect();
    drop(store);
    bucket.flip(&object_name(addresses[0].segment), addresses[1].offset as usize + 10);
    let store = open(&bucket, &meta);
    let page = store.records(addresses[0].segment, 0, 99).unwrap();
    assert_eq!((page.found.len(), page.next, page.is_cut), (1, None, true));
    let beyond = store.records(addresses[0].segment, u64::MAX, 99).unwrap();
    assert!(beyond.found.is_empty() && beyond.next.is_none());
}

#[test]
fn copies_on_the_disk_save_requests_and_damaged_ones_are_read() {
    let (bucket, meta, store) = fresh();
    let disk = FaultyDisk::new(1, Garbling::default());
    disk.create_dir(Path::new("/cache")).unwrap();
    let cache = || {
        let config =
            DiskCacheConfig { folder: "/cache".into(), bytes_max: 1 << 20, entries_max: 99, owner: [1; 16] };
        DiskCache::open(Arc::new(disk.clone()), config).unwrap()
    };
    let store = store.with_disk_cache(cache());
    let new: Vec<_> = (0..3).map(|n| append(&store, n)).collect();
    store.sync().unwrap();
    store.maintain().unwrap();
    let check = |store: &ObjectChunks| {
        for (address, seed) in new.iter().zip(0..) {
            assert_eq!(store.read(*address).unwrap(), noise(seed, 1000));
        }
    };
    check(&store);
    assert_eq!(bucket.reads(), 0, "new chunks are there at once");
    drop(store);
    let store = open(&bucket, &meta).with_disk_cache(cache());
    check(&store);
    assert_eq!(bucket.reads(), 0, "and after a restart");
    let path = Path::new("/cache/0000000000000000.cache");
    disk.flip_bit(path, 500, 1).unwrap();
    check(&store);
    let statistics = store.disk_cache_statistics().unwrap();
    assert_eq!((bucket.reads(), statistics.damaged, statistics.hits), (1, 1, 5));
    check(&store);
    assert_eq!(bucket.reads(), 1, "it was added again");
    store.verify(new[0]).unwrap();
    assert_eq!(bucket.reads(), 2, "a check reads the bucket");
    store.release(new[0]);
    assert_eq!(store.disk_cache_statistics().unwrap().entries, 2);
}

#[test]
fn ids_of_all_chunks_differ() {
    let (bucket, mut meta, mut store) = fresh();
    let mut seen = BTreeSet::new();
    for round in 0..20 {
        (0..round).for_each(|n| assert!(seen.insert(append(&store, n))));
        _ = round % 2 == 0 && store.sync().is_ok();
        crash(store, &bucket);
        meta = Arc::new(meta.crash(0));
        store = open(&bucket, &meta);
    }
    assert_eq!(seen.len(), 190);
}

mod loans;
mod reserved;
