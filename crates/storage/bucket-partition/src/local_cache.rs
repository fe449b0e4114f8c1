//! The folder on the local disk for copies.
//!
//! `LOCK` keeps a second process out, `chunks` has records of chunks, and `tables` has parts of SlateDB's tables, whose
//! names are unique. Both are checksummed, and damaged copies are read from the bucket again.

use crate::LocalCache;
use crate::errors::io_error;
use disk::{Disk, Lock};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{DiskCache, DiskCacheConfig, StoreError};
use uuid::Uuid;

const LOCK: &str = "LOCK";

/// Memory for addresses is bounded by one entry for this many bytes of the cache, and a maximum.
const BYTES_PER_ENTRY: u64 = 16 << 10;
const ENTRIES_MIN: u64 = 1 << 10;
const ENTRIES_MAX: u64 = 1 << 20;

impl LocalCache {
    /// Creates the folder if necessary, and locks it.
    ///
    /// # Errors
    /// `Io`, also if another process has locked it.
    pub(crate) fn prepare(&self, disk: &dyn Disk) -> Result<Box<dyn Lock>, StoreError> {
        for folder in [&self.folder, &self.chunks()] {
            create_all(disk, folder).map_err(|source| failed("create", folder, source))?;
        }
        let path = self.folder.join(LOCK);
        disk.lock(&path).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => io_error(
                "lock",
                &path,
                ErrorKind::WouldBlock,
                "another partition or process uses this folder for its copies; each partition needs its own",
            ),
            _ => failed("lock", &path, error),
        })
    }

    /// Opens the copies of chunks of a partition.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open_chunks(&self, disk: &Arc<dyn Disk>, partition: Uuid) -> Result<DiskCache, StoreError> {
        let config = DiskCacheConfig {
            folder: self.chunks(),
            bytes_max: self.bytes_max - self.bytes_max / 4,
            entries_max: (self.bytes_max / BYTES_PER_ENTRY).clamp(ENTRIES_MIN, ENTRIES_MAX) as usize,
            owner: *partition.as_bytes(),
        };
        DiskCache::open(Arc::clone(disk), config)
    }

    /// Returns the folder and the size for tables.
    pub(crate) fn tables(&self) -> (PathBuf, usize) {
        (self.folder.join("tables"), usize::try_from(self.bytes_max / 4).unwrap_or(usize::MAX))
    }

    fn chunks(&self) -> PathBuf {
        self.folder.join("chunks")
    }
}

/// Creates a folder and its missing parents. Nothing in them has to survive a crash.
fn create_all(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    if disk.exists(folder)? {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        create_all(disk, parent)?;
    }
    match disk.create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { doing, path: path.display().to_string(), source }
}
