//! In-memory chunks that count reads and stored chunks, and in-memory metadata that counts the records read.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{
    Batch, ChunkAddress, ChunkOwner, ChunkStore, CommitNumber, EncodedChunk, Family, KeyRange, MemoryChunks,
    MemoryMeta, MetaStore, SegmentRecords, SegmentUse, Snapshot, StoreError, Visit,
};

/// Forwards everything to another store.
pub(super) struct Counting {
    pub(super) chunks: Arc<MemoryChunks>,
    pub(super) reads: Arc<AtomicUsize>,
    pub(super) appends: Arc<AtomicUsize>,
}

impl ChunkStore for Counting {
    fn append_all(&self, chunks: Vec<EncodedChunk>) -> Result<Vec<ChunkAddress>, StoreError> {
        self.appends.fetch_add(chunks.len(), Ordering::Relaxed);
        self.chunks.append_all(chunks)
    }

    fn read(&self, address: ChunkAddress) -> Result<Bytes, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.chunks.read(address)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.chunks.sync()
    }

    fn verify(&self, address: ChunkAddress) -> Result<(), StoreError> {
        self.chunks.verify(address)
    }

    fn copy(&self, address: ChunkAddress, owner: ChunkOwner) -> Result<ChunkAddress, StoreError> {
        self.chunks.copy(address, owner)
    }

    fn sparse_segments(&self, dead_percent: u8) -> Vec<SegmentUse> {
        self.chunks.sparse_segments(dead_percent)
    }

    fn doomed_bytes(&self) -> u64 {
        self.chunks.doomed_bytes()
    }

    fn records(&self, segment: u64, from: u64, most: usize) -> Result<SegmentRecords, StoreError> {
        self.chunks.records(segment, from, most)
    }

    fn release(&self, address: ChunkAddress) {
        self.chunks.release(address);
    }
}

/// Forwards everything to another database.
pub(super) struct CountingMeta {
    pub(super) meta: Arc<MemoryMeta>,
    /// Number of keys looked up, and of records visited.
    pub(super) records: Arc<AtomicUsize>,
}

impl MetaStore for CountingMeta {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.records.fetch_add(1, Ordering::Relaxed);
        self.meta.get(family, key)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.meta.scan(family, range, &mut |key, value| {
            self.records.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.meta.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        self.meta.commit(batch)
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        self.meta.sync(number)
    }
}
