//! Errors of a store, and who is at fault.

use thiserror::Error;

/// A store operation that did not take place. Data stored before it is unaffected.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The operating system returned an error.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The attempted action, as a verb.
        doing: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The data read differs from the data written.
    #[error("damaged data in {place}: {what}")]
    Damaged {
        /// File and offset, or family and key.
        place: String,
        /// Which check failed, with the values expected and got.
        what: String,
    },
    /// The partition is encrypted, and its key is missing or wrong.
    #[error("{what} ({place})")]
    Key {
        /// The partition's folder.
        place: String,
        /// Description of the problem.
        what: String,
    },
    /// The chunk exceeds the maximum size: the caller's fault.
    #[error("a chunk has at most {} bytes, this one has {bytes}", crate::chunk::CHUNK_BYTES_MAX)]
    TooLong {
        /// Size of the chunk in bytes.
        bytes: usize,
    },
    /// The partition has no space for new data; deletions still work.
    #[error("no space left on the partition")]
    Full,
    /// The metadata database returned an error.
    #[error("metadata database: {0}")]
    Meta(String),
    /// An earlier write failed. Nothing is written any more, so that nothing is acknowledged that may not be
    /// durable.
    #[error("read-only because of an I/O error: {0}")]
    ReadOnly(String),
    /// Another process has opened the metadata database for writing, and the engine rejects this one's
    /// writes. Nothing of the rejected batch was or will be written.
    #[error("another process has taken over the metadata in {place}")]
    Fenced {
        /// The database's folder or prefix.
        place: String,
    },
    /// The medium of the metadata or of the file data, across a network, did not answer in time. Not final: the store
    /// keeps trying, and later calls may succeed.
    #[error("{place} cannot be reached: {what}")]
    Unavailable {
        /// The database's folder or prefix, or the bucket.
        place: String,
        /// The request that was not answered, and for how long.
        what: String,
    },
}
