//! Measures a partition: durable transactions, appends and cached reads.
//!
//! `cargo run --release -p store --example store_speed [folder]`. The folder selects the disk to measure
//! (default: the current directory); a partition is created in it and removed afterwards.

#![allow(clippy::cast_precision_loss, reason = "speeds are printed with few digits")]

use bytes::Bytes;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use store::{Batch, ChunkAddress, Codec, Family, Partition, PartitionConfig, StoreError};

const CHUNK_BYTES: usize = 256 << 10;
const ITEMS: Family = Family::new(2, "items");
const ROWS: Family = Family::new(3, "rows");
/// Its records name chunks.
const NAMES: Family = Family::new(4, "names");
const CHUNKS: usize = 2048;
/// Chunks that fit into the cache.
const CACHED_CHUNKS: usize = 512;
const MEASURE: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let folder = Path::new(&parent).canonicalize()?.join("store-speed");
    std::fs::create_dir(&folder)?;
    let outcome = measure(&folder);
    std::fs::remove_dir_all(&folder)?;
    Ok(outcome?)
}

fn measure(folder: &Path) -> Result<(), StoreError> {
    let config = PartitionConfig { families: &[ITEMS, ROWS, NAMES], ..PartitionConfig::default() };
    let partition = Partition::open(folder, &config)?;
    for threads in [1, 4, 16, 64] {
        let before = partition.statistics().meta.syncs;
        let done = run(threads, |thread, number| transaction(&partition, thread, number))?;
        let syncs = partition.statistics().meta.syncs - before;
        println!(
            "{threads:3} threads: {:8.0} durable metadata txn/s, {:5.1} per sync",
            done.per_second(),
            done.count as f64 / syncs as f64
        );
    }
    for threads in [1, 16] {
        let done = run(threads, |thread, number| file(&partition, thread, number))?;
        println!("{threads:3} threads: {:8.0} durable 4 KiB files/s (chunk and metadata)", done.per_second());
    }
    for (name, codec, noise) in [
        ("raw", Codec::Raw, true),
        ("lz4, incompressible", Codec::Lz4, true),
        ("lz4, compressible", Codec::Lz4, false),
        ("zstd 1, compressible", Codec::Zstd(1), false),
    ] {
        append(&partition, name, codec, &sample(noise))?;
    }
    read(&partition)
}

struct Done {
    count: u64,
    elapsed: Duration,
}

impl Done {
    fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }
}

/// Runs `work` in a loop on `threads` threads for a fixed time.
fn run(threads: u64, work: impl Fn(u64, u64) -> Result<(), StoreError> + Sync) -> Result<Done, StoreError> {
    let (begin, count) = (Instant::now(), AtomicU64::new(0));
    let one = |thread: u64| {
        for number in 0.. {
            if begin.elapsed() > MEASURE {
                break;
            }
            work(thread, number)?;
            count.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    let outcomes: Vec<Result<(), StoreError>> = thread::scope(|scope| {
        let one = &one;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    outcomes.into_iter().collect::<Result<(), _>>()?;
    Ok(Done { count: count.into_inner(), elapsed: begin.elapsed() })
}

fn row(thread: u64, number: u64) -> Vec<u8> {
    [thread.to_be_bytes(), number.to_be_bytes()].concat()
}

fn transaction(partition: &Partition, thread: u64, number: u64) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    batch.put(ITEMS, row(thread, number), [7; 120]);
    batch.put(ROWS, row(thread, number), [8; 40]);
    let meta = partition.meta();
    meta.sync(meta.commit(batch)?)
}

fn file(partition: &Partition, thread: u64, number: u64) -> Result<(), StoreError> {
    let (meta, chunks) = (partition.meta(), partition.chunks());
    let address = chunks.append(&[Bytes::from(vec![number as u8; 4096])], Codec::Raw)?;
    chunks.sync()?;
    let mut batch = Batch::new();
    batch.put(NAMES, row(thread, number), address.to_bytes());
    meta.sync(meta.commit(batch)?)
}

fn sample(noise: bool) -> Bytes {
    let mix = |n: u32| (n ^ n >> 15).wrapping_mul(0x85eb_ca6b);
    let plain = |n: u32| b"volume vnode directory chunk segment "[(mix(n >> 3) % 37) as usize];
    (0..CHUNK_BYTES as u32).map(|n| if noise { (mix(mix(n)) >> 13) as u8 } else { plain(n) }).collect()
}

fn append(partition: &Partition, name: &str, codec: Codec, chunk: &Bytes) -> Result<(), StoreError> {
    let (chunks, before) = (partition.chunks(), partition.statistics().chunks);
    let begin = Instant::now();
    for number in 0..CHUNKS {
        chunks.append(std::slice::from_ref(chunk), codec)?;
        if number % 64 == 63 {
            chunks.sync()?;
        }
    }
    chunks.sync()?;
    let after = partition.statistics().chunks;
    let raw = (after.raw_bytes_appended - before.raw_bytes_appended) as f64;
    let stored = (after.stored_bytes_appended - before.stored_bytes_appended) as f64;
    let rate = raw / 1e6 / begin.elapsed().as_secs_f64();
    println!("append, synced every 16 MiB, {name}: {rate:.0} MB/s, stored {:.0} %", 100.0 * stored / raw);
    Ok(())
}

fn read(partition: &Partition) -> Result<(), StoreError> {
    let chunks = partition.chunks();
    for (name, codec, noise) in [("raw", Codec::Raw, true), ("lz4", Codec::Lz4, false)] {
        let chunk = sample(noise);
        let addresses: Vec<ChunkAddress> = (0..CACHED_CHUNKS)
            .map(|_| chunks.append(std::slice::from_ref(&chunk), codec))
            .collect::<Result<_, _>>()?;
        for pass in ["from file", "cached"] {
            let begin = Instant::now();
            for address in &addresses {
                chunks.read(*address)?;
            }
            let seconds = begin.elapsed().as_secs_f64();
            let rate = (CACHED_CHUNKS * CHUNK_BYTES) as f64 / 1e6 / seconds;
            println!(
                "read {name}, {pass}: {rate:.0} MB/s, {:.2} us each",
                seconds * 1e6 / CACHED_CHUNKS as f64
            );
        }
    }
    Ok(())
}
