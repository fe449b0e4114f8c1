//! A disk that runs a test's hook before each operation, for example to wait, count or block a caller.

use crate::{Disk, File, Lock, Space};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

/// Kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskStep {
    /// A file is created.
    Create,
    /// A file is read.
    Read,
    /// A file is written.
    Write,
    /// A file or a folder is made durable.
    Sync,
}

type Hook = Arc<dyn Fn(DiskStep) + Send + Sync>;

/// Wraps another disk and calls a function before each step, on the calling thread.
pub struct HookedDisk {
    disk: Arc<dyn Disk>,
    hook: Hook,
    /// Whether its files do not support direct I/O.
    is_buffered: bool,
}

impl HookedDisk {
    /// Wraps `disk` so that `hook` is called before each [`DiskStep`].
    pub fn new(disk: Arc<dyn Disk>, hook: impl Fn(DiskStep) + Send + Sync + 'static) -> HookedDisk {
        HookedDisk { disk, hook: Arc::new(hook), is_buffered: false }
    }

    /// Makes the disk behave like a file system without direct I/O.
    #[must_use]
    pub fn buffered(self) -> HookedDisk {
        HookedDisk { is_buffered: true, ..self }
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HookedFile { file, hook: Arc::clone(&self.hook), is_buffered: self.is_buffered })
    }
}

impl Disk for HookedDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        (self.hook)(DiskStep::Create);
        self.disk.create(path).map(|file| self.file(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.open(path).map(|file| self.file(file))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        (self.hook)(DiskStep::Sync);
        self.disk.sync_dir(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.disk.lock(path)
    }
}

struct HookedFile {
    file: Arc<dyn File>,
    hook: Hook,
    is_buffered: bool,
}

impl File for HookedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (self.hook)(DiskStep::Read);
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        (self.hook)(DiskStep::Write);
        self.file.write_at(pieces, offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        (self.hook)(DiskStep::Write);
        self.file.append(bytes)
    }

    fn write_direct_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        (self.hook)(DiskStep::Write);
        if self.is_buffered {
            return self.file.write_at(pieces, offset);
        }
        self.file.write_direct_at(pieces, offset)
    }

    fn read_direct_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (self.hook)(DiskStep::Read);
        self.file.read_direct_at(buffer, offset)
    }

    fn goes_past_cache(&self) -> bool {
        !self.is_buffered && self.file.goes_past_cache()
    }

    fn sync_data(&self) -> io::Result<()> {
        (self.hook)(DiskStep::Sync);
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        (self.hook)(DiskStep::Sync);
        self.file.sync_all()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealDisk;
    use parking_lot::Mutex;

    #[test]
    fn each_step_is_announced_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let reported = Arc::new(Mutex::new(Vec::new()));
        let (log, of_path) = (reported.clone(), path.clone());
        let hook = move |step| log.lock().push((step, of_path.exists()));
        let disk = HookedDisk::new(Arc::new(RealDisk), hook);
        let file = disk.create(&path).unwrap();
        file.write_at(&[IoSlice::new(b"hello")], 0).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        disk.sync_dir(folder.path()).unwrap();
        let mut buffer = [0; 5];
        disk.open(&path).unwrap().read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"hello");
        let steps = [DiskStep::Write, DiskStep::Sync, DiskStep::Sync, DiskStep::Sync, DiskStep::Read];
        let expected: Vec<_> =
            [(DiskStep::Create, false)].into_iter().chain(steps.map(|step| (step, true))).collect();
        assert_eq!(*reported.lock(), expected);
    }
}
