//! Where the ring of a partition's data keys is kept.

use crate::StoreError;
use crate::home::failed;
use disk::Disk;
use std::io::IoSlice;
use std::path::Path;

const FILE: &str = "KEYS";
const FILE_NEW: &str = "KEYS.new";

/// The file or object that holds the ring of a partition's data keys, if there is one.
pub trait KeyFile {
    /// Returns its contents, and not much more than `bytes_max` of them if it is longer; `None` if there is none.
    ///
    /// # Errors
    /// `Io`, `Unavailable`.
    fn read(&self, bytes_max: usize) -> Result<Option<Vec<u8>>, StoreError>;

    /// Replaces `old`, what was read, by `new`, durably and as a whole: a crash leaves either. Returns whether it was
    /// replaced; if not, another process has created or replaced it meanwhile.
    ///
    /// # Errors
    /// `Io`, `Unavailable`: it holds the old or the new contents.
    fn replace(&self, old: Option<&[u8]>, new: &[u8]) -> Result<bool, StoreError>;

    /// Returns the folder or the prefix that holds it, for messages.
    fn folder(&self) -> &Path;
}

/// A file in the folder of a partition that this process has locked.
pub(super) struct KeysOnDisk<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) folder: &'a Path,
}

impl KeyFile for KeysOnDisk<'_> {
    fn read(&self, bytes_max: usize) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.folder.join(FILE);
        if !self.disk.exists(&path).map_err(|error| failed("look for", &path, error))? {
            return Ok(None);
        }
        let fail = |error| failed("read", &path, error);
        let file = self.disk.open(&path).map_err(fail)?;
        let mut bytes = vec![0; file.length().map_err(fail)?.min(bytes_max as u64 + 1) as usize];
        file.read_exact_at(&mut bytes, 0).map_err(fail)?;
        Ok(Some(bytes))
    }

    /// The lock excludes other processes.
    fn replace(&self, _old: Option<&[u8]>, new: &[u8]) -> Result<bool, StoreError> {
        let (disk, folder) = (self.disk, self.folder);
        let (path_new, path) = (folder.join(FILE_NEW), folder.join(FILE));
        let fail = |error| failed("write", &path_new, error);
        let is_there = disk.exists(&path_new).map_err(fail)?;
        let file = if is_there { disk.open(&path_new) } else { disk.create(&path_new) }.map_err(fail)?;
        file.set_len(0).map_err(fail)?;
        file.write_all_at(&mut [IoSlice::new(new)], 0).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        disk.rename(&path_new, &path).map_err(|error| failed("rename", &path_new, error))?;
        disk.sync_dir(folder).map_err(|error| failed("sync", folder, error))?;
        Ok(true)
    }

    fn folder(&self) -> &Path {
        self.folder
    }
}
