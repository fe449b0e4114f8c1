//! Partitions in an S3-compatible bucket, or in a folder of a shared file system.
//!
//! Below one prefix of the bucket are the metadata ([`slate_meta`]), the file data ([`store::ObjectChunks`]), and two
//! small objects that describe the partition. [`open`] makes a [`store::Partition`] of them, which is used like one on a
//! disk. Layout: docs/reference/formats/partition.md.
//!
//! [`Foreign`] reads file data of a partition that another process has open.
//!
//! There is no lock. The process that opens a partition last has it: whatever an earlier one still writes is refused by
//! the bucket, and its calls fail with [`StoreError::Fenced`](store::StoreError::Fenced). A process that must not answer
//! for the partition any more, because another may open it, stops by its [`Tenure`](store::Tenure).

mod config;
mod errors;
mod foreign;
mod home;
mod local_cache;
mod opening;

pub use config::{BucketConfig, LocalCache};
pub use foreign::{Foreign, LoadKey};
pub use opening::{Opener, exists, inspect, open, rekey, threads};
