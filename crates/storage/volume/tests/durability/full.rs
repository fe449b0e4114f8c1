//! Tests of a full partition: data that does not fit is rejected with VDISKFULL, existing data stays intact,
//! and operation continues once there is space again.

use crate::common::{contents, create, options, partition_id, read, store, volume};
use base::{AbortCode, UnixTime};
use disk::{Disk, FaultyDisk, Garbling};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::{FileData, MemoryMeta, Reserve, SegmentConfig, SegmentStore};
use volume::{CompactionPolicy, PartitionHandle, Space, Volume, VolumeError, Volumes};

const FOLDER: &str = "/segments";
const CAPACITY: u64 = 400_000;
const RESERVE: u64 = 50_000;
const FILE_BYTES: usize = 20_000;
/// Size of two of a file's five chunks.
const LEFT_BYTES: usize = 8192;

struct Full {
    disk: FaultyDisk,
    chunks: Arc<SegmentStore>,
    volumes: Volumes,
    volume: Arc<Volume>,
    /// Number of files created so far, used for their names.
    made: AtomicU64,
}

fn data(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..FILE_BYTES).map(next).collect()
}

/// Creates a small disk with a volume. With `is_asked`, volumes check for free space before a store, as on
/// servers; otherwise only a write reports that the disk is full.
fn full(is_asked: bool) -> Full {
    let disk = FaultyDisk::new(1, Garbling { short: true, ..Garbling::default() });
    disk.create_dir(Path::new(FOLDER)).unwrap();
    disk.set_capacity(CAPACITY);
    let config = SegmentConfig {
        segment_bytes: 60_000,
        cache_bytes: 10_000,
        open_files_max: 4,
        reserve: Reserve { bytes: RESERVE, permille: 0 },
        unsynced_bytes_max: 1 << 20,
        aligned_bytes_min: 64 << 10,
    };
    let meta = Arc::new(MemoryMeta::new());
    let chunks =
        SegmentStore::open(Arc::new(disk.clone()), Path::new(FOLDER), Arc::clone(&meta) as _, config);
    let chunks = Arc::new(chunks.unwrap());
    let asked = Arc::clone(&chunks);
    let space = move || {
        let free = if is_asked { asked.usable_bytes().unwrap() } else { u64::MAX };
        Space { total_kib: CAPACITY >> 10, free_kib: free >> 10 }
    };
    let handle = PartitionHandle {
        id: partition_id(),
        meta,
        chunks: Arc::clone(&chunks) as _,
        space: Arc::new(space),
    };
    let volumes = Volumes::open(vec![handle], options()).unwrap();
    // This writer does not deduplicate, so equal chunks take space each.
    let volume = volume(&volumes, 1).unwrap();
    Full { disk, chunks, volumes, volume, made: AtomicU64::new(0) }
}

impl Full {
    /// Creates files until the disk is full, and checks the error.
    fn fill(&self, files: &mut BTreeMap<String, Vec<u8>>) {
        for seed in 0.. {
            let name = format!("fill-{}", self.made.fetch_add(1, Relaxed));
            match create(&self.volume, &name, &data(seed)) {
                Ok(_) => _ = files.insert(name, data(seed)),
                Err(error) => {
                    check_full(&error);
                    // The file was created before its data was rejected.
                    if contents(&self.volume).contains_key(&name) {
                        files.insert(name, vec![]);
                    }
                    return;
                }
            }
        }
    }

    fn fid(&self, name: &str) -> base::Fid {
        let found = self.volume.lookup(self.volume.root(), name.as_bytes()).unwrap();
        base::Fid { volume: self.volume.id(), vnode: found.vnode, unique: found.unique }
    }

    fn remove(&self, name: &str) {
        self.volume.remove_file(&crate::common::actor(), self.volume.root(), name.as_bytes()).unwrap();
    }

    fn compact(&self) {
        let policy = CompactionPolicy::default();
        let is_idle = || self.volumes.compact_step(partition_id(), policy, UnixTime(1)).unwrap().is_idle;
        while !is_idle() {
            // The server does this periodically; a segment is deleted by the second call.
            (0..2).for_each(|_| _ = self.chunks.maintain().unwrap());
        }
    }

