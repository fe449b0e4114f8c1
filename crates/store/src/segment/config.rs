//! Limits of a segment store.

use disk::Space;

/// Room that chunks never take, so that metadata, and with it deletions, still works on a full
/// partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// At least this much.
    pub bytes: u64,
    /// And at least this part of the file system, in thousandths.
    pub permille: u64,
}

impl Reserve {
    /// What may still be written, given the room on the file system.
    pub(super) fn usable(self, space: Space) -> u64 {
        let part = space.total_bytes / 1000 * self.permille;
        space.free_bytes.saturating_sub(self.bytes.max(part))
    }
}

/// Limits of a segment store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// A segment that would grow beyond this is sealed and a new one begun.
    pub segment_bytes: u64,
    /// Decoded chunks kept in memory, in bytes.
    pub cache_bytes: u64,
    /// Segment files kept open for reading.
    pub open_files_max: usize,
    /// Room left for metadata.
    pub reserve: Reserve,
}

impl Default for SegmentConfig {
    fn default() -> SegmentConfig {
        SegmentConfig {
            segment_bytes: 256 << 20,
            cache_bytes: 256 << 20,
            open_files_max: 512,
            reserve: Reserve { bytes: 64 << 20, permille: 5 },
        }
    }
}
