//! A bounded cache whose entries have owners, so that evicting one owner's entries costs only as much as
//! there are entries of it.
//!
//! Entries are spread over shards by their keys. Each shard keeps two kinds of chains: one in order of
//! insertion, for eviction, and one per owner. A hit takes the shard's lock for reading and sets a mark.
//! Eviction removes the oldest unmarked entry and clears the marks it passes (SIEVE), so that a single scan
//! over everything does not evict entries in use. The limit applies to all shards together: one large entry
//! may fill the cache.

mod shard;
mod statistics;

use events::catalogue::{CACHES, CacheAction, CacheCounts, CacheName};
use events::{Figures, Sharded};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use shard::{Entry, Place, Shard};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

pub use statistics::CacheStatistics;

/// Number of shards, each with its own lock.
const SHARDS: usize = 16;
/// Number of locks for loading values; two keys that share one wait for each other.
const LOADERS: usize = 1024;

/// Values by key, up to a limit in bytes. All methods may be called from any thread.
pub struct Cache<K, V> {
    name: CacheName,
    shards: Vec<RwLock<Shard<K, V>>>,
    /// A missing value is loaded under one of these locks, so that it is loaded only once.
    loaders: Vec<Mutex<()>>,
    hasher: RandomFold,
    /// Maps a key to the representative of its neighbourhood; neighbours share a shard.
    around: fn(&K) -> K,
    limit_bytes: u64,
    bytes: AtomicU64,
    /// Counters that events update; [`Cache::statistics`] computes the rest.
    counted: Sharded<CacheCounts>,
    counters: Counters,
    begun: Instant,
}

/// Figures that no event carries.
#[derive(Default)]
struct Counters {
    peak_bytes: AtomicU64,
    purge_steps: AtomicU64,
    recycle_age_ms: AtomicU64,
}

impl<K: Hash + Eq + Copy, V: Clone> Cache<K, V> {
    /// Overhead of an entry, in bytes, in addition to what its value owns: slots in two tables, with room to
    /// grow.
    pub const ENTRY_BYTES: u64 = (size_of::<shard::Slot<K, V>>() + 2 * size_of::<(K, u32)>()) as u64;

    /// Creates a cache limited to `limit_bytes`; with 0 it never holds anything. Several caches may share a
    /// name.
    pub fn new(name: CacheName, limit_bytes: u64) -> Cache<K, V> {
        Cache::with_neighbours(name, limit_bytes, |key| *key)
    }

    /// Creates a cache in which keys that are usually requested together are close to each other: those for
    /// which `around` returns the same key.
    pub fn with_neighbours(name: CacheName, limit_bytes: u64, around: fn(&K) -> K) -> Cache<K, V> {
        let hasher = RandomFold::new();
        Cache {
            name,
            shards: (0..SHARDS).map(|_| RwLock::new(Shard::new(hasher))).collect(),
            loaders: (0..LOADERS).map(|_| Mutex::default()).collect(),
            hasher,
            around,
            limit_bytes,
            bytes: AtomicU64::new(0),
            counted: Sharded::default(),
            counters: Counters::default(),
            begun: Instant::now(),
        }
    }

    /// Returns the value of a key if it is cached.
    pub fn get(&self, key: &K) -> Option<V> {
        let found = self.try_get(key);
        if found.is_none() {
            self.happened(&CacheAction { misses: 1, ..self.nothing() });
        }
        found
    }

    /// Like [`Cache::get`], but does not count a miss: for callers that retry if the value is absent.
    pub fn try_get(&self, key: &K) -> Option<V> {
        let shard = self.shard(key).read();
        let found = shard.get(key)?;
        shard.hits.fetch_add(1, Relaxed);
        Some(found)
    }

    /// [`Cache::try_get`] for several keys; returns their values only if all are cached. In a large cache
    /// most of the time goes into waiting for memory, and here the waits for different entries overlap.
    pub fn try_get_all(&self, keys: &[K]) -> Option<Vec<V>> {
        let places: Vec<usize> = keys.iter().map(|key| self.place(key)).collect();
        let mut hits = [0; SHARDS];
        for place in &places {
            hits[*place] += 1;
        }
        // Shards are always locked in this order. A reader blocked by a waiting writer in one shard may
        // already hold another that a second writer waits for.
        let read = |(shard, hits): (_, &u64)| (*hits > 0).then(|| RwLock::read(shard));
        let shards: Vec<Option<RwLockReadGuard<'_, Shard<K, V>>>> =
            self.shards.iter().zip(&hits).map(read).collect();
        let find = |(key, place): (&K, &usize)| shards[*place].as_ref()?.find(key);
        let slots: Vec<&Place<K, V>> = keys.iter().zip(&places).map(find).collect::<Option<_>>()?;
        let found = slots.into_iter().map(Place::used).collect();
        for (shard, hits) in shards.iter().flatten().zip(hits.into_iter().filter(|hits| *hits > 0)) {
            shard.hits.fetch_add(hits, Relaxed);
        }
        found
    }

    /// Returns the owner and value of a key if it is cached, without marking the entry as used.
    pub fn peek(&self, key: &K) -> Option<(u64, V)> {
        self.shard(key).read().peek(key)
    }

