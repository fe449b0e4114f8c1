use crate::segment::{Reserve, SegmentConfig, SegmentStore};
use crate::{ChunkAddress, ChunkOwner, ChunkStore, Codec, FileData, MemoryMeta, StoreError};
use bytes::Bytes;
use disk::{Disk, FaultyDisk, Garbling, RealDisk};
use std::path::Path;
use std::sync::Arc;

const FOLDER: &str = "/segments";
const RESERVE: u64 = 10_000;
/// Segment size that fits three records of 1,064 bytes.
const SEGMENT_BYTES: u64 = 4096;

fn open(disk: &FaultyDisk) -> SegmentStore {
    let config = SegmentConfig {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: 1 << 20,
        open_files_max: 4,
        reserve: Reserve { bytes: RESERVE, permille: 0 },
        unsynced_bytes_max: 1 << 20,
        aligned_bytes_min: 64 << 10,
    };
    let meta = Arc::new(MemoryMeta::new());
    SegmentStore::open(Arc::new(disk.clone()), Path::new(FOLDER), meta, config).unwrap()
}

fn fresh() -> (FaultyDisk, SegmentStore) {
    let disk = FaultyDisk::new(1, Garbling::default());
    disk.create_dir(Path::new(FOLDER)).unwrap();
    let store = open(&disk);
    (disk, store)
}

fn owner(number: u8) -> ChunkOwner {
    ChunkOwner([number; 24])
}

fn data(number: u8) -> Bytes {
    vec![number; 1000].into()
}

fn append(store: &SegmentStore, number: u8) -> ChunkAddress {
    store.append_for(owner(number), &[data(number)], Codec::Raw).unwrap()
}

#[test]
fn the_deadest_segment_comes_first_and_is_emptied() {
    let (disk, store) = fresh();
    let chunks: Vec<_> = (1..=9).map(|number| append(&store, number)).collect();
    append(&store, 10);
    assert_eq!(store.sparse_segments(1), [], "nothing is dead");
    for dead in [1, 3, 4, 6, 7, 8] {
        store.release(chunks[dead]);
    }
    let (first, last) = (chunks[0].segment, chunks[8].segment);
    let sparse = store.sparse_segments(50);
    let found: Vec<_> = sparse.iter().map(|used| (used.segment, used.bytes, used.dead)).collect();
    assert_eq!(found, [(first + 1, 3 * 1064, 2 * 1064)], "one has a third, one is wholly dead");
    assert_eq!(store.sparse_segments(33).len(), 2);
    assert_eq!((last, store.sparse_segments(67).len()), (first + 2, 0));
    let records = store.records(first + 1, 0, 2).unwrap();
    assert_eq!(records.found, [(chunks[3], owner(4)), (chunks[4], owner(5))]);
    let rest = store.records(first + 1, records.next.unwrap(), 2).unwrap();
    assert_eq!((rest.found, rest.next, rest.is_cut), (vec![(chunks[5], owner(6))], None, false));
    store.read(chunks[5]).unwrap();
    let copy = store.copy(chunks[5], ChunkOwner::default()).unwrap();
    let before = store.statistics();
    assert_eq!((before.chunks_appended, before.chunks_moved, before.moved_bytes), (10, 1, 1064));
    assert_eq!(store.read(copy).unwrap(), data(6));
    assert_eq!(store.statistics().cache.misses, before.cache.misses, "what was cached still is");
    store.sync().unwrap();
    assert_eq!(store.doomed_bytes(), 32 + 3 * 1064, "the last of the first nine");
    store.release(chunks[5]);
    (0..2).for_each(|_| _ = store.maintain().unwrap());
    let left = disk.list(Path::new(FOLDER)).unwrap();
    assert_eq!(left.len(), 2, "of the first and the one in use: {left:?}");
    store.verify(copy).unwrap();
    assert_eq!(store.records(copy.segment, 0, 9).unwrap().found.last(), Some(&(copy, owner(6))));
}

#[test]
fn damage_is_not_copied_and_reported() {
    let (disk, store) = fresh();
    let chunks: Vec<_> = (1..=3).map(|number| append(&store, number)).collect();
    store.sync().unwrap();
    let path = store.files.path(chunks[0].segment);
    disk.flip_bit(&path, chunks[0].offset + 500, 1).unwrap();
    for chunk in [store.verify(chunks[0]).unwrap_err(), store.copy(chunks[0], owner(1)).unwrap_err()] {
        assert!(matches!(chunk, StoreError::Damaged { .. }), "{chunk}");
    }
    assert_eq!(store.records(chunks[0].segment, 0, 9).unwrap().found.len(), 3, "its header is good");
    disk.flip_bit(&path, chunks[1].offset, 1).unwrap();
    let records = store.records(chunks[0].segment, 0, 9).unwrap();
    assert_eq!((records.found.len(), records.next, records.is_cut), (1, None, true));
    assert!(store.records(99, 0, 9).is_err());
}

#[test]
fn a_full_disk_has_room_for_copies_but_not_for_new_data() {
    let (disk, store) = fresh();
    disk.set_capacity(40_000);
    let mut chunks = Vec::new();
    for number in 0.. {
        match store.append_for(owner(number), &[data(number)], Codec::Raw) {
            Ok(chunk) => chunks.push(chunk),
            Err(StoreError::Full) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let free = disk.space(Path::new("/")).unwrap().free_bytes;
    assert!((RESERVE + SEGMENT_BYTES..RESERVE + SEGMENT_BYTES + 1100).contains(&free), "{free}");
    assert_eq!(store.usable_bytes().unwrap(), free - RESERVE - SEGMENT_BYTES);
    // Two thirds of each segment die, and there is space to move the rest of one.
    let kept: Vec<_> = chunks.iter().copied().step_by(3).collect();
    for chunk in chunks.iter().filter(|chunk| !kept.contains(chunk)) {
        store.release(*chunk);
    }
    for chunk in &kept[..3] {
        store.copy(*chunk, ChunkOwner::default()).unwrap();
        store.sync().unwrap();
        store.release(*chunk);
    }
    // Copies stop at the reserve.
    while store.copy(kept[4], ChunkOwner::default()).is_ok() {}
    assert!(disk.space(Path::new("/")).unwrap().free_bytes >= RESERVE);
    assert_eq!(store.failure(), None);
    (0..2).for_each(|_| _ = store.maintain().unwrap());
    assert!(store.append(&[data(1)], Codec::Raw).is_ok(), "room was given back");
}

#[test]
fn copies_of_version_1_are_of_the_version_written_now() {
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/segment-v1.seg");
    std::fs::copy(golden, folder.path().join("0000000000000002.seg")).unwrap();
    let meta = Arc::new(MemoryMeta::new());
    let store =
        SegmentStore::open(Arc::new(RealDisk), folder.path(), meta, SegmentConfig::default()).unwrap();
    let old = store.records(2, 0, 99).unwrap();
    assert_eq!((old.found.len(), old.is_cut), (6, false));
    for (number, (address, unknown)) in (1..).zip(old.found) {
        assert!(!unknown.is_known());
        let copy = store.copy(address, owner(number)).unwrap();
        assert_eq!(copy.stored_bytes, address.stored_bytes + 32);
        assert_eq!(store.read(copy).unwrap(), store.read(address).unwrap());
        let found = store.records(copy.segment, copy.offset, 1).unwrap().found;
        assert_eq!(found, [(copy, owner(number))]);
    }
}
