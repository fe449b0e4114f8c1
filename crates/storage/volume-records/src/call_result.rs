//! Results of changes that another server of the partition may be asked for.

use crate::VnodeStatus;
use base::{UserId, VolumeId};

/// What a change of a volume has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// A name was added.
    Created {
        /// Status of what it names.
        status: VnodeStatus,
        /// Status of its directory.
        directory: VnodeStatus,
    },
    /// A name was removed.
    Removed {
        /// Status of what it named; with `links` 0 it is deleted.
        target: VnodeStatus,
        /// Status of its directory.
        directory: VnodeStatus,
    },
    /// A name was changed.
    Renamed {
        /// Status of what it names.
        moved: VnodeStatus,
        /// Whether that itself has changed.
        moved_changed: bool,
        /// Status of its previous directory.
        old_directory: VnodeStatus,
        /// Status of its new directory.
        new_directory: VnodeStatus,
        /// Status of what had the new name before; with `links` 0 it is deleted.
        replaced: Option<VnodeStatus>,
    },
    /// The data, status or access list of a vnode was changed.
    Stored(VnodeStatus),
    /// A lock of a file was set or released.
    Locked,
}

/// The record of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// The volume that was changed.
    pub volume: VolumeId,
    /// The author of the change.
    pub user: UserId,
    /// What was returned.
    pub result: CallResult,
}
