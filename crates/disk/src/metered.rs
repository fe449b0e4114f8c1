//! A disk that counts and times what it is asked for.

use crate::{Disk, File, Lock, Space};
use events::catalogue::{DiskAccess, DiskFigures};
use events::{Figures, Sharded};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Kinds of accesses, in the order of [`DiskMeter::figures`].
pub const ACCESSES: [&str; 3] = ["read", "write", "sync"];

/// A kind of access.
#[derive(Clone, Copy, Debug)]
enum Access {
    Read,
    Write,
    Sync,
}

/// What has been counted of one disk.
#[derive(Debug, Default)]
pub struct DiskMeter(Sharded<[DiskFigures; ACCESSES.len()]>);

impl DiskMeter {
    /// What happened with accesses of each kind.
    pub fn figures(&self) -> [DiskFigures; ACCESSES.len()] {
        let mut sums = <[DiskFigures; ACCESSES.len()]>::default();
        self.0.each(|shard| sums.iter_mut().zip(shard).for_each(|(sum, part)| sum.add(part)));
        sums
    }

    fn measure<T>(
        &self,
        access: Access,
        action: impl FnOnce() -> io::Result<T>,
        bytes: impl FnOnce(&T) -> u64,
    ) -> io::Result<T> {
        let begun = Instant::now();
        let result = action();
        let event = DiskAccess {
            access: ACCESSES[access as usize],
            failed: result.is_err().into(),
            moved: result.as_ref().map_or(0, bytes),
            time: u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
        };
        waits::disk(&event);
        self.0.mine()[access as usize].count(&event);
        result
    }
}

/// Another disk, measured: reads, writes and syncs of files, and syncs of folders.
pub struct MeteredDisk {
    disk: Arc<dyn Disk>,
    meter: Arc<DiskMeter>,
}

impl MeteredDisk {
    /// Measures `disk` with `meter`.
    pub fn new(disk: Arc<dyn Disk>, meter: Arc<DiskMeter>) -> MeteredDisk {
        MeteredDisk { disk, meter }
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(MeteredFile { file, meter: Arc::clone(&self.meter) })
    }
}

struct MeteredFile {
    file: Arc<dyn File>,
    meter: Arc<DiskMeter>,
}

impl Disk for MeteredDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
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
        self.meter.measure(Access::Sync, || self.disk.sync_dir(path), |()| 0)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.disk.lock(path)
    }
}

impl File for MeteredFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.meter.measure(Access::Read, || self.file.read_at(buffer, offset), |count| *count as u64)
    }

    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.meter.measure(Access::Write, || self.file.write_at(pieces, offset), |count| *count as u64)
    }

    fn write_direct_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let write = || self.file.write_direct_at(bytes, offset);
        self.meter.measure(Access::Write, write, |count| *count as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.meter.measure(Access::Sync, || self.file.sync_data(), |()| 0)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.meter.measure(Access::Sync, || self.file.sync_all(), |()| 0)
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

    #[test]
    fn accesses_are_counted_by_kind() {
        let folder = tempfile::tempdir().unwrap();
        let meter = Arc::new(DiskMeter::default());
        let disk = MeteredDisk::new(Arc::new(RealDisk), Arc::clone(&meter));
        let file = disk.create(&folder.path().join("f")).unwrap();
        file.write_all_at(&mut [IoSlice::new(b"hello"), IoSlice::new(b" you")], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(folder.path()).unwrap();
        let mut buffer = [0; 4];
        file.read_exact_at(&mut buffer, 5).unwrap();
        assert_eq!(file.read_at(&mut buffer, 100).unwrap(), 0);
        assert!(disk.sync_dir(&folder.path().join("none")).is_err());
        let [read, write, sync] = meter.figures();
        assert_eq!((read.accesses, read.moved, read.failed), (2, 4, 0));
        assert_eq!((write.accesses, write.moved, write.failed), (1, 9, 0));
        assert_eq!((sync.accesses, sync.moved, sync.failed), (3, 0, 1));
        assert_eq!(sync.time.count(), 3);
    }
}
