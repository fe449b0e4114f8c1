//! A disk in memory that loses, tears and reorders everything that it may, controlled by a seed.
//!
//! Every file and folder is kept in two states: as seen by a running program, and as certainly stored on the
//! platter. Between the two is the list of changes that no sync covered. A [crash](FaultyDisk::crash) decides
//! for every sector of a file, and for the file's length, how many of the changes to it arrived, and for
//! every change of a name whether it arrived.
//!
//! Operations are counted, so that a test can run a history once, read [`FaultyDisk::operations`], and run it
//! again with a failure or a power cut at any of them.

mod content;
mod folder;
mod world;

use crate::{Disk, File, Lock, Space, is_aligned};
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use world::World;

/// Granularity at which a power failure tears writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Torn {
    /// A sector of 512 bytes is old or new.
    #[default]
    Sector,
    /// Any byte may be old or new.
    Byte,
}

/// Misbehaviour of this disk beyond that of a good one. By default it only loses and reorders changes that
/// were not synced.
#[derive(Clone, Copy, Debug, Default)]
pub struct Garbling {
    /// Granularity at which a power failure tears writes.
    pub torn: Torn,
    /// Whether a power failure may leave noise where data was being written. Neighbouring bytes in the same
    /// sector are never damaged, since appending relies on that.
    pub noise: bool,
    /// Whether reads and writes may transfer fewer bytes than requested.
    pub short: bool,
}

/// A disk in memory; clones share its state.
#[derive(Clone)]
pub struct FaultyDisk(Arc<Mutex<World>>);

impl FaultyDisk {
    /// Creates an empty disk of unlimited size. The same seed and calls result in the same behaviour.
    pub fn new(seed: u64, garbling: Garbling) -> FaultyDisk {
        FaultyDisk(Arc::new(Mutex::new(World::new(seed, garbling))))
    }

    /// Returns the disk as found after a power failure at this moment. This disk is unchanged, so that
    /// several crashes of one history can be examined.
    #[must_use]
    pub fn crash(&self) -> FaultyDisk {
        FaultyDisk(Arc::new(Mutex::new(self.0.lock().crash())))
    }

    /// Returns the number of operations so far, including failed ones.
    pub fn operations(&self) -> u64 {
        self.0.lock().faults.operations
    }

    /// Makes the operation with this number (the first is 0) fail with `kind`. A failing write may have
    /// written a part. A failing sync may have made a part durable; the rest never will be, although it can
    /// be read until the next crash.
    pub fn fail_at(&self, operation: u64, kind: io::ErrorKind) {
        self.0.lock().faults.fail_at.insert(operation, kind);
    }

    /// Cuts the power at the operation with this number: it and all later ones fail.
    pub fn cut_power_at(&self, operation: u64) {
        self.0.lock().faults.power_until = operation;
    }

    /// Limits the disk: writing more than this many bytes of file contents in total fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity_bytes = bytes;
    }

    /// Flips one bit of a file, durably and immediately: simulates bit rot.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        self.0.lock().flip_bit(path, offset, bit)
    }

    /// Flips one bit on the disk while the system's cache keeps the original: until a crash, only reads that
    /// bypass the cache see it.
    pub fn flip_bit_under_cache(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        self.0.lock().flip_bit_under_cache(path, offset, bit)
    }
}

struct FaultyFile {
    world: Arc<Mutex<World>>,
    node: usize,
}

struct FaultyLock {
    world: Arc<Mutex<World>>,
    path: PathBuf,
}

impl Lock for FaultyLock {}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        self.world.lock().locked.remove(&self.path);
    }
}

impl FaultyDisk {
    fn handle(&self, node: usize) -> Arc<dyn File> {
        Arc::new(FaultyFile { world: Arc::clone(&self.0), node })
    }
}

impl Disk for FaultyDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.lock().create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let node = self.0.lock().create(path)?;
        Ok(self.handle(node))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let node = self.0.lock().open(path)?;
        Ok(self.handle(node))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.lock().exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.lock().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.lock().remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.lock().list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.lock().sync_dir(path)
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        self.0.lock().space()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.0.lock().lock(path)?;
        Ok(Box::new(FaultyLock { world: Arc::clone(&self.0), path: path.to_owned() }))
    }
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.world.lock().read_at(self.node, buffer, offset)
    }

    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.world.lock().write_at(self.node, bytes, offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut world = self.world.lock();
        let end = world.length(self.node)?;
        world.write_at(self.node, bytes.to_vec(), end)
    }

    fn write_direct_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        pieces.iter().try_for_each(|piece| check_aligned(piece, offset))?;
        self.write_at(pieces, offset)
    }

    fn read_direct_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        check_aligned(buffer, offset)?;
        self.world.lock().read_direct_at(self.node, buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.world.lock().sync(self.node)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.world.lock().sync(self.node)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.world.lock().set_len(self.node, length)
    }

    fn length(&self) -> io::Result<u64> {
        self.world.lock().length(self.node)
    }
}

fn check_aligned(bytes: &[u8], offset: u64) -> io::Result<()> {
    if is_aligned(bytes, offset) {
        return Ok(());
    }
    let text = format!("{} bytes at offset {offset} are not aligned for direct I/O", bytes.len());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

#[cfg(test)]
mod tests;
