//! What a cache did and holds.

/// Absolute figures of a cache since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// What is in it now.
    pub entries: u64,
    /// What these take, in bytes.
    pub bytes: u64,
    /// The most that they ever took.
    pub peak_bytes: u64,
    /// The most that they may take.
    pub limit_bytes: u64,
    /// Answers from the cache.
    pub hits: u64,
    /// Answers that were not there.
    pub misses: u64,
    /// Entries that made room for others, or were too large to be taken in.
    pub evictions: u64,
    /// Entries that were thrown out with all of their volume.
    pub purged: u64,
    /// Entries and parts of the cache that were looked at for that.
    pub purge_steps: u64,
    /// How long the last entry that made room for others had been there, in milliseconds; 0 before there
    /// was one. A short time says that the cache is too small for what is used.
    pub recycle_age_ms: u64,
}

impl CacheStatistics {
    /// Of two caches together; the recycle age is that of the more pressed.
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
