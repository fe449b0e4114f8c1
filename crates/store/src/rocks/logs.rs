//! Makes RocksDB's write-ahead log durable.
//!
//! RocksDB can sync the log itself. But built with assertions, as Debian's is, it aborts the process when it is asked to
//! sync a log to which a write failed, and a write on another thread can fail at any moment. RocksDB hands each commit to
//! the operating system before the commit returns, so syncing the files through handles of our own is enough. An error
//! of that sync never reaches RocksDB.

use crate::StoreError;
use crate::home::failed;
use disk::{Disk, File};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the names of log files end; a decimal number stands before it.
const SUFFIX: &str = ".log";

/// The log files of one database.
pub(super) struct Logs {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Guards the handles. Only one sync runs at a time, so nothing waits for it.
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The layout of the database when the folder was last listed.
    layout: Option<u64>,
    logs: BTreeMap<u64, Log>,
}

struct Log {
    file: Arc<dyn File>,
    /// The length that the last sync covered. Logs only grow.
    synced_bytes: u64,
}

impl Logs {
    pub(super) fn new(disk: Arc<dyn Disk>, folder: &Path) -> Logs {
        Logs { disk, folder: folder.to_owned(), known: Mutex::default() }
    }

    /// Makes everything durable that was in the logs when it was called.
    ///
    /// `layout` is a number that grows whenever the database begins a log, read before the call; without one the folder
    /// is listed every time.
    ///
    /// # Errors
    /// `Io`. What is durable is unknown then.
    pub(super) fn sync(&self, layout: Option<u64>) -> Result<(), StoreError> {
        let mut known = self.known.lock();
        if layout.is_none() || known.layout != layout {
            self.find(&mut known.logs)?;
            known.layout = layout;
        }
        for (number, log) in &mut known.logs {
            log.sync().map_err(|error| failed("sync", &self.path(*number), error))?;
        }
        Ok(())
    }

    /// Opens logs that are new, makes their names durable, and forgets deleted ones: all that these had is in tables.
    fn find(&self, logs: &mut BTreeMap<u64, Log>) -> Result<(), StoreError> {
        let names = self.disk.list(&self.folder).map_err(|error| failed("list", &self.folder, error))?;
        let numbers: Vec<u64> =
            names.iter().filter_map(|name| name.strip_suffix(SUFFIX)?.parse().ok()).collect();
        logs.retain(|number, _| numbers.contains(number));
        let before = logs.len();
        for number in numbers {
            if logs.contains_key(&number) {
                continue;
            }
            match self.disk.open(&self.path(number)) {
                Ok(file) => _ = logs.insert(number, Log { file, synced_bytes: 0 }),
                // Deleted meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed("open", &self.path(number), error)),
            }
        }
        if logs.len() > before {
            self.disk.sync_dir(&self.folder).map_err(|error| failed("sync", &self.folder, error))?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn forget(&self) {
        *self.known.lock() = Known::default();
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:06}{SUFFIX}"))
    }
}

impl Log {
    fn sync(&mut self) -> io::Result<()> {
        let length = self.file.length()?;
        if length > self.synced_bytes {
            self.file.sync_data()?;
            self.synced_bytes = length;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
