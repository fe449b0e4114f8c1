//! File data in segment files. Format: docs/reference/formats/segment.md.
//!
//! To store a chunk: [`encode`](codec) it and compute its checksum, outside every lock; reserve space after
//! the last record, under a lock held only for that; write it there; mark the file as dirty. The caller then
//! syncs, sharing the sync with other waiting callers, and only then commits metadata that references the
//! chunk.
//!
//! A later run of the program never appends to an existing segment, so a torn tail is never touched and never
//! causes harm.

pub(crate) mod accounts;
mod audit;
mod cache;
mod codec;
mod compaction;
mod compression;
mod config;
mod encoded;
mod files;
mod frame;
mod header;
mod leaving;
mod objects;
mod pool;
mod reading;
mod record;
mod recount;
mod room;
mod statistics;
mod store;

mod unsynced;
mod walk;

pub use audit::{SegmentAccount, SegmentAudit, SegmentFacts};
pub use config::{Reserve, SegmentConfig};
pub use encoded::{EncodedChunk, RawChunk};
pub use objects::{
    Borrower, Bucket, BucketError, DiskCache, DiskCacheConfig, DiskCacheStatistics, ForeignChunks, Import,
    LOAN_OBJECTS_MAX, LentObjects, Loan, NewObject, ObjectBuilder, ObjectChunks, ObjectConfig, ObjectPart,
    ObjectTerms, UNLIMITED_BYTES, VisitObject,
};
pub(crate) use record::crc32c;
pub use recount::{ChunkNames, ChunkOf, Recount};
pub use statistics::ChunkStatistics;
pub use store::SegmentStore;

pub use walk::{WalkEnd, walk};
