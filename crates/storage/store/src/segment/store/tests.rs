use super::*;
use crate::Codec;
use crate::chunk::CHUNK_BYTES_MAX;
use crate::segment::Recount;
use crate::segment::{Reserve, walk};
use crate::test_families::NAMES;
use crate::{Batch, ChunkNames, Family, MemoryMeta};
use disk::{FaultyDisk, Garbling, RealDisk};
use proptest::prelude::*;
use std::thread;

mod aligned;

const FOLDER: &str = "/segments";

fn config() -> SegmentConfig {
    SegmentConfig {
        segment_bytes: 4096,
        cache_bytes: 1 << 20,
        open_files_max: 4,
        reserve: Reserve { bytes: 0, permille: 0 },
        unsynced_bytes_max: 1 << 20,
        aligned_bytes_min: 64 << 10,
    }
}

fn disk() -> FaultyDisk {
    let disk = FaultyDisk::new(1, Garbling::default());
    disk.create_dir(Path::new(FOLDER)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn open_with(disk: &FaultyDisk, meta: &Arc<MemoryMeta>, config: SegmentConfig) -> SegmentStore {
    SegmentStore::open(Arc::new(disk.clone()), Path::new(FOLDER), Arc::clone(meta) as _, config).unwrap()
}

fn fresh() -> (FaultyDisk, Arc<MemoryMeta>, SegmentStore) {
    let (disk, meta) = (disk(), Arc::new(MemoryMeta::new()));
    let store = open_with(&disk, &meta, config());
    (disk, meta, store)
}

fn noise(seed: u32, count: u32) -> Bytes {
    let mix = |n: u32| (n ^ n >> 15).wrapping_mul(0x85eb_ca6b);
    (0..count).map(|n| (mix(mix(n + seed * 10_007)) >> 13) as u8).collect()
}

fn append(store: &SegmentStore, seed: u32) -> ChunkAddress {
    store.append(&[noise(seed, 1000)], Codec::Lz4).unwrap()
}

fn files(disk: &FaultyDisk) -> usize {
    disk.list(Path::new(FOLDER)).unwrap().len()
}

#[test]
fn chunks_come_back_in_every_codec_and_number_of_pieces() {
    let (disk, meta, store) = fresh();
    let mut chunks = Vec::new();
    for codec in [Codec::Raw, Codec::Lz4, Codec::Zstd(1)] {
        for pieces in
            [vec![], vec![noise(1, 700)], vec![Bytes::from(vec![3; 900]), noise(2, 9), Bytes::new()]]
        {
            chunks.push((store.append(&pieces, codec).unwrap(), pieces.concat()));
        }
    }
    store.sync().unwrap();
    let check = |store: &SegmentStore| {
        for (address, expected) in &chunks {
            assert_eq!(store.read(*address).unwrap(), *expected);
            assert_eq!(ChunkAddress::from_bytes(&address.to_bytes()), Some(*address));
        }
    };
    check(&store);
    check(&store);
    let statistics = store.statistics();
    assert_eq!((statistics.cache.misses, statistics.cache.hits), (9, 9));
    assert!(statistics.stored_bytes_appended < statistics.raw_bytes_appended);
    drop(store);
    check(&open_with(&disk, &meta, config()));
}

#[test]
fn unsynced_writes_are_bounded() {
    let (disk, meta) = (disk(), Arc::new(MemoryMeta::new()));
    let config = SegmentConfig { unsynced_bytes_max: 3000, ..config() };
    let store = open_with(&disk, &meta, config);
    // A record has 1,064 bytes: the fourth finds three unsynced ones.
    let addresses: Vec<_> = (0..8).map(|n| append(&store, n)).collect();
    assert_eq!(store.statistics().syncs, 2);
    let crashed = open_with(&disk.crash(), &meta, config);
    for (address, seed) in addresses[..6].iter().zip(0..) {
        assert_eq!(crashed.read(*address).unwrap(), noise(seed, 1000), "chunk {seed} was synced");
    }
    // An explicit sync resets the count as well.
    store.sync().unwrap();
    (8..11).for_each(|n| _ = append(&store, n));
    assert_eq!(store.statistics().syncs, 3);
}

#[test]
fn segments_roll_and_a_later_run_begins_a_new_one() {
    let (disk, meta, store) = fresh();
    let addresses: Vec<_> = (0..8).map(|n| append(&store, n)).collect();
    assert_eq!(files(&disk), 3, "three records of 1,064 bytes fit into one");
    assert!(addresses.is_sorted());
    drop(store);
    let store = open_with(&disk, &meta, config());
    assert!(append(&store, 9).segment > addresses[7].segment);
    // A chunk larger than a segment gets a segment of its own.
    let large = store.append(&[noise(1, 10_000)], Codec::Raw).unwrap();
    assert_eq!(store.read(large).unwrap(), noise(1, 10_000));
}

#[test]
fn every_damaged_byte_is_reported_with_its_place() {
    let (disk, meta, store) = fresh();
    let address = append(&store, 1);
    let path = store.files.path(address.segment);
    drop(store);
    for offset in (address.offset..address.offset + u64::from(address.stored_bytes)).step_by(3) {
        let rotten = disk.crash();
        rotten.flip_bit(&path, offset, offset as u8).unwrap();
        let store = open_with(&rotten, &Arc::new(meta.crash(9)), config());
        let error = store.read(address).unwrap_err();
        let StoreError::Damaged { place, .. } = &error else { panic!("{error}") };
        assert_eq!(*place, format!("{} at offset 32", path.display()));
        assert_eq!(store.statistics().damaged_reads, 1);
    }
}

#[test]
fn data_only_in_the_page_cache_counts_as_damaged() {
    let (disk, _, store) = fresh();
    let addresses: Vec<_> = (0..8).map(|n| append(&store, n)).collect();
    // One chunk that starts and ends within blocks, and one longer than a block.
    let large = store.append(&[noise(1, 10_000)], Codec::Raw).unwrap();
    for address in [addresses[1], large] {
        assert!(!address.offset.is_multiple_of(4096));
        store.verify(address).unwrap();
        for offset in [address.offset, address.offset + u64::from(address.stored_bytes) - 1] {
            disk.flip_bit_under_cache(&store.files.path(address.segment), offset, 5).unwrap();
            let StoreError::Damaged { place, .. } = store.verify(address).unwrap_err() else { panic!() };
            assert!(place.ends_with(&format!("at offset {}", address.offset)), "{place}");
            disk.flip_bit_under_cache(&store.files.path(address.segment), offset, 5).unwrap();
            store.verify(address).unwrap();
        }
        let last = address.offset + u64::from(address.stored_bytes) - 1;
        disk.flip_bit_under_cache(&store.files.path(address.segment), last, 0).unwrap();
        let expected = if address == large { noise(1, 10_000) } else { noise(1, 1000) };
        assert_eq!(reading::read(&store.files, address).unwrap(), expected, "the cache has it");
        assert!(store.verify(address).is_err());
    }
    // Neighbouring chunks are not affected.
    store.verify(addresses[0]).unwrap();
}

#[test]
fn a_damaged_segment_header_does_not_take_the_chunks_with_it() {
    let (disk, meta, store) = fresh();
    let address = append(&store, 1);
    let path = store.files.path(address.segment);
    drop(store);
    disk.flip_bit(&path, 3, 3).unwrap();
    assert_eq!(open_with(&disk, &meta, config()).read(address).unwrap(), noise(1, 1000));
}

#[test]
fn a_fully_released_segment_is_deleted_after_a_delay() {
    let (disk, meta, store) = fresh();
    let addresses: Vec<_> = (0..4).map(|n| append(&store, n)).collect();
    store.sync().unwrap();
    store.release(addresses[0]);
    store.release(addresses[1]);
    assert_eq!((store.maintain().unwrap(), store.maintain().unwrap()), (0, 0));
    drop(store);
    // Releases survive a restart.
    let store = open_with(&disk, &meta, config());
    store.release(addresses[2]);
    assert_eq!(store.maintain().unwrap(), 0, "readers get time");
    assert_eq!(store.read(addresses[1]).unwrap(), noise(1, 1000));
    assert_eq!(store.maintain().unwrap(), 1);
    assert_eq!(files(&disk), 1);
    assert_eq!(store.read(addresses[3]).unwrap(), noise(3, 1000));
    let error = store.read(addresses[0]).unwrap_err().to_string();
    assert!(error.contains("no such segment"), "{error}");
    assert_eq!(store.statistics().segments_deleted, 1);
    assert_eq!(Accounts::load(&*meta).unwrap().0.len(), 1);
}

/// Returns a store of large segments. Two of them, each of 9 MiB but with one and with nine records, have
/// been dead for one round.
fn with_two_dead() -> (FaultyDisk, Arc<MemoryMeta>, SegmentStore, [ChunkAddress; 2]) {
    let (disk, meta) = (disk(), Arc::new(MemoryMeta::new()));
    let store = open_with(&disk, &meta, SegmentConfig { segment_bytes: 10 << 20, ..config() });
    let chunks: Vec<_> = (0..19).map(|n| store.append(&[noise(n, 1 << 20)], Codec::Raw).unwrap()).collect();
    store.sync().unwrap();
    assert_eq!((files(&disk), chunks[8].segment, chunks[9].segment), (3, 2, 3));
    chunks[..18].iter().for_each(|chunk| store.release(*chunk));
    assert_eq!(store.maintain().unwrap(), 0);
    (disk, meta, store, [chunks[0], chunks[9]])
}

#[test]
fn a_deleted_segment_gives_its_room_back_in_pieces_with_rests() {
    let (disk, _, store, dead) = with_two_dead();
    let open = |chunk: &ChunkAddress| disk.open(&store.files.path(chunk.segment)).unwrap();
    let handles = dead.each_ref().map(open);
    let mut lengths = Vec::new();
    let mut rest = || {
        lengths.push(handles.each_ref().map(|file| file.length().unwrap() >> 20));
        true
    };
    assert_eq!(store.maintain_resting(&mut rest).unwrap(), 2);
    assert_eq!(lengths, [[9, 9], [5, 9], [1, 9], [0, 9], [0, 5], [0, 1]]);
    assert_eq!(handles.map(|file| file.length().unwrap()), [0, 0]);
    assert_eq!(files(&disk), 1);
}

#[test]
fn a_deleted_segment_that_is_read_stays_whole_for_its_reader() {
    let (disk, _, store, [first, second]) = with_two_dead();
    let read = store.files.get(first.segment).unwrap();
    assert_eq!(store.maintain().unwrap(), 2);
    assert_eq!((files(&disk), read.length().unwrap() >> 20), (1, 9));
    assert!(store.files.get(first.segment).is_err() && store.files.get(second.segment).is_err());
}

#[test]
fn a_stopped_round_leaves_dead_segments_to_the_next() {
    let (disk, meta, store, _) = with_two_dead();
    let mut rests = 0;
    let mut until_the_third = || {
        rests += 1;
        rests < 3
    };
    assert_eq!(store.maintain_resting(&mut until_the_third).unwrap(), 1);
    assert_eq!((files(&disk), store.statistics().segments), (2, 2));
    drop(store);
    let store = open_with(&disk, &meta, config());
    assert_eq!((store.maintain().unwrap(), store.maintain().unwrap()), (0, 1));
    assert_eq!(files(&disk), 1);
}

#[test]
fn there_are_no_rests_where_more_is_dead_than_is_free() {
    let (disk, _, store, _) = with_two_dead();
    disk.set_capacity(30 << 20);
    assert_eq!(store.maintain_resting(&mut || panic!("room is wanted at once")).unwrap(), 2);
    assert_eq!(files(&disk), 1);
}

#[test]
fn orphans_of_a_crash_are_removed() {
    let (disk, meta, store) = fresh();
    let named = append(&store, 0);
    let orphans: Vec<_> = (1..9).map(|n| append(&store, n)).collect();
    store.sync().unwrap();
    put(&meta, 1, named);
    let (disk, meta) = (disk.crash(), Arc::new(meta.crash(1)));
    let store = open_with(&disk, &meta, config());
    let state = meta.snapshot();
    let new = append(&store, 10);
    put(&meta, 2, new);
    assert!(store.needs_recount());
    assert_eq!(store.recount(&*state, names(), &mut || false).unwrap(), None);
    let found = store.recount(&*state, names(), &mut || true).unwrap().unwrap();
    assert_eq!(found, Recount { chunks: 1, bytes: 1064, orphaned_bytes: 8 * 1064, missing: 0 });
    assert!(!store.needs_recount());
    assert_eq!(store.statistics().dead_bytes, 8 * 1064);
    assert_eq!((store.maintain().unwrap(), store.maintain().unwrap()), (0, 2));
    assert_eq!(store.read(named).unwrap(), noise(0, 1000));
    assert_eq!(store.read(new).unwrap(), noise(10, 1000));
    assert!(store.read(orphans[7]).is_err());
    // The segment that the referenced chunk shared with two orphans is deleted too.
    store.release(named);
    assert_eq!((store.maintain().unwrap(), store.maintain().unwrap()), (0, 1));
    drop((state, store));
    assert!(!open_with(&disk, &meta, config()).needs_recount(), "it was closed in order");
}

#[test]
fn nothing_is_reclaimed_where_a_record_cannot_be_read() {
    let (disk, meta, store) = fresh();
    (0..4).for_each(|n| _ = append(&store, n));
    drop(store);
    let mut batch = Batch::new();
    batch.put(NAMES, 1u64.to_be_bytes(), "damaged");
    batch.delete(Family::SYSTEM, "segments/closed");
    meta.commit(batch).unwrap();
    let store = open_with(&disk, &meta, config());
    assert!(store.recount(&*meta.snapshot(), names(), &mut || true).is_err());
    assert_eq!((store.statistics().dead_bytes, store.needs_recount()), (0, true));
    drop(store);
    assert!(open_with(&disk, &meta, config()).needs_recount(), "still to be done");
}

#[test]
fn chunks_that_are_named_but_not_there_are_reported() {
    let (disk, meta, store) = fresh();
    let address = append(&store, 0);
    store.sync().unwrap();
    put(&meta, 1, address);
    put(&meta, 2, ChunkAddress { offset: 5000, ..address });
    put(&meta, 3, ChunkAddress { segment: 77, ..address });
    let (disk, meta) = (disk.crash(), Arc::new(meta.crash(9)));
    let store = open_with(&disk, &meta, config());
    let found = store.recount(&*meta.snapshot(), names(), &mut || true).unwrap().unwrap();
    assert_eq!((found.chunks, found.missing), (3, 2));
}

fn put(meta: &MemoryMeta, key: u64, address: ChunkAddress) {
    let mut batch = Batch::new();
    batch.put(NAMES, key.to_be_bytes(), address.to_bytes());
    meta.commit(batch).unwrap();
}

fn names() -> ChunkNames {
    ChunkNames { family: NAMES, chunk_of }
}

fn chunk_of(_key: &[u8], value: &[u8]) -> Result<Option<ChunkAddress>, StoreError> {
    let damaged = || StoreError::Damaged { place: "a test".into(), what: "no address".into() };
    ChunkAddress::from_bytes(value).map(Some).ok_or_else(damaged)
}

#[test]
fn a_full_partition_takes_no_chunks_but_recovers() {
    let (disk, meta) = (disk(), Arc::new(MemoryMeta::new()));
    let config = SegmentConfig { reserve: Reserve { bytes: 2000, permille: 100 }, ..config() };
    disk.set_capacity(30_000);
    let store = open_with(&disk, &meta, config);
    let mut addresses = Vec::new();
    let error = loop {
        match store.append(&[noise(addresses.len() as u32, 1000)], Codec::Raw) {
            Ok(address) => addresses.push(address),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Full), "{error}");
    let space = store.space().unwrap();
    assert!((6596..9096).contains(&space.free_bytes));
    let room = store.room().unwrap();
    assert_eq!(room.total_bytes - room.usable_bytes, space.total_bytes - space.free_bytes, "{room:?}");
    store.sync().unwrap();
    for address in &addresses {
        store.release(*address);
    }
    assert!(store.maintain().unwrap() + store.maintain().unwrap() > 0);
    append(&store, 1);
    assert_eq!(store.failure(), None);
}

#[test]
fn the_system_saying_full_is_no_failure_either() {
    let (disk, _meta, store) = fresh();
    let before = append(&store, 1);
    disk.set_capacity(1500);
    assert!(matches!(store.append(&[noise(2, 1000)], Codec::Raw), Err(StoreError::Full)));
    store.sync().unwrap();
    disk.set_capacity(1 << 20);
    let after = append(&store, 3);
    assert_eq!(store.read(before).unwrap(), noise(1, 1000));
    assert_eq!(store.read(after).unwrap(), noise(3, 1000));
}

#[test]
fn after_a_failed_write_or_sync_nothing_is_acknowledged() {
    for fail_sync in [false, true] {
        let (disk, _meta, store) = fresh();
        let address = append(&store, 1);
        disk.fail_at(disk.operations(), ErrorKind::Other);
        let failed = if fail_sync {
            store.sync().unwrap_err()
        } else {
            store.append(&[noise(2, 1000)], Codec::Raw).unwrap_err()
        };
        assert!(matches!(failed, StoreError::Io { .. }), "{failed}");
        assert!(matches!(store.append(&[], Codec::Raw), Err(StoreError::ReadOnly(_))));
        assert!(matches!(store.sync(), Err(StoreError::ReadOnly(_))));
        assert_eq!(store.read(address).unwrap(), noise(1, 1000));
        assert!(store.failure().is_some());
    }
}

#[test]
fn a_chunk_beyond_the_limit_is_refused() {
    let (_disk, _meta, store) = fresh();
    let chunk = Bytes::from(vec![0; CHUNK_BYTES_MAX + 1]);
    assert!(store.append(&[chunk], Codec::Raw).unwrap_err().to_string().contains("at most 1048576 bytes"));
}

#[test]
fn a_sync_with_nothing_to_do_does_nothing() {
    let (disk, _meta, store) = fresh();
    append(&store, 1);
    store.sync().unwrap();
    let before = disk.operations();
    store.sync().unwrap();
    assert_eq!(disk.operations(), before);
}

#[test]
fn the_cache_is_bounded_and_counts() {
    let (disk, meta) = (disk(), Arc::new(MemoryMeta::new()));
    let config = SegmentConfig { cache_bytes: 100 << 10, segment_bytes: 1 << 20, ..config() };
    let store = open_with(&disk, &meta, config);
    let addresses: Vec<_> = (0..300).map(|n| append(&store, n)).collect();
    for address in addresses.iter().chain(&addresses) {
        store.read(*address).unwrap();
    }
    let statistics = store.statistics();
    assert!(statistics.cache.bytes <= 100 << 10, "{statistics:?}");
    assert!(statistics.cache.evictions > 200, "{statistics:?}");
    assert_eq!(statistics.cache.hits + statistics.cache.misses, 600);
}

#[test]
fn threads_append_sync_and_read_concurrently() {
    let folder = tempfile::tempdir().unwrap();
    let meta: Arc<dyn MetaStore> = Arc::new(MemoryMeta::new());
    let config = SegmentConfig { segment_bytes: 64 << 10, ..config() };
    let store = SegmentStore::open(Arc::new(RealDisk), folder.path(), meta, config).unwrap();
    let work = |thread: u32| {
        for n in 0..100 {
            let chunk = noise(thread * 1000 + n, 1 + n * 50);
            let address = store.append(std::slice::from_ref(&chunk), Codec::Lz4).unwrap();
            if n % 10 == 0 {
                store.sync().unwrap();
            }
            assert_eq!(store.read(address).unwrap(), chunk);
            if n % 3 == 0 {
                store.release(address);
            }
            if n % 20 == 0 {
                store.maintain().unwrap();
            }
        }
    };
    thread::scope(|scope| (0..8).for_each(|thread| _ = scope.spawn(move || work(thread))));
    let statistics = store.statistics();
    assert_eq!((statistics.chunks_appended, statistics.chunks_released), (800, 272));
    assert!(statistics.syncs <= statistics.sync_requests);
}

#[test]
fn a_walk_finds_every_record_and_stops_at_the_torn_tail() {
    let (disk, _meta, store) = fresh();
    let addresses: Vec<_> = (0..3).map(|n| append(&store, n)).collect();
    let id = addresses[0].segment;
    let file = disk.open(&store.files.path(id)).unwrap();
    let mut found = Vec::new();
    let end = walk(&*file, id, |address| found.push(address)).unwrap();
    assert_eq!((&found, end.why), (&addresses, None));
    for length in [0, 31, 33, 64, 97, 1095, 1097, 3223] {
        file.set_len(length).unwrap();
        let mut count = 0;
        let end = walk(&*file, id, |_| count += 1).unwrap();
        assert_eq!((count, end.offset), (length.saturating_sub(32) / 1064, 32 + count * 1064), "{length}");
        file.set_len(4096).unwrap();
        file.write_all_at(&mut [IoSlice::new(&[0; 4096])], 0).unwrap();
        (0..3).for_each(|n| rewrite(&*file, addresses[n], n as u32));
    }
}

fn rewrite(file: &dyn File, address: ChunkAddress, seed: u32) {
    let encoded = codec::encode(&[noise(seed, 1000)], Codec::Raw).unwrap();
    let header = encoded.record.build(address.segment, address.offset);
    file.write_all_at(&mut [IoSlice::new(&header), IoSlice::new(encoded.stored.bytes())], address.offset)
        .unwrap();
}

proptest! {
    #[test]
    fn addresses_that_were_never_given_out_are_refused(segment in 0..4u64, offset in 0..5000u64, stored_bytes: u32, wild: u64) {
        let (_disk, _meta, store) = fresh();
        let good: Vec<_> = (0..3).map(|n| append(&store, n)).collect();
        for address in [
            ChunkAddress { segment, offset, stored_bytes },
            ChunkAddress { segment, offset: wild, stored_bytes },
            ChunkAddress { segment, offset, stored_bytes: stored_bytes % 2100 },
            ChunkAddress { segment: wild, offset, stored_bytes: 1064 },
        ] {
            prop_assert_eq!(store.read(address).is_ok(), good.contains(&address));
        }
    }
}

#[test]
fn the_active_segment_frees_its_space_when_all_is_dead() {
    let (disk, _meta, store) = fresh();
    let kept = append(&store, 1);
    let released = append(&store, 2);
    assert_eq!(kept.segment, released.segment);
    store.sync().unwrap();
    store.release(released);
    for _ in 0..3 {
        assert_eq!(store.maintain().unwrap(), 0, "one chunk is needed");
    }
    assert_eq!(append(&store, 3).segment, kept.segment, "it is still in use");
    assert_eq!(store.dirty.lock().len(), 1, "the third is given up");
    store.release(kept);
    store.release(ChunkAddress { offset: released.offset + u64::from(released.stored_bytes), ..released });
    assert_eq!([store.maintain().unwrap(), store.maintain().unwrap()], [0, 1]);
    assert_eq!((files(&disk), store.dirty.lock().len()), (0, 0), "an open file would keep the room");
    let next = append(&store, 4);
    store.sync().unwrap();
    assert!(next.segment > kept.segment);
    assert_eq!(store.read(next).unwrap(), noise(4, 1000));
}
