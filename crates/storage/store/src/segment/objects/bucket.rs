//! The interface to a bucket.

use bytes::Bytes;
use std::ops::{ControlFlow, Range};
use thiserror::Error;

/// A request to a bucket that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BucketError {
    /// There is no such object.
    #[error("there is no object {name}")]
    Missing {
        /// Name of the object.
        name: String,
    },
    /// There is an object of this name with other contents. It was not changed.
    #[error("the object {name} exists with other contents")]
    Differs {
        /// Name of the object.
        name: String,
    },
    /// The bucket did not answer in time, or only with errors that pass. A later request may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The bucket answered that it does not do this: no permission, or not implemented. A later request succeeds
    /// only if an administrator changes that.
    #[error("{0}")]
    Refused(String),
}

/// Receives the name and size in bytes of each object of a list; breaks to end it.
pub type VisitObject<'a> = &'a mut dyn FnMut(&str, u64) -> ControlFlow<()>;

/// A part of an object that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPart {
    /// Contents, fewer than requested if the object ends within the range.
    pub bytes: Bytes,
    /// Size of the whole object in bytes.
    pub object_bytes: u64,
}

/// Objects with unique names. An object is created as a whole, never changed, and readable as soon as it exists.
///
/// Every call ends after a limited time. Until then it repeats requests that fail for a reason that may pass, and it
/// resolves requests of unknown outcome by reading the object.
pub trait Bucket: Send + Sync {
    /// Begins to create an object, and returns at once. Requests are repeated in the background until the object
    /// exists or the bucket refuses it. Does nothing if that is in progress, or done and not yet reported by
    /// [`Bucket::finish`].
    fn begin(&self, name: &str, contents: &Bytes);

    /// Waits until all these objects exist; each must have been begun. After an error, those that do not exist yet
    /// are still being created, unless the bucket refused them: begin those again.
    ///
    /// # Errors
    /// `Differs`, `Unavailable`, `Refused`.
    fn finish(&self, names: &[String]) -> Result<(), BucketError>;

    /// Reads a part of an object.
    ///
    /// # Errors
    /// `Missing`, `Unavailable`, `Refused`.
    fn read(&self, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError>;

    /// Reads a part of an object of another partition, whose full name in the bucket is `from`.
    ///
    /// # Errors
    /// As for [`Bucket::read`].
    fn read_other(&self, from: &str, range: Range<u64>) -> Result<ObjectPart, BucketError>;

    /// Creates an object as a copy of another one, whose full name in the bucket is `from`, without reading it. Returns its
    /// size in bytes. Whatever creates it has the same contents.
    ///
    /// # Errors
    /// `Missing` if there is nothing to copy, `Unavailable`, `Refused`. The copy may exist, or appear later.
    fn copy(&self, from: &str, name: &str) -> Result<u64, BucketError>;

    /// Removes objects; one that does not exist is not an error. After an error, any of them may still exist.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`.
    fn remove(&self, names: &[String]) -> Result<(), BucketError>;

    /// Visits all objects with names greater than `after`, in any order, some perhaps more than once.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`.
    fn list(&self, after: &str, visit: VisitObject<'_>) -> Result<(), BucketError>;

    /// Returns the address of the bucket, for messages. It contains no secrets.
    fn place(&self) -> String;
}
