//! All disk I/O behind one small trait, with a real and a deliberately unreliable implementation.
//!
//! What a [`Disk`] promises is what a POSIX file system promises, and no more:
//!
//! - bytes written are readable at once, and durable only after [`File::sync_data`] or
//!   [`File::sync_all`] returned;
//! - until then a power loss may keep any part of them, in any order, or leave noise there; but bytes
//!   beside them that were synced before stay, even in the same sector;
//! - a name created, renamed or removed is durable only after [`Disk::sync_dir`] of its folder;
//! - a failed sync says nothing about what is durable, and a later sync that succeeds does not
//!   repair it: the system may have dropped the pages. Treat the file as lost for writing.
//!
//! [`RealDisk`] is the operating system. [`FaultyDisk`] keeps everything in memory and uses every
//! freedom of the list above, chosen by a seed. [`MeteredDisk`] measures another disk.

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

/// Room on the file system that holds a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system without the blocks that only a privileged writer can allocate, so that the difference to
    /// `free_bytes` is what is used. `df` computes its percentage from the same figure.
    pub total_bytes: u64,
    /// What an unprivileged writer can still allocate.
    pub free_bytes: u64,
}

/// An exclusive lock; dropping it gives it back, and so does the end of the process.
pub trait Lock: Send + Sync {}

/// A file system. Paths are absolute.
pub trait Disk: Send + Sync {
    /// Creates one folder; its parent must be there. `AlreadyExists` if the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates an empty file, open for reading and writing. `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading and writing. `NotFound` if it is not there.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Whether there is a file or folder of this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Renames a file within one folder, replacing what had the new name, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Handles that are open keep working.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, sorted. Names that are not UTF-8 are left out: we never write such.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Room on the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// Takes the exclusive lock of this file, creating the file if needed. `WouldBlock` if another
    /// process, or another caller in this one, holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
}

/// What is written or read past the system's cache is aligned to this many bytes: its place, its length and its memory. No
/// block of a device in use is larger.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// Whether these bytes can be written there, or read from there, past the system's cache.
fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    let aligned = |number: usize| number.is_multiple_of(DIRECT_ALIGNMENT);
    aligned(bytes.as_ptr().addr()) && aligned(bytes.len()) && offset.is_multiple_of(DIRECT_ALIGNMENT as u64)
}

/// Buffers handed to the system in one call; Linux takes at most 1,024.
const SLICES_PER_CALL_MAX: usize = 1024;

/// An open file. All methods may be called from any number of threads at once.
pub trait File: Send + Sync {
    /// Reads at `offset` bytes from the start; may read less than asked for, and 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes the concatenation of `pieces` at `offset`, growing the file as needed; may write less
    /// than given.
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Like [`File::write_at`], past the system's cache where the file system can: for what hardly anybody reads soon.
    /// The place, and memory and length of each piece, are multiples of [`DIRECT_ALIGNMENT`]. No less is lost in a
    /// crash: it is durable after a sync, not before.
    fn write_direct_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.write_at(pieces, offset)
    }

    /// Like [`File::read_at`], past the system's cache where the file system can: for who asks what the device has, of
    /// which the cache may remember something better. All of the three are multiples of [`DIRECT_ALIGNMENT`].
    fn read_direct_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    /// Whether [`File::write_direct_at`] goes past the system's cache, as far as is known.
    fn goes_past_cache(&self) -> bool {
        true
    }

    /// Makes the contents durable, and as much of the metadata as is needed to read them.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes contents and metadata durable.
    fn sync_all(&self) -> io::Result<()>;

    /// Cuts the file off at, or extends it with zeros to, `length` bytes.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills all of `buffer`; `UnexpectedEof` if the file ends before.
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

    /// Fills the first `wanted` bytes of `buffer`, past the system's cache as far as [`File::read_direct_at`] can, and
    /// perhaps some of the others; `UnexpectedEof` if the file ends before.
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

    /// Writes all of `pieces`, past the system's cache as far as [`File::write_direct_at`] can; they are consumed.
    fn write_all_direct_at(&self, pieces: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        write_all(pieces, offset, |batch, at| {
            if batch.iter().all(|piece| is_aligned(piece, at)) {
                self.write_direct_at(batch, at)
            } else {
                self.write_at(batch, at)
            }
        })
    }

    /// Writes all of `pieces`; they are consumed.
    fn write_all_at(&self, pieces: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        write_all(pieces, offset, |batch, at| self.write_at(batch, at))
    }
}

/// Calls `write` with what is left of the pieces, and where, until nothing is.
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
