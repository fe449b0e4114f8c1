//! Lists partitions and their space.

use crate::codes;
use crate::server::VolumeServer;
use afs_idl::vol::{DiskPartition, DiskPartition64, PartitionIds};
use base::{AbortCode, PartitionId};
use xdr::XdrString;

/// OpenAFS's value for an unlocked partition.
const NO_LOCK: i32 = -1;

/// Returns the partitions at their indices, -1 for missing ones (AFSVolListPartitions).
pub(crate) fn first_26(server: &VolumeServer) -> PartitionIds {
    let mut ids = [-1; 26];
    for partition in server.volumes().partitions() {
        if let Some(place) = ids.get_mut(partition.index() as usize) {
            *place = partition.index() as i32;
        }
    }
    PartitionIds { ids }
}

/// Returns all partitions (AFSVolXListPartitions).
pub(crate) fn all(server: &VolumeServer) -> Vec<i32> {
    server.volumes().partitions().iter().map(|partition| partition.index() as i32).collect()
}

/// Returns the space of the partition with this full name (`/vicepa`). As in OpenAFS the field for the
/// minimum free space has the size (AFSVolPartitionInfo64).
pub(crate) fn information(server: &VolumeServer, name: &XdrString) -> Result<DiskPartition64, AbortCode> {
    let partition = parse(name).ok_or(AbortCode::VOLSERILLEGAL_PARTITION)?;
    let space = server.volumes().space(partition).map_err(|error| codes::of(&error))?;
    let failure = server.volumes().failure(partition).map_err(|error| codes::of(&error))?;
    // A partition that has become read-only accepts no writes.
    let free = if failure.is_some() { 0 } else { space.free_kib };
    let name = XdrString::from(partition.to_string());
    Ok(DiskPartition64 {
        device_name: name.clone(),
        name,
        lock: NO_LOCK,
        total_usable: 0,
        free: wide(free),
        min_free: wide(space.total_kib),
    })
}

/// Returns the space in 32-bit numbers, saturating (AFSVolPartitionInfo).
pub(crate) fn narrow_information(
    server: &VolumeServer,
    name: &XdrString,
) -> Result<DiskPartition, AbortCode> {
    let wide = information(server, name)?;
    let narrow = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    Ok(DiskPartition {
        name: wide.name,
        device_name: wide.device_name,
        lock: wide.lock,
        total_usable: 0,
        free: narrow(wide.free),
        min_free: narrow(wide.min_free),
    })
}

fn parse(name: &XdrString) -> Option<PartitionId> {
    let name = name.as_str()?;
    name.starts_with("/vicep").then(|| name.parse().ok()).flatten()
}

fn wide(kib: u64) -> i64 {
    i64::try_from(kib).unwrap_or(i64::MAX)
}
