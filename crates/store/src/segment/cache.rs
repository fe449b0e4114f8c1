//! Decoded chunks in memory, bounded by their bytes.

use super::statistics::Counters;
use crate::{ChunkAddress, StoreError};
use bytes::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What an entry costs besides its bytes: key, value, place in the table.
const ENTRY_BYTES: u64 = 128;
/// Expected size of a chunk, to size the table.
const CHUNK_BYTES_TYPICAL: u64 = 64 << 10;

/// Chunks by address. Callers who miss the same chunk at the same time load it once.
pub(super) struct ChunkCache {
    cache: Cache<ChunkAddress, Bytes, ByBytes, DefaultHashBuilder, CountEvictions>,
    counters: Arc<Counters>,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<ChunkAddress, Bytes> for ByBytes {
    fn weight(&self, _address: &ChunkAddress, chunk: &Bytes) -> u64 {
        chunk.len() as u64 + ENTRY_BYTES
    }
}

/// Counts what is thrown out, or too large to be taken in.
#[derive(Clone)]
struct CountEvictions(Arc<Counters>);

impl Lifecycle<ChunkAddress, Bytes> for CountEvictions {
    type RequestState = ();

    fn begin_request(&self) {}

    fn on_evict(&self, (): &mut (), _address: ChunkAddress, _chunk: Bytes) {
        self.0.cache_evictions.fetch_add(1, Relaxed);
    }
}

impl ChunkCache {
    pub(super) fn new(bytes_max: u64, counters: &Arc<Counters>) -> ChunkCache {
        let chunks = (bytes_max / CHUNK_BYTES_TYPICAL).max(1) as usize;
        let lifecycle = CountEvictions(Arc::clone(counters));
        let cache = Cache::with(chunks, bytes_max, ByBytes, DefaultHashBuilder::default(), lifecycle);
        ChunkCache { cache, counters: Arc::clone(counters) }
    }

    pub(super) fn get_or_load(
        &self,
        address: ChunkAddress,
        load: impl FnOnce() -> Result<Bytes, StoreError>,
    ) -> Result<Bytes, StoreError> {
        let mut missed = false;
        let chunk = self.cache.get_or_insert_with(&address, || {
            missed = true;
            load()
        });
        let counter = if missed { &self.counters.cache_misses } else { &self.counters.cache_hits };
        counter.fetch_add(1, Relaxed);
        chunk
    }

    /// What is known of one chunk is true of its copy too.
    pub(super) fn copy(&self, from: ChunkAddress, to: ChunkAddress) {
        if let Some(chunk) = self.cache.peek(&from) {
            self.cache.insert(to, chunk);
        }
    }

    pub(super) fn remove(&self, address: ChunkAddress) {
        self.cache.remove(&address);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}
