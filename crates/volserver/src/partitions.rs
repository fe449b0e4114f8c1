//! Partitions: which there are, and how full they are.

use crate::codes;
use crate::server::VolumeServer;
use afs_idl::vol::{DiskPartition, DiskPartition64, PartitionIds};
use base::{AbortCode, PartitionId};
use xdr::XdrString;

/// OpenAFS's "no lock is held on the partition".
const NO_LOCK: i32 = -1;

/// The partitions by place, -1 where there is none (AFSVolListPartitions).
pub(crate) fn first_26(server: &VolumeServer) -> PartitionIds {
    let mut ids = [-1; 26];
    for partition in server.volumes().partitions() {
        if let Some(place) = ids.get_mut(partition.index() as usize) {
            *place = partition.index() as i32;
        }
    }
    PartitionIds { ids }
}

/// The partitions there are (AFSVolXListPartitions).
pub(crate) fn all(server: &VolumeServer) -> Vec<i32> {
    server.volumes().partitions().iter().map(|partition| partition.index() as i32).collect()
}

/// Room on the partition of this name, which must be a whole one (`/vicepa`). As in OpenAFS the
/// field for the least free space carries the size (AFSVolPartitionInfo64).
pub(crate) fn information(server: &VolumeServer, name: &XdrString) -> Result<DiskPartition64, AbortCode> {
    let partition = parse(name).ok_or(AbortCode::VOLSERILLEGAL_PARTITION)?;
    let space = server.volumes().space(partition).map_err(|error| codes::of(&error))?;
    let failure = server.volumes().failure(partition).map_err(|error| codes::of(&error))?;
    // Nothing can be written to a partition that became read-only.
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

/// The same in narrow numbers; the largest stands for everything beyond (AFSVolPartitionInfo).
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
