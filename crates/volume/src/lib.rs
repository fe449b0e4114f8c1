//! Volumes, vnodes, directories, quotas and epochs on a store.
//!
//! [`Volumes`] are all volumes of a server, [`Volume`] is one. A volume's records lie in a
//! *group* that it shares with its clones; `docs/reference/formats/volume.md` draws them.
//!
//! # Locks
//! Of each group, in this order:
//! - `writer`: held while a change is built and committed. Never held over a wait for the medium or
//!   the network: a change is durable some time after it is visible, and only its caller waits.
//! - `publish`: written from the first edit of a cached directory until a commit has taken effect in
//!   memory too; read by whoever reads several records that must agree, or fills a cache.
//!
//! # Versions
//! A FID with a data version never names two contents on one server, whatever is done to the volume: stores,
//! rollbacks, restores over it, its deletion and creation under the same number, moves away and back. Clients keep
//! data by FID and data version. So contents that replace others continue above the uniquifiers, data versions
//! and update dates that clients may have seen. Read-only volumes have the versions of their read-write volume.
//!
//! # Directories
//! An entry's record tells the slot that the entry has in the directory's blob and its place in its
//! hash chain. So the blob is a function of the entries: it is built from them when it is not in
//! memory and is then, byte for byte, what it was before a restart; adding a name writes one small
//! record however large the directory is.

mod apart;
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
mod owed;
mod partition;
mod past;
mod pins;
pub mod policy;
mod purge;
mod quarantine;
pub mod quota;
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
mod sight;
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

pub use apart::is_apart;
pub use automatic::SnapshotDue;
pub use cache::{CacheReport, Purged};
pub use compaction::{CompactionPolicy, CompactionStatistics, CompactionStep};
pub use condition::Condition;
pub use error::VolumeError;
pub use header::{CloneVolume, NewVolume, SnapshotOf, Unseen, VolumeHeader};
pub use held::Held;
pub use listing::Listed;
pub use options::{Durability, VolumeOptions};
pub use owed::Owed;
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
