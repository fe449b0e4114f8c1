//! Tests transfers interrupted by power loss, on a faulty disk: data that a receipt covers must exist.

use crate::common::{named, options, partition_id, volume, volume_id};
use base::{UnixTime, UserId, VnodeId, VolumeId};
use bytes::Bytes;
use disk::{Disk, FaultyDisk, Garbling, Torn};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use store::{FileData, MemoryMeta, Reserve, SegmentAudit, SegmentConfig, SegmentStore};
use volume::{
    Clock, FileKind, KEPT_SECONDS, PartitionHandle, Restoration, Space, VnodeStatus, VolumeError,
    VolumeOptions, Volumes,
};
use volume_check::{CheckOptions, check};

const HISTORIES: u64 = 300;
const RUNS: u32 = 5;
const FILES: u32 = 12;
const CHUNK_BYTES: usize = 1 << 12;
const FOLDER: &str = "/segments";
/// Volume number of the transfers.
const NUMBER: VolumeId = VolumeId(77);

/// Events counted over all histories.
#[derive(Debug, Default)]
struct Seen {
    cut: u32,
    whole: u32,
    kept_bytes: u64,
}

struct History {
    rng: SmallRng,
    disk: FaultyDisk,
    meta: Arc<MemoryMeta>,
}

struct Run {
    store: Arc<SegmentStore>,
    volumes: Volumes,
}

/// Returns a file's contents: many chunks, zeros, or a short file.
fn contents(file: u32) -> Vec<u8> {
    let mut rng = SmallRng::seed_from_u64(file.into());
    let mut data = vec![0; rng.random_range(1..8 * CHUNK_BYTES)];
    if file % 5 != 4 {
        rng.fill_bytes(&mut data);
    }
    data
}

fn vnode(file: u32) -> VnodeId {
    VnodeId(2 * file + 2)
}

fn status(file: u32, length: usize) -> VnodeStatus {
    VnodeStatus {
        vnode: vnode(file),
        unique: file + 2,
        kind: FileKind::File,
        mode: 0o644,
        owner: UserId(1),
        group: 0,
        links: 1,
        length: length as u64,
        data_version: 1,
        client_modified: UnixTime(1),
        server_modified: UnixTime(1),
        author: UserId(1),
        parent: VnodeId(1),
        parent_unique: 1,
    }
}

fn send(restoration: &mut Restoration, files: u32) -> Result<(), VolumeError> {
    for file in 0..files {
        let mut left = Bytes::from(contents(file));
        let status = status(file, left.len());
        restoration.file(status, &mut |most: usize| Ok(left.split_to(most.min(left.len()))))?;
    }
    Ok(())
}

impl Run {
    fn open(history: &mut History) -> Run {
        let config = SegmentConfig {
            segment_bytes: history.rng.random_range(1..60_000),
            cache_bytes: 0,
            open_files_max: 4,
            reserve: Reserve { bytes: 0, permille: 0 },
            unsynced_bytes_max: 1 << 20,
            aligned_bytes_min: if history.rng.random() {
                64 << 10
            } else {
                history.rng.random_range(0..3000)
            },
        };
        let (disk, meta) = (Arc::new(history.disk.clone()), Arc::clone(&history.meta));
        let store =
            Arc::new(SegmentStore::open(disk, Path::new(FOLDER), Arc::clone(&meta) as _, config).unwrap());
        let handle = PartitionHandle {
            id: partition_id(),
            meta,
            chunks: Arc::clone(&store) as _,
            space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
        };
        let received_step_bytes = history.rng.random_range(1..60_000);
        let options = VolumeOptions { received_step_bytes, ..options() };
        Run { store, volumes: Volumes::open(vec![handle], options).unwrap() }
    }

