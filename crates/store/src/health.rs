//! Whether a store may still write.
//!
//! After a failed write or sync nobody knows what is durable, and a later sync that succeeds proves
//! nothing: the system may have dropped the pages. So the first failure is final until the next
//! open, which finds out from the disk what is there.

use crate::StoreError;
use std::sync::OnceLock;

/// The first failure, if there was one.
#[derive(Debug, Default)]
pub(crate) struct Health(OnceLock<String>);

impl Health {
    /// Refuses if something failed before.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            None => Ok(()),
            Some(first) => Err(StoreError::ReadOnly(first.clone())),
        }
    }

    /// Remembers `error` if it is the first, and hands it on.
    pub(crate) fn fail(&self, error: StoreError) -> StoreError {
        if self.0.set(error.to_string()).is_ok() {
            tracing::error!(%error, "the store takes no more writes");
        }
        error
    }

    /// The first failure, if there was one.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.get().cloned()
    }
}
