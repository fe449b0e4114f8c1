//! Statistics of a cache.

/// Cumulative figures of a cache since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Current number of entries.
    pub entries: u64,
    /// Current size of the entries in bytes.
    pub bytes: u64,
    /// Peak size of the entries in bytes.
    pub peak_bytes: u64,
    /// Maximum size of the entries in bytes.
    pub limit_bytes: u64,
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Entries evicted to make room, or never cached because they were too large.
    pub evictions: u64,
    /// Entries evicted together with all others of their owner.
    pub purged: u64,
    /// Entries and shards visited by such purges.
    pub purge_steps: u64,
    /// Age of the entry last evicted to make room, in milliseconds; 0 before the first eviction. A low value
    /// means that the cache is too small for the working set.
    pub recycle_age_ms: u64,
}

impl CacheStatistics {
    /// Returns the sum of two caches' figures; the recycle age is that of the cache under more pressure.
    #[must_use]
    pub fn plus(self, other: CacheStatistics) -> CacheStatistics {
        let recycle_age_ms = match (self.recycle_age_ms, other.recycle_age_ms) {
            (0, age) | (age, 0) => age,
            (one, two) => one.min(two),
        };
        CacheStatistics {
            entries: self.entries + other.entries,
            bytes: self.bytes + other.bytes,
            peak_bytes: self.peak_bytes + other.peak_bytes,
            limit_bytes: self.limit_bytes + other.limit_bytes,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            evictions: self.evictions + other.evictions,
            purged: self.purged + other.purged,
            purge_steps: self.purge_steps + other.purge_steps,
            recycle_age_ms,
        }
    }
}
