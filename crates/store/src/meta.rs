//! The small interface through which everything but chunk data is stored.

use crate::StoreError;
use bytes::Bytes;
use std::ops::ControlFlow;

/// A key space of its own (a column family of the database). Keys begin with a big-endian 64-bit
/// id that is never used again, so that a whole volume is one key range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// Format versions, never-reused id counters, settings of the partition or cell database.
    System,
    /// Volume headers, names, groups, epochs.
    Volumes,
    /// Vnode status and ACLs.
    Vnodes,
    /// Directory entries.
    Entries,
    /// Chunk maps of files.
    Extents,
    /// Space accounting of segments.
    Segments,
    /// Volume location database.
    Locations,
    /// Protection database.
    Protection,
    /// What directories hold with everything below them.
    Totals,
}

impl Family {
    /// Every family, in the order of their numbers.
    pub const ALL: [Family; 9] = [
        Family::System,
        Family::Volumes,
        Family::Vnodes,
        Family::Entries,
        Family::Extents,
        Family::Segments,
        Family::Locations,
        Family::Protection,
        Family::Totals,
    ];

    /// The family's name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Family::System => "system",
            Family::Volumes => "volumes",
            Family::Vnodes => "vnodes",
            Family::Entries => "entries",
            Family::Extents => "extents",
            Family::Segments => "segments",
            Family::Locations => "locations",
            Family::Protection => "protection",
            Family::Totals => "totals",
        }
    }
}

/// One change of a batch.
#[derive(Clone, Debug)]
pub enum Change {
    /// Set a key.
    Put(Family, Vec<u8>, Vec<u8>),
    /// Remove a key; removing one that is not there is no error.
    Delete(Family, Vec<u8>),
}

/// Changes that take effect together or not at all; later ones win over earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
}

impl Batch {
    /// No changes yet.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, family: Family, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.changes.push(Change::Put(family, key.into(), value.into()));
    }

    /// Removes `key`.
    pub fn delete(&mut self, family: Family, key: impl Into<Vec<u8>>) {
        self.changes.push(Change::Delete(family, key.into()));
    }

    /// Adds all changes of `other` behind these.
    pub fn append(&mut self, mut other: Batch) {
        self.changes.append(&mut other.changes);
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }
}

/// The place of a commit in the order of all commits of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitNumber(pub u64);

/// Keys from `from` (included) to `to` (excluded); scans are always bounded on both sides.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// First key.
    pub from: &'a [u8],
    /// Behind the last key.
    pub to: &'a [u8],
    /// Largest key first.
    pub reverse: bool,
}

impl<'a> KeyRange<'a> {
    /// In ascending order.
    pub fn ascending(from: &'a [u8], to: &'a [u8]) -> KeyRange<'a> {
        KeyRange { from, to, reverse: false }
    }

    /// In descending order.
    pub fn descending(from: &'a [u8], to: &'a [u8]) -> KeyRange<'a> {
        KeyRange { from, to, reverse: true }
    }
}

/// Gets each key and value of a scan; breaks to end it.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// One state of a database, which stays what it was whatever is committed meanwhile.
pub trait Snapshot: Send + Sync {
    /// As [`MetaStore::scan`], of this state.
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError>;
}

/// An ordered, transactional key-value database.
///
/// Commits are totally ordered: after a crash exactly a prefix of them is there, and that prefix
/// contains every commit that a returned [`MetaStore::sync`] covered.
pub trait MetaStore: Send + Sync {
    /// The value of `key`, if it has one.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Calls `visit` with each key and value of `range` until it breaks or the range ends. Sees one
    /// consistent state of the database throughout.
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError>;

    /// The state as it is now. Costs nothing to take, but as long as it is kept, what is deleted or
    /// replaced still takes space.
    fn snapshot(&self) -> Box<dyn Snapshot + '_>;

    /// Applies `batch` atomically. It is visible to every later read when this returns, and durable
    /// once [`MetaStore::sync`] returned for its number.
    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError>;

    /// Waits until every commit up to `number` is durable. Concurrent callers share one sync.
    fn sync(&self, number: CommitNumber) -> Result<(), StoreError>;

    /// What is read from now on comes from the device, as far as the system has cached it: for who wants to know whether
    /// it is still there. The database's own cache, whose contents were verified when they were read, stays.
    fn read_anew(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The I/O error because of which it takes no more writes until it is opened again, if there was one.
    fn failure(&self) -> Option<String> {
        None
    }
}
