//! The small objects that describe a partition: its version and the ring of its data keys.
//!
//! A partition is created in this order: `VERSION.new` with its UUID, everything else, `VERSION` with the same UUID. So
//! one with `VERSION` is complete, and the next open completes one that has only `VERSION.new`, under the same UUID.
//! `VERSION.new` stays: a process that has found no partition just before another created one does not begin a second.

use crate::errors::failed;
use bucket::Objects;
use bytes::Bytes;
use std::path::{Path, PathBuf};
use store::{BucketVersion, KeyFile, StoreError};

const KEYS: &str = "KEYS";

/// Folder of the metadata.
pub(crate) const META: &str = "meta";

/// Folder of the file data.
pub(crate) const CHUNKS: &str = "chunks";

/// The small objects of one partition.
pub(crate) struct Home {
    pub(crate) objects: Objects,
    /// The address of the partition.
    pub(crate) place: PathBuf,
}

impl Home {
    /// Returns the version of the partition; `None` if there is no complete one.
    ///
    /// # Errors
    /// `Damaged` if the object is not a version; `Io` if a newer program created it; `Unavailable`.
    pub(crate) fn find(&self) -> Result<Option<BucketVersion>, StoreError> {
        self.read(BucketVersion::NAME)
    }

    /// Begins a partition, or returns the version of one that was begun.
    ///
    /// # Errors
    /// `Damaged` if there is data, but no version; those of [`Home::find`].
    pub(crate) fn begin(&self) -> Result<BucketVersion, StoreError> {
        if let Some(begun) = self.read(BucketVersion::NAME_NEW)? {
            return Ok(begun);
        }
        if let Err(error) = self.check_empty() {
            // What is there may be of a process that began the partition after the read above.
            return self.read(BucketVersion::NAME_NEW)?.ok_or(error);
        }
        let version = BucketVersion::random();
        if self.create(BucketVersion::NAME_NEW, version)? {
            return Ok(version);
        }
        // Another process has just begun it.
        self.read(BucketVersion::NAME_NEW)?.ok_or_else(|| StoreError::Damaged {
            place: self.place.join(BucketVersion::NAME_NEW).display().to_string(),
            what: "it exists, but cannot be found".into(),
        })
    }

    /// Marks the partition as complete. Call it once everything else is in the bucket.
    ///
    /// # Errors
    /// `Damaged` if another one is there; `Unavailable`.
    pub(crate) fn finish(&self, version: BucketVersion) -> Result<(), StoreError> {
        if self.create(BucketVersion::NAME, version)? {
            return Ok(());
        }
        Err(StoreError::Damaged {
            place: self.place.join(BucketVersion::NAME).display().to_string(),
            what: format!("it is not that of the partition {}, which was being created", version.uuid),
        })
    }

    fn read(&self, name: &str) -> Result<Option<BucketVersion>, StoreError> {
        let place = self.place.join(name);
        let found = self.objects.read_small(name, BucketVersion::BYTES_MAX);
        let found = found.map_err(|error| failed("read", &place, error))?;
        found.map(|contents| BucketVersion::parse(&contents, &place)).transpose()
    }

    fn create(&self, name: &str, version: BucketVersion) -> Result<bool, StoreError> {
        let created = self.objects.create_small(name, &version.contents().into());
        created.map_err(|error| failed("create", &self.place.join(name), error))
    }

    /// Data without a version must not be taken for nothing.
    fn check_empty(&self) -> Result<(), StoreError> {
        for folder in [META, CHUNKS] {
            let has_data = self.objects.has_below(folder);
            if has_data.map_err(|error| failed("list", &self.place.join(folder), error))? {
                return Err(self.without_version(&format!("{folder}/")));
            }
        }
        if self.read_keys(0)?.is_some() {
            return Err(self.without_version(KEYS));
        }
        Ok(())
    }

    fn without_version(&self, name: &str) -> StoreError {
        let what = format!("there is {name}, but no {} object", BucketVersion::NAME);
        StoreError::Damaged { place: self.place.display().to_string(), what }
    }

    fn read_keys(&self, bytes_max: usize) -> Result<Option<Bytes>, StoreError> {
        let found = self.objects.read_small(KEYS, bytes_max);
        found.map_err(|error| failed("read", &self.place.join(KEYS), error))
    }
}

impl KeyFile for Home {
    fn read(&self, bytes_max: usize) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.read_keys(bytes_max)?.map(Vec::from))
    }

    fn replace(&self, old: Option<&[u8]>, new: &[u8]) -> Result<bool, StoreError> {
        let new = Bytes::copy_from_slice(new);
        let replaced = match old {
            None => self.objects.create_small(KEYS, &new),
            Some(old) => self.objects.replace_small(KEYS, old, &new),
        };
        replaced.map_err(|error| failed("write", &self.place.join(KEYS), error))
    }

    fn folder(&self) -> &Path {
        &self.place
    }
}
