//! The small interface for everything except chunk data.

use crate::StoreError;
use bytes::Bytes;
use std::ops::ControlFlow;

/// A separate key space of a database. Keys start with a big-endian 64-bit id that is never reused, so that
/// everything of one owner is one key range.
///
/// `store` declares only the families that it keeps itself. The crates above declare theirs and give them to
/// [`MetaEngine::open`](crate::MetaEngine::open); `store` does not know what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Family {
    number: u8,
    name: &'static str,
}

impl Family {
    /// Format versions, counters of never-reused ids, settings of the partition or cell database.
    pub const SYSTEM: Family = Family::new(0, "system");

    /// Space accounting of segments.
    pub const SEGMENTS: Family = Family::new(5, "segments");

    /// Declares a family. Number and name are part of the format on disk: both are unique among all families
    /// of all crates, and never change.
    pub const fn new(number: u8, name: &'static str) -> Family {
        Family { number, name }
    }

    /// Returns the family's number, for engines that have one key space: it precedes each key.
    pub const fn number(self) -> u8 {
        self.number
    }

    /// Returns the family's name, for engines with a table for each family, and for messages.
    pub const fn name(self) -> &'static str {
        self.name
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
///
/// # Waiting
/// Callers hold locks while they use a database, and every engine has to keep within these limits:
///
/// | call | may wait for | callers may hold |
/// |---|---|---|
/// | `get`, `get_many`, `scan`, `snapshot` | a read of the local disk, at most; usually answered from memory | any lock, also one that serialises writers |
/// | `commit` | nothing but the memory for unwritten changes: it enqueues, in the order of the calls | any lock, since locks decide the order of commits |
/// | `sync` | the medium or the network: one round trip, shared by concurrent callers | no lock of readers or writers |
/// | `read_anew` | the local disk | no lock of readers or writers |
/// | `failure` | nothing | any lock |
///
/// So an engine whose medium is across a network keeps its tables in a cache on this machine or in memory,
/// writes its log in `sync`, and makes a commit visible to reads before it is durable. An engine that
/// answers each read with a round trip does not fit.
///
/// # Errors
/// A read fails with `Damaged` (the data is not what was written) or with `Meta` or `Io`; later calls may
/// succeed. The first error of `commit` or `sync` is final: it is unknown then what is durable. Every later
/// `commit` and `sync` fails with `ReadOnly`, or with `Fenced` if another process has taken over the
/// database; reads continue, unless the tables belong to the other process: then they fail with `Fenced`, too. An engine
/// on the local disk shows what was durable from then on: the commits of every `sync` that succeeded, and none that
/// a crash may undo.
///
/// Only `Unavailable`, of an engine whose medium is across a network, is not final. A `commit` that fails with it
/// has not happened. After a `sync` that fails with it, the commits keep their place and become durable once the
/// medium answers again, and a later `sync` of the same number may return.
pub trait MetaStore: Send + Sync {
    /// Returns the value of `key`, if it exists.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Returns the value of each key, in the order of `keys`. All are read from one state of the database if
    /// nothing is committed meanwhile; otherwise, each from a state during the call.
    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        keys.iter().map(|key| self.get(family, key)).collect()
    }

    /// Calls `visit` with each key and value of `range` until it breaks or the range ends. Sees one
    /// consistent state of the database throughout.
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError>;

    /// Returns a snapshot of the current state. It costs nothing to take, but while it exists, deleted and
    /// replaced values keep taking space.
    fn snapshot(&self) -> Box<dyn Snapshot + '_>;

    /// Applies `batch` atomically. It is visible to every later read when this returns, and durable once
    /// [`MetaStore::sync`] has returned for its number. Does not wait for the medium.
    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError>;

    /// Waits until every commit up to `number` is durable. Concurrent callers share one sync.
    fn sync(&self, number: CommitNumber) -> Result<(), StoreError>;

    /// Makes subsequent reads come from the device by dropping the system's cached pages, for callers that
    /// check whether the data is still there. The database's own cache, whose contents were verified when
    /// read, is kept.
    fn read_anew(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the error that made it read-only until the next open, if any.
    fn failure(&self) -> Option<String> {
        None
    }
}
