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
    /// Its size in bytes on this file system.
    pub(super) fn of(self, space: Space) -> u64 {
        self.bytes.max(space.total_bytes / 1000 * self.permille)
    }
}

/// Limits of a segment store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// A segment that would grow beyond this is sealed and a new one begun. On small file systems it
    /// is a 64th part of them, but not less than 4 MiB: new data also leaves room for one segment, so
    /// that compaction always has where to write.
    pub segment_bytes: u64,
    /// Decoded chunks kept in memory, in bytes.
    pub cache_bytes: u64,
    /// Segment files kept open for reading.
    pub open_files_max: usize,
    /// Room left for metadata.
    pub reserve: Reserve,
    /// Bytes that may be written and not yet synced: whoever would write more syncs first, or waits for who does.
    /// A sync of the metadata's log shares the disk with a sync of all these at most.
    pub unsynced_bytes_max: u64,
    /// Records of at least so many bytes, header included, get segments of their own in which they begin at multiples of
    /// [`disk::DIRECT_ALIGNMENT`], and are written past the system's cache. What fills the room between them is dead, up to
    /// 4,159 bytes a record: this must be large enough for compaction not to begin because of that alone.
    pub aligned_bytes_min: u32,
}

impl SegmentConfig {
    /// The size of segments on such a file system.
    pub(super) fn segment_bytes_on(&self, total_bytes: u64) -> u64 {
        self.segment_bytes.min((total_bytes / SEGMENTS_MIN).max(SEGMENT_BYTES_LEAST))
    }
}

/// A file system has room for so many segments at least.
const SEGMENTS_MIN: u64 = 64;
/// Segments are not made smaller than this for that.
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
