//! Lists partitions and their space.

use crate::codes;
use crate::server::VolumeServer;
use crate::sharing::OtherOwners;
use afs_idl::vol::{self, DiskPartition, DiskPartition64, PartitionIds};
use base::{AbortCode, Caller, PartitionId};
use xdr::XdrString;

/// OpenAFS's value for an unlocked partition.
const NO_LOCK: i32 = -1;

impl VolumeServer {
    /// ListPartitions: returns the first 26 partitions at their indices, -1 for missing ones.
    pub(crate) fn list_partitions(
        &self,
        caller: &Caller,
        _: vol::ListPartitionsRequest,
    ) -> Result<vol::ListPartitionsReply, AbortCode> {
        self.check_query(caller)?;
        let mut ids = [-1; 26];
        for partition in all(self) {
            if let Some(place) = ids.get_mut(partition.index() as usize) {
                *place = partition.index() as i32;
            }
        }
        Ok(vol::ListPartitionsReply { partitions: PartitionIds { ids } })
    }

    /// XListPartitions: returns all partitions.
    pub(crate) fn x_list_partitions(
        &self,
        caller: &Caller,
        _: vol::XListPartitionsRequest,
    ) -> Result<vol::XListPartitionsReply, AbortCode> {
        self.check_query(caller)?;
        let partitions = all(self);
        let partitions = partitions.iter().map(|partition| partition.index() as i32).collect();
        Ok(vol::XListPartitionsReply { partitions })
    }

    /// PartitionInfo: returns the space of a partition in 32-bit numbers, saturating.
    pub(crate) fn partition_info(
        &self,
        caller: &Caller,
        request: vol::PartitionInfoRequest,
    ) -> Result<vol::PartitionInfoReply, AbortCode> {
        self.check_query(caller)?;
        let wide = information(self, &request.name)?;
        let narrow = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
        let partition = DiskPartition {
            name: wide.name,
            device_name: wide.device_name,
            lock: wide.lock,
            total_usable: 0,
            free: narrow(wide.free),
            min_free: narrow(wide.min_free),
        };
        Ok(vol::PartitionInfoReply { partition })
    }

    /// PartitionInfo64: returns the space of a partition.
    pub(crate) fn partition_info64(
        &self,
        caller: &Caller,
        request: vol::PartitionInfo64Request,
    ) -> Result<vol::PartitionInfo64Reply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::PartitionInfo64Reply { partition: information(self, &request.name)? })
    }
}

/// Returns the partitions of this server, and those that it shares with others.
fn all(server: &VolumeServer) -> Vec<PartitionId> {
    server.other_owners().map_or_else(|| server.volumes().partitions(), OtherOwners::partitions)
}

/// Returns the space of the partition with this full name (`/vicepa`). As in OpenAFS the field for the
/// minimum free space has the size.
fn information(server: &VolumeServer, name: &XdrString) -> Result<DiskPartition64, AbortCode> {
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

fn parse(name: &XdrString) -> Option<PartitionId> {
    let name = name.as_str()?;
    name.starts_with("/vicep").then(|| name.parse().ok()).flatten()
}

fn wide(kib: u64) -> i64 {
    i64::try_from(kib).unwrap_or(i64::MAX)
}
