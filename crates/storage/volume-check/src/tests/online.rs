//! Tests of checks on a running server: no false damage, and they can be interrupted.

use super::support::*;
use crate::{Check, CheckOptions, Checkpoint};
use base::{UnixTime, VolumeId, VolumeType};
use disk::RealDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use store::{
    Batch, ChunkStore, FileData, MemoryChunks, MemoryMeta, MetaStore, Reserve, SegmentConfig, SegmentStore,
};
use volume::{CloneVolume, Volume, VolumeOptions, Volumes};
use volume_records::{codec, families, keys};

const WRITERS: u32 = 3;
const STEPS: u32 = 1500;

fn options() -> VolumeOptions {
    let (spare_kib, append_threads) = (0, 0);
    VolumeOptions {
        spare_kib,
        chunk_shift: 8,
        inline_bytes_max: 32,
        append_threads,
        ..VolumeOptions::default()
    }
}

fn whole() -> Check {
    Check::new(CheckOptions { data: true }, 100, Checkpoint::default())
}

/// Performs a writer's step on its own volume: files, directories, clones.
fn step(volumes: &Volumes, volume: &Arc<Volume>, random: &mut SmallRng, clone: &mut Option<VolumeId>) {
    let (root, now) = (volume.root(), actor(random.random_range(1..1000)));
    let name = format!("f{}", random.random_range(0..20));
    let found = volume.lookup(root, name.as_bytes()).ok();
    match random.random_range(0..100) {
        0..3 => {
            if let Some(id) = clone.take() {
                volumes.delete(id).unwrap();
                return;
            }
            let id = VolumeId(volume.id().0 + 100);
            let (name, kind, now) = ("c".parse().unwrap(), VolumeType::ReadOnly, UnixTime(1));
            volumes.clone_volume(volume.id(), &CloneVolume { id, name, kind, now }).unwrap();
            *clone = Some(id);
        }
        3..20 => _ = volume.remove_file(&now, root, name.as_bytes()),
        20..25 => _ = volume.make_directory(&now, root, name.as_bytes(), &nothing()),
        25..30 => _ = volume.remove_directory(&now, root, name.as_bytes()),
        30..40 => _ = volume.rename(&now, root, name.as_bytes(), root, b"moved"),
        _ => {
            if found.is_none() {
                volume.create_file(&now, root, name.as_bytes(), &nothing()).unwrap();
            }
            let found = volume.lookup(root, name.as_bytes()).unwrap();
            let fid = base::Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique };
            let data = vec![random.random(); random.random_range(1..3000)];
            _ = store(volume, fid, random.random_range(0..2000), &data, u64::MAX);
        }
    }
}

fn at_work(seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let meta = Arc::new(MemoryMeta::new());
    let config = SegmentConfig {
        // Small, so that segment files are often created and deleted.
        segment_bytes: 16 << 10,
        cache_bytes: 10_000,
        open_files_max: 4,
        reserve: Reserve { bytes: 0, permille: 0 },
        unsynced_bytes_max: 1 << 20,
        aligned_bytes_min: 2000,
    };
    let chunks =
        SegmentStore::open(Arc::new(RealDisk), folder.path(), Arc::clone(&meta) as _, config).unwrap();
    let chunks = Arc::new(chunks);
    let options = VolumeOptions { loaded_volumes_max: 2, ..options() };
    let volumes = open(meta, Arc::clone(&chunks) as Arc<dyn ChunkStore>, options);
    let (writing, is_over) = (AtomicU32::new(WRITERS), AtomicBool::new(false));
    thread::scope(|scope| {
        for writer in 1..=WRITERS {
            let (volumes, writing) = (&volumes, &writing);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed * 100 + u64::from(writer));
                let volume = volumes.create(partition(), &new_volume(VolumeId(writer))).unwrap();
                let mut clone = None;
                (0..STEPS).for_each(|_| step(volumes, &volume, &mut random, &mut clone));
                writing.fetch_sub(1, Relaxed);
            });
        }
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                volumes.purge_step().unwrap();
                chunks.maintain().unwrap();
                volumes.unload_idle();
            }
        });
        let mut checks = 0;
        while writing.load(Relaxed) > 0 || checks < 3 {
            let report = run(&volumes, &whole()).expect("no thread stops it");
            if !report.is_clean() {
                is_over.store(true, Relaxed);
            }
            assert!(report.is_clean(), "seed {seed}: {:#?}", report.damages);
            checks += 1;
        }
        is_over.store(true, Relaxed);
    });
    assert!(chunks.statistics().segments_deleted > 0, "seed {seed}: no file went while it was checked");
}

#[test]
fn a_server_at_work_shows_no_damage() {
    (0..4).for_each(at_work);
}

/// Creates many volumes, some with wrong counts.
fn damaged(count: u32, wrong: &[u32]) -> Volumes {
    let meta = Arc::new(MemoryMeta::new());
    let volumes = open(Arc::clone(&meta) as _, Arc::new(MemoryChunks::new()), options());
    for id in 1..=count {
        volumes.create(partition(), &new_volume(VolumeId(id))).unwrap();
    }
    for &id in wrong {
        let key = keys::counters(VolumeId(id));
        let mut counters = codec::get_counters(&meta.get(families::VOLUMES, &key).unwrap().unwrap()).unwrap();
        counters.used_kib += 1;
        let mut batch = Batch::new();
        batch.put(families::VOLUMES, key, codec::put_counters(&counters));
        meta.commit(batch).unwrap();
    }
    volumes
}

/// Returns a check that was stopped after the tenth volume. On a busy machine, one may end before it is stopped.
fn interrupted(volumes: &Volumes) -> Check {
    (0..20)
        .map(|_| Check::new(CheckOptions::default(), 2, Checkpoint::default()))
        .find(|slow| {
            thread::scope(|scope| {
                let running = scope.spawn(|| run(volumes, slow));
                while slow.progress().0.volume < VolumeId(10) && !running.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
                slow.stop();
                let ended = running.join().unwrap();
                ended.is_none() && slow.progress().0.volume < VolumeId(3990)
            })
        })
        .expect("each was too fast to be interrupted")
}

/// Each state of the metadata is too old before its first volume is checked.
#[test]
fn a_check_makes_progress_however_slow_it_is() {
    let volumes = damaged(20, &[5, 15]);
    let mut check = whole();
    check.snapshot_age_max = Duration::ZERO;
    let report = run(&volumes, &check).unwrap();
    assert_eq!((report.volumes, report.damage_count), (20, 2));
}

#[test]
fn an_interrupted_check_reports_each_finding_once() {
    let volumes = damaged(4000, &[5, 3990]);
    let slow = interrupted(&volumes);
    let before = slow.state();
    assert!(before.checkpoint.volume >= VolumeId(10) && before.checkpoint.volume < VolumeId(3990));
    let rest = Check::new(CheckOptions::default(), 100, before.checkpoint);
    assert!(run(&volumes, &rest).is_some());
    let after = rest.state();
    assert_eq!(after.checkpoint.volume, VolumeId(4000));
    let report = after.records.and(before.found).and(after.found);
    assert_eq!((report.volumes, report.vnodes, report.damage_count), (4000, 4000, 2), "{:?}", report.damages);
    let volumes: Vec<_> = report.damages.iter().filter_map(|damage| damage.volume).collect();
    assert_eq!(volumes, [VolumeId(5), VolumeId(3990)]);
}

#[test]
fn a_check_can_be_stopped_before_it_begins() {
    let volumes = damaged(10, &[]);
    let check = whole();
    check.stop();
    assert!(run(&volumes, &check).is_none());
    assert!(check.state().progress.is_none());
}
