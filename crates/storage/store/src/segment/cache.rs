//! Decoded chunks in memory, with a limit in bytes.

use crate::{Cache, CacheStatistics, ChunkAddress, StoreError};
use bytes::Bytes;
use events::catalogue::CacheName;

/// Chunks by address. Concurrent callers that miss the same chunk load it once.
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

    /// Whether a chunk is cached, without marking it as used.
    pub(super) fn contains(&self, address: ChunkAddress) -> bool {
        self.0.peek(&address).is_some()
    }

    /// Copies the cached entry of one chunk to the address of its copy.
    pub(super) fn copy(&self, from: ChunkAddress, to: ChunkAddress) {
        if let Some((owner, chunk)) = self.0.peek(&from) {
            let bytes = chunk.len() as u64;
            self.0.insert(owner, to, chunk, bytes);
        }
    }

    pub(super) fn remove(&self, address: ChunkAddress) {
        self.0.remove(&address);
    }

    /// Evicts the chunks that were read for an owner.
    pub(super) fn purge(&self, owner: u64) -> usize {
        self.0.purge(owner, usize::MAX)
    }

    pub(super) fn statistics(&self) -> CacheStatistics {
        self.0.statistics()
    }
}
