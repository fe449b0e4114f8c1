//! Helpers shared by the examples: a partition with volumes, the files of a tree, timing.

#![allow(dead_code, reason = "each example uses a part of it")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use base::{PartitionId, UnixTime, UserId, VolumeId, VolumeType};
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use store::{Partition, PartitionConfig};
use volume::{
    Actor, Durability, NewVolume, PartitionHandle, SetStatus, Space, Volume, VolumeError, VolumeOptions,
    Volumes,
};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

pub(crate) const NOTHING: SetStatus =
    SetStatus { mode: None, owner: None, group: None, client_modified: None };

pub(crate) fn actor() -> Actor {
    Actor { user: UserId(1), privileged: true, in_transaction: false, call: None, now: UnixTime(1) }
}

/// Returns the id of the partition at `index`: a, b, c, ...
pub(crate) fn partition_id(index: u8) -> PartitionId {
    PartitionId::from_index(index.into()).unwrap_or_else(|| unreachable!("there are few partitions"))
}

/// Opens a partition as a server does.
pub(crate) fn open_partition(folder: &Path) -> Outcome<Partition> {
    fs::create_dir_all(folder)?;
    let config = PartitionConfig {
        families: &volume::families::ALL,
        chunk_names: Some(volume::CHUNK_NAMES),
        ..PartitionConfig::default()
    };
    Ok(Partition::open(folder, &config)?)
}

/// Options under which nothing waits for the disk, so that the processor is the bottleneck.
pub(crate) fn relaxed() -> VolumeOptions {
    VolumeOptions { durability: Durability::Interval, ..VolumeOptions::default() }
}

/// Returns a handle that reports unlimited free space.
pub(crate) fn handle(index: u8, partition: &Partition) -> PartitionHandle {
    PartitionHandle {
        id: partition_id(index),
        meta: partition.meta(),
        chunks: partition.chunks(),
        space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
    }
}

/// Opens the volumes of one partition.
pub(crate) fn volumes(partition: &Partition, options: VolumeOptions) -> Outcome<Volumes> {
    Ok(Volumes::open(vec![handle(0, partition)], options)?)
}

/// Creates a read-write volume with a root directory.
pub(crate) fn create_on(
    volumes: &Volumes,
    partition: PartitionId,
    id: VolumeId,
) -> Result<Arc<Volume>, VolumeError> {
    let new = NewVolume {
        id,
        name: format!("volume.{id}").parse().map_err(|_| VolumeError::Invalid("name"))?,
        kind: VolumeType::ReadWrite,
        parent: VolumeId(0),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    };
    volumes.create(partition, &new)
}

/// Creates a read-write volume on the first partition.
pub(crate) fn create(volumes: &Volumes, id: u32) -> Result<Arc<Volume>, VolumeError> {
    create_on(volumes, partition_id(0), VolumeId(id))
}

/// Reads the contents of all files below a folder that are longer than `longer_than` bytes, in path order.
pub(crate) fn read_tree(path: &Path, longer_than: usize, files: &mut Vec<Bytes>) -> Outcome<()> {
    let mut entries: Vec<_> = fs::read_dir(path)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_tree(&entry.path(), longer_than, files)?;
        } else if kind.is_file() {
            let contents = fs::read(entry.path())?;
            files.extend((contents.len() > longer_than).then(|| contents.into()));
        }
    }
    Ok(())
}

/// Returns the median of an odd number of values.
pub(crate) fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    values[values.len() / 2]
}

/// Returns the processor time of this process so far in seconds, which other load on the machine hardly
/// affects.
pub(crate) fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
