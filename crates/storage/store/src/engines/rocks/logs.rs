//! Makes RocksDB's write-ahead log durable.
//!
//! RocksDB can sync the log itself. But when built with assertions, as in Debian, it aborts the process if
//! asked to sync a log after a failed write to it, and a write on another thread can fail at any moment.
//! RocksDB hands each commit to the operating system before the commit returns, so it is enough to sync the
//! files through separate handles. An error of such a sync never reaches RocksDB.
//!
//! A sync of a file that has grown waits for the file system's journal too. So zeros are appended to the log
//! ahead of RocksDB, which writes at its own position, over them: nearly all syncs then find a file of
//! unchanged length whose blocks are allocated. RocksDB cuts the rest off when it closes the log, and skips
//! it when it reads the log after a crash; see [`super::gaps`].

use super::survey::{BLOCK_BYTES, HEADER_BYTES, SUFFIX};
use crate::StoreError;
use crate::home::failed;
use disk::{Disk, File};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Zeros appended to a new log, in bytes.
const AHEAD_BYTES: usize = 512 << 10;
/// Zeros appended later, as often as about this much has been written.
const STEP_BYTES: usize = 256 << 10;
/// What is appended. A buffer allocated for each append would have to be cleared each time.
static ZEROS: [u8; STEP_BYTES] = [0; STEP_BYTES];

/// The log files of one database.
pub(super) struct Logs {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Guards the handles. Only one sync runs at a time, so the lock is uncontended.
    known: Mutex<Known>,
}

/// What had been written to all logs together at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Number of commits.
    pub(super) commits: u64,
    /// Bytes of their batches. May include some later ones.
    pub(super) bytes: u64,
}

#[derive(Default)]
struct Known {
    /// Layout of the database when the folder was last listed.
    layout: Option<u64>,
    /// Commits covered by the last sync.
    synced_commits: Option<u64>,
    logs: BTreeMap<u64, Log>,
}

struct Log {
    file: Arc<dyn File>,
    /// Whether a sync succeeded after a newer log existed. Nothing is written to it any more.
    is_settled: bool,
    zeros: Zeros,
}

/// Whether zeros are appended to a log.
enum Zeros {
    NoneYet,
    /// What had been written when the last ones were appended.
    Since(Written),
    /// They could not be appended, for example because the disk is full. The log grows without them.
    Refused,
}

impl Written {
    /// Returns the approximate size in the log of what was written since `earlier`, headers included.
    fn log_bytes_since(self, earlier: Written) -> u64 {
        let (commits, bytes) = (self.commits - earlier.commits, self.bytes - earlier.bytes);
        bytes + HEADER_BYTES as u64 * (commits + bytes / BLOCK_BYTES as u64)
    }
}

impl Logs {
    pub(super) fn new(disk: Arc<dyn Disk>, folder: &Path) -> Logs {
        Logs { disk, folder: folder.to_owned(), known: Mutex::default() }
    }

    /// Makes everything durable that was in the logs when it was called, unless all these commits are durable; returns
    /// whether it did.
    ///
    /// `layout` is a number that grows whenever the database starts a log. If it is `None`, the folder is
    /// listed every time. Both it and `written` were read before the call.
    ///
    /// # Errors
    /// `Io`. It is unknown then what is durable.
    pub(super) fn sync(&self, layout: Option<u64>, written: Written) -> Result<bool, StoreError> {
        let known = &mut *self.known.lock();
        if known.synced_commits == Some(written.commits) {
            return Ok(false);
        }
        if layout.is_none() || known.layout != layout {
            self.find(&mut known.logs)?;
            known.layout = layout;
        }
        let newest = known.logs.keys().next_back().copied();
        for (number, log) in known.logs.iter_mut().filter(|(_, log)| !log.is_settled) {
            let is_newest = Some(*number) == newest;
            if is_newest {
                log.prepare(written);
            }
            log.file.sync_data().map_err(|error| failed("sync", &self.path(*number), error))?;
            log.is_settled = !is_newest;
        }
        known.synced_commits = Some(written.commits);
        Ok(true)
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
                Ok(file) => _ = logs.insert(number, Log { file, is_settled: false, zeros: Zeros::NoneYet }),
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
    /// Appends zeros if few are left. The next sync makes them durable.
    fn prepare(&mut self, written: Written) {
        let bytes = match self.zeros {
            Zeros::NoneYet => AHEAD_BYTES,
            Zeros::Since(earlier) if written.log_bytes_since(earlier) >= STEP_BYTES as u64 => STEP_BYTES,
            Zeros::Since(_) | Zeros::Refused => return,
        };
        // Without zeros, syncs are only slower; if the file cannot be written, the sync reports it.
        self.zeros = match self.append_zeros(bytes) {
            Ok(()) => Zeros::Since(written),
            Err(_) => Zeros::Refused,
        };
    }

    /// Appends at least this many zeros. RocksDB may write at the same time, so they are always written at the
    /// file's end, never at an offset.
    fn append_zeros(&self, bytes: usize) -> io::Result<()> {
        let mut done = 0;
        while done < bytes {
            match self.file.append(&ZEROS[..ZEROS.len().min(bytes - done)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // RocksDB takes less than a header at the end for a torn one, even if it is zeros.
        let rest = self.file.length()? % BLOCK_BYTES as u64;
        if (1..HEADER_BYTES as u64).contains(&rest) {
            self.file.append(&ZEROS[..HEADER_BYTES])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
