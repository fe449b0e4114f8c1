//! Measures the status and directory caches: the cost of a hit, of an insertion, and of purging one volume's
//! entries when the cache also holds those of many others.
//!
//!     cargo run --release -p store --example cache_purge -- [OTHERS]

use events::catalogue::CacheName;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};
use store::Cache;

/// Same size as a vnode's status with the location of its access list.
type Status = [u64; 13];
type Vnodes = Cache<(u64, u32), Status>;

/// Entries of the purged volume.
const OWN: u32 = 1000;
/// Entries of each other volume.
const OF_ONE: u32 = 10_000;
/// Owner of the purged entries.
const PURGED: u64 = u64::MAX;
const ROUNDS: u32 = 50;

fn insert(cache: &Vnodes, owner: u64, count: u32) {
    (0..count).for_each(|number| cache.insert(owner, (owner, number), [number.into(); 13], 0));
}

/// Returns the median time of a purge and the largest number of entries it visited.
fn purge(cache: &Vnodes) -> (Duration, u64) {
    let mut times = Vec::new();
    let mut looks = 0;
    for _ in 0..ROUNDS {
        insert(cache, PURGED, OWN);
        let before = cache.statistics().purge_steps;
        let start = Instant::now();
        black_box(cache.purge(PURGED, usize::MAX));
        times.push(start.elapsed());
        looks = looks.max(cache.statistics().purge_steps - before);
    }
    times.sort_unstable();
    (times[times.len() / 2], looks)
}

fn per_hit(cache: &Vnodes, others: u32) -> Duration {
    const HITS: u32 = 2_000_000;
    let start = Instant::now();
    let mut at = 1u32;
    for _ in 0..HITS {
        at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = at % others;
        black_box(cache.get(&((number / OF_ONE).into(), number % OF_ONE)));
    }
    start.elapsed() / HITS
}

fn main() -> Result<(), Box<dyn Error>> {
    let most: u32 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    println!("purge of a volume with {OWN} entries among those of other volumes:");
    let mut alone = None;
    for others in [0, most / 100, most / 10, most] {
        let cache = Vnodes::new(CacheName::Status, u64::MAX);
        let start = Instant::now();
        (0..others / OF_ONE).for_each(|owner| insert(&cache, owner.into(), OF_ONE));
        let inserted = start.elapsed();
        let (time, looks) = purge(&cache);
        let ratio = time.as_secs_f64() / alone.get_or_insert(time).as_secs_f64();
        println!("{others:>9} others: {time:>8.1?}, {looks} looks; {ratio:.2} times as long as alone");
        if others == most {
            let statistics = cache.statistics();
            println!("insertion {:.0?}, hit {:.0?}", inserted / others, per_hit(&cache, others));
            println!("{} bytes for each entry", statistics.bytes / statistics.entries);
        }
    }
    Ok(())
}
