//! Errors of small objects, with the address of the partition.

use std::io::{self, ErrorKind};
use std::path::Path;
use store::{BucketError, StoreError};

/// Returns the error of a request about the object `place`.
pub(crate) fn failed(doing: &'static str, place: &Path, error: BucketError) -> StoreError {
    let shown = place.display().to_string();
    match error {
        BucketError::Unavailable(what) => StoreError::Unavailable { place: shown, what },
        BucketError::Refused(what) => io_error(doing, place, ErrorKind::PermissionDenied, what),
        BucketError::Missing { .. } | BucketError::Differs { .. } => {
            StoreError::Damaged { place: shown, what: error.to_string() }
        }
    }
}

/// Returns an error with the attempted action and its object, folder or partition.
pub(crate) fn io_error(
    doing: &'static str,
    place: &Path,
    kind: ErrorKind,
    what: impl Into<String>,
) -> StoreError {
    StoreError::Io { doing, path: place.display().to_string(), source: io::Error::new(kind, what.into()) }
}
