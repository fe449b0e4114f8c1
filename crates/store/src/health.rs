//! Whether a store may still write.
//!
//! After a failed write or sync nobody knows what is durable, and a later sync that succeeds proves
//! nothing: the system may have dropped the pages. So the first failure is final until the next
//! open, which finds out from the disk what is there.

use crate::StoreError;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The first failure, if there was one. What belongs together shares one: a partition's metadata and file data stop at
/// the same time.
#[derive(Debug, Default)]
pub(crate) struct Health {
    place: PathBuf,
    first: OnceLock<String>,
}

impl Health {
    /// Of what lies in this folder.
    pub(crate) fn of(place: &Path) -> Health {
        Health { place: place.to_owned(), first: OnceLock::new() }
    }

    /// Refuses if something failed before.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.first.get() {
            None => Ok(()),
            Some(first) => Err(StoreError::ReadOnly(first.clone())),
        }
    }

    /// Remembers `error` if it is the first, and hands it on.
    pub(crate) fn fail(&self, error: StoreError) -> StoreError {
        if !matches!(error, StoreError::ReadOnly(_)) && self.first.set(error.to_string()).is_ok() {
            tracing::error!(place = %self.place.display(), %error,
                "read-only because of an I/O error until the server is started again");
        }
        error
    }

    /// Whether something failed before.
    pub(crate) fn is_failed(&self) -> bool {
        self.first.get().is_some()
    }

    /// The first failure, if there was one.
    pub(crate) fn failure(&self) -> Option<String> {
        self.first.get().cloned()
    }
}
