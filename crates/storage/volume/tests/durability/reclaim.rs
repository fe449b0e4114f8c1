//! Tests crashes and the search for orphaned data, which runs alongside writers, clones and purges:
//! acknowledged changes survive, and unreferenced data is released.

use crate::common::{Writer, clone, contents, named, options, partition_id, volume, volume_id};
use base::UnixTime;
use disk::{Disk, FaultyDisk, Garbling, Torn};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use store::{FileData, MemoryMeta, MetaStore, Recount, Reserve, SegmentAudit, SegmentConfig, SegmentStore};
use volume::{CompactionPolicy, PartitionHandle, ScrubPolicy, Space, Volume, VolumeError, Volumes};
use volume_check::{CheckOptions, check};

const HISTORIES: u64 = 40;
const RUNS: u32 = 4;
const WRITERS: u32 = 2;
const STEPS: u32 = 40;
const FOLDER: &str = "/segments";

/// Events counted over all histories.
#[derive(Debug, Default)]
struct Seen {
    orphaned_bytes: AtomicU64,
    deleted_segments: AtomicU64,
    refused: AtomicU64,
    clones: AtomicU64,
    moved_chunks: AtomicU64,
    scrubbed_bytes: AtomicU64,
}

struct History {
    rng: SmallRng,
    disk: FaultyDisk,
    meta: Arc<MemoryMeta>,
    writers: Vec<Writer>,
}

/// One run of the server.
struct Run {
    meta: Arc<MemoryMeta>,
    store: Arc<SegmentStore>,
    volumes: Volumes,
}

fn garbling(rng: &mut SmallRng) -> Garbling {
    let torn = if rng.random() { Torn::Sector } else { Torn::Byte };
    Garbling { torn, noise: rng.random(), short: rng.random() }
}

impl Run {
    fn open(history: &mut History) -> Run {
        let config = SegmentConfig {
            segment_bytes: history.rng.random_range(1..100_000),
            cache_bytes: history.rng.random_range(0..20_000),
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
            meta: Arc::clone(&meta) as _,
            chunks: Arc::clone(&store) as _,
            space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
        };
        let volumes = Volumes::open(vec![handle], options()).unwrap();
        Run { meta, store, volumes }
    }

    fn purge(&self) {
        while self.volumes.purge_step().unwrap() {}
    }

    /// Checks that, while idle, all data that is not dead is named.
    fn check_accounts(&self) {
        let live: u64 = named(&*self.meta).iter().map(|address| u64::from(address.stored_bytes)).sum();
        let statistics = self.store.statistics();
        assert_eq!(statistics.segment_bytes - 32 * statistics.segments - statistics.dead_bytes, live);
    }
}

/// Writes until something fails.
fn write(writer: &mut Writer, volume: &Arc<Volume>, seen: &Seen) {
    for _ in 0..STEPS {
        if writer.next(volume).is_err() {
            seen.refused.fetch_add(1, Relaxed);
            return;
        }
    }
}

/// Runs a step of compaction and one of scrubbing, and checks that they find no damage.
fn upkeep(run: &Run, seen: &Seen) -> Result<(), VolumeError> {
    let policy = CompactionPolicy { dead_percent: 20, ..CompactionPolicy::default() };
    let before = run.store.statistics().chunks_moved;
    run.volumes.compact_step(partition_id(), policy, UnixTime(1))?;
    seen.moved_chunks.fetch_add(run.store.statistics().chunks_moved - before, Relaxed);
    let step = run.volumes.scrub_step(partition_id(), ScrubPolicy { period_seconds: 0 }, UnixTime(1))?;
    seen.scrubbed_bytes.fetch_add(step.bytes, Relaxed);
    assert_eq!(run.volumes.quarantine(partition_id())?, []);
    Ok(())
}

