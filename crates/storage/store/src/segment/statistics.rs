//! Statistics of a segment store.

use crate::CacheStatistics;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters updated by operations.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) chunks_appended: AtomicU64,
    pub(super) raw_bytes_appended: AtomicU64,
    pub(super) stored_bytes_appended: AtomicU64,
    pub(super) chunks_moved: AtomicU64,
    pub(super) moved_bytes: AtomicU64,
    pub(super) chunks_released: AtomicU64,
    pub(super) segments_deleted: AtomicU64,
    pub(super) damaged_reads: AtomicU64,
    pub(super) orphaned_bytes: AtomicU64,
}

impl Counters {
    /// Counts a chunk of `raw_bytes` bytes that takes `stored_bytes` on disk.
    pub(super) fn appended(&self, raw_bytes: u32, stored_bytes: u32) {
        self.chunks_appended.fetch_add(1, Relaxed);
        self.raw_bytes_appended.fetch_add(u64::from(raw_bytes), Relaxed);
        self.stored_bytes_appended.fetch_add(u64::from(stored_bytes), Relaxed);
    }

    /// Counts a chunk that compaction copied.
    pub(super) fn moved(&self, stored_bytes: u32) {
        self.chunks_moved.fetch_add(1, Relaxed);
        self.moved_bytes.fetch_add(u64::from(stored_bytes), Relaxed);
    }

    /// Returns the statistics with these totals of the accounts, without those of syncs.
    pub(super) fn statistics(
        &self,
        (segments, segment_bytes, dead_bytes): (u64, u64, u64),
        cache: CacheStatistics,
    ) -> ChunkStatistics {
        let counted = |counter: &AtomicU64| counter.load(Relaxed);
        ChunkStatistics {
            chunks_appended: counted(&self.chunks_appended),
            raw_bytes_appended: counted(&self.raw_bytes_appended),
            stored_bytes_appended: counted(&self.stored_bytes_appended),
            chunks_moved: counted(&self.chunks_moved),
            moved_bytes: counted(&self.moved_bytes),
            chunks_released: counted(&self.chunks_released),
            sync_requests: 0,
            syncs: 0,
            cache,
            damaged_reads: counted(&self.damaged_reads),
            segments,
            segments_deleted: counted(&self.segments_deleted),
            segment_bytes,
            dead_bytes,
            orphaned_bytes: counted(&self.orphaned_bytes),
        }
    }
}

/// Statistics of a segment store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkStatistics {
    /// Chunks appended for new data.
    pub chunks_appended: u64,
    /// Their bytes before encoding.
    pub raw_bytes_appended: u64,
    /// Their bytes on disk, headers included.
    pub stored_bytes_appended: u64,
    /// Chunks copied by compaction, not counted as appended.
    pub chunks_moved: u64,
    /// Bytes of these copies on disk, headers included.
    pub moved_bytes: u64,
    /// Chunks released.
    pub chunks_released: u64,
    /// Calls that waited for durability.
    pub sync_requests: u64,
    /// Sync rounds that served them.
    pub syncs: u64,
    /// Cache of decoded chunks.
    pub cache: CacheStatistics,
    /// Reads of chunks that were damaged.
    pub damaged_reads: u64,
    /// Number of segment files.
    pub segments: u64,
    /// Segment files deleted because nothing in them was live.
    pub segments_deleted: u64,
    /// Bytes in segments, headers included.
    pub segment_bytes: u64,
    /// Bytes of these that are known to be dead.
    pub dead_bytes: u64,
    /// Bytes that earlier runs left unreferenced, as far as found since the open.
    pub orphaned_bytes: u64,
}
