//! What deduplication gains on a partition, and what it costs.

use super::Sharing;
use super::row::Sums;
use crate::record::ROW_BYTES;
use crate::{VolumeError, Volumes};
use base::PartitionId;

/// Shared chunks of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeduplicationStatistics {
    /// Chunks that can be shared: those of volumes that deduplicate.
    pub chunks: u64,
    /// Of these, those that are named more than once.
    pub shared_chunks: u64,
    /// How often all of them are named: by versions of files, which clones share and so count once.
    pub names: u64,
    /// Bytes of these chunks as they are stored.
    pub stored_bytes: u64,
    /// Bytes less than with a chunk of its own for each name, as stored.
    pub saved_bytes: u64,
    /// Bytes of the rows that say where the chunks are, before the metadata is compressed.
    pub row_bytes: u64,
    /// Memory besides the caches that hold rows like all other records: it does not grow with the rows.
    pub memory_bytes: u64,
}

impl Volumes {
    /// What deduplication gains on a partition, and what it costs. The sums are kept up to date, so nothing is
    /// counted.
    ///
    /// # Errors
    /// `NoPartition`, `Store`.
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
