//! Errors of reading records.

use store::{Family, StoreError};
use thiserror::Error;

/// Records could not be read.
#[derive(Debug, Error)]
pub enum RecordError {
    /// A stored record cannot be decoded.
    #[error("damaged record {key}: {what}")]
    Damaged {
        /// Family and key.
        key: String,
        /// The check that failed.
        what: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the error for a record that cannot be decoded.
pub fn damage(family: Family, key: &[u8], what: &'static str) -> RecordError {
    RecordError::Damaged { key: format!("{} {key:02x?}", family.name()), what }
}
