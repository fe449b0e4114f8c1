//! The objects in the bucket: their fields, and their text.
//!
//! `docs/reference/formats/cluster.md` describes them. No two states of an object have the same bytes, since the tag of
//! an object may be a digest of its contents.

mod addresses;
mod cluster;
mod node;
mod owner;
mod reach;
mod text;

pub use addresses::{SERVICE_ADDRESSES_MAX, ServiceAddressError, ServiceAddresses, service_address_place};
pub use cluster::{ClusterRecord, LIST_FRESH, LIST_OUTDATED, PARTITIONS_MAX, PartitionState};
pub use node::{ADDRESSES_MAX, NodeRecord, NodeState};
pub use owner::{Holder, OwnerRecord};
pub use reach::{REACHED_MAX, ReachRecord};
pub use text::{RECORD_BYTES_MAX, RecordError};

#[cfg(test)]
mod tests;
