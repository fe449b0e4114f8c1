//! Overwrites files at random on a partition of limited size, and prints how much space compaction reclaimed
//! and how much it wrote to do so.
//!
//! `cargo run --release -p volume --example churn -- FOLDER [LIVE_MB]` fills a partition in FOLDER to 50, 80
//! and 90 % of a simulated size, and overwrites four times as much. `... -- FOLDER owners` measures finding
//! the names of chunks by their owner, and by a walk through all extents.

#![allow(clippy::cast_precision_loss, reason = "figures are printed with few digits")]

mod support;

use base::{Fid, UnixTime};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use store::{KeyRange, Partition, PartitionConfig, SegmentConfig};
use support::{NOTHING, Outcome, actor, create, handle, relaxed};
use volume::{
    CompactionPolicy, PartitionHandle, Space, StoreRequest, Volume, VolumeOptions, Volumes, families,
};

const CHUNK_SHIFT: u8 = 16;
const SEGMENT_BYTES: u64 = 8 << 20;
/// Chunks overwritten between two checks of the free space.
const ROUND_CHUNKS: u64 = 32;
const OVERWRITES: u64 = 4;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: churn FOLDER [LIVE_MB | owners]")?;
    let what = arguments.next().unwrap_or_else(|| "512".into());
    if what == "owners" {
        return in_folder(&folder, measure_owners);
    }
    let live_bytes: u64 = what.parse::<u64>()? << 20;
    println!("{} MB live, overwritten {OVERWRITES} times at random", live_bytes >> 20);
    println!(
        "  full   clients  compaction  amplification  per byte given back  segments at the end   most  metadata log"
    );
    for percent in [50, 80, 90] {
        in_folder(&folder, |path| churn(path, live_bytes, percent))?;
    }
    Ok(())
}