/// Creates and deletes clones, and checks that the contents of a clone do not change.
fn churn(run: &Run, rng: &mut SmallRng, seen: &Seen) -> Result<(), VolumeError> {
    for number in 0..6 {
        let writer = rng.random_range(0..WRITERS);
        let clone = match clone(&run.volumes, writer, number) {
            // Kept by an earlier run.
            Err(VolumeError::VolumeExists(id)) => run.volumes.get(id)?,
            made => made?,
        };
        let before = contents(&clone);
        while run.volumes.purge_step()? {}
        assert!(contents(&clone) == before, "a clone changed");
        if rng.random_ratio(2, 3) {
            run.volumes.delete(clone.id())?;
        }
        seen.clones.fetch_add(1, Relaxed);
    }
    Ok(())
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = FaultyDisk::new(seed, garbling(&mut rng));
        disk.create_dir(Path::new(FOLDER)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let writers = (0..WRITERS).map(Writer::new).collect();
        History { rng, disk, meta: Arc::new(MemoryMeta::new()), writers }
    }

    fn run(&mut self, seen: &Seen) {
        let run = Run::open(self);
        let state = run.meta.snapshot();
        for writer in &mut self.writers {
            let volume = volume(&run.volumes, writer.number).unwrap();
            writer.check_after_crash(&volume);
        }
        let is_cut = self.rng.random();
        if is_cut {
            self.disk.cut_power_at(self.disk.operations() + self.rng.random_range(0..400));
        }
        let is_over = AtomicBool::new(false);
        let mut rng = SmallRng::seed_from_u64(self.rng.random());
        thread::scope(|scope| {
            let recount = scope.spawn(|| {
                let mut go_on = || {
                    thread::yield_now();
                    true
                };
                run.store.recount(&*state, volume::CHUNK_NAMES, &mut go_on).unwrap().unwrap()
            });
            let churn = scope.spawn(|| churn(&run, &mut rng, seen));
            let maintain = scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    let deleted = run.store.maintain().unwrap_or(0);
                    seen.deleted_segments.fetch_add(deleted as u64, Relaxed);
                    thread::yield_now();
                }
            });
            let upkeep = scope.spawn(|| {
                while !is_over.load(Relaxed) && upkeep(&run, seen).is_ok() {
                    thread::yield_now();
                }
            });
            let writers: Vec<_> = self
                .writers
                .iter_mut()
                .map(|writer| {
                    let volume = run.volumes.get(volume_id(writer.number)).unwrap();
                    scope.spawn(move || write(writer, &volume, seen))
                })
                .collect();
            let written: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            let recounted = recount.join();
            let churned = churn.join();
            // Reads fail too once the power is off.
            is_over.store(true, Relaxed);
            maintain.join().unwrap();
            upkeep.join().unwrap();
            assert!(written.iter().all(Result::is_ok));
            let Recount { missing, orphaned_bytes, .. } = recounted.unwrap();
            seen.orphaned_bytes.fetch_add(orphaned_bytes, Relaxed);
            assert_eq!(missing, 0);
            let failure =
                churned.map_or(Some("a panic".into()), |churned| churned.err().map(|e| e.to_string()));
            assert!(is_cut || failure.is_none(), "{failure:?}");
        });
        if run.store.failure().is_none() && self.rng.random() {
            run.purge();
            run.check_accounts();
        }
        drop(state);
        let pending = self.meta.unsynced_commits();
        self.meta = Arc::new(self.meta.crash(self.rng.random_range(0..=pending)));
        self.disk = self.disk.crash();
        self.check();
    }

    /// Checks that the store left by a crash is consistent before anything opens it.
    fn check(&self) {
        let (disk, meta) = (Arc::new(self.disk.clone()), &*self.meta);
        let segments = SegmentAudit::open(disk, Path::new(FOLDER), meta).unwrap();
        let report = check(meta, Some(&segments), CheckOptions { data: true }, &mut |_| {});
        assert!(report.is_clean(), "{report:#?}");
    }

    /// Checks that nothing is left once everything has been deleted.
    fn end(&mut self) {
        let run = Run::open(self);
        let found = run.store.recount(&*run.meta.snapshot(), volume::CHUNK_NAMES, &mut || true).unwrap();
        assert_eq!(found.unwrap().missing, 0);
        for writer in &mut self.writers {
            writer.check_after_crash(&run.volumes.get(volume_id(writer.number)).unwrap());
        }
        for volume in run.volumes.list(partition_id()) {
            contents(&volume);
            run.volumes.delete(volume.id()).unwrap();
        }
        run.purge();
        (0..2).for_each(|_| _ = run.store.maintain().unwrap());
        assert_eq!(named(&*run.meta), []);
        assert_eq!(run.store.statistics().segments, 0);
        assert_eq!(self.disk.list(Path::new(FOLDER)).unwrap(), Vec::<String>::new());
        drop(run);
        self.check();
    }
}

#[test]
fn nothing_named_is_lost_and_nothing_unnamed_stays() {
    let seen = Seen::default();
    // Threads make this nondeterministic: a failure may take some attempts to reproduce.
    seeds::play(HISTORIES, |seed| {
        let mut history = History::new(seed);
        (0..RUNS).for_each(|_| history.run(&seen));
        history.end();
    });
    println!("{seen:?}");
    let Seen { orphaned_bytes, deleted_segments, refused, clones, moved_chunks, scrubbed_bytes } = &seen;
    for count in [orphaned_bytes, deleted_segments, refused, clones, moved_chunks, scrubbed_bytes] {
        assert!(count.load(Relaxed) > 20, "{seen:?}");
    }
}
