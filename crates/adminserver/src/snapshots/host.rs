//! What snapshots need from outside.

use base::{AbortCode, PartitionId, VolumeId};

/// A snapshot's entry in the location database: a family that has only a read-only volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The name that clients mount.
    pub name: String,
    /// A number for its read-write volume, which there never is.
    pub parent: VolumeId,
    /// The snapshot.
    pub id: VolumeId,
    /// Where on this server it is.
    pub partition: PartitionId,
}

/// The location database, the volume service, and the file service, as far as snapshots need them.
pub trait SnapshotHost: Send + Sync {
    /// Two volume numbers that were never used, the first of them.
    ///
    /// # Errors
    /// What the location database answers.
    fn new_ids(&self) -> Result<VolumeId, AbortCode>;

    /// Whether an entry has this name.
    ///
    /// # Errors
    /// Likewise.
    fn is_name_taken(&self, name: &str) -> Result<bool, AbortCode>;

    /// Makes an entry.
    ///
    /// # Errors
    /// Likewise.
    fn register(&self, entry: &SnapshotEntry) -> Result<(), AbortCode>;

    /// Removes the entry of a snapshot; that there is none is no error.
    ///
    /// # Errors
    /// Likewise.
    fn unregister(&self, id: VolumeId) -> Result<(), AbortCode>;

    /// Does something while no volume transaction can be opened on the volume.
    ///
    /// # Errors
    /// VOLSERVOLBUSY if there is one; what `work` answers.
    fn exclusively(
        &self,
        volume: VolumeId,
        partition: PartitionId,
        work: &mut dyn FnMut() -> Result<(), AbortCode>,
    ) -> Result<(), AbortCode>;

    /// Clients have to be told: promises about the volume are void.
    fn volume_changed(&self, volume: VolumeId);
}
