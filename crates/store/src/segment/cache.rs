//! Decoded chunks in memory, bounded by their bytes.

use crate::{Cache, CacheStatistics, ChunkAddress, StoreError};
use bytes::Bytes;
use events::catalogue::CacheName;

/// Chunks by address. Callers who miss the same chunk at the same time load it once.
pub(super) struct ChunkCache(Cache<ChunkAddress, Bytes>);

impl ChunkCache {
    pub(super) fn new(bytes_max: u64) -> ChunkCache {
        ChunkCache(Cache::new(CacheName::Chunks, bytes_max))
    }

    pub(super) fn get_or_load(
        &self,
        owner: u64,
        address: ChunkAddress,
        load: impl FnOnce() -> Result<Bytes, StoreError>,
    ) -> Result<Bytes, StoreError> {
        self.0.get_or_load(owner, address, |chunk| chunk.len() as u64, load)
    }

    /// Whether a chunk is here; that is no use of it.
    pub(super) fn contains(&self, address: ChunkAddress) -> bool {
        self.0.peek(&address).is_some()
    }

    /// What is known of one chunk is true of its copy too.
    pub(super) fn copy(&self, from: ChunkAddress, to: ChunkAddress) {
        if let Some((owner, chunk)) = self.0.peek(&from) {
            let bytes = chunk.len() as u64;
            self.0.insert(owner, to, chunk, bytes);
        }
    }

    pub(super) fn remove(&self, address: ChunkAddress) {
        self.0.remove(&address);
    }

    /// Throws out what was read for an owner.
    pub(super) fn purge(&self, owner: u64) -> usize {
        self.0.purge(owner, usize::MAX)
    }

    pub(super) fn statistics(&self) -> CacheStatistics {
        self.0.statistics()
    }
}