    /// Returns the value of a key, loading it if it is not cached. Concurrent callers that miss the same key
    /// load it once. `value_bytes` returns the bytes that a value owns in addition to its own size.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn get_or_load<E>(
        &self,
        owner: u64,
        key: K,
        value_bytes: impl Fn(&V) -> u64,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        if let Some(found) = self.get(&key) {
            return Ok(found);
        }
        let _loading = self.loaders[self.hasher.hash_one(key) as usize % LOADERS].lock();
        if let Some(loaded) = self.shard(&key).read().get(&key) {
            return Ok(loaded);
        }
        let value = load()?;
        self.insert(owner, key, value.clone(), value_bytes(&value));
        Ok(value)
    }

    /// Inserts a value that owns `value_bytes` in addition to its own size. A value larger than the whole
    /// cache is not cached.
    pub fn insert(&self, owner: u64, key: K, value: V, value_bytes: u64) {
        let bytes = value_bytes.saturating_add(Self::ENTRY_BYTES);
        if bytes > self.limit_bytes {
            self.happened(&CacheAction { evictions: 1, freed: bytes, ..self.nothing() });
            return self.remove(&key);
        }
        let entry = Entry { key, owner, value, bytes, since_ms: self.now_ms() };
        // Counted first, since another thread may evict the entry as soon as it is inserted.
        self.bytes.fetch_add(bytes, Relaxed);
        let before = self.shard(&key).write().insert(entry);
        self.forget(before.as_ref());
        self.shrink(&key);
        self.counters.peak_bytes.fetch_max(self.bytes.load(Relaxed), Relaxed);
    }

    /// Evicts one key.
    pub fn remove(&self, key: &K) {
        let removed = self.shard(key).write().remove(key);
        self.forget(removed.as_ref());
    }

    /// Evicts at most `most` entries of an owner and returns their number. Costs one step for each of them
    /// and one for each shard, regardless of the number of other entries.
    pub fn purge(&self, owner: u64, most: usize) -> usize {
        let mut removed = Vec::new();
        for shard in &self.shards {
            let more = shard.write().take_of_owner(owner, most - removed.len());
            self.counters.purge_steps.fetch_add(1 + more.len() as u64, Relaxed);
            removed.extend(more);
        }
        for entry in &removed {
            self.forget(Some(entry));
        }
        if !removed.is_empty() {
            let freed = removed.iter().map(|entry| entry.bytes).sum();
            self.happened(&CacheAction { purged: removed.len() as u64, freed, ..self.nothing() });
        }
        removed.len()
    }

    /// Returns the statistics of this cache.
    pub fn statistics(&self) -> CacheStatistics {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let (mut entries, mut hits) = (0, 0);
        for shard in &self.shards {
            let shard = shard.read();
            entries += shard.len() as u64;
            hits += read(&shard.hits);
        }
        let mut counted = CacheCounts::default();
        self.counted.each(|part| counted.add(part));
        CacheStatistics {
            entries,
            bytes: read(&self.bytes),
            peak_bytes: read(&self.counters.peak_bytes),
            limit_bytes: self.limit_bytes,
            hits,
            misses: counted.misses,
            evictions: counted.evictions,
            purged: counted.purged,
            purge_steps: read(&self.counters.purge_steps),
            recycle_age_ms: read(&self.counters.recycle_age_ms),
        }
    }

    fn shard(&self, key: &K) -> &RwLock<Shard<K, V>> {
        &self.shards[self.place(key)]
    }

    fn place(&self, key: &K) -> usize {
        // The tables use the low bits and the highest ones.
        (self.hasher.hash_one((self.around)(key)) >> 40) as usize % SHARDS
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn nothing(&self) -> CacheAction {
        let cache = CACHES[self.name as usize];
        CacheAction { cache, misses: 0, evictions: 0, purged: 0, freed: 0, age: 0 }
    }

    /// Counts an event and emits it for tracing.
    #[cold]
    fn happened(&self, event: &CacheAction) {
        self.counted.mine().count(event);
        waits::cache(event);
    }

    fn forget(&self, entry: Option<&Entry<K, V>>) {
        if let Some(entry) = entry {
            self.bytes.fetch_sub(entry.bytes, Relaxed);
        }
    }

    /// Evicts entries until the cache is within its limit, but never `keep`, which was just inserted.
    fn shrink(&self, keep: &K) {
        while self.bytes.load(Relaxed) > self.limit_bytes {
            let Some(evicted) = self.evict(keep) else { return };
            self.forget(Some(&evicted));
            let age_ms = self.now_ms().saturating_sub(evicted.since_ms);
            self.counters.recycle_age_ms.store(age_ms, Relaxed);
            let (freed, age) = (evicted.bytes, age_ms.saturating_mul(1_000_000));
            self.happened(&CacheAction { evictions: 1, freed, age, ..self.nothing() });
        }
    }

    /// Evicts from a shard above its share of the limit, preferring the one that `keep` is in, so that shards
    /// stay about equally full however keys are distributed. If only `keep` exceeds its share, evicts from
    /// any shard.
    fn evict(&self, keep: &K) -> Option<Entry<K, V>> {
        let first = self.place(keep);
        let of_shards = |share: u64| {
            (first..first + SHARDS).find_map(|at| {
                let mut shard = self.shards[at % SHARDS].write();
                if shard.bytes() > share { shard.evict(keep) } else { None }
            })
        };
        of_shards(self.limit_bytes / SHARDS as u64).or_else(|| of_shards(0))
    }
}

/// Builds hashers that fold products: much faster than the standard one for keys of a few words.
#[derive(Clone, Copy)]
struct RandomFold(u64);

impl RandomFold {
    fn new() -> RandomFold {
        RandomFold(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for RandomFold {
    type Hasher = Fold;

    fn build_hasher(&self) -> Fold {
        Fold(self.0)
    }
}

struct Fold(u64);

impl Fold {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            self.fold(piece.iter().fold(piece.len() as u64, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.fold(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
