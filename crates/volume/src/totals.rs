//! What directories hold with everything below them, kept up to date with every change.
//!
//! The record of a directory has the sums over all that lies in and below it, but for what the
//! volume's counters still keep apart: up to [`UNFOLDED_MAX`] directories with what came to each, and so
//! to all above it, since. So a change writes no record for each directory above it. Only with yet another
//! directory some are folded in: their records are written, and what came to them is kept apart with
//! the directories above them from then on.
//!
//! Moving a directory takes its record's sums from the old place to the new one, and what is still
//! kept apart below it is folded in where it lies by then.
//!
//! All sums are modulo 2^64, so that what goes takes away exactly what it brought.

mod counting;
mod fold;
mod keeping;
mod reading;
mod spread;
mod step;
mod unfolded;

pub(crate) use counting::OwnSums;
pub(crate) use fold::fold;
pub(crate) use spread::spread;
pub(crate) use step::{Step, steps};
pub(crate) use unfolded::{UNFOLDED_MAX, Unfolded};

use crate::VnodeStatus;

/// Sums over a directory and everything below it, modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Lengths of files and symbolic links in bytes. Directories have none here.
    pub bytes: u64,
    /// Blocks of 1 KiB as the quota counts them: at least one for everything, directories too.
    pub kib: u64,
    /// Files, symbolic links and mount points. A file with several names counts once.
    pub files: u64,
    /// Directories, without itself.
    pub directories: u64,
}

impl Totals {
    /// What a vnode by itself adds: a file to its directory, a directory to its own sums.
    pub(crate) fn of(status: &VnodeStatus) -> Totals {
        let kib = status.blocks();
        if status.is_directory() {
            Totals { kib, ..Totals::default() }
        } else {
            Totals { bytes: status.length, kib, files: 1, directories: 0 }
        }
    }

    /// What a directory of these totals adds to the one it lies in.
    pub(crate) fn as_child(self) -> Totals {
        Totals { directories: self.directories.wrapping_add(1), ..self }
    }

    pub(crate) fn plus(self, other: Totals) -> Totals {
        self.combine(other, u64::wrapping_add)
    }

    pub(crate) fn minus(self, other: Totals) -> Totals {
        self.combine(other, u64::wrapping_sub)
    }

    fn combine(self, other: Totals, combine: fn(u64, u64) -> u64) -> Totals {
        Totals {
            bytes: combine(self.bytes, other.bytes),
            kib: combine(self.kib, other.kib),
            files: combine(self.files, other.files),
            directories: combine(self.directories, other.directories),
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        *self == Totals::default()
    }
}
