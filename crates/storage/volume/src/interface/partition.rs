//! The interface of a partition to the volumes on it.

use base::PartitionId;
use std::sync::Arc;
use store::{ChunkStore, MetaStore};

/// Space on a partition in blocks of 1 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Total size.
    pub total_kib: u64,
    /// Usable free space.
    pub free_kib: u64,
}

/// One open partition.
#[derive(Clone)]
pub struct PartitionHandle {
    /// Id of the partition.
    pub id: PartitionId,
    /// Metadata store.
    pub meta: Arc<dyn MetaStore>,
    /// File data store.
    pub chunks: Arc<dyn ChunkStore>,
    /// Returns the space; called before anything grows and for partition information. Must be cheap.
    pub space: Arc<dyn Fn() -> Space + Send + Sync>,
}
