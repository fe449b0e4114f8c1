//! Two nodes of a cluster without a network, for tests. Who owns what is a table, and file data and metadata are in memory.
//!
//! Create a [`Table`], and for each node a [`Local`] and whatever calls it; then [`Local::surround`] it, and [`Local::open`] its
//! volumes.

mod local;
mod partitions;
mod people;
mod sharing;
mod shelf;
mod table;

pub use local::{Local, Surroundings};
pub use partitions::{create, memory, new_volumes, open_all, open_volumes};
pub use people::{Administration, People, is_cell};
pub use sharing::{Sharing, ToVolumes};
pub use shelf::{IDENTITY, Shelf, part};
pub use table::Table;

use afs_idl::fs;
use base::{Fid, HostUuid, VolumeId};
use cluster_proto::{Incarnation, NodeName, PartitionName};
use std::time::Duration;

/// The volume of each node.
pub const VOLUMES: [VolumeId; 2] = [VolumeId(536_870_912), VolumeId(536_870_915)];

/// The UUID of the file server that both nodes are.
pub const SERVER: HostUuid = HostUuid([7; 16]);

/// How long calls are held.
pub const HOLD: Duration = Duration::from_secs(8);

/// Returns the partition of a node.
pub fn partition(index: usize) -> PartitionName {
    parsed(&format!("cell/p{index}"))
}

/// Returns the name of a node.
pub fn name(index: usize) -> NodeName {
    parsed(&format!("n{index}"))
}

/// Returns the membership of a node.
pub fn incarnation(index: usize) -> Incarnation {
    Incarnation { nonce: 100 + index as u128, count: 1 }
}

/// Returns the root directory of the volume of a node.
pub fn root(index: usize) -> fs::Fid {
    Fid::root(VOLUMES[index]).into()
}

/// Returns the arguments of a store of this many bytes.
pub fn store_arguments(fid: fs::Fid, length: u64) -> Vec<u8> {
    let (status, position, file_length) = (fs::StoreStatus::default(), 0, length);
    xdr::to_vec(&fs::StoreData64Request { fid, status, position, length, file_length })
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a valid name")
}
