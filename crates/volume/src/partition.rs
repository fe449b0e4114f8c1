//! What a partition gives to the volumes on it.

use crate::record;
use base::PartitionId;
use std::sync::Arc;
use store::{ChunkAddress, ChunkStore, Family, MetaStore, StoreError};

/// Room on a partition in blocks of 1 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total_kib: u64,
    /// What may still be used.
    pub free_kib: u64,
}

/// Which chunk a record of [`Family::Extents`] names: what `store` needs to find chunks that no
/// record names ([`store::PartitionConfig::chunk_of`]).
///
/// # Errors
/// `Damaged`.
pub fn chunk_of(key: &[u8], value: &[u8]) -> Result<Option<ChunkAddress>, StoreError> {
    let place = || format!("{} {key:02x?}", Family::Extents.name());
    let damaged = || StoreError::Damaged { place: place(), what: "an extent of a file".to_owned() };
    record::extent_address(value).ok_or_else(damaged)
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
