//! A bounded cache whose entries have owners, so that those of one owner can be thrown out at the cost
//! of those entries alone.
//!
//! The entries are spread over shards by their keys. In each shard they stand in two chains: one in the
//! order in which they came, for throwing out, and one for each owner. A hit takes a shard's lock for
//! reading and sets a mark; what is thrown out is the oldest entry without a mark, and marks are taken
//! away on the way to it (SIEVE), so that reading through everything once does not drive out what
//! is used. The limit is that of all shards together: one large entry may fill it.

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

/// Parts with a lock of their own.
const SHARDS: usize = 16;
/// Locks for those who load; two keys that share one wait for each other.
const LOADERS: usize = 1024;

/// Values by key, at most so many bytes of them. All methods may be called from any thread.
pub struct Cache<K, V> {
    name: CacheName,
    shards: Vec<RwLock<Shard<K, V>>>,
    /// One of these is held while a missing value is loaded, so that it is loaded once.
    loaders: Vec<Mutex<()>>,
    hasher: RandomFold,
    /// The key that stands for all those around one: they are in one shard.
    around: fn(&K) -> K,
    limit_bytes: u64,
    bytes: AtomicU64,
    /// What events say; the rest is asked for ([`Cache::statistics`]).
    counted: Sharded<CacheCounts>,
    counters: Counters,
    begun: Instant,
}

/// What is no event.
#[derive(Default)]
struct Counters {
    peak_bytes: AtomicU64,
    purge_steps: AtomicU64,
    recycle_age_ms: AtomicU64,
}

impl<K: Hash + Eq + Copy, V: Clone> Cache<K, V> {
    /// What an entry costs besides the bytes that its value owns: places in two tables, with room to
    /// grow.
    pub const ENTRY_BYTES: u64 = (size_of::<shard::Slot<K, V>>() + 2 * size_of::<(K, u32)>()) as u64;

    /// A cache for so many bytes; with 0 it never holds anything. Several may have one name.
    pub fn new(name: CacheName, limit_bytes: u64) -> Cache<K, V> {
        Cache::with_neighbours(name, limit_bytes, |key| *key)
    }

    /// Likewise, with keys that are mostly asked for together close to each other: those for which `around` gives
    /// the same key.
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

    /// The value of a key, if it is here.
    pub fn get(&self, key: &K) -> Option<V> {
        let found = self.try_get(key);
        if found.is_none() {
            self.happened(&CacheAction { misses: 1, ..self.nothing() });
        }
        found
    }

    /// The same for those who will ask again if it is not here: that is no miss yet.
    pub fn try_get(&self, key: &K) -> Option<V> {
        let shard = self.shard(key).read();
        let found = shard.get(key)?;
        shard.hits.fetch_add(1, Relaxed);
        Some(found)
    }

    /// [`Cache::try_get`] of several keys, if all of them are here. Among very many entries most of the time is waiting for
    /// memory; here that of one entry goes on while another's does.
    pub fn try_get_all(&self, keys: &[K]) -> Option<Vec<V>> {
        let places: Vec<usize> = keys.iter().map(|key| self.place(key)).collect();
        let mut hits = [0; SHARDS];
        for place in &places {
            hits[*place] += 1;
        }
        // Always in this order: who waits for a shard in which a writer waits may hold another that a writer waits for.
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

    /// Owner and value of a key, if it is here; that is no use of it.
    pub fn peek(&self, key: &K) -> Option<(u64, V)> {
        self.shard(key).read().peek(key)
    }

    /// The value of a key, loaded if it is not here. Callers who miss the same key at the same time
    /// load it once. `value_bytes` is what a value owns beside itself.
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

    /// Puts a value that owns `value_bytes` beside itself. What is larger than the whole cache is not
    /// taken in.
    pub fn insert(&self, owner: u64, key: K, value: V, value_bytes: u64) {
        let bytes = value_bytes.saturating_add(Self::ENTRY_BYTES);
        if bytes > self.limit_bytes {
            self.happened(&CacheAction { evictions: 1, freed: bytes, ..self.nothing() });
            return self.remove(&key);
        }
        let entry = Entry { key, owner, value, bytes, since_ms: self.now_ms() };
        // First, as another thread may throw it out as soon as it is there.
        self.bytes.fetch_add(bytes, Relaxed);
        let before = self.shard(&key).write().insert(entry);
        self.forget(before.as_ref());
        self.shrink(&key);
        self.counters.peak_bytes.fetch_max(self.bytes.load(Relaxed), Relaxed);
    }

    /// Throws out one key.
    pub fn remove(&self, key: &K) {
        let removed = self.shard(key).write().remove(key);
        self.forget(removed.as_ref());
    }

    /// Throws out at most `most` entries of an owner and tells how many there were. Costs a look at each
    /// of them and at each shard, whatever else is here.
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

    /// What it did and holds.
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
        // The tables use the low and the highest bits.
        (self.hasher.hash_one((self.around)(key)) >> 40) as usize % SHARDS
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn nothing(&self) -> CacheAction {
        let cache = CACHES[self.name as usize];
        CacheAction { cache, misses: 0, evictions: 0, purged: 0, freed: 0, age: 0 }
    }

    /// Counts what happened, and leaves a line of it if one is wanted.
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

    /// Throws out until the limit is kept, but not what just came.
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

    /// Of a shard that has more than its share, the one that grew if it has; so all stay about equally
    /// full however keys fall. Where only `keep` is to blame, of any.
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

/// Makes hashers that fold products: much faster than the standard one for keys of a few words.
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
