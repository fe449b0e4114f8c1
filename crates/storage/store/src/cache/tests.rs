use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::AtomicU32;

type Numbers = Cache<(u64, u32), u32>;

const ENTRY: u64 = Numbers::ENTRY_BYTES;

fn numbers(limit_bytes: u64) -> Numbers {
    Cache::new(CacheName::Status, limit_bytes)
}

fn insert(cache: &Numbers, owner: u64, number: u32) {
    cache.insert(owner, (owner, number), number, 0);
}

#[test]
fn purging_costs_the_entries_of_the_owner_only() {
    let cache = numbers(u64::MAX);
    (0..100_000).for_each(|number| insert(&cache, u64::from(number % 7), number));
    (0..300).for_each(|number| insert(&cache, 99, number));
    assert_eq!(cache.purge(99, usize::MAX), 300);
    let after = cache.statistics();
    assert_eq!((after.entries, after.purged), (100_000, 300));
    assert!(after.purge_steps <= 300 + SHARDS as u64, "{after:?}");
    assert_eq!(cache.get(&(99, 5)), None);
    assert_eq!(cache.get(&(0, 7)), Some(7));
    assert_eq!(cache.purge(12345, usize::MAX), 0);
    assert_eq!(cache.statistics().purge_steps - after.purge_steps, SHARDS as u64);
}

#[test]
fn a_purge_in_steps_ends() {
    let cache = numbers(u64::MAX);
    (0..1000).for_each(|number| insert(&cache, 1, number));
    let steps: Vec<usize> =
        std::iter::repeat_with(|| cache.purge(1, 300)).take_while(|got| *got > 0).collect();
    assert_eq!(steps, [300, 300, 300, 100]);
    assert_eq!((cache.statistics().entries, cache.statistics().bytes), (0, 0));
}

#[test]
fn the_limit_is_that_of_all_shards_together() {
    let cache = numbers(100 * ENTRY);
    (0..1000).for_each(|number| insert(&cache, 1, number));
    let full = cache.statistics();
    assert_eq!((full.entries, full.evictions), (100, 900));
    assert_eq!((full.bytes, full.peak_bytes, full.limit_bytes), (100 * ENTRY, 100 * ENTRY, 100 * ENTRY));
    cache.insert(1, (1, 5000), 5000, 99 * ENTRY);
    assert_eq!(cache.get(&(1, 5000)), Some(5000), "one entry may fill it");
    assert_eq!(cache.statistics().entries, 1);
    cache.insert(1, (1, 5000), 6000, 100 * ENTRY);
    assert_eq!(cache.get(&(1, 5000)), None, "what does not fit leaves no older value behind");
    assert_eq!(cache.statistics().bytes, 0);
}

#[test]
fn used_entries_survive_a_scan() {
    const USED: u32 = 500;
    let cache = numbers(u64::from(4 * USED) * ENTRY);
    (0..USED).for_each(|number| insert(&cache, 1, number));
    for number in USED..50_000 {
        _ = cache.get(&(1, number % USED));
        insert(&cache, 1, number);
    }
    let kept = (0..USED).filter(|used| cache.get(&(1, *used)).is_some()).count();
    assert!(kept >= USED as usize * 95 / 100, "{kept}");
}

#[test]
fn the_age_of_evicted_entries_is_reported() {
    let cache = numbers(ENTRY);
    insert(&cache, 1, 1);
    assert_eq!(cache.statistics().recycle_age_ms, 0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    insert(&cache, 1, 2);
    assert!(cache.statistics().recycle_age_ms >= 20, "{:?}", cache.statistics());
}

#[test]
fn concurrent_misses_load_once() {
    let (cache, loads) = (numbers(u64::MAX), AtomicU32::new(0));
    let load = || {
        loads.fetch_add(1, Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(5));
        Ok::<_, ()>(7)
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(cache.get_or_load(1, (1, 1), |_| 0, load), Ok(7)));
        }
    });
    assert_eq!(loads.load(Relaxed), 1);
    assert_eq!(cache.get_or_load(1, (1, 2), |_| 0, || Err("no")), Err("no"));
    assert_eq!(cache.statistics().entries, 1);
}

