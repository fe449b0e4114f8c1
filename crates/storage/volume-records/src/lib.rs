//! The records that volumes have in the metadata of a partition: their keys, encodings, versions, and the
//! values in them. `docs/reference/formats/volume.md` specifies the format.
//!
//! [`keys`] and [`codec`] are the format. [`epochs`] reads and writes versions of records, as a [`ReadView`]
//! determines. [`rows`] and [`totals`] have the arithmetic of the records of shared chunks and of directory
//! totals. Nothing here decides when a record is written: the crate `volume` does.

mod call_result;
mod chunk_names;
pub mod codec;
pub mod epochs;
mod error;
pub mod families;
mod header;
pub mod keys;
mod listed_host;
mod past;
pub mod policy;
pub mod quota;
mod read_view;
mod receipt;
pub mod rows;
mod splitting;
mod status;
pub mod totals;

pub use call_result::{CallResult, RecordedCall};
pub use chunk_names::CHUNK_NAMES;
pub use error::{RecordError, damage};
pub use header::{PARKED_FIRST, SnapshotOf, Unseen, VolumeHeader, is_parked};
pub use listed_host::ListedHost;
pub use past::Past;
pub use read_view::{ReadView, Rollback};
pub use receipt::Receipt;
pub use splitting::Splitting;
pub use status::{FileKind, VnodeStatus};
