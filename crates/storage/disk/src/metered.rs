//! A disk that counts and times its operations.

use crate::{Disk, File, Lock, Space};
use events::catalogue::{DiskAccess, DiskFigures};
use events::{Figures, Sharded};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Kinds of access, in the order of [`DiskMeter::figures`].
pub const ACCESSES: [&str; 3] = ["read", "write", "sync"];

/// Kind of access.
#[derive(Clone, Copy, Debug)]
enum Access {
    Read,
    Write,
    Sync,
}

/// Data transferred by a successful access.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    bytes: u64,
    /// Whether it was meant to bypass the system's cache, and did not.
    is_buffered: bool,
}

impl Moved {
    fn bytes(count: usize) -> Moved {
        Moved { bytes: count as u64, is_buffered: false }
    }
}

/// Counters of one disk.
#[derive(Debug, Default)]
pub struct DiskMeter(Sharded<[DiskFigures; ACCESSES.len()]>);

impl DiskMeter {
    /// Returns the figures for each kind of access.
    pub fn figures(&self) -> [DiskFigures; ACCESSES.len()] {
        let mut sums = <[DiskFigures; ACCESSES.len()]>::default();
        self.0.each(|shard| sums.iter_mut().zip(shard).for_each(|(sum, part)| sum.add(part)));
        sums
    }

    fn measure<T>(
        &self,
        access: Access,
        action: impl FnOnce() -> io::Result<T>,
        moved: impl FnOnce(&T) -> Moved,
    ) -> io::Result<T> {
        let begun = Instant::now();
        let result = action();
        let time = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let Moved { bytes, is_buffered } = result.as_ref().map_or_else(|_| Moved::default(), moved);
        let event = DiskAccess {
            access: ACCESSES[access as usize],
            failed: result.is_err().into(),
            buffered: is_buffered.into(),
            moved: bytes,
            time,
        };
        waits::disk(&event);
        self.0.mine()[access as usize].count(&event);
        result
    }
}

/// Wraps another disk and measures reads, writes and syncs of files, and syncs of folders.
pub struct MeteredDisk {
    disk: Arc<dyn Disk>,
    meter: Arc<DiskMeter>,
}

impl MeteredDisk {
    /// Wraps `disk` and counts its accesses in `meter`.
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
        self.meter.measure(Access::Sync, || self.disk.sync_dir(path), |()| Moved::default())
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
        self.meter.measure(Access::Read, || self.file.read_at(buffer, offset), |count| Moved::bytes(*count))
    }

    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.meter.measure(Access::Write, || self.file.write_at(pieces, offset), |count| Moved::bytes(*count))
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.meter.measure(Access::Write, || self.file.append(bytes), |count| Moved::bytes(*count))
    }

    fn write_direct_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let write = || self.file.write_direct_at(pieces, offset);
        let moved =
            |count: &usize| Moved { is_buffered: !self.file.goes_past_cache(), ..Moved::bytes(*count) };
        self.meter.measure(Access::Write, write, moved)
    }

    fn read_direct_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = || self.file.read_direct_at(buffer, offset);
        self.meter.measure(Access::Read, read, |count| Moved::bytes(*count))
    }

    fn goes_past_cache(&self) -> bool {
        self.file.goes_past_cache()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.meter.measure(Access::Sync, || self.file.sync_data(), |()| Moved::default())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.meter.measure(Access::Sync, || self.file.sync_all(), |()| Moved::default())
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
    use crate::{HookedDisk, RealDisk};

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

    #[test]
    fn writes_that_failed_to_bypass_the_cache_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let meter = Arc::new(DiskMeter::default());
        let buffered = HookedDisk::new(Arc::new(RealDisk), |_| ()).buffered();
        let disk = MeteredDisk::new(Arc::new(buffered), Arc::clone(&meter));
        let file = disk.create(&folder.path().join("f")).unwrap();
        let memory = vec![7; 3 * crate::DIRECT_ALIGNMENT];
        let block =
            &memory[memory.as_ptr().align_offset(crate::DIRECT_ALIGNMENT)..][..crate::DIRECT_ALIGNMENT];
        file.write_all_direct_at(&mut [IoSlice::new(block)], 0).unwrap();
        assert!(!file.goes_past_cache());
        // Not meant to bypass the cache, since it is not a whole block.
        file.write_all_direct_at(&mut [IoSlice::new(&block[..100])], 0).unwrap();
        file.write_all_at(&mut [IoSlice::new(block)], 0).unwrap();
        let [_, write, _] = meter.figures();
        assert_eq!((write.accesses, write.buffered, write.moved), (3, 1, 4096 + 100 + 4096));
    }
}
