//! What can be wrong with a peer's XDR.

use thiserror::Error;

/// Why a value could not be decoded. All but `Source` are the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum XdrError {
    /// The data ended within a value.
    #[error("the data ended within a value")]
    Ended,
    /// A length above what the interface allows.
    #[error("{got} elements or bytes are claimed where at most {most} are allowed")]
    TooLong {
        /// The length claimed.
        got: usize,
        /// The longest allowed.
        most: usize,
    },
    /// Bytes left over behind a value that was to fill its buffer.
    #[error("{got} bytes follow the value")]
    Trailing {
        /// How many.
        got: usize,
    },
    /// The source itself failed, with this abort code.
    #[error("the call failed with {0}")]
    Source(i32),
}
