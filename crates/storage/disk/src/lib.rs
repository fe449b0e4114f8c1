//! All disk I/O behind one small trait, with a real and a deliberately unreliable implementation.
//!
//! A [`Disk`] guarantees what a POSIX file system guarantees, and no more:
//!
//! - bytes written are readable immediately, and durable only after [`File::sync_data`] or
//!   [`File::sync_all`] returned;
//! - until then a power failure may keep any part of them, in any order, or leave noise there; but
//!   neighbouring bytes that were synced before stay intact, even in the same sector;
//! - a name created, renamed or removed is durable only after [`Disk::sync_dir`] of its folder;
//! - after a failed sync it is unknown what is durable, and a later successful sync does not repair
//!   it: the system may have dropped the pages. Do not write to the file any more.
//!
//! [`RealDisk`] is the operating system. [`FaultyDisk`] keeps everything in memory and makes use of all this
//! freedom, controlled by a seed. [`MeteredDisk`] measures another disk.

pub mod beneath;
pub mod faulty;
pub mod hooked;
pub mod metered;
pub mod real;

pub use faulty::{FaultyDisk, Garbling, Torn};
pub use hooked::{DiskStep, HookedDisk};
pub use metered::{DiskMeter, MeteredDisk};
pub use real::{RealDisk, forget_cached};

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

/// Space on the file system that holds a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system without the blocks that only a privileged writer can allocate, so that the
    /// difference to `free_bytes` is the space used. `df` computes its percentage from the same figure.
    pub total_bytes: u64,
    /// Space that an unprivileged writer can still allocate, in bytes.
    pub free_bytes: u64,
}

/// An exclusive lock. It is released when dropped, or when the process ends.
pub trait Lock: Send + Sync {}

/// A file system. Paths are absolute.
pub trait Disk: Send + Sync {
    /// Creates one folder; its parent must exist. `AlreadyExists` if the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates an empty file, open for reading and writing. `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading and writing. `NotFound` if it does not exist.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Whether a file or folder of this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Renames a file within one folder, atomically replacing any file with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Open handles keep working.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a folder, sorted. Names that are not UTF-8 are omitted: Cellar never creates any.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Returns the space on the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// Takes the exclusive lock on this file, creating the file if needed. `WouldBlock` if another process,
    /// or another caller in this one, holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
}

/// Alignment of direct I/O in bytes: of the offset, the length and the memory address. No block device in use
/// has larger blocks.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// Whether these bytes are aligned for direct I/O at this offset.
fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    let aligned = |number: usize| number.is_multiple_of(DIRECT_ALIGNMENT);
    aligned(bytes.as_ptr().addr()) && aligned(bytes.len()) && offset.is_multiple_of(DIRECT_ALIGNMENT as u64)
}

/// Maximum number of buffers per system call; Linux accepts at most 1,024.
const SLICES_PER_CALL_MAX: usize = 1024;

/// An open file. All methods may be called concurrently from any number of threads.
pub trait File: Send + Sync {
    /// Reads at `offset` bytes from the start. May read less than requested; returns 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes the concatenation of `pieces` at `offset`, growing the file as needed. May write less than
    /// given.
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Writes `bytes` at the end of the file, wherever concurrent writers have moved it. May write less than
    /// given.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Like [`File::write_at`], but bypasses the system's cache if the file system can: for data that is
    /// unlikely to be read soon. The offset, and the address and length of each piece, must be multiples of
    /// [`DIRECT_ALIGNMENT`]. Durability is the same: the data is durable only after a sync.
    fn write_direct_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.write_at(pieces, offset)
    }

    /// Like [`File::read_at`], but bypasses the system's cache if the file system can: for checking what is
    /// really on the device, which the cache may hide. Offset, length and address must be multiples of
    /// [`DIRECT_ALIGNMENT`].
    fn read_direct_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    /// Whether [`File::write_direct_at`] bypasses the system's cache, as far as known.
    fn goes_past_cache(&self) -> bool {
        true
    }

    /// Makes the contents durable, and the metadata required to read them.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes contents and metadata durable.
    fn sync_all(&self) -> io::Result<()>;

    /// Truncates the file to `length` bytes, or extends it with zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Returns the length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills all of `buffer`; `UnexpectedEof` if the file ends earlier.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = &mut buffer[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills the first `wanted` bytes of `buffer` and possibly more, bypassing the system's cache as far as
    /// [`File::read_direct_at`] can; `UnexpectedEof` if the file ends earlier.
    fn read_exact_direct_at(&self, buffer: &mut [u8], wanted: usize, offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < wanted {
            let (rest, at) = (&mut buffer[done..], offset + done as u64);
            if !is_aligned(rest, at) {
                return self.read_exact_at(&mut buffer[done..wanted], at);
            }
            match self.read_direct_at(rest, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `pieces`, bypassing the system's cache as far as [`File::write_direct_at`] can; consumes
    /// them.
    fn write_all_direct_at(&self, pieces: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        write_all(pieces, offset, |batch, at| {
            if batch.iter().all(|piece| is_aligned(piece, at)) {
                self.write_direct_at(batch, at)
            } else {
                self.write_at(batch, at)
            }
        })
    }

    /// Writes all of `pieces`; consumes them.
    fn write_all_at(&self, pieces: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        write_all(pieces, offset, |batch, at| self.write_at(batch, at))
    }
}

/// Calls `write` with the remaining pieces and their offset until everything is written.
fn write_all(
    mut pieces: &mut [IoSlice<'_>],
    mut offset: u64,
    write: impl Fn(&[IoSlice<'_>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        let batch = &pieces[..pieces.len().min(SLICES_PER_CALL_MAX)];
        match write(batch, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                IoSlice::advance_slices(&mut pieces, count);
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
