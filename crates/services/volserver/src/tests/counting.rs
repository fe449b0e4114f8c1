//! In-memory chunks that count reads and stored chunks, and in-memory metadata that counts the records read.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{
    Batch, ChunkAddress, ChunkOwner, ChunkPlace, ChunkStore, Codec, CommitNumber, EncodedChunk, Family,
    Import, KeyRange, Loan, MemoryChunks, MemoryMeta, MetaStore, SegmentRecords, SegmentUse, Snapshot,
    StoreError, Visit,
};

/// Forwards everything to another store.
pub(super) struct Counting {
    pub(super) chunks: Arc<MemoryChunks>,
    pub(super) reads: Arc<AtomicUsize>,
    pub(super) appends: Arc<AtomicUsize>,
    /// Chunks of another partition, which this one takes over as if both were in one bucket.
    pub(super) beside: Option<Arc<MemoryChunks>>,
}

/// Prefix and UUID of every partition in a bucket.
pub(super) const PREFIX: &str = "cells/other";
pub(super) const UUID: [u8; 16] = [7; 16];

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

    fn lend(&self) -> Option<Loan> {
        self.beside.as_ref().map(|_| Loan::new(UUID, Arc::default()))
    }

    fn import(&self, prefix: &str, partition: [u8; 16]) -> Result<Import, StoreError> {
        let is_known = self.beside.is_some() && (prefix, partition) == (PREFIX, UUID);
        is_known.then(Import::default).ok_or_else(|| StoreError::Meta("another partition".into()))
    }

    fn take_chunk(&self, _: &mut Import, chunk: ChunkPlace) -> Result<ChunkAddress, StoreError> {
        let other = self.beside.as_ref().ok_or_else(|| StoreError::Meta("no bucket".into()))?;
        self.chunks.append(&[other.read(chunk.address)?], Codec::Raw)
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
