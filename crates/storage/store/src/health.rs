//! Whether a store may still write.
//!
//! After a failed write or sync it is unknown what is durable, and a later successful sync proves nothing:
//! the system may have dropped the pages. So the first failure is final until the store is reopened and reads
//! its state back from the disk.

use crate::StoreError;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The first failure, if any. Stores that depend on each other share one: a partition's metadata and file
/// data stop writing at the same time.
#[derive(Debug, Default)]
pub struct Health {
    place: PathBuf,
    first: OnceLock<Failure>,
    /// Whether a call had no answer in time.
    is_interrupted: AtomicBool,
}

#[derive(Debug)]
struct Failure {
    error: String,
    /// Whether another process has taken over.
    is_fenced: bool,
}

impl Health {
    /// Creates the health of the stores in this folder.
    pub fn of(place: &Path) -> Health {
        Health { place: place.to_owned(), ..Health::default() }
    }

    /// Returns an error if something failed before.
    ///
    /// # Errors
    /// `Fenced` if another process had taken over, else `ReadOnly`.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.first.get() {
            None => Ok(()),
            Some(Failure { is_fenced: true, .. }) => Err(self.fenced()),
            Some(Failure { error, .. }) => Err(StoreError::ReadOnly(error.clone())),
        }
    }

    /// Returns the place, for messages.
    pub(crate) fn place(&self) -> String {
        self.place.display().to_string()
    }

    /// Returns the error for a database of this place that another process has taken over.
    pub fn fenced(&self) -> StoreError {
        StoreError::Fenced { place: self.place() }
    }

    /// Records `error` if it is the first, and returns it.
    pub fn fail(&self, error: StoreError) -> StoreError {
        let is_fenced = matches!(error, StoreError::Fenced { .. });
        let failure = Failure { error: error.to_string(), is_fenced };
        if matches!(error, StoreError::ReadOnly(_)) || self.first.set(failure).is_err() {
            return error;
        }
        if is_fenced {
            tracing::error!(place = %self.place.display(), "another process has taken over; nothing is written");
        } else {
            tracing::error!(place = %self.place.display(), %error,
                "read-only because of an I/O error until it is opened again; a restart opens one on a local disk");
        }
        error
    }

    /// Records that a call had no answer in time, so that its caller may have left chunks to which nothing refers.
    pub(crate) fn interrupt(&self) {
        self.is_interrupted.store(true, Relaxed);
    }

    /// Whether a call had no answer in time.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Relaxed)
    }

    /// Whether something failed before.
    pub fn is_failed(&self) -> bool {
        self.first.get().is_some()
    }

    /// Returns the first failure, if any.
    pub fn failure(&self) -> Option<String> {
        self.first.get().map(|failure| failure.error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_decides_every_later_error() {
        let health = Health::of(Path::new("/vicepa/cellar/meta"));
        assert!(health.check().is_ok() && health.failure().is_none());
        _ = health.fail(health.fenced());
        _ = health.fail(StoreError::Meta("a disk".into()));
        assert!(matches!(health.check(), Err(StoreError::Fenced { .. })));
        let failure = health.failure().unwrap();
        assert!(failure.contains("/vicepa/cellar/meta") && !failure.contains("a disk"), "{failure}");
        let other = Health::default();
        _ = other.fail(StoreError::Meta("a disk".into()));
        _ = other.fail(other.fenced());
        assert!(matches!(other.check(), Err(StoreError::ReadOnly(_))));
    }
}
