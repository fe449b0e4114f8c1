//! The small interface for everything except chunk data.

use crate::StoreError;
use bytes::Bytes;
use std::ops::ControlFlow;

/// A separate key space (a column family of the database). Keys start with a big-endian 64-bit id that is
/// never reused, so that a whole volume is one key range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// Format versions, counters of never-reused ids, settings of the partition or cell database.
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
    /// Totals of directories, including everything below them.
    Totals,
}

impl Family {
    /// All families, in the order of their numbers.
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

    /// Returns the family's name in the database.
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
    /// Remove a key; removing a missing key is not an error.
    Delete(Family, Vec<u8>),
}

/// Changes that take effect together or not at all; later changes override earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
}

impl Batch {
    /// Creates an empty batch.
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

    /// Appends all changes of `other`.
    pub fn append(&mut self, mut other: Batch) {
        self.changes.append(&mut other.changes);
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the changes in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }
}

/// Position of a commit in the order of all commits of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitNumber(pub u64);

/// Keys from `from` (inclusive) to `to` (exclusive); scans are always bounded on both sides.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// First key.
    pub from: &'a [u8],
    /// End of the range, exclusive.
    pub to: &'a [u8],
    /// Whether the largest key comes first.
    pub reverse: bool,
}

impl<'a> KeyRange<'a> {
    /// Creates a range in ascending order.
    pub fn ascending(from: &'a [u8], to: &'a [u8]) -> KeyRange<'a> {
        KeyRange { from, to, reverse: false }
    }

    /// Creates a range in descending order.
    pub fn descending(from: &'a [u8], to: &'a [u8]) -> KeyRange<'a> {
        KeyRange { from, to, reverse: true }
    }
}

/// Receives each key and value of a scan; breaks to end it.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// A database's state at one moment, unaffected by later commits.
pub trait Snapshot: Send + Sync {
    /// Scans this state; see [`MetaStore::scan`].
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError>;
}

/// An ordered, transactional key-value database.
///
/// Commits are totally ordered: after a crash exactly a prefix of them remains, and it includes every commit
/// covered by a [`MetaStore::sync`] that returned.
pub trait MetaStore: Send + Sync {
    /// Returns the value of `key`, if it exists.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Calls `visit` with each key and value of `range` until it breaks or the range ends. Sees one
    /// consistent state of the database throughout.
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError>;

    /// Returns a snapshot of the current state. It costs nothing to take, but while it exists, deleted and
    /// replaced values keep taking space.
    fn snapshot(&self) -> Box<dyn Snapshot + '_>;

    /// Applies `batch` atomically. It is visible to every later read when this returns, and durable once
    /// [`MetaStore::sync`] has returned for its number.
    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError>;

    /// Waits until every commit up to `number` is durable. Concurrent callers share one sync.
    fn sync(&self, number: CommitNumber) -> Result<(), StoreError>;

    /// Makes subsequent reads come from the device by dropping the system's cached pages, for callers that
    /// check whether the data is still there. The database's own cache, whose contents were verified when
    /// read, is kept.
    fn read_anew(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the I/O error that made it read-only until the next open, if any.
    fn failure(&self) -> Option<String> {
        None
    }
}
