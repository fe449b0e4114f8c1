//! Addresses of buckets, as administrators write them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// An address: `s3://BUCKET/PREFIX`, or `file:///FOLDER` for a folder that several machines share. It contains no
/// credentials, so it can be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketAddress {
    place: BucketPlace,
    prefix: String,
}

/// Where a bucket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketPlace {
    /// The bucket of this name on an S3-compatible server.
    S3(String),
    /// A folder.
    Folder(PathBuf),
}

/// Text that is not the address of a bucket. It never repeats an address that may contain credentials.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BucketAddressError {
    /// It has another form.
    #[error("`{0}` is no bucket; valid are `s3://BUCKET/PREFIX` and `file:///FOLDER`")]
    Unknown(String),
    /// It has a user or a password.
    #[error("the address of a bucket must not contain credentials; put them into the environment or a file")]
    HasCredentials,
}

/// Longest name of a bucket, by S3's rules.
const BUCKET_NAME_MAX: usize = 63;

/// Longest prefix. S3 allows names of 1024 bytes; Cellar's own parts need less than 100.
const PREFIX_MAX: usize = 512;

impl FromStr for BucketAddress {
    type Err = BucketAddressError;

    fn from_str(text: &str) -> Result<BucketAddress, BucketAddressError> {
        if text.contains(['@', '?', '#']) {
            return Err(BucketAddressError::HasCredentials);
        }
        let unknown = || BucketAddressError::Unknown(crate::text::escape(text.as_bytes()));
        let (scheme, rest) = text.split_once("://").ok_or_else(unknown)?;
        match scheme {
            "file" if rest.starts_with('/') && rest.len() > 1 => {
                Ok(BucketAddress { place: BucketPlace::Folder(rest.into()), prefix: String::new() })
            }
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                let prefix = prefix.trim_matches('/');
                if !is_bucket(bucket) || !is_prefix(prefix) {
                    return Err(unknown());
                }
                Ok(BucketAddress { place: BucketPlace::S3(bucket.to_owned()), prefix: prefix.to_owned() })
            }
            _ => Err(unknown()),
        }
    }
}

fn is_bucket(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !name.is_empty() && name.len() <= BUCKET_NAME_MAX && name.bytes().all(is_valid)
}

/// Whether every part of the prefix is a plain name.
fn is_prefix(prefix: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+=".contains(&byte);
    let is_name = |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_valid);
    prefix.is_empty() || (prefix.len() <= PREFIX_MAX && prefix.split('/').all(is_name))
}

impl fmt::Display for BucketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            BucketPlace::S3(bucket) if self.prefix.is_empty() => write!(f, "s3://{bucket}"),
            BucketPlace::S3(bucket) => write!(f, "s3://{bucket}/{}", self.prefix),
            BucketPlace::Folder(path) => write!(f, "file://{}", path.display()),
        }
    }
}

impl BucketAddress {
    /// Returns where the bucket is.
    pub fn place(&self) -> &BucketPlace {
        &self.place
    }

    /// Returns the part of the address that precedes the names of all objects; empty for a folder.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the address of a place below this one.
    ///
    /// # Errors
    /// If `name` is not one plain name, or the address is too long.
    pub fn below(&self, name: &str) -> Result<BucketAddress, BucketAddressError> {
        let below = |prefix: &str| {
            if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") }
        };
        let (place, prefix) = match &self.place {
            BucketPlace::Folder(path) => (BucketPlace::Folder(path.join(name)), String::new()),
            place @ BucketPlace::S3(_) => (place.clone(), below(&self.prefix)),
        };
        let is_valid = !name.is_empty() && !name.contains('/') && is_prefix(name) && is_prefix(&prefix);
        let shown = || crate::text::escape(below(&self.to_string()).as_bytes());
        is_valid
            .then_some(BucketAddress { place, prefix })
            .ok_or_else(|| BucketAddressError::Unknown(shown()))
    }

    /// Returns the address of the place that this one is in; `None` for a whole bucket and for the folder `/` and those in it.
    #[must_use]
    pub fn above(&self) -> Option<BucketAddress> {
        let (place, prefix) = match &self.place {
            BucketPlace::Folder(path) => {
                let above = path.parent().filter(|above| above.parent().is_some())?;
                (BucketPlace::Folder(above.to_owned()), "")
            }
            BucketPlace::S3(_) if self.prefix.is_empty() => return None,
            place @ BucketPlace::S3(_) => {
                (place.clone(), self.prefix.rsplit_once('/').map_or("", |(above, _)| above))
            }
        };
        Some(BucketAddress { place, prefix: prefix.to_owned() })
    }

    /// Returns the folder, if it is one.
    pub fn folder(&self) -> Option<&Path> {
        match &self.place {
            BucketPlace::Folder(path) => Some(path),
            BucketPlace::S3(_) => None,
        }
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
            let address: BucketAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.prefix()), (text, prefix));
        }
        let address: BucketAddress = "s3://b//p/".parse().unwrap();
        assert_eq!((address.to_string().as_str(), address.folder()), ("s3://b/p", None));
        let folder: BucketAddress = "file:///srv/bucket".parse().unwrap();
        assert_eq!(folder.folder(), Some(Path::new("/srv/bucket")));
        let long = [format!("s3://{}", "b".repeat(64)), format!("s3://b/{}", "p".repeat(513))];
        for text in [
            "",
            "s3",
            "s3://",
            "s3:///p",
            "http://x/y",
            "file://relative",
            "file:///",
            "s3://a b",
            "s3://b/p//q",
            "s3://b/../c",
            "s3://b/%2e",
            &long[0],
            &long[1],
        ] {
            assert_eq!(
                text.parse::<BucketAddress>(),
                Err(BucketAddressError::Unknown(text.into())),
                "{text}"
            );
        }
    }

    #[test]
    fn each_place_is_in_one_above() {
        let above =
            |text: &str| text.parse::<BucketAddress>().unwrap().above().map(|above| above.to_string());
        for (text, expected) in [
            ("s3://x/cells/a", Some("s3://x/cells")),
            ("s3://x/cells", Some("s3://x")),
            ("s3://x", None),
            ("file:///srv/bucket/b/", Some("file:///srv/bucket")),
            ("file:///srv/bucket", Some("file:///srv")),
            ("file:///srv", None),
        ] {
            assert_eq!(above(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn places_below_an_address_have_plain_names() {
        for (text, below) in [
            ("s3://cellar", "s3://cellar/b"),
            ("s3://x/cells/a", "s3://x/cells/a/b"),
            ("file:///srv/bucket", "file:///srv/bucket/b"),
            ("file:///srv/bucket/", "file:///srv/bucket/b"),
        ] {
            let address: BucketAddress = text.parse().unwrap();
            assert_eq!(address.below("b"), below.parse());
            for name in ["", "..", "b/c", "/b", "b c"] {
                assert!(address.below(name).is_err(), "{text} {name:?}");
            }
        }
        let long: BucketAddress = format!("s3://b/{}", "p".repeat(PREFIX_MAX)).parse().unwrap();
        assert!(long.below("b").is_err());
    }

    #[test]
    fn credentials_in_an_address_are_refused_and_not_repeated() {
        for text in ["s3://key:secret@bucket/p", "s3://bucket/p?secret=1", "https://key:secret@host/"] {
            let error = text.parse::<BucketAddress>().unwrap_err();
            assert_eq!(error, BucketAddressError::HasCredentials);
            assert!(!error.to_string().contains("secret") && !format!("{error:?}").contains("secret"));
        }
    }
}
