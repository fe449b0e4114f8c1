//! Ids, rights, times, abort codes and limits that all crates share.
//!
//! Everything here is a value: no I/O, no clock, no ambient randomness. Every value is valid ("parse, do not
//! validate"), so the crates above never check it again.

pub mod abort;
pub mod authority;
pub mod bucket;
pub mod call_id;
pub mod connection;
pub mod context;
pub mod ids;
pub mod limits;
pub mod names;
pub mod principal;
pub mod repeats;
pub mod rights;
pub mod room;
pub mod text;
pub mod time;

pub use abort::AbortCode;
pub use authority::{Access, LocalAuthority};
pub use bucket::{BucketAddress, BucketAddressError, BucketPlace};
pub use call_id::CallId;
pub use connection::Connection;
pub use context::{CallContext, CallFacts, PRIVILEGES, Privilege, Privileges};
pub use ids::{Fid, HostUuid, PartitionId, UserId, VnodeId, VolumeId, VolumeType};
pub use names::{CellName, NameError, SnapshotName, VolumeName};
pub use principal::{Caller, Identity, Principal, SecurityLevel};
pub use repeats::{Novelty, Repeats};
pub use rights::Rights;
pub use room::RecvBuffer;
pub use time::{Monotonic, UnixTime};
