//! Partitions to check.

use crate::{Check, CheckReport};
use base::{Fid, PartitionId, UnixTime, UserId, VolumeId, VolumeType};
use bytes::Bytes;
use std::sync::Arc;
use store::{ChunkStore, MetaStore};
use volume::{
    Actor, NewVolume, PartitionHandle, SetStatus, Space, StoreRequest, VnodeStatus, Volume, VolumeError,
    VolumeOptions, Volumes,
};

pub(super) fn partition() -> PartitionId {
    PartitionId::from_index(0).unwrap()
}

/// Opens the volumes of a partition that never is full.
pub(super) fn open(meta: Arc<dyn MetaStore>, chunks: Arc<dyn ChunkStore>, options: VolumeOptions) -> Volumes {
    let space = Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 });
    Volumes::open(vec![PartitionHandle { id: partition(), meta, chunks, space }], options).unwrap()
}

pub(super) fn new_volume(id: VolumeId) -> NewVolume {
    NewVolume {
        id,
        name: format!("volume.{id}").parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: VolumeId(0),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    }
}

pub(super) fn actor(now: u32) -> Actor {
    Actor { user: UserId(7), privileged: false, in_transaction: false, call: None, now: UnixTime(now) }
}

pub(super) const fn nothing() -> SetStatus {
    SetStatus { mode: None, owner: None, group: None, client_modified: None }
}

/// Stores `data` at `offset`; of the old contents, at most `file_length` bytes are kept.
pub(super) fn store(
    volume: &Volume,
    fid: Fid,
    offset: u64,
    data: &[u8],
    file_length: u64,
) -> Result<VnodeStatus, VolumeError> {
    let request = StoreRequest { offset, length: data.len() as u64, file_length, set: nothing() };
    let mut rest = Bytes::copy_from_slice(data);
    volume.store(&actor(9), fid, &request, &mut |most: usize| Ok(rest.split_to(rest.len().min(most))))
}

/// Runs a check of a partition that is served; returns `None` if it was stopped.
pub(super) fn run(volumes: &Volumes, check: &Check) -> Option<CheckReport> {
    let reader = volumes.partition_reader(partition()).unwrap();
    check.run(&reader, &|state| reader.audit(state)).unwrap()
}
