//! File data as objects of a bucket. Format: docs/reference/formats/objects.md.
//!
//! An object is a segment that is written once, as a whole: chunks are collected in memory, and a sync creates one
//! object of all that were appended since the last one, shared by all callers that wait. A long store creates
//! objects of full size while it goes on. So an object is complete or does not exist, and nothing is ever appended
//! to one.
//!
//! The account of an object is committed after the object was created and before its chunks can be referenced. As
//! commits survive in order, **every object that durable metadata references has an account**. So an open need not
//! list the objects, and an object without an account is an orphan, which [`FileData::sweep`](crate::FileData::sweep) removes, unless it is
//! lent.

mod audit;
mod borrowed;
mod bucket;
mod disk_cache;
mod foreign;
mod import;
mod lent;
mod loading;
mod name;
mod reserve;
mod rounds;
mod small;
mod store;
mod sweep;
mod unsaved;
mod windows;

pub(super) use audit::{ObjectReader, lengths};
pub(super) use borrowed::located;
pub use bucket::{Bucket, BucketError, ObjectPart, VisitObject};
pub use disk_cache::{DiskCache, DiskCacheConfig, DiskCacheStatistics};
pub use foreign::ForeignChunks;
pub use import::{Import, Loan};
pub use lent::{Borrower, LOAN_OBJECTS_MAX, LentObjects};
pub use reserve::{NewObject, ObjectBuilder, ObjectTerms};
pub use store::{ObjectChunks, ObjectConfig, UNLIMITED_BYTES};
