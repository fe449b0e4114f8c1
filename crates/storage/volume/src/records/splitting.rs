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
    pub(crate) fresh_changes: u64,
    /// Whether the mount point has certainly replaced the directory, so that removal is the only option.
    pub(crate) is_replaced: bool,
}
