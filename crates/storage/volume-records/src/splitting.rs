//! The record of a split.

use base::{Fid, UserId, VolumeId};

/// A directory that is being split off, as recorded durably until that is completed or undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splitting {
    /// Volume that contains the directory.
    pub volume: VolumeId,
    /// Volume that gets its contents, and has no others.
    pub new: VolumeId,
    /// FID of the directory.
    pub directory: Fid,
    /// FID of its parent.
    pub parent: Fid,
    /// Name of the directory in its parent.
    pub name: Vec<u8>,
    /// Owner of the directory.
    pub owner: UserId,
    /// Change count of the new volume before the copy.
    pub fresh_changes: u64,
    /// Whether the mount point has certainly replaced the directory, so that removal is the only option.
    pub is_replaced: bool,
}

impl Splitting {
    /// Returns the name of the directory after the mount point has replaced it. It includes the uniquifier,
    /// because vnode numbers are reused.
    pub fn aside(&self) -> Vec<u8> {
        format!(".split.{}.{}", self.directory.vnode.0, self.directory.unique).into_bytes()
    }
}