/// Groups keys into neighbourhoods of eight.
fn block(key: &(u64, u32)) -> (u64, u32) {
    (key.0, key.1 / 8)
}

#[test]
fn several_are_found_if_all_are_here() {
    for cache in [numbers(u64::MAX), Numbers::with_neighbours(CacheName::Status, u64::MAX, block)] {
        (0..1000).for_each(|number| insert(&cache, 1, number));
        let keys: Vec<(u64, u32)> = (0..100).map(|number| (1, 977 * number % 1000)).collect();
        let expected: Vec<u32> = keys.iter().map(|key| key.1).collect();
        assert_eq!(cache.try_get_all(&keys), Some(expected));
        assert_eq!(cache.try_get_all(&[(1, 3), (1, 3)]), Some(vec![3, 3]));
        assert_eq!(cache.try_get_all(&[]), Some(vec![]));
        assert_eq!(cache.try_get_all(&[(1, 3), (2, 3), (1, 4)]), None);
        let statistics = cache.statistics();
        assert_eq!((statistics.hits, statistics.misses), (102, 0));
    }
}

#[test]
fn several_that_are_used_stay() {
    let cache = numbers(100 * ENTRY);
    (0..100).for_each(|number| insert(&cache, 1, number));
    // A shard has room for them all, whatever the keys of its hasher.
    let used: Vec<(u64, u32)> = (0..5).map(|number| (1, number)).collect();
    for number in 100..1000 {
        assert!(cache.try_get_all(&used).is_some(), "{number}");
        insert(&cache, 1, number);
    }
}

#[test]
fn bulk_readers_and_writers_do_not_starve() {
    let cache = numbers(1000 * ENTRY);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                let keys: Vec<(u64, u32)> = (0..50).map(|number| (1, (thread + 13 * number) % 300)).collect();
                for round in 0..2000 {
                    insert(cache, 1, (thread * 71 + round) % 300);
                    _ = cache.try_get_all(&keys);
                }
            });
        }
    });
    assert!(cache.statistics().entries <= 300);
}

/// Compares the cache with plain maps: a lookup returns the last value put, or none; counts and bytes are
/// exact.
fn history(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let limit = random.random_range(0..40) * ENTRY;
    let cache = if seed.is_multiple_of(2) {
        numbers(limit)
    } else {
        Numbers::with_neighbours(CacheName::Status, limit, block)
    };
    let mut last: HashMap<(u64, u32), u32> = HashMap::new();
    for step in 0..2000 {
        let key = (random.random_range(0..4), random.random_range(0..30));
        match random.random_range(0..10) {
            0..5 => {
                cache.insert(key.0, key, step, random.random_range(0..2) * ENTRY);
                last.insert(key, step);
            }
            5 => {
                cache.remove(&key);
                last.remove(&key);
            }
            6 if random.random_bool(0.2) => {
                while cache.purge(key.0, 3) > 0 {}
                last.retain(|other, _| other.0 != key.0);
            }
            7 => {
                let keys = [key, (key.0, 29 - key.1), (3 - key.0, key.1)];
                let expected = keys.map(|key| cache.peek(&key).map(|(_, value)| value));
                let all: Option<Vec<u32>> = expected.into_iter().collect();
                assert_eq!(cache.try_get_all(&keys), all, "seed {seed}, step {step}");
            }
            _ => assert!(cache.get(&key).is_none_or(|got| last.get(&key) == Some(&got)), "seed {seed}"),
        }
        assert!(cache.statistics().bytes <= limit, "seed {seed}, step {step}");
    }
    let here = last.keys().filter(|key| cache.get(key).is_some()).count() as u64;
    assert_eq!(cache.statistics().entries, here, "seed {seed}");
    (0..4).for_each(|owner| _ = cache.purge(owner, usize::MAX));
    assert_eq!((cache.statistics().entries, cache.statistics().bytes), (0, 0), "seed {seed}");
}

#[test]
fn histories_agree_with_plain_maps() {
    (0..200).for_each(history);
}
