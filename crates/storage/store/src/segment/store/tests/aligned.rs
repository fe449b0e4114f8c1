//! Segments whose records start at multiples of the alignment of direct I/O.

use super::*;
use crate::{ChunkOwner, EncodedChunk};
use disk::{DIRECT_ALIGNMENT, DiskStep, HookedDisk};
use std::collections::BTreeSet;

const OWNER: ChunkOwner = ChunkOwner([9; 24]);

fn open_aligned(disk: &FaultyDisk, meta: &Arc<MemoryMeta>) -> SegmentStore {
    open_with(disk, meta, SegmentConfig { segment_bytes: 64 << 10, aligned_bytes_min: 5000, ..config() })
}

/// Chunks with lengths around the threshold of alignment, and around the alignment itself.
fn mixed(store: &SegmentStore) -> Vec<(ChunkAddress, Bytes)> {
    let lengths = [10, 4935, 4936, 4937, 8127, 8128, 8129, 300, 8192, 9000, 20_000, 30_000, 1];
    let codecs = [Codec::Raw, Codec::Lz4, Codec::Zstd(1)];
    let mut chunks = Vec::new();
    for (n, length) in lengths.into_iter().enumerate() {
        let chunk = noise(n as u32, length);
        let halves = [chunk.slice(..chunk.len() / 2), chunk.slice(chunk.len() / 2..)];
        let pieces = if n % 2 == 0 { &halves[..] } else { std::slice::from_ref(&chunk) };
        let address = store.append_for(OWNER, pieces, codecs[n % 3]).unwrap();
        chunks.push((address, chunk));
    }
    // The compressed length is what counts.
    let text = Bytes::from(b"written in a block ".repeat(1000));
    chunks.push((store.append_for(OWNER, std::slice::from_ref(&text), Codec::Lz4).unwrap(), text));
    chunks
}

fn is_aligned(address: ChunkAddress) -> bool {
    address.offset.is_multiple_of(DIRECT_ALIGNMENT as u64)
}

#[test]
fn long_records_get_segments_of_their_own_and_all_come_back() {
    let (disk, meta) = (disk(), Arc::new(MemoryMeta::new()));
    let store = open_aligned(&disk, &meta);
    let chunks = mixed(&store);
    let (long, short): (Vec<_>, Vec<_>) =
        chunks.iter().map(|(address, _)| *address).partition(|address| address.stored_bytes >= 5000);
    assert_eq!((long.len(), short.len()), (9, 5));
    assert!(long.iter().all(|address| is_aligned(*address)));
    assert!(!long.iter().any(|long| short.iter().any(|short| short.segment == long.segment)));
    store.sync().unwrap();
    drop(store);
    // Also after a power failure.
    let store = open_aligned(&disk.crash(), &meta);
    for (address, chunk) in chunks {
        assert_eq!(store.read(address).unwrap(), chunk);
    }
}

#[test]
fn a_walk_finds_whole_fillers_between_the_records() {
    let (disk, meta) = (disk(), Arc::new(MemoryMeta::new()));
    let store = open_aligned(&disk, &meta);
    let chunks = mixed(&store);
    let (mut named, mut fillers) = (0, 0);
    for id in store.files.list().unwrap() {
        let file = disk.open(&store.files.path(id)).unwrap();
        let mut end = HEADER_BYTES;
        let walked = walk(&*file, id, |address| {
            assert_eq!(address.offset, end);
            end += u64::from(address.stored_bytes);
            let is_named = chunks.iter().any(|(chunk, _)| *chunk == address);
            named += usize::from(is_named);
            fillers += usize::from(!is_named);
            store.verify(address).unwrap();
        });
        assert_eq!(walked.unwrap().why, None);
        // Compaction skips fillers.
        for (address, owner) in store.records(id, 0, 100).unwrap().found {
            assert!(owner == OWNER && chunks.iter().any(|(chunk, _)| *chunk == address), "{address:?}");
        }
    }
    assert_eq!(named, chunks.len());
    // One at the start of each segment but the dense one, and one after each record but the one that ends on
    // a block boundary.
    assert_eq!(fillers, files(&disk) - 1 + 8);
}