    /// Checks that all data covered by the receipt exists and that all existing data equals what was sent.
    /// Returns the bytes received.
    fn check_received(&self) -> u64 {
        let Some(received) = self.volumes.received(NUMBER, partition_id()).unwrap() else { return 0 };
        let mut sent = 0;
        for file in 0..FILES {
            for (index, chunk) in contents(file).chunks(CHUNK_BYTES).enumerate() {
                sent += chunk.len() as u64;
                let found = received.chunk(vnode(file), file + 2, index as u64).unwrap();
                assert!(found.as_ref().is_none_or(|found| found == chunk), "file {file}, chunk {index}");
                let must_be_there = sent <= received.bytes() && chunk.iter().any(|byte| *byte != 0);
                assert!(found.is_some() || !must_be_there, "file {file}, chunk {index} has come");
            }
        }
        received.bytes()
    }
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let torn = if rng.random() { Torn::Sector } else { Torn::Byte };
        let disk = FaultyDisk::new(seed, Garbling { torn, noise: rng.random(), short: rng.random() });
        disk.create_dir(Path::new(FOLDER)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        History { rng, disk, meta: Arc::new(MemoryMeta::new()) }
    }

    fn run(&mut self, seen: &mut Seen) {
        let run = Run::open(self);
        let before = run.check_received();
        seen.kept_bytes += before;
        volume(&run.volumes, 0).unwrap();
        run.volumes.sync().unwrap();
        let is_cut = self.rng.random_ratio(2, 3);
        if is_cut {
            self.disk.cut_power_at(self.disk.operations() + self.rng.random_range(0..40));
        }
        // The clock advances by a second for each chunk.
        let seconds = AtomicU32::new(500);
        let clock: Clock = Arc::new(move || UnixTime(seconds.fetch_add(1, Relaxed)));
        let files = self.rng.random_range(1..=FILES);
        let is_kept = self.rng.random();
        let sent = run.volumes.receive(volume_id(0), NUMBER, &clock).and_then(|mut restoration| {
            let sent = send(&mut restoration, files);
            assert!(sent.is_ok() || is_cut);
            if is_kept { restoration.keep_for_later().and(sent) } else { sent }
        });
        match sent {
            Err(_) => seen.cut += 1,
            Ok(()) if is_cut => {}
            Ok(()) => {
                seen.whole += 1;
                let came = run.check_received();
                // If the transfer is not kept, the data it resumed from is discarded too.
                let is_right = if is_kept { came >= before } else { came == 0 };
                assert!(is_right, "{came} bytes after {before}");
                while self.rng.random() && run.volumes.purge_step().unwrap() {}
                _ = run.store.maintain();
            }
        }
        drop(run);
        let pending = self.meta.unsynced_commits();
        self.meta = Arc::new(self.meta.crash(self.rng.random_range(0..=pending)));
        self.disk = self.disk.crash();
        self.check();
    }

    fn check(&self) {
        let (disk, meta) = (Arc::new(self.disk.clone()), &*self.meta);
        let segments = SegmentAudit::open(disk, Path::new(FOLDER), meta).unwrap();
        let report = check(meta, Some(&segments), CheckOptions { data: true }, &mut |_| {});
        assert!(report.is_clean(), "{report:#?}");
    }

    /// Checks that nothing is left after the retention time.
    fn end(&mut self) {
        let run = Run::open(self);
        run.check_received();
        run.volumes.expire_received(UnixTime(1000 + KEPT_SECONDS)).unwrap();
        run.check_received();
        run.volumes.expire_received(UnixTime(1001 + KEPT_SECONDS)).unwrap();
        assert!(run.volumes.received(NUMBER, partition_id()).unwrap().is_none());
        while run.volumes.purge_step().unwrap() {}
        assert_eq!(named(&*self.meta), []);
        drop(run);
        self.check();
    }
}

#[test]
fn noted_receipts_are_complete() {
    let mut seen = Seen::default();
    seeds::play(HISTORIES, |seed| {
        let mut history = History::new(seed);
        (0..RUNS).for_each(|_| history.run(&mut seen));
        history.end();
    });
    println!("{seen:?}");
    assert!(seen.cut > 100 && seen.whole > 100 && seen.kept_bytes > 1_000_000, "{seen:?}");
}
