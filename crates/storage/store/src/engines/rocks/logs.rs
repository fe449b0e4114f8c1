//! Makes RocksDB's write-ahead log durable.
//!
//! RocksDB can sync the log itself. But when built with assertions, as in Debian, it aborts the process if
//! asked to sync a log after a failed write to it, and a write on another thread can fail at any moment.
//! RocksDB hands each commit to the operating system before the commit returns, so it is enough to sync the
//! files through separate handles. An error of such a sync never reaches RocksDB.

use crate::StoreError;
use crate::home::failed;
use disk::{Disk, File};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Suffix of log file names; the rest is a decimal number.
const SUFFIX: &str = ".log";

/// The log files of one database.
pub(super) struct Logs {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Guards the handles. Only one sync runs at a time, so the lock is uncontended.
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Layout of the database when the folder was last listed.
    layout: Option<u64>,
    logs: BTreeMap<u64, Log>,
}

struct Log {
    file: Arc<dyn File>,
    /// Length covered by the last sync. Logs only grow.
    synced_bytes: u64,
}

impl Logs {
    pub(super) fn new(disk: Arc<dyn Disk>, folder: &Path) -> Logs {
        Logs { disk, folder: folder.to_owned(), known: Mutex::default() }
    }

    /// Makes everything durable that was in the logs when it was called.
    ///
    /// `layout` is a number that grows whenever the database starts a log, read before the call. If it is
    /// `None`, the folder is listed every time.
    ///
    /// # Errors
    /// `Io`. It is unknown then what is durable.
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

    /// Opens new logs, makes their names durable, and forgets deleted ones, whose contents are all in tables.
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
                // Deleted in the meantime.
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