#[test]
fn fillers_are_dead_from_the_beginning() {
    let (disk, meta) = (disk(), Arc::new(MemoryMeta::new()));
    let store = open_aligned(&disk, &meta);
    let mut chunks = mixed(&store);
    let live: u64 = chunks.iter().map(|(address, _)| u64::from(address.stored_bytes)).sum();
    let reported = store.statistics();
    let heads = reported.segments * HEADER_BYTES;
    assert_eq!(reported.segment_bytes - heads - reported.dead_bytes, live);
    assert_eq!(reported.stored_bytes_appended, live);
    // A segment is deleted with its last record.
    chunks.drain(..).for_each(|(address, _)| store.release(address));
    let reported = store.statistics();
    assert_eq!(reported.segment_bytes - heads, reported.dead_bytes);
    for _ in 0..3 {
        store.maintain().unwrap();
    }
    assert_eq!(files(&disk), 0);
}

/// Builds chunks of these lengths, in two pieces each.
fn new(lengths: &[u32]) -> Vec<EncodedChunk> {
    let chunk = |(n, length): (usize, &u32)| {
        let chunk = noise(n as u32, *length);
        let pieces = [chunk.slice(..chunk.len() / 3), chunk.slice(chunk.len() / 3..)];
        EncodedChunk::new(OWNER, &pieces, Codec::Raw).unwrap()
    };
    lengths.iter().enumerate().map(chunk).collect()
}

#[test]
fn concurrent_long_records_share_a_write() {
    let (disk, writes) = (disk(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&writes);
    let counted = HookedDisk::new(Arc::new(disk.clone()), move |step| {
        count.fetch_add(u64::from(step == DiskStep::Write), Relaxed);
    });
    let meta = Arc::new(MemoryMeta::new());
    let config = SegmentConfig { segment_bytes: 64 << 10, aligned_bytes_min: 5000, ..config() };
    let store =
        SegmentStore::open(Arc::new(counted), Path::new(FOLDER), Arc::clone(&meta) as _, config).unwrap();
    // Writes the segments' headers.
    store.append_all(new(&[9000, 10])).unwrap();
    writes.store(0, Relaxed);
    let chunks = [9000, 10, 8128, 10_000, 9001, 4935];
    let addresses = store.append_all(new(&chunks)).unwrap();
    assert_eq!(writes.load(Relaxed), 3, "the two short ones, and all others");
    assert_eq!(store.statistics().chunks_appended, 8);
    // Three of these fit into a segment, so each segment takes one write for the header and one for the
    // records.
    let more = [15_000; 12];
    writes.store(0, Relaxed);
    let more_addresses = store.append_all(new(&more)).unwrap();
    let segments: BTreeSet<u64> = more_addresses.iter().map(|address| address.segment).collect();
    assert_eq!((segments.len(), writes.load(Relaxed)), (4, 8));
    store.sync().unwrap();
    drop(store);
    let store = open_with(&disk.crash(), &meta, config);
    let all = addresses.iter().zip(new(&chunks)).chain(more_addresses.iter().zip(new(&more)));
    for (address, chunk) in all {
        assert_eq!(store.read(*address).unwrap(), chunk.decode().unwrap());
    }
    assert!(store.append_all(Vec::new()).unwrap().is_empty());
}

#[test]
fn chunks_of_one_batch_are_stored_together_or_not_at_all() {
    let (disk, meta) = (disk(), Arc::new(MemoryMeta::new()));
    let store = open_aligned(&disk, &meta);
    let kept = store.append_all(new(&[9000, 10])).unwrap();
    let live = |store: &SegmentStore| {
        let reported = store.statistics();
        reported.segment_bytes - reported.segments * HEADER_BYTES - reported.dead_bytes
    };
    let before = live(&store);
    // The short record is written; the disk has no space for the long ones, and then not even for a new
    // segment.
    for lengths in [vec![10, 9000, 20_000], vec![10, 9000, 20_000, 30_000, 30_000, 30_000]] {
        disk.set_capacity(40_000);
        assert!(matches!(store.append_all(new(&lengths)), Err(StoreError::Full)));
        assert_eq!((live(&store), store.failure()), (before, None));
    }
    disk.set_capacity(1 << 20);
    let after = store.append_all(new(&[9000, 10])).unwrap();
    for (address, chunk) in kept.iter().chain(&after).zip(new(&[9000, 10]).iter().cycle()) {
        assert_eq!(store.read(*address).unwrap(), chunk.decode().unwrap());
    }
    // Any other failed write stops all writing.
    disk.fail_at(disk.operations() + 1, ErrorKind::Other);
    assert!(matches!(store.append_all(new(&[10, 9000])), Err(StoreError::Io { .. })));
    assert!(store.failure().is_some());
}
