//! What a partition gives to the volumes on it.

use base::PartitionId;
use std::sync::Arc;
use store::{ChunkStore, MetaStore};

/// Room on a partition in blocks of 1 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total_kib: u64,
    /// What may still be used.
    pub free_kib: u64,
}

/// One open partition.
#[derive(Clone)]
pub struct PartitionHandle {
    /// Which.
    pub id: PartitionId,
    /// Metadata.
    pub meta: Arc<dyn MetaStore>,
    /// File data.
    pub chunks: Arc<dyn ChunkStore>,
    /// Asked before anything grows and for partition information; cheap.
    pub space: Arc<dyn Fn() -> Space + Send + Sync>,
}
