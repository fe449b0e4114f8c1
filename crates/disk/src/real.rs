//! The operating system's file systems.

use crate::{Disk, File, Lock, Space};
use parking_lot::Mutex;
use rustix::fs::{Advice, FlockOperation, OFlags, StatVfs, fadvise, flock, statvfs};
use rustix::io::{Errno, pwritev};
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Permission bits of what is made: other users of the machine must not read it.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The disks of this machine, through the operating system's page cache unless a call says otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

struct RealFile {
    file: fs::File,
    /// The same file, opened to go past the page cache; without one if its file system cannot do that.
    direct: OnceLock<Option<Direct>>,
    /// Such an access was refused: this device wants more than [`crate::DIRECT_ALIGNMENT`].
    is_refused: AtomicBool,
}

/// A file that is written and read past the page cache.
struct Direct {
    file: fs::File,
    /// Held while one writes. ext4 lets nobody else write meanwhile where the file grows, and those who wait for
    /// that spin: 16 of them took five times the processor time of one.
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
            // By the descriptor: the name may be another file's by now.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = OFlags::DIRECT.bits() as i32;
            let file = fs::File::options().read(true).write(true).custom_flags(flags).open(path).ok()?;
            Some(Direct { file, turn: Mutex::default() })
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// What came of an access past the page cache; `None` if it was refused, and none is tried again.
    fn unless_refused(&self, done: io::Result<usize>) -> Option<io::Result<usize>> {
        let is_refused = done.as_ref().is_err_and(|error| Errno::from_io_error(error) == Some(Errno::INVAL));
        if is_refused {
            self.is_refused.store(true, Relaxed);
        }
        (!is_refused).then_some(done)
    }
}

/// Lets the system forget what it has cached of the files in `folder`, those of folders in it not, so that what is read
/// next comes from the device. What is still to be written stays. Where a file system cannot do that, nothing happens.
///
/// # Errors
/// The folder, or a file that is there still, cannot be opened.
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

/// Holds the descriptor whose closing gives the lock back.
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
