//! All volumes of all partitions of one server.

use crate::{NewVolume, PartitionHandle, Space, Volume, VolumeError, VolumeOptions};
use base::{PartitionId, VolumeId, VolumeName};
use std::sync::Arc;

/// Whether file service may use a volume now. Not stored: after a restart every volume is online
/// unless its header says that it is out of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeState {
    /// Everybody may.
    #[default]
    Online,
    /// A volume transaction has it for a while (VBUSY).
    Busy,
    /// A volume transaction or the operator took it offline (VOFFLINE).
    Offline,
    /// It was moved away (VMOVED).
    Moved,
}

/// How often a cache could answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Answers from the cache.
    pub hits: u64,
    /// Answers from the store.
    pub misses: u64,
    /// What is in the cache now.
    pub entries: u64,
}

/// All volumes of all partitions of one server. Opening costs one read of every volume's header;
/// nothing below a header is read before it is asked for. All methods may be called from any
/// thread.
pub struct Volumes {
    partitions: Vec<PartitionHandle>,
}

impl Volumes {
    /// Loads the headers of all partitions and continues purges that a restart interrupted.
    pub fn open(partitions: Vec<PartitionHandle>, options: VolumeOptions) -> Result<Volumes, VolumeError> {
        let _ = options;
        Ok(Volumes { partitions })
    }

    /// The volume for file service.
    ///
    /// # Errors
    /// `NoVolume`, `Offline`, `Busy`, `Moved`.
    pub fn get(&self, id: VolumeId) -> Result<Arc<Volume>, VolumeError> {
        Err(VolumeError::NoVolume(id))
    }

    /// The volume for administration, whatever its state.
    ///
    /// # Errors
    /// `NoVolume`.
    pub fn get_any_state(&self, id: VolumeId) -> Result<Arc<Volume>, VolumeError> {
        Err(VolumeError::NoVolume(id))
    }

    /// The id of the volume of this name.
    pub fn find_name(&self, name: &VolumeName) -> Option<VolumeId> {
        let _ = name;
        None
    }

    /// All volumes of a partition in the order of their ids.
    pub fn list(&self, partition: PartitionId) -> Vec<Arc<Volume>> {
        let _ = partition;
        vec![]
    }

    /// The partitions in order.
    pub fn partitions(&self) -> Vec<PartitionId> {
        self.partitions.iter().map(|partition| partition.id).collect()
    }

    /// Room on a partition.
    ///
    /// # Errors
    /// `NoPartition`.
    pub fn space(&self, partition: PartitionId) -> Result<Space, VolumeError> {
        let found = self.partitions.iter().find(|handle| handle.id == partition);
        found.map(|handle| (handle.space)()).ok_or(VolumeError::NoPartition(partition))
    }

    /// Makes a volume, durably.
    ///
    /// # Errors
    /// `VolumeExists`, `NoPartition`, `Store`.
    pub fn create(&self, partition: PartitionId, new: &NewVolume) -> Result<Arc<Volume>, VolumeError> {
        let _ = new;
        Err(VolumeError::NoPartition(partition))
    }

    /// Removes a volume, durably and in constant time; [`Volumes::purge_step`] reclaims its space
    /// later.
    ///
    /// # Errors
    /// `NoVolume`, `Store`.
    pub fn delete(&self, id: VolumeId) -> Result<(), VolumeError> {
        Err(VolumeError::NoVolume(id))
    }

    /// Reclaims a bounded part of what deleted volumes and huge deleted files left behind. Returns
    /// whether there is more to do. For one background thread.
    ///
    /// # Errors
    /// `Store`.
    pub fn purge_step(&self) -> Result<bool, VolumeError> {
        Ok(false)
    }

    /// Makes everything acknowledged so far durable. Needed only with `Durability::Interval`, and
    /// before the end.
    ///
    /// # Errors
    /// `Store`.
    pub fn sync(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    /// Counters of the status cache.
    pub fn status_cache(&self) -> CacheCounters {
        CacheCounters::default()
    }

    /// Counters of the directory cache.
    pub fn directory_cache(&self) -> CacheCounters {
        CacheCounters::default()
    }
}
