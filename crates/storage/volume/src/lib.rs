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

mod appending;
mod attributes;
mod automatic;
mod cache;
mod caching;
pub mod check;
mod compaction;
mod condition;
mod continuing;
mod crew;
mod deferred;
mod epochs;
mod error;
mod group;
mod header;
mod held;
mod index;
mod keys;
mod listing;
mod loading;
mod making;
mod moving;
mod named;
mod names;
mod numbers;
mod options;
mod overlaying;
mod parked;
mod partition;
mod past;
mod pins;
pub mod policy;
mod purge;
mod quarantine;
pub mod quota;
mod read_view;
mod reading;
mod reading_ahead;
mod received;
mod record;
mod rename;
mod replacing;
mod restoring;
mod rollback;
mod scrubbing;
mod sealing;
mod shared;
mod sharing;
mod snapshots;
mod source;
mod splitting;
mod status;
mod together;
mod totals;
mod transaction;
mod unloading;
mod usage;
mod volume;
mod volumes;
mod writing;

pub use automatic::SnapshotDue;
pub use cache::{CacheReport, Purged};
pub use compaction::{CompactionPolicy, CompactionStatistics, CompactionStep};
pub use condition::Condition;
pub use deferred::Deferred;
pub use error::VolumeError;
pub use header::{CloneVolume, NewVolume, SnapshotOf, Unseen, VolumeHeader};
pub use held::Held;
pub use listing::Listed;
pub use options::{Durability, VolumeOptions};
pub use parked::is_parked;
pub use partition::{PartitionHandle, Space, chunk_of};
pub use policy::{Automatic, Due, Kept, Period, Policy};
pub use quarantine::Quarantined;
pub use reading::FileReader;
pub use received::{Clock, KEPT_MAX, KEPT_SECONDS, Received};
pub use restoring::Restoration;
pub use scrubbing::{ScrubPolicy, ScrubStatistics, ScrubStep};
pub use sharing::DeduplicationStatistics;
pub use snapshots::{NewSnapshot, Snapshot};
pub use source::DataSource;
pub use splitting::{Split, Splitting};
pub use status::{Actor, Created, FileKind, Found, Removed, Renamed, SetStatus, StoreRequest, VnodeStatus};
pub use store::CacheStatistics;
pub use together::Governed;
pub use totals::Totals;
pub use volume::Volume;
pub use volumes::{VolumeState, Volumes};

#[cfg(test)]
mod tests;
