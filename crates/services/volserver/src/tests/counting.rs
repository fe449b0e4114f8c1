//! In-memory chunks that count reads and stored chunks, and in-memory metadata that counts the records read.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{
    Batch, Borrower, ChunkAddress, ChunkOwner, ChunkPlace, ChunkStore, Codec, CommitNumber, EncodedChunk,
    Family, Import, KeyRange, LentObjects, Loan, MemoryChunks, MemoryMeta, MetaStore, SegmentRecords,
    SegmentUse, Snapshot, StoreError, Visit,
};

/// Forwards everything to another store.
pub(super) struct Counting {
    pub(super) chunks: Arc<MemoryChunks>,
    pub(super) reads: Arc<AtomicUsize>,
    pub(super) appends: Arc<AtomicUsize>,
    /// Chunks of another partition, which this one takes over as if both were in one bucket.
    pub(super) beside: Option<Arc<MemoryChunks>>,
    pub(super) loans: Arc<Loans>,
}

/// What was lent and borrowed.
#[derive(Default)]
pub(super) struct Loans {
    pub(super) kept: Mutex<Vec<LentObjects>>,
    /// Objects of other partitions that are in use.
    pub(super) used: Mutex<Vec<u64>>,
}

/// Prefix and UUID of every partition in a bucket, and the number of each loan.
pub(super) const PREFIX: &str = "cells/other";
pub(super) const UUID: [u8; 16] = [7; 16];
pub(super) const LOAN: u64 = 9;
/// A loan of objects that the lender uses.
pub(super) const IN_USE: u64 = 5;

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
        self.beside.as_ref().map(|_| Loan::new(UUID, LOAN, Arc::default()))
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.beside.as_ref().map(|_| UUID)
    }

    fn keep_lent(&self, loan: &Loan, borrower: Borrower, objects: &[u64]) -> Result<(), StoreError> {
        let objects = objects.to_vec();
        self.loans.kept.lock().push(LentObjects { lender: UUID, loan: loan.id, borrower, objects });
        Ok(())
    }

    fn lent(&self, is_unneeded: bool) -> Vec<LentObjects> {
        let kept = self.beside.as_ref().map(|_| self.loans.kept.lock().clone());
        let is_meant = |lent: &LentObjects| !is_unneeded || lent.loan != IN_USE;
        kept.unwrap_or_default().into_iter().filter(is_meant).collect()
    }

    fn end_loan(&self, loan: u64, objects: &[u64]) -> Result<(), StoreError> {
        let mut kept = self.loans.kept.lock();
        let of_loan = kept.iter_mut().filter(|lent| lent.loan == loan);
        of_loan.for_each(|lent| lent.objects.retain(|id| !objects.contains(id)));
        Ok(())
    }

    fn used_of_loan(
        &self,
        (_, loan): ([u8; 16], u64),
        objects: &[u64],
        brings_home: bool,
    ) -> Result<Vec<u64>, StoreError> {
        let used = self.loans.used.lock();
        let is_used = |id: &u64| loan == LOAN && brings_home && used.contains(id);
        Ok(objects.iter().copied().filter(is_used).collect())
    }

    fn import(&self, prefix: &str, partition: [u8; 16], loan: u64) -> Result<Import, StoreError> {
        let is_known = self.beside.is_some() && (prefix, partition, loan) == (PREFIX, UUID, LOAN);
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