fn in_folder(parent: &str, work: impl FnOnce(&Path) -> Outcome<()>) -> Outcome<()> {
    let folder = Path::new(parent).canonicalize()?.join("volume-churn");
    std::fs::create_dir(&folder)?;
    let outcome = work(&folder);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn open(path: &Path, capacity: u64, chunk_shift: u8) -> Outcome<(Arc<Partition>, Volumes, Arc<Volume>)> {
    let segments = SegmentConfig { segment_bytes: SEGMENT_BYTES, ..SegmentConfig::default() };
    let config = PartitionConfig {
        families: &families::ALL,
        segments,
        maintenance: None,
        ..PartitionConfig::default()
    };
    let partition = Arc::new(Partition::open(path, &config)?);
    let asked = Arc::clone(&partition);
    let space = move || {
        let used = asked.statistics().chunks.segment_bytes;
        Space { total_kib: capacity >> 10, free_kib: capacity.saturating_sub(used) >> 10 }
    };
    let handle = PartitionHandle { space: Arc::new(space), ..handle(0, &partition) };
    let options = VolumeOptions { chunk_shift, inline_bytes_max: 0, ..relaxed() };
    let volumes = Volumes::open(vec![handle], options)?;
    let volume = create(&volumes, 1)?;
    Ok((partition, volumes, volume))
}

fn create_file(volume: &Volume, name: &str) -> Outcome<Fid> {
    Ok(volume.create_file(&actor(), volume.root(), name.as_bytes(), &NOTHING)?.status.fid(volume.id()))
}

/// Stores incompressible bytes.
fn store(volume: &Volume, fid: Fid, offset: u64, length: u64, rng: &mut SmallRng) -> Outcome<()> {
    let request = StoreRequest { offset, length, file_length: u64::MAX, set: NOTHING };
    volume.store(&actor(), fid, &request, &mut |most: usize| {
        let mut bytes = vec![0; most.min(1 << CHUNK_SHIFT)];
        rng.fill_bytes(&mut bytes);
        Ok(Bytes::from(bytes))
    })?;
    Ok(())
}

fn churn(path: &Path, live_bytes: u64, percent: u64) -> Outcome<()> {
    let capacity = live_bytes / percent * 100;
    let (partition, volumes, volume) = open(path, capacity, CHUNK_SHIFT)?;
    let mut rng = SmallRng::seed_from_u64(percent);
    let fid = create_file(&volume, "file")?;
    for offset in (0..live_bytes).step_by(16 << 20) {
        store(&volume, fid, offset, (16 << 20).min(live_bytes - offset), &mut rng)?;
    }
    let before = partition.statistics();
    let chunks = live_bytes >> CHUNK_SHIFT;
    let mut most = 0;
    let begin = Instant::now();
    for _ in 0..chunks * OVERWRITES / ROUND_CHUNKS {
        for _ in 0..ROUND_CHUNKS {
            let at = rng.random_range(0..chunks) << CHUNK_SHIFT;
            store(&volume, fid, at, 1 << CHUNK_SHIFT, &mut rng)?;
        }
        volumes.sync()?;
        compact(&partition, &volumes)?;
        most = most.max(partition.statistics().chunks.segment_bytes);
    }
    let after = partition.statistics();
    let clients = after.chunks.stored_bytes_appended - before.chunks.stored_bytes_appended;
    let moved = after.chunks.moved_bytes;
    let done = volumes.compaction_statistics(volume.partition())?;
    let log = after.meta.log_bytes - before.meta.log_bytes;
    println!(
        "  {percent:2} %  {:5} MB    {:5} MB  {:13.2}  {:19.2}  {:16} MB  {:3.0} %  {:9.1} MB  {:.0} s",
        clients >> 20,
        moved >> 20,
        (clients + moved) as f64 / clients as f64,
        // For the segments that were compacted: bytes written per byte reclaimed.
        (done.dead_bytes + done.copied_bytes) as f64 / done.dead_bytes.max(1) as f64,
        after.chunks.segment_bytes >> 20,
        most as f64 * 100.0 / capacity as f64,
        log as f64 / f64::from(1 << 20),
        begin.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// Compacts as the background threads do, but without their pauses.
fn compact(partition: &Partition, volumes: &Volumes) -> Outcome<()> {
    let id = volumes.partitions()[0];
    while !volumes.compact_step(id, CompactionPolicy::default(), UnixTime(1))?.is_idle {}
    partition.maintain()?;
    partition.maintain()?;
    Ok(())
}

/// Uses 4 KiB chunks, so that there are many extents.
fn measure_owners(path: &Path) -> Outcome<()> {
    let (partition, volumes, volume) = open(path, 1 << 40, 12)?;
    let mut rng = SmallRng::seed_from_u64(1);
    for number in 0..32 {
        let fid = create_file(&volume, &format!("f{number}"))?;
        store(&volume, fid, 0, 64 << 20, &mut rng)?;
    }
    volumes.sync()?;
    let meta = partition.meta();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let begin = Instant::now();
    meta.snapshot().scan(families::EXTENTS, KeyRange::ascending(&[], &[0xff; 9]), &mut |key, value| {
        if (volume::CHUNK_NAMES.chunk_of)(key, value).is_ok() {
            keys.push(key.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    let walk = begin.elapsed();
    let begin = Instant::now();
    let looked_up = 20_000;
    let mut found = 0;
    for _ in 0..looked_up {
        let key = &keys[rng.random_range(0..keys.len())];
        let owner = &key[..24];
        let (from, to) = ([owner, &[0; 8]].concat(), [owner, &[0xff; 8]].concat());
        meta.scan(families::EXTENTS, KeyRange::ascending(&from, &to), &mut |key, value| {
            found += u64::from((volume::CHUNK_NAMES.chunk_of)(key, value).is_ok_and(|chunk| chunk.is_some()));
            ControlFlow::Continue(())
        })?;
    }
    let each = begin.elapsed().as_secs_f64() / f64::from(looked_up);
    println!(
        "a walk through {} extents: {:.2} s, {:.2} us each",
        keys.len(),
        walk.as_secs_f64(),
        walk.as_secs_f64() * 1e6 / keys.len() as f64
    );
    println!("by owner: {:.2} us each ({found} of {looked_up} found)", each * 1e6);
    Ok(())
}
