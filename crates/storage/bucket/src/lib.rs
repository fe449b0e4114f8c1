//! Access to S3-compatible buckets, as far as it does not depend on what is kept in them.
//!
//! [`Bounded`] is a bucket whose every request ends. [`Objects`] is the bucket that
//! [`store::ObjectChunks`] keeps file data in: a blocking shell around `object_store` that repeats requests and settles
//! those of unknown outcome. [`probe`](probe::probe) tests whether a bucket does what Cellar relies on, and
//! [`faulty`] is one that fails like a bucket across a network.

mod access;
mod bounded;
pub mod faulty;
mod folder;
mod metered;
mod objects;
pub mod probe;
mod small;

pub use access::{Access, OpenError, ReadCredentials, open};
pub use base::{BucketAddress as Address, BucketAddressError as AddressError};
pub use bounded::Bounded;
pub use folder::Folder;
pub use metered::Metered;
pub use objects::{Objects, ObjectsConfig};

use object_store::Error;

/// Whether an error of a bucket says that it does not carry out such requests, so that repeating one is of no use.
pub fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotImplemented { .. }
            | Error::NotSupported { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. }
    )
}
