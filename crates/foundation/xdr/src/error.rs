//! Errors in a peer's XDR.

use thiserror::Error;

/// Reason why a value could not be decoded. All but `Source` are the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum XdrError {
    /// The data ended within a value.
    #[error("the data ended within a value")]
    Ended,
    /// A length exceeds the interface's limit.
    #[error("{got} elements or bytes are claimed where at most {most} are allowed")]
    TooLong {
        /// The claimed length.
        got: usize,
        /// The maximum length.
        most: usize,
    },
    /// Bytes remain after a value that must fill its buffer.
    #[error("{got} bytes follow the value")]
    Trailing {
        /// Number of remaining bytes.
        got: usize,
    },
    /// The source failed with this abort code.
    #[error("the call failed with {0}")]
    Source(i32),
}
