//! The operating system's file systems.

use crate::{Disk, File, Lock, Space};
use parking_lot::Mutex;
use rustix::fs::{Advice, FlockOperation, OFlags, StatVfs, fadvise, flock, statvfs};
use rustix::io::{Errno, ReadWriteFlags, pwritev, pwritev2};
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Permission bits of new files and folders: other users of the machine must not read them.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The disks of this machine, through the operating system's page cache unless a method bypasses it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

struct RealFile {
    file: fs::File,
    /// The same file opened for direct I/O; `None` if its file system does not support it.
    direct: OnceLock<Option<Direct>>,
    /// Whether direct I/O was rejected: this device requires more than [`crate::DIRECT_ALIGNMENT`].
    is_refused: AtomicBool,
}

/// A file opened for direct I/O.
struct Direct {
    file: fs::File,
    /// Held during a write. ext4 allows only one writer while a file grows, and the waiting ones spin: 16 of
    /// them took five times the processor time of one.
    turn: Mutex<()>,
}

impl RealFile {
    fn handle(file: fs::File) -> Arc<dyn File> {
        Arc::new(RealFile { file, direct: OnceLock::new(), is_refused: AtomicBool::new(false) })
    }

    fn direct(&self) -> Option<&Direct> {
        if self.is_refused.load(Relaxed) {
            return None;
        }
        let open = || {
            // Opened through the descriptor, since the name may refer to another file by now.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = OFlags::DIRECT.bits() as i32;
            let file = fs::File::options().read(true).write(true).custom_flags(flags).open(path).ok()?;
            Some(Direct { file, turn: Mutex::default() })
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// Returns the result of a direct access; `None` if direct I/O was rejected, which disables it for this
    /// file.
    fn unless_refused(&self, done: io::Result<usize>) -> Option<io::Result<usize>> {
        let is_refused = done.as_ref().is_err_and(|error| Errno::from_io_error(error) == Some(Errno::INVAL));
        if is_refused {
            self.is_refused.store(true, Relaxed);
        }
        (!is_refused).then_some(done)
    }
}

/// Drops the system's cached pages of the files in `folder`, but not in its subfolders, so that subsequent
/// reads come from the device. Dirty pages are kept. Does nothing on file systems that do not support it.
///
/// # Errors
/// The folder, or a file that still exists, cannot be opened.
pub fn forget_cached(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        match fs::File::open(entry.path()) {
            Ok(file) => _ = fadvise(&file, 0, None, Advice::DontNeed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn space_of(facts: &StatVfs) -> Space {
    let privileged = facts.f_bfree.saturating_sub(facts.f_bavail);
    Space {
        total_bytes: facts.f_blocks.saturating_sub(privileged).saturating_mul(facts.f_frsize),
        free_bytes: facts.f_bavail.saturating_mul(facts.f_frsize),
    }
}

/// Holds the descriptor; closing it releases the lock.
struct RealLock(#[allow(dead_code, reason = "held for its lock, never read")] fs::File);

impl Lock for RealLock {}

impl Disk for RealDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(FOLDER_MODE).create(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::File::options().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
        Ok(RealFile::handle(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(RealFile::handle(fs::File::options().read(true).write(true).open(path)?))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        Ok(space_of(&statvfs(path)?))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut options = fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(RealLock(file)))
    }
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, buffer, offset)
    }

    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(pwritev(&self.file, pieces, offset)?)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        // With this flag, the offset is ignored.
        Ok(pwritev2(&self.file, &[IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND)?)
    }

    fn write_direct_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        if let Some(direct) = self.direct() {
            let turn = direct.turn.lock();
            let written = pwritev(&direct.file, pieces, offset).map_err(io::Error::from);
            drop(turn);
            if let Some(written) = self.unless_refused(written) {
                return written;
            }
        }
        self.write_at(pieces, offset)
    }

    fn read_direct_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(direct) = self.direct()
            && let Some(read) = self.unless_refused(direct.file.read_at(buffer, offset))
        {
            return read;
        }
        self.read_at(buffer, offset)
    }

    fn goes_past_cache(&self) -> bool {
        self.direct().is_some()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

#[cfg(test)]
mod tests;
