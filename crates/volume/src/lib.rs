//! Volumes, vnodes, directories, quotas and epochs on a store.

mod error;
mod header;
mod options;
mod partition;
pub mod quota;
mod status;
mod volume;
mod volumes;

pub use error::VolumeError;
pub use header::{NewVolume, VolumeHeader};
pub use options::{Durability, VolumeOptions};
pub use partition::{PartitionHandle, Space};
pub use status::{Actor, Created, FileKind, Found, Removed, Renamed, SetStatus, StoreRequest, VnodeStatus};
pub use volume::{FileReader, Volume};
pub use volumes::{CacheCounters, VolumeState, Volumes};
