//! Totals of directories and everything below them, updated with every change.
//!
//! The record of a directory has the sums over everything in and below it, except for recent changes in the
//! volume's counters: those of up to [`UNFOLDED_MAX`] directories, which apply to their ancestors as well. So
//! a change does not write a record for each ancestor. Only when one more directory changes are some folded:
//! their records are written, and their changes are from then on attributed to a common ancestor.
//!
//! Moving a directory moves its record's sums from the old parent to the new one; unfolded changes below it
//! are folded later along its new ancestors.
//!
//! All sums are modulo 2^64, so that removal exactly reverses addition.

mod fold;
mod own_sums;
mod spread;
mod step;
mod unfolded;

pub use fold::fold;
pub use own_sums::OwnSums;
pub use spread::spread;
pub use step::{Step, steps};
pub use unfolded::{UNFOLDED_MAX, Unfolded};

use crate::VnodeStatus;

/// Sums over a directory and everything below it, modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Total length of files and symbolic links in bytes, excluding directories.
    pub bytes: u64,
    /// Blocks of 1 KiB counted as for the quota: at least one for every vnode, including directories.
    pub kib: u64,
    /// Number of files, symbolic links and mount points. A file with several names counts once.
    pub files: u64,
    /// Number of directories, excluding this one.
    pub directories: u64,
}

impl Totals {
    /// Returns the contribution of a vnode alone: of a file to its directory, of a directory to its own sums.
    pub fn of(status: &VnodeStatus) -> Totals {
        let kib = status.blocks();
        if status.is_directory() {
            Totals { kib, ..Totals::default() }
        } else {
            Totals { bytes: status.length, kib, files: 1, directories: 0 }
        }
    }

    /// Returns the contribution of a directory with these totals to its parent.
    #[must_use]
    pub fn as_child(self) -> Totals {
        Totals { directories: self.directories.wrapping_add(1), ..self }
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(self, other: Totals) -> Totals {
        self.combine(other, u64::wrapping_add)
    }

    /// Returns the difference.
    #[must_use]
    pub fn minus(self, other: Totals) -> Totals {
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

    /// Returns whether all sums are 0.
    pub fn is_zero(&self) -> bool {
        *self == Totals::default()
    }
}
