//! Volumes, vnodes, directories, quotas and epochs on a store.
//!
//! [`Volumes`] holds all volumes of a server, [`Volume`] is one of them. A volume's records are in a
//! *group* that it shares with its clones; see `docs/reference/formats/volume.md`.
//!
//! # Locks
//! Each group has these locks, taken in this order:
//! - `writer`: held while a change is built and committed. Never held during a wait for the disk or
//!   the network: a change becomes durable some time after it is visible, and only its caller waits.
//! - `publish`: locked exclusively from the first edit of a cached directory until a commit has taken effect
//!   in memory too; locked shared while reading several records that must be consistent, or filling a cache.
//!
//! # Versions
//! On one server, a FID with a data version never refers to two different contents, whatever is done to the
//! volume: stores, rollbacks, restores over it, deletion and re-creation with the same id, moves away and
//! back. Clients cache data by FID and data version. So contents that replace others continue above the
//! uniquifiers, data versions and update dates that clients may have seen. Read-only volumes have the
//! versions of their read-write volume.
//!
//! # Directories
//! An entry's record has the entry's slot in the directory's blob and its position in its hash chain. So the
//! blob is a function of the entries: it is built from them when it is not in memory, and is then byte for
//! byte the same as before a restart. Adding a name writes one small record, whatever the size of the
//! directory.

mod change;
mod clone;
mod core;
mod dedup;
mod interface;
mod read;
mod restore;
mod totals;
mod upkeep;

pub use crate::change::file_data::ClaimedObjects;
pub use crate::clone::schedule::SnapshotDue;
pub use crate::clone::snapshots::{NewSnapshot, Snapshot};
pub use crate::core::cache::{CacheReport, Purged};
pub use crate::core::call::{Acknowledge, CallActor, Commits, InCall};
pub use crate::core::condition::Condition;
pub use crate::core::dedup_statistics::DeduplicationStatistics;
pub use crate::core::held::Held;
pub use crate::core::host_list::{HostPin, MayLeave, Promisee, listed_hosts};
pub use crate::core::listing::Listed;
pub use crate::core::lock_records::{LockRecords, recorded_locks};
pub use crate::core::pending::Pending;
pub use crate::core::permit::Permit;
pub use crate::core::volume::Volume;
pub use crate::core::volumes::{VolumeState, Volumes};
pub use crate::interface::error::VolumeError;
pub use crate::interface::options::{Durability, VolumeOptions};
pub use crate::interface::partition::{PartitionHandle, Space};
pub use crate::interface::requests::{
    Actor, CloneVolume, Created, Found, NewVolume, Removed, Renamed, RepeatableCall, SetStatus, StoreRequest,
    StoreTerms,
};
pub use crate::interface::source::DataSource;
pub use crate::read::bulk_status::Governed;
pub use crate::read::partition_reader::PartitionReader;
pub use crate::read::reader::{FileReader, Place};
pub use crate::restore::importing::{StoredChunk, StoredChunks};
pub use crate::restore::receipts::{Clock, KEPT_MAX, KEPT_SECONDS, Received};
pub use crate::restore::restoration::Restoration;
pub use crate::restore::split::Split;
pub use crate::upkeep::compactor::{CompactionPolicy, CompactionStatistics, CompactionStep};
pub use crate::upkeep::quarantine::Quarantined;
pub use crate::upkeep::scrubber::{ScrubPolicy, ScrubStatistics, ScrubStep};
pub use store::{
    Borrower, CacheStatistics, ChunkAddress, ChunkPlace, ChunkStore, Import, LOAN_OBJECTS_MAX, LentObjects,
    Loan, ObjectTerms,
};
pub use volume_records::policy::{Kept, Period, Policy};
pub use volume_records::totals::Totals;
pub use volume_records::{
    CHUNK_NAMES, FileKind, ListedHost, SnapshotOf, Splitting, Unseen, VnodeStatus, VolumeHeader, families,
    is_parked,
};

#[cfg(test)]
mod tests;
