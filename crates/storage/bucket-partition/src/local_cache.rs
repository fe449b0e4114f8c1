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

/// The copies of one partition.
pub(crate) struct Copies {
    pub(crate) chunks: DiskCache,
    /// Keeps other processes out of the folder.
    pub(crate) lock: Box<dyn Lock>,
}

impl LocalCache {
    /// Opens the copies of a partition. An error of the local disk is logged, and the partition has none then.
    ///
    /// # Errors
    /// `Io` if another process or partition has locked the folder.
    pub(crate) fn open_if_usable(
        &self,
        disk: &Arc<dyn Disk>,
        partition: Uuid,
    ) -> Result<Option<Copies>, StoreError> {
        match self.open(disk, partition) {
            Err(error) if !is_locked(&error) => {
                tracing::error!(%error, "the partition is opened without copies on the local disk");
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// Opens the copies of a partition.
    ///
    /// # Errors
    /// `Io`, also if another process has locked the folder.
    pub(crate) fn open(&self, disk: &Arc<dyn Disk>, partition: Uuid) -> Result<Copies, StoreError> {
        let lock = self.prepare(&**disk)?;
        Ok(Copies { chunks: self.open_chunks(disk, partition)?, lock })
    }

    /// Creates the folder if necessary, and locks it.
    fn prepare(&self, disk: &dyn Disk) -> Result<Box<dyn Lock>, StoreError> {
        for folder in [&self.folder, &self.chunks(), &self.tables().0] {
            create_all(disk, folder).map_err(|source| failed("create", folder, source))?;
        }
        // SlateDB would find a file in the place of its folder only while it writes there.
        let (tables, _) = self.tables();
        disk.list(&tables).map_err(|source| failed("list", &tables, source))?;
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

    fn open_chunks(&self, disk: &Arc<dyn Disk>, partition: Uuid) -> Result<DiskCache, StoreError> {
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

fn is_locked(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == ErrorKind::WouldBlock)
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
