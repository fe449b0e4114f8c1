//! Metadata of a partition in a bucket: an engine of `store` over SlateDB.
//!
//! A database is one SlateDB: all families in one key space, each key preceded by its family's number, so that a
//! batch is atomic over families. A commit goes to a log in memory and is visible to reads at once; a sync writes
//! the log to the bucket as one object, for all callers that wait. The tables are objects, read through a cache in
//! memory and, if configured, one on the local disk.
//!
//! At most one process writes a database. The process that opens it last has it: the bucket then rejects each log
//! object of the earlier one, whose calls fail with [`StoreError::Fenced`](store::StoreError::Fenced).
//!
//! When the bucket does not answer, requests are repeated without end inside, while each call waits for at most
//! [`SlateConfig::patience`] and then fails with [`StoreError::Unavailable`](store::StoreError::Unavailable).
//! Nothing has to be reopened once the bucket answers again.

mod cache;
mod clock;
mod config;
mod engine;
mod keys;
mod meta;
mod reader;
mod reads;
mod unflushed;

pub use bucket::faulty;
pub use config::SlateConfig;
pub use engine::SlateEngine;
