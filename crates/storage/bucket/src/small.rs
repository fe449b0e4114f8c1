//! Small objects that are read as a whole, and may be replaced.

use crate::Objects;
use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path as Name;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use store::BucketError;

/// The error of an object that exists and does not.
fn unsettled(name: &Name) -> Error {
    Error::Generic { store: "bucket", source: format!("{name} exists already, but cannot be found").into() }
}

impl Objects {
    /// Returns the contents of an object, or the first `bytes_max` + 1 bytes if it is longer; `None` if there is none.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`.
    pub fn read_small(&self, name: &str, bytes_max: usize) -> Result<Option<Bytes>, BucketError> {
        let full = self.name(name);
        let read = self.repeat(&format!("read {full}"), async || self.get_small(&full, bytes_max).await);
        match read {
            Ok((contents, _)) => Ok(Some(contents)),
            Err(BucketError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object if there is none of this name. Returns whether it has these contents now; if not, it was there
    /// with others.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`: it may be created later.
    pub fn create_small(&self, name: &str, contents: &Bytes) -> Result<bool, BucketError> {
        let full = self.name(name);
        self.repeat(&format!("create {full}"), async || {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.bucket.put_opts(&full, contents.clone().into(), options).await {
                // Perhaps by an earlier request of this call, whose answer was lost or is this one.
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                    match self.get_small(&full, contents.len()).await {
                        // What exists is not there yet, or the request was refused for another one that failed.
                        Err(Error::NotFound { .. }) => Err(unsettled(&full)),
                        found => found.map(|(found, _)| found == *contents),
                    }
                }
                created => created.map(|_| true),
            }
        })
    }

    /// Replaces an object whose contents are `old`. Returns whether it has the contents `new` now; if not, it has others
    /// than `old`, or does not exist. In a bucket that replaces nothing conditionally, a replacement by another process
    /// at the same moment may be lost.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`: it may be replaced later.
    pub fn replace_small(&self, name: &str, old: &[u8], new: &Bytes) -> Result<bool, BucketError> {
        let full = self.name(name);
        let bytes_max = old.len().max(new.len());
        let replaced = self.repeat(&format!("replace {full}"), async || {
            let (found, version) = self.get_small(&full, bytes_max).await?;
            if found == *new {
                return Ok(true);
            }
            if found != old {
                return Ok(false);
            }
            let put = async |mode| {
                let options = PutOptions { mode, ..PutOptions::default() };
                self.bucket.put_opts(&full, new.clone().into(), options).await
            };
            match put(PutMode::Update(version)).await {
                Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                    put(PutMode::Overwrite).await.map(|_| true)
                }
                // After a precondition that failed, the next attempt reads the object again.
                other => other.map(|_| true),
            }
        });
        match replaced {
            Err(BucketError::Missing { .. }) => Ok(false),
            other => other,
        }
    }

    /// Whether there is any object below this folder.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`.
    pub fn has_below(&self, folder: &str) -> Result<bool, BucketError> {
        let full = self.name(folder);
        let first = self
            .repeat(&format!("list {full}"), async || self.bucket.list(Some(&full)).next().await.transpose());
        first.map(|first| first.is_some())
    }

    /// Reads at most `bytes_max` + 1 bytes of an object, and which version of it that was.
    async fn get_small(&self, full: &Name, bytes_max: usize) -> Result<(Bytes, UpdateVersion), Error> {
        let found = self.bucket.head(full).await?;
        let version = UpdateVersion { e_tag: found.e_tag.clone(), version: found.version.clone() };
        let bytes = found.size.min(bytes_max as u64 + 1);
        if bytes == 0 {
            // No part of an empty object can be requested.
            return Ok((Bytes::new(), version));
        }
        let options =
            GetOptions { range: Some((0..bytes).into()), if_match: found.e_tag, ..GetOptions::default() };
        Ok((self.bucket.get_opts(full, options).await?.bytes().await?, version))
    }
}
