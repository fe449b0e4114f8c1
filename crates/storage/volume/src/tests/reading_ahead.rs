//! Tests read-ahead from segments on an in-memory disk.

use super::support::*;
use crate::{PartitionHandle, Space, Volume, VolumeOptions, Volumes};
use base::{AbortCode, Fid};
use disk::{Disk, FaultyDisk, Garbling};
use std::path::Path;
use std::sync::Arc;
use store::{ChunkStore, Codec, FileData, MemoryMeta, Reserve, SegmentConfig, SegmentStore};

const FOLDER: &str = "/segments";
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 12;

struct Opened {
    disk: FaultyDisk,
    store: Arc<SegmentStore>,
    meta: Arc<MemoryMeta>,
    volumes: Volumes,
}

impl Opened {
    fn new(read_threads: usize, cache_bytes: u64) -> Opened {
        let disk = FaultyDisk::new(1, Garbling::default());
        disk.create_dir(Path::new(FOLDER)).unwrap();
        Opened::on(disk, Arc::new(MemoryMeta::new()), read_threads, cache_bytes)
    }

    fn on(disk: FaultyDisk, meta: Arc<MemoryMeta>, read_threads: usize, cache_bytes: u64) -> Opened {
        let reserve = Reserve { bytes: 0, permille: 0 };
        let config = SegmentConfig { cache_bytes, reserve, ..SegmentConfig::default() };
        let store = SegmentStore::open(Arc::new(disk.clone()), Path::new(FOLDER), meta.clone(), config);
        let store = Arc::new(store.unwrap());
        let handle = PartitionHandle {
            id: partition(),
            meta: meta.clone(),
            chunks: Arc::clone(&store) as _,
            space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
        };
        let options = VolumeOptions { chunk_shift: 16, read_threads, codec: Codec::Lz4, ..options() };
        let volumes = Volumes::open(vec![handle], options).unwrap();
        Opened { disk, store, meta, volumes }
    }

    /// Reopens the store with an empty cache.
    fn again(self, read_threads: usize, cache_bytes: u64) -> Opened {
        let Opened { disk, store, meta, volumes } = self;
        drop(volumes);
        assert_eq!(Arc::strong_count(&store), 1, "nobody holds the store any more");
        drop(store);
        Opened::on(disk, meta, read_threads, cache_bytes)
    }

    fn volume(&self) -> Arc<Volume> {
        self.volumes.get(RW).unwrap()
    }
}

/// Returns contents in which each chunk differs and is compressible; the last one is short.
fn contents() -> Vec<u8> {
    (0..CHUNKS * CHUNK - 1000).map(|at| if at % 3 == 0 { (at / CHUNK) as u8 } else { 7 }).collect()
}

fn with_file(opened: &Opened) -> Fid {
    let volume = opened.volumes.create(partition(), &new_volume(RW, "user.alice")).unwrap();
    let made = volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
    let fid = made.status.fid(RW);
    store_at(&volume, fid, 0, &contents(), 0).unwrap();
    fid
}

#[test]
fn whatever_is_read_ahead_the_bytes_are_the_same() {
    for threads in [0, 1, 3] {
        for cache_bytes in [0, 3 * CHUNK as u64, 64 << 20] {
            let opened = Opened::new(threads, cache_bytes);
            let fid = with_file(&opened);
            let opened = opened.again(threads, cache_bytes);
            let (volume, expected) = (opened.volume(), contents());
            assert_eq!(read_all(&volume, fid), expected);
            for (from, length) in [(0, 1), (CHUNK - 1, 2), (CHUNK, 3 * CHUNK), (5, expected.len())] {
                let read = volume.read(fid, from as u64, length as u64).unwrap().1.concat();
                assert!(read == expected[from..expected.len().min(from + length)], "{from} {length}");
            }
            drop(volume);
            drop(opened.again(0, 0));
        }
    }
}

#[test]
fn sequential_readers_find_prefetched_chunks() {
    let opened = Opened::new(2, 64 << 20);
    let fid = with_file(&opened);
    let opened = opened.again(2, 64 << 20);
    let volume = opened.volume();
    let read = |chunk: usize| _ = volume.read(fid, (chunk * CHUNK) as u64, CHUNK as u64).unwrap();
    let loaded = || opened.store.cache_statistics().entries;
    read(5);
    assert_eq!(loaded(), 1, "nobody reads on from a place that may be the only one");
    read(0);
    assert_eq!(loaded(), 2);
    // A thread may not be ready for jobs yet, in which case it gets none and the next reader tries again.
    while loaded() < 4 {
        read(1);
        std::thread::yield_now();
    }
    assert!(volume.read(fid, 0, 1).is_ok());
}

#[test]
fn prefetched_damage_is_reported_when_reached() {
    let opened = Opened::new(2, 64 << 20);
    let fid = with_file(&opened);
    let opened = opened.again(2, 64 << 20);
    let names = opened.disk.list(Path::new(FOLDER)).unwrap();
    let path = Path::new(FOLDER).join(&names[0]);
    let length = opened.disk.open(&path).unwrap().length().unwrap();
    // The chunks have similar lengths, so this is within the seventh of twelve.
    opened.disk.flip_bit(&path, length * 13 / 24, 1).unwrap();
    let (volume, expected) = (opened.volume(), contents());
    let mut reader = volume.reader(fid, 0, u64::MAX).unwrap();
    let mut read = Vec::new();
    let error = loop {
        match reader.next(CHUNK) {
            Ok(pieces) => read.extend(pieces.concat()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.abort_code(), AbortCode::UAEIO);
    assert!(read == expected[..6 * CHUNK]);
    let behind = volume.read(fid, 7 * CHUNK as u64, u64::MAX).unwrap().1.concat();
    assert!(behind == expected[7 * CHUNK..]);
}

#[test]
fn overwritten_chunks_stay_until_readers_finish() {
    let opened = Opened::new(2, 0);
    let fid = with_file(&opened);
    let volume = opened.volume();
    let mut reader = volume.reader(fid, 0, u64::MAX).unwrap();
    let mut read = reader.next(CHUNK).unwrap().concat();
    store_at(&volume, fid, 0, b"all is gone", 0).unwrap();
    opened.store.maintain().unwrap();
    opened.store.maintain().unwrap();
    while reader.remaining() > 0 {
        read.extend(reader.next(CHUNK).unwrap().concat());
    }
    assert!(read == contents());
    assert_eq!(opened.store.statistics().damaged_reads, 0);
}
