//! Addresses of buckets, as administrators write them.

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use thiserror::Error;

/// An address: `s3://BUCKET/PREFIX` or `file:///FOLDER`. It contains no credentials: those of S3 come from the
/// environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, a web identity token's file) or from
/// the machine's metadata service, as other programs find them. `AWS_ENDPOINT` names a server other than Amazon's;
/// one without TLS needs `AWS_ALLOW_HTTP=true`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    kind: Kind,
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    S3 { bucket: String },
    Folder { path: PathBuf },
}

/// A bucket that cannot be opened. It never repeats an address that may contain credentials.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// It is not the address of a bucket.
    #[error("`{0}` is no bucket; valid are `s3://BUCKET/PREFIX` and `file:///FOLDER`")]
    Unknown(String),
    /// It has a user or a password.
    #[error("the address of a bucket must not contain credentials; put them into the environment")]
    HasCredentials,
    /// The program has no client of S3.
    #[error("this program was built without S3 (feature `s3`)")]
    NoS3,
    /// The client cannot be set up.
    #[error("cannot open {address}: {why}")]
    Refused {
        /// The address.
        address: String,
        /// The reason.
        why: String,
    },
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if text.contains(['@', '?', '#']) {
            return Err(AddressError::HasCredentials);
        }
        let unknown = || AddressError::Unknown(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(unknown)?;
        match scheme {
            "file" if rest.starts_with('/') && rest.len() > 1 => {
                Ok(Address { kind: Kind::Folder { path: rest.into() }, prefix: String::new() })
            }
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
                if bucket.is_empty() || bucket.len() > BUCKET_NAME_MAX || !bucket.bytes().all(is_name) {
                    return Err(unknown());
                }
                let prefix = prefix.trim_matches('/').to_owned();
                Ok(Address { kind: Kind::S3 { bucket: bucket.to_owned() }, prefix })
            }
            _ => Err(unknown()),
        }
    }
}

/// Longest name of a bucket, by S3's rules.
const BUCKET_NAME_MAX: usize = 63;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::S3 { bucket } if self.prefix.is_empty() => write!(f, "s3://{bucket}"),
            Kind::S3 { bucket } => write!(f, "s3://{bucket}/{}", self.prefix),
            Kind::Folder { path } => write!(f, "file://{}", path.display()),
        }
    }
}

impl Address {
    /// Returns the part of the address that precedes the names of all objects.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Sets up the client. Sends no request.
    ///
    /// # Errors
    /// `NoS3`; `Refused` if the environment is wrong, or the folder does not exist.
    pub fn open(&self) -> Result<Arc<dyn ObjectStore>, AddressError> {
        match &self.kind {
            Kind::S3 { bucket } => self.open_s3(bucket),
            Kind::Folder { path } => {
                let folder = LocalFileSystem::new_with_prefix(path).map_err(|error| self.refused(&error))?;
                // Without it, an acknowledged object may be lost with the power.
                Ok(Arc::new(folder.with_fsync(true)))
            }
        }
    }

    fn refused(&self, error: &object_store::Error) -> AddressError {
        AddressError::Refused { address: self.to_string(), why: error.to_string() }
    }

    #[cfg(feature = "s3")]
    fn open_s3(&self, bucket: &str) -> Result<Arc<dyn ObjectStore>, AddressError> {
        let builder = object_store::aws::AmazonS3Builder::from_env().with_bucket_name(bucket);
        Ok(Arc::new(builder.build().map_err(|error| self.refused(&error))?))
    }

    #[cfg(not(feature = "s3"))]
    #[allow(clippy::unused_self, reason = "with the feature it is used")]
    fn open_s3(&self, _bucket: &str) -> Result<Arc<dyn ObjectStore>, AddressError> {
        Err(AddressError::NoS3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_shown() {
        for (text, prefix) in
            [("s3://cellar", ""), ("s3://my.bucket-1/cells/a", "cells/a"), ("file:///srv/bucket", "")]
        {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.prefix()), (text, prefix));
        }
        let address: Address = "s3://b//p/".parse().unwrap();
        assert_eq!(address.to_string(), "s3://b/p");
        let long = format!("s3://{}", "b".repeat(64));
        for text in
            ["", "s3", "s3://", "s3:///p", "http://x/y", "file://relative", "file:///", "s3://a b", &long]
        {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Unknown(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn credentials_in_an_address_are_refused_and_not_repeated() {
        for text in ["s3://key:secret@bucket/p", "s3://bucket/p?secret=1", "https://key:secret@host/"] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error, AddressError::HasCredentials);
            assert!(!error.to_string().contains("secret") && !format!("{error:?}").contains("secret"));
        }
    }

    #[test]
    fn a_folder_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        let address: Address = format!("file://{}", folder.path().display()).parse().unwrap();
        address.open().unwrap();
        let none: Address = format!("file://{}/none", folder.path().display()).parse().unwrap();
        assert!(none.open().unwrap_err().to_string().contains("/none"));
    }
}
