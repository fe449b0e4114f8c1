//! The highest numbers of a volume whose contents were replaced.

use crate::codec::{Counters, StoredHeader};
use crate::{Unseen, VolumeHeader, is_parked};
use base::{UnixTime, VolumeType};

/// The highest numbers that clients may have seen of a read-write volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// Next uniquifier to allocate.
    pub next_unique: u32,
    /// Highest data version that any vnode of the volume had.
    pub version_max: u64,
    /// Date of the last update.
    pub updated: UnixTime,
    /// Number of changes of its contents. Snapshots that outlive the volume are compared by it.
    pub changes: u64,
    /// Latest date of the volume or a clone.
    pub dated: UnixTime,
    /// Whether it was deleted here because it continues elsewhere.
    pub went_on: bool,
}

impl Past {
    /// Returns the highest numbers of a volume whose contents are replaced. `None` if clients cannot have
    /// seen any, and for volumes that have the numbers of another one (read-only and parked volumes).
    pub fn of(header: &VolumeHeader, counters: &Counters) -> Option<Past> {
        let is_empty = counters.used_kib == 0;
        let is_numbered = header.kind == VolumeType::ReadWrite && !is_parked(header.id);
        (is_numbered && !is_empty && header.unseen.is_none()).then_some(Past {
            next_unique: counters.next_unique,
            version_max: counters.version_max,
            updated: counters.updated,
            changes: counters.changes,
            dated: counters.updated.max(header.dated),
            went_on: false,
        })
    }

    /// Returns the highest numbers of two volumes that had the same id.
    #[must_use]
    pub fn and(self, other: Past) -> Past {
        Past {
            next_unique: self.next_unique.max(other.next_unique),
            version_max: self.version_max.max(other.version_max),
            updated: self.updated.max(other.updated),
            changes: self.changes.max(other.changes),
            dated: self.dated.max(other.dated),
            went_on: self.went_on && other.went_on,
        }
    }

    /// Raises the counters to the highest numbers. The new contents keep their versions.
    pub fn keep_on(&self, stored: &mut StoredHeader, counters: &mut Counters) {
        counters.changes = counters.changes.max(self.changes + 1);
        counters.next_unique = counters.next_unique.max(self.next_unique);
        counters.version_max = counters.version_max.max(self.version_max);
        stored.header.next_unique = counters.next_unique;
        stored.header.dated = stored.header.dated.max(self.dated);
    }

    /// Returns whether these contents are those of the volume after it continued elsewhere.
    pub fn is_continued_by(&self, stored: &StoredHeader, counters: &Counters) -> bool {
        self.went_on
            && stored.header.unseen != Some(Unseen::Restored)
            && counters.updated >= self.updated
            && counters.next_unique >= self.next_unique
    }
}