    fn regain(&self) {
        while self.volumes.purge_step().unwrap() {}
        self.compact();
        (0..2).for_each(|_| _ = self.chunks.maintain().unwrap());
    }
}

fn check_full(error: &VolumeError) {
    assert_eq!(error.abort_code(), AbortCode::VDISKFULL, "{error}");
}

#[test]
fn a_full_partition_refuses_keeps_and_goes_on() {
    for is_asked in [false, true] {
        let full = full(is_asked);
        let mut files = BTreeMap::new();
        for _ in 0..5 {
            full.fill(&mut files);
            assert_eq!(contents(&full.volume), files);
            assert!(full.disk.space(Path::new("/")).unwrap().free_bytes >= RESERVE / 2);
            // An overwrite is rejected as a whole.
            let name = files.keys().next().unwrap().clone();
            let before = full.volume.status(full.fid(&name)).unwrap();
            let much: Vec<u8> = (0..20).flat_map(data).collect();
            check_full(&store(&full.volume, full.fid(&name), 0, 0, &much).unwrap_err());
            assert_eq!(full.volume.status(full.fid(&name)).unwrap(), before);
            assert_eq!(contents(&full.volume), files);
            // Deletions succeed and free space.
            for name in files.keys().step_by(2) {
                full.remove(name);
            }
            let mut at = 0;
            files.retain(|_, _| {
                at += 1;
                at % 2 == 0
            });
            full.regain();
            assert_eq!(contents(&full.volume), files);
            assert_eq!(full.chunks.failure(), None);
        }
        for name in files.keys() {
            full.remove(name);
        }
        full.regain();
        let fid = create(&full.volume, "after", &data(99)).unwrap();
        assert_eq!(read(&full.volume, fid), data(99));
        assert!(full.chunks.statistics().segments <= 2);
    }
}

/// Half of every segment is dead, so no segment is deleted by itself, but compaction has space to empty them.
#[test]
fn compaction_gives_room_back_on_a_full_partition() {
    let full = full(true);
    let mut files = BTreeMap::new();
    full.fill(&mut files);
    // Cuts part of each file, so that dead and live data are interleaved everywhere.
    for name in files.keys() {
        let length = files[name].len().min(LEFT_BYTES);
        store(&full.volume, full.fid(name), length as u64, length, &[]).unwrap();
    }
    for data in files.values_mut() {
        data.truncate(LEFT_BYTES);
    }
    (0..2).for_each(|_| _ = full.chunks.maintain().unwrap());
    let before = full.chunks.statistics();
    assert!(before.dead_bytes > before.segment_bytes / 2, "{before:?}");
    check_full(&create(&full.volume, "more", &data(7)).unwrap_err());
    full.remove("more");
    full.regain();
    let after = full.chunks.statistics();
    assert!(after.segment_bytes < before.segment_bytes * 6 / 10, "{before:?} {after:?}");
    assert!(after.moved_bytes <= before.dead_bytes, "more was written than was given back");
    assert_eq!(contents(&full.volume), files);
    create(&full.volume, "more", &data(7)).unwrap();
    assert_eq!(full.volumes.compaction_statistics(partition_id()).unwrap().refused, 0);
}

/// Other data fills the file system, including the reserve.
#[test]
fn a_file_system_that_others_filled_is_survived() {
    for is_asked in [false, true] {
        let full = full(is_asked);
        let mut files = BTreeMap::new();
        for seed in 0..5 {
            create(&full.volume, &format!("f{seed}"), &data(seed)).unwrap();
            files.insert(format!("f{seed}"), data(seed));
        }
        for seed in 5..15 {
            full.disk.set_capacity(0);
            let name = format!("f{seed}");
            check_full(&create(&full.volume, &name, &data(seed)).unwrap_err());
            if contents(&full.volume).contains_key(&name) {
                full.remove(&name);
            }
            assert_eq!(contents(&full.volume), files);
            full.disk.set_capacity(CAPACITY * 10);
            create(&full.volume, &name, &data(seed)).unwrap();
            files.insert(name, data(seed));
        }
        assert_eq!(contents(&full.volume), files);
        assert_eq!(full.chunks.failure(), None);
    }
}
