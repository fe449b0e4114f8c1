//! Reports what deduplication saves on a partition, and what it costs.

use crate::dedup::Sharing;
use crate::{VolumeError, Volumes};
use base::PartitionId;
use volume_records::codec::ROW_BYTES;
use volume_records::rows::Sums;

/// Statistics of a partition's shared chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeduplicationStatistics {
    /// Number of chunks that can be shared: those of volumes that deduplicate.
    pub chunks: u64,
    /// Number of these chunks that are named more than once.
    pub shared_chunks: u64,
    /// Number of file versions that name these chunks; a version shared by clones counts once.
    pub names: u64,
    /// Stored size of these chunks, in bytes.
    pub stored_bytes: u64,
    /// Stored bytes saved compared with a separate chunk for each name.
    pub saved_bytes: u64,
    /// Size of the rows in bytes, before metadata compression.
    pub row_bytes: u64,
    /// Memory in bytes, excluding the caches that hold rows like all other records; does not grow with the
    /// rows.
    pub memory_bytes: u64,
}

impl Volumes {
    /// Returns what deduplication saves on a partition, and what it costs. The sums are kept up to date, so
    /// this does not scan.
    pub fn deduplication(&self, partition: PartitionId) -> Result<DeduplicationStatistics, VolumeError> {
        let home = self.partition(partition)?;
        let sums = home.sharing.lock(&*home.handle.meta)?.unwrap_or_default();
        let Sums { rows, shared, names, stored_bytes, named_bytes } = sums;
        Ok(DeduplicationStatistics {
            chunks: rows,
            shared_chunks: shared,
            names,
            stored_bytes,
            saved_bytes: named_bytes.saturating_sub(stored_bytes),
            row_bytes: rows * ROW_BYTES as u64,
            memory_bytes: size_of::<Sharing>() as u64,
        })
    }
}
