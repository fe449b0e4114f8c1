//! Partitions in memory, and the volumes in them.

use crate::VOLUMES;
use base::{PartitionId, UnixTime, VolumeType};
use std::sync::Arc;
use store::{MemoryChunks, MemoryMeta};
use volume::{NewVolume, PartitionHandle, Permit, Space, Volume, VolumeOptions, Volumes};

/// Returns an empty partition in memory.
pub fn memory(index: usize) -> PartitionHandle {
    PartitionHandle {
        id: PartitionId::from_index(index as u32).expect("a small number"),
        meta: Arc::new(MemoryMeta::new()),
        chunks: Arc::new(MemoryChunks::new()),
        space: Arc::new(|| Space { total_kib: 1 << 30, free_kib: 1 << 29 }),
    }
}

/// Replies may always be sent.
struct Permitted;

impl Permit for Permitted {
    fn may_answer(&self) -> bool {
        true
    }

    fn may_change(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// Opens the volumes of partitions in a bucket.
pub fn open_all(handles: &[PartitionHandle], options: VolumeOptions) -> Volumes {
    let volumes = Volumes::open(handles.to_vec(), options).expect("a store in memory");
    for handle in handles {
        volumes.limit(handle.id, Arc::new(Permitted)).expect("an open partition");
    }
    volumes
}

/// Opens the volumes of a partition.
pub fn open_volumes(handle: &PartitionHandle) -> Volumes {
    open_all(std::slice::from_ref(handle), VolumeOptions::default())
}

/// Opens an empty partition, and creates the volume of a node in it.
pub fn new_volumes(handle: &PartitionHandle, index: usize) -> Volumes {
    let volumes = open_volumes(handle);
    create(&volumes, handle.id, index);
    volumes
}

/// Creates the volume of a node in a partition.
pub fn create(volumes: &Volumes, partition: PartitionId, index: usize) -> Arc<Volume> {
    let id = VOLUMES[index];
    let new = NewVolume {
        id,
        name: format!("v{index}").parse().expect("a valid name"),
        kind: VolumeType::ReadWrite,
        parent: id,
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1_600_000_000),
    };
    volumes.create(partition, &new).expect("an empty partition")
}
