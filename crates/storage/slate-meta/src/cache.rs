//! The cache of blocks, indexes and filters of tables, in memory.

use async_trait::async_trait;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use slatedb::Error;
use slatedb::db_cache::{CachedEntry, CachedKey, DbCache};

/// Memory of one entry besides its contents.
const ENTRY_BYTES: u64 = 128;

/// Typical size of an entry: one block.
const BLOCK_BYTES: usize = 4 << 10;

/// A cache of a fixed size for one database.
pub(crate) struct BlockCache(Cache<CachedKey, CachedEntry, Weight>);

#[derive(Clone)]
struct Weight;

impl Weighter<CachedKey, CachedEntry> for Weight {
    fn weight(&self, _key: &CachedKey, entry: &CachedEntry) -> u64 {
        entry.size() as u64 + ENTRY_BYTES
    }
}

impl BlockCache {
    /// Creates a cache of at most `bytes`.
    pub(crate) fn new(bytes: usize) -> BlockCache {
        BlockCache(Cache::with_weighter((bytes / BLOCK_BYTES).max(1), bytes as u64, Weight))
    }

    /// Bytes in the cache.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weight()
    }
}

#[async_trait]
impl DbCache for BlockCache {
    async fn get_block(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.0.get(key))
    }

    async fn get_index(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.0.get(key))
    }

    async fn get_filter(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.0.get(key))
    }

    async fn get_stats(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.0.get(key))
    }

    async fn insert(&self, key: CachedKey, value: CachedEntry) {
        self.0.insert(key, value);
    }

    async fn remove(&self, key: &CachedKey) {
        self.0.remove(key);
    }

    fn entry_count(&self) -> u64 {
        self.0.len() as u64
    }
}
