//! What can go wrong in a store, and whose fault it is.

use thiserror::Error;

/// A store operation that did not happen. Nothing stored before it is affected.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was attempted, as a verb.
        doing: &'static str,
        /// The file.
        path: String,
        /// The system's own error.
        source: std::io::Error,
    },
    /// What was read is not what was written.
    #[error("damaged data in {place}: {what}")]
    Damaged {
        /// File and offset, or family and key.
        place: String,
        /// Which check failed, with the values expected and got.
        what: String,
    },
    /// The partition is encrypted, and its key is missing or another.
    #[error("{what} ({place})")]
    Key {
        /// The partition's folder.
        place: String,
        /// What is wrong with the key.
        what: String,
    },
    /// More than a chunk may have: the caller's fault.
    #[error("a chunk has at most {} bytes, and this one {bytes}", crate::chunk::CHUNK_BYTES_MAX)]
    TooLong {
        /// Bytes that it has.
        bytes: usize,
    },
    /// The partition has no room for new data; deletions still work.
    #[error("no space left on the partition")]
    Full,
    /// The metadata database refused.
    #[error("metadata database: {0}")]
    Meta(String),
    /// After an earlier failure to write nothing is written any more, so that nothing is acknowledged
    /// that may not be durable.
    #[error("read-only because of an I/O error: {0}")]
    ReadOnly(String),
}
