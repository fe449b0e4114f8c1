//! Transactions, metadata, data segments and chunk cache of one partition.
//!
//! The order of a durable change is always: append the chunk bytes, [`ChunkStore::sync`],
//! [`MetaStore::commit`] of the batch that references them, [`MetaStore::sync`]. Chunks that no batch
//! references are garbage that compaction reclaims, so a crash between any two steps leaves a consistent
//! prefix.

pub mod bucket_meter;
pub mod cache;
pub mod chunk;
pub mod database;
mod digest;
pub mod encryption;
mod engine;
pub mod engines;
pub mod error;
mod file_data;
mod frozen;
mod gauge;
mod group_sync;
mod health;
mod home;
mod hooked;
pub mod ids;
pub mod inspection;
mod loss;
pub mod memory;
pub mod meta;
pub mod partition;
pub mod segment;
mod tenure;
#[cfg(test)]
mod test_families;

pub use bucket_meter::{BucketMeter, RequestEnd, RequestKind};
pub use cache::{Cache, CacheStatistics};
pub use chunk::{
    CHUNK_BYTES_MAX, ChunkAddress, ChunkOwner, ChunkPlace, ChunkStore, Codec, CodecError, SegmentRecords,
    SegmentUse, ZSTD_LEVELS,
};
pub use database::Database;
pub use digest::Digest;
pub use encryption::{KeyError, KeyFile, KeyRing, MasterKey};
pub use engine::{MetaConfig, MetaDatabase, MetaEngine, MetaOptions, MetaStatistics};
pub use engines::memory::{MemoryEngine, MemoryMeta};
pub use error::StoreError;
pub use file_data::FileData;
pub use frozen::Frozen;
pub use gauge::Room;
pub use health::Health;
pub use home::BucketVersion;
pub use hooked::{HookedMeta, MetaStep};
pub use ids::IdAllocator;
pub use inspection::Inspection;
pub use loss::{accept_loss, loss};
pub use memory::MemoryChunks;
pub use meta::{Batch, Change, CommitNumber, Family, KeyRange, MetaStore, Snapshot, Visit};
pub use partition::{Partition, PartitionConfig, PartitionParts, PartitionStatistics};
pub use segment::{
    Borrower, Bucket, BucketError, ChunkNames, ChunkOf, ChunkStatistics, DiskCache, DiskCacheConfig,
    DiskCacheStatistics, EncodedChunk, ForeignChunks, Import, LOAN_OBJECTS_MAX, LentObjects, Loan, NewObject,
    ObjectBuilder, ObjectChunks, ObjectConfig, ObjectPart, ObjectTerms, RawChunk, Recount, Reserve,
    SegmentAccount, SegmentAudit, SegmentConfig, SegmentFacts, SegmentStore, UNLIMITED_BYTES, VisitObject,
};
pub use tenure::Tenure;
