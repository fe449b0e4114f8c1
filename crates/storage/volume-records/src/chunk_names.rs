//! The records that name chunks.

use crate::{codec, families};
use store::{ChunkAddress, ChunkNames, StoreError};

/// The records that name chunks. `store` uses them to find chunks that no record names
/// ([`store::PartitionConfig::chunk_names`]).
pub const CHUNK_NAMES: ChunkNames = ChunkNames { family: families::EXTENTS, chunk_of };

fn chunk_of(key: &[u8], value: &[u8]) -> Result<Option<ChunkAddress>, StoreError> {
    let place = || format!("{} {key:02x?}", families::EXTENTS.name());
    let damaged = || StoreError::Damaged { place: place(), what: "an extent of a file".to_owned() };
    codec::extent_address(value).ok_or_else(damaged)
}
