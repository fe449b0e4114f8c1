//! Measures file data in a bucket: `object_speed s3://BUCKET/PREFIX` with the feature `s3`, or
//! `object_speed file:///FOLDER`. The metadata is in memory. Options: `--megabytes N` (512) for each measurement,
//! `--threads N` (1), `--cache FOLDER` for copies on the local disk. Leaves its objects below `PREFIX/speed-...`.

use bucket::{Access, Address, Objects, ObjectsConfig, open};
use bytes::Bytes;
use disk::RealDisk;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use store::{
    Bucket, ChunkAddress, ChunkStore, Codec, DiskCache, DiskCacheConfig, MemoryMeta, ObjectChunks,
    ObjectConfig,
};
use tokio::runtime::Builder;

const CHUNK_BYTES: usize = 256 << 10;
const SMALL_BYTES: usize = 8 << 10;
/// Chunks of a long store between two syncs: 4 MiB.
const CHUNKS_A_SYNC: usize = 16;

fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn number(name: &str, default: usize) -> usize {
    option(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} {text} is no number")))
}

/// Contents that do not shrink.
fn contents(seed: usize, bytes: usize) -> Bytes {
    let mut state = seed as u64 | 1 << 63;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes / 8).flat_map(|_| next()).collect::<Vec<u8>>().into()
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn print(what: &str, count: usize, bytes: usize, took: Duration) {
    let (seconds, megabytes) = (took.as_secs_f64(), (count * bytes) as f64 / 1e6);
    println!(
        "{what}: {megabytes:.0} MB in {seconds:.2} s, {:.0} MB/s, {:.0}/s",
        megabytes / seconds,
        count as f64 / seconds
    );
}

/// Runs `work` for each number below `count`, on all threads together.
fn on_threads<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> (Vec<T>, Duration) {
    let begun = Instant::now();
    let done = thread::scope(|scope| {
        let part = |thread: usize| {
            let work = &work;
            move || (thread..count).step_by(threads).map(work).collect::<Vec<T>>()
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(part(thread))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
    });
    (done, begun.elapsed())
}

fn main() {
    let text = std::env::args().nth(1).expect("usage: object_speed s3://BUCKET/PREFIX | file:///FOLDER");
    let address: Address = text.parse().unwrap_or_else(|error| panic!("{error}"));
    let (threads, count) = (number("--threads", 1), (number("--megabytes", 512) << 20) / CHUNK_BYTES);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let prefix = format!("{}/speed-{:08x}/chunks", address.prefix(), rand::random::<u32>());
    let remote = open(&address, &Access::from_env()).unwrap_or_else(|error| panic!("{error}"));
    let objects = Objects::new(Arc::new(runtime), remote, &prefix, ObjectsConfig::default());
    let bucket: Arc<dyn Bucket> = Arc::new(objects);
    let meta = Arc::new(MemoryMeta::new());
    let open = || {
        let config = ObjectConfig { cache_bytes: 0, ..ObjectConfig::default() };
        let store =
            ObjectChunks::open(Arc::clone(&bucket), Arc::clone(&meta) as _, config, None).expect("open");
        let Some(folder) = option("--cache").map(PathBuf::from) else { return store };
        let config = DiskCacheConfig { folder, bytes_max: 16 << 30, entries_max: 1 << 20, owner: [1; 16] };
        store.with_disk_cache(DiskCache::open(Arc::new(RealDisk), config).expect("a cache"))
    };
    let store = open();
    let bulk = contents(1, CHUNK_BYTES);
    let (addresses, took) = on_threads(threads, count, |number| {
        let address = store.append(std::slice::from_ref(&bulk), Codec::Raw).expect("append");
        if (number / threads).is_multiple_of(CHUNKS_A_SYNC) {
            store.sync().expect("sync");
        }
        address
    });
    print("write, a sync every 4 MiB", count, CHUNK_BYTES, took);
    let small = contents(2, SMALL_BYTES);
    let few = count.min(2000);
    let (_, took) = on_threads(threads, few, |_| {
        store.append(std::slice::from_ref(&small), Codec::Raw).expect("append");
        store.sync().expect("sync");
    });
    print("write 8 KiB, a sync each", few, SMALL_BYTES, took);
    drop(store);
    let store = open();
    let read = |address: &ChunkAddress| store.read(*address).expect("read").len();
    for round in ["read", "read again"] {
        let (_, took) = on_threads(threads, count, |number| read(&addresses[number]));
        print(round, count, CHUNK_BYTES, took);
    }
    if let Some(statistics) = store.disk_cache_statistics() {
        println!("{statistics:?}");
    }
}
