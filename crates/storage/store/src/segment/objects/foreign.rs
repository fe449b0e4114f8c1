//! Chunks of a partition that another process has open.

use super::super::cache::ChunkCache;
use super::super::reading;
use super::bucket::{Bucket, BucketError};
use super::disk_cache::DiskCache;
use super::loading;
use super::windows::{Source, Windows};
use crate::{ChunkAddress, ChunkPlace, KeyRing, StoreError};
use bytes::Bytes;
use std::sync::Arc;

/// Reads chunks of a partition in a bucket that another process has open ([`ObjectChunks`](crate::ObjectChunks)).
///
/// That process names the chunks ([`ChunkStore::shared_at`](crate::ChunkStore::shared_at)), and may delete them at any time,
/// also while they are read. Objects are never changed, and their names never used again, so an address means the same
/// bytes for ever, or none.
pub struct ForeignChunks {
    bucket: Arc<dyn Bucket>,
    keys: Option<Arc<KeyRing>>,
    cache: ChunkCache,
    copies: Option<DiskCache>,
    windows: Windows,
}

impl ForeignChunks {
    /// Reads objects in `bucket`. At most `cache_bytes` of decoded chunks stay in memory. Encrypted chunks need `keys`.
    pub fn new(bucket: Arc<dyn Bucket>, keys: Option<Arc<KeyRing>>, cache_bytes: u64) -> ForeignChunks {
        let (windows, cache) = (Windows::new(&bucket), ChunkCache::new(cache_bytes));
        ForeignChunks { bucket, keys, cache, copies: None, windows }
    }

    /// Keeps copies of chunks on the local disk. The cache must be of this partition only.
    #[must_use]
    pub fn with_disk_cache(mut self, copies: DiskCache) -> ForeignChunks {
        self.copies = Some(copies);
        self
    }

    /// Returns the chunk's bytes, decoded and verified against its place.
    ///
    /// # Errors
    /// `Damaged` if there is no such chunk any more, or it is not what it should be; `Unavailable`.
    pub fn read(&self, ChunkPlace { address, origin }: ChunkPlace) -> Result<Bytes, StoreError> {
        let (copies, keys) = (self.copies.as_ref(), self.keys.as_deref());
        let damaged = |what| loading::damaged(&*self.bucket, address, what);
        let written = ChunkAddress { segment: origin, ..address };
        let decode = |record: &Bytes| reading::decode(record, written, keys).map(|(chunk, _)| chunk);
        let load = || loading::load(copies, address, |source| self.fetch(address, source), decode, damaged);
        self.cache.get_or_load(0, address, load)
    }

    /// Whether reading this chunk requires neither a disk read nor decoding.
    pub fn is_at_hand(&self, address: ChunkAddress) -> bool {
        self.cache.contains(address)
    }

    /// Uses the files of the copies no more, so that another cache can have them.
    pub fn close_disk_cache(&self) {
        if let Some(copies) = &self.copies {
            copies.close();
        }
    }

    fn fetch(&self, address: ChunkAddress, source: Source) -> Result<Bytes, StoreError> {
        let damaged = |what| loading::damaged(&*self.bucket, address, what);
        let range = loading::range(address).map_err(damaged)?;
        let length = range.end - range.start;
        let record = self.windows.read(source, address.segment, range).map_err(|error| match error {
            BucketError::Missing { .. } => damaged(loading::MISSING.into()),
            other => StoreError::Unavailable { place: self.bucket.place(), what: other.to_string() },
        })?;
        loading::whole(record, length).map_err(damaged)
    }
}
