//! The interface to other services that snapshots need.

use base::{AbortCode, PartitionId, VolumeId};

/// A snapshot's entry in the location database, which only has a read-only volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The name that clients mount.
    pub name: String,
    /// Id of its read-write volume, which never exists.
    pub parent: VolumeId,
    /// Id of the snapshot.
    pub id: VolumeId,
    /// Partition of this server that has the snapshot.
    pub partition: PartitionId,
}

/// The parts of the location database, the volume service and the file service that snapshots need.
pub trait SnapshotHost: Send + Sync {
    /// Reserves two consecutive new volume ids and returns the first.
    ///
    /// # Errors
    /// Errors of the location database.
    fn new_ids(&self) -> Result<VolumeId, AbortCode>;

    /// Whether an entry has this name.
    ///
    /// # Errors
    /// Errors of the location database.
    fn is_name_taken(&self, name: &str) -> Result<bool, AbortCode>;

    /// Creates an entry.
    ///
    /// # Errors
    /// Errors of the location database.
    fn register(&self, entry: &SnapshotEntry) -> Result<(), AbortCode>;

    /// Removes the entry of a snapshot. Succeeds if the entry does not exist.
    ///
    /// # Errors
    /// Errors of the location database.
    fn unregister(&self, id: VolumeId) -> Result<(), AbortCode>;

    /// Runs `work` while no volume transaction can be opened on the volume.
    ///
    /// # Errors
    /// VOLSERVOLBUSY if a transaction is open; errors of `work`.
    fn exclusively(
        &self,
        volume: VolumeId,
        partition: PartitionId,
        work: &mut dyn FnMut() -> Result<(), AbortCode>,
    ) -> Result<(), AbortCode>;

    /// Breaks the clients' callback promises on the volume.
    fn volume_changed(&self, volume: VolumeId);
}
