//! Whether a store may still write.
//!
//! After a failed write or sync it is unknown what is durable, and a later successful sync proves nothing:
//! the system may have dropped the pages. So the first failure is final until the store is reopened and reads
//! its state back from the disk.

use crate::StoreError;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The first failure, if any. Stores that depend on each other share one: a partition's metadata and file
/// data stop writing at the same time.
#[derive(Debug, Default)]
pub(crate) struct Health {
    place: PathBuf,
    first: OnceLock<String>,
}

impl Health {
    /// Creates the health of the stores in this folder.
    pub(crate) fn of(place: &Path) -> Health {
        Health { place: place.to_owned(), first: OnceLock::new() }
    }

    /// Returns an error if something failed before.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.first.get() {
            None => Ok(()),
            Some(first) => Err(StoreError::ReadOnly(first.clone())),
        }
    }

    /// Records `error` if it is the first, and returns it.
    pub(crate) fn fail(&self, error: StoreError) -> StoreError {
        if !matches!(error, StoreError::ReadOnly(_)) && self.first.set(error.to_string()).is_ok() {
            tracing::error!(place = %self.place.display(), %error,
                "read-only because of an I/O error until the server is restarted");
        }
        error
    }

    /// Whether something failed before.
    pub(crate) fn is_failed(&self) -> bool {
        self.first.get().is_some()
    }

    /// Returns the first failure, if any.
    pub(crate) fn failure(&self) -> Option<String> {
        self.first.get().cloned()
    }
}
