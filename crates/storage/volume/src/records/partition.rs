//! The interface of a partition to the volumes on it.

use crate::records::{codec, families};
use base::PartitionId;
use std::sync::Arc;
use store::{ChunkAddress, ChunkNames, ChunkStore, MetaStore, StoreError};

/// Space on a partition in blocks of 1 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Total size.
    pub total_kib: u64,
    /// Usable free space.
    pub free_kib: u64,
}

/// The records that name chunks. `store` uses them to find chunks that no record names
/// ([`store::PartitionConfig::chunk_names`]).
pub const CHUNK_NAMES: ChunkNames = ChunkNames { family: families::EXTENTS, chunk_of };

fn chunk_of(key: &[u8], value: &[u8]) -> Result<Option<ChunkAddress>, StoreError> {
    let place = || format!("{} {key:02x?}", families::EXTENTS.name());
    let damaged = || StoreError::Damaged { place: place(), what: "an extent of a file".to_owned() };
    codec::extent_address(value).ok_or_else(damaged)
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
