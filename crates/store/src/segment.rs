//! File data in segment files. Format: docs/reference/formats/segment.md.
//!
//! The way of a chunk: [`encode`](codec) it and compute its checksum, outside every lock; reserve
//! room behind the last record, under a lock that is held only for that; write it there; note that
//! the file has something to sync. The caller then syncs, which is shared by all who wait, and only
//! then commits metadata that names the chunk.
//!
//! A segment is never appended to by a later run of the program, so a torn tail is never touched,
//! and never in the way.

mod accounts;
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
pub(crate) use record::crc32c;
pub use recount::{ChunkOf, Recount};
pub use statistics::ChunkStatistics;
pub use store::SegmentStore;

pub use walk::{WalkEnd, walk};
