//! Limits of a segment store.

use disk::Space;

/// Space that chunks never take, so that metadata operations, including deletions, still work on a full
/// partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Minimum size in bytes.
    pub bytes: u64,
    /// Minimum size in thousandths of the file system.
    pub permille: u64,
}

impl Reserve {
    /// Returns its size in bytes on this file system.
    pub(super) fn of(self, space: Space) -> u64 {
        self.bytes.max(space.total_bytes / 1000 * self.permille)
    }
}

/// Limits of a segment store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Size at which a segment is sealed and a new one started. On small file systems it is a 64th of their
    /// size, but at least 4 MiB: new data also leaves space for one segment, so that compaction always has
    /// space to write to.
    pub segment_bytes: u64,
    /// Maximum size of decoded chunks kept in memory, in bytes.
    pub cache_bytes: u64,
    /// Maximum number of segment files kept open for reading.
    pub open_files_max: usize,
    /// Space left for metadata.
    pub reserve: Reserve,
    /// Maximum number of bytes written and not yet synced. A writer that would exceed it syncs first, or
    /// waits for a running sync. A sync of the metadata's log competes for the disk with at most this much
    /// data.
    pub unsynced_bytes_max: u64,
    /// Records of at least this size, header included, are written to separate segments, bypassing the
    /// system's cache, and start at multiples of [`disk::DIRECT_ALIGNMENT`]. The fillers between them are
    /// dead, up to 4,159 bytes per record: this must be large enough that fillers alone do not trigger
    /// compaction.
    pub aligned_bytes_min: u32,
}

impl SegmentConfig {
    /// Returns the size of segments on a file system of this size.
    pub(super) fn segment_bytes_on(&self, total_bytes: u64) -> u64 {
        self.segment_bytes.min((total_bytes / SEGMENTS_MIN).max(SEGMENT_BYTES_LEAST))
    }
}

/// Minimum number of segments that must fit on a file system.
const SEGMENTS_MIN: u64 = 64;
/// Lower limit of the segment size, which takes precedence.
const SEGMENT_BYTES_LEAST: u64 = 4 << 20;

impl Default for SegmentConfig {
    fn default() -> SegmentConfig {
        SegmentConfig {
            segment_bytes: 256 << 20,
            cache_bytes: 256 << 20,
            open_files_max: 512,
            reserve: Reserve { bytes: 64 << 20, permille: 5 },
            unsynced_bytes_max: 16 << 20,
            aligned_bytes_min: 64 << 10,
        }
    }
}
