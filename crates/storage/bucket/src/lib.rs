//! Access to S3-compatible buckets, as far as it does not depend on what is kept in them.
//!
//! [`Bounded`] is a bucket whose every request ends. [`Objects`] is the bucket that
//! [`store::ObjectChunks`] keeps file data in: a blocking shell around `object_store` that repeats requests and settles
//! those of unknown outcome. [`probe`](probe::probe) tests whether a bucket does what Cellar relies on, and
//! [`faulty`] is one that fails like a bucket across a network.

/// Shows a wrapper of a bucket as what it wraps, without the client's settings, which include the id of the key.
macro_rules! show_as_bucket {
    ($wrapper:ident) => {
        impl std::fmt::Debug for $wrapper {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($wrapper), "({})"), self.bucket)
            }
        }

        impl std::fmt::Display for $wrapper {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.bucket.fmt(f)
            }
        }
    };
}
pub(crate) use show_as_bucket;

mod access;
mod bounded;
mod deleting;
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

/// Returns an error with its causes, unless it names them itself.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        let shown = cause.to_string();
        if !text.contains(&shown) {
            text = format!("{text}: {shown}");
        }
        next = cause.source();
    }
    text
}
