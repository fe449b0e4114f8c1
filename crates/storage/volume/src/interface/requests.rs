//! Parameters and results of operations on volumes and vnodes.

use crate::{VnodeStatus, VolumeError};
use base::{CallId, UnixTime, UserId, VnodeId, VolumeId, VolumeName, VolumeType};
use std::net::IpAddr;
use store::{ChunkOwner, Codec, ObjectTerms};

/// The user who makes a change, and the time. Every changing operation takes one.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    /// User id; becomes the author, and the owner of created vnodes.
    pub user: UserId,
    /// Whether the user is a member of system:administrators. Only a privileged actor can set the set-id and
    /// sticky bits, and keeps them when data or owner change.
    pub privileged: bool,
    /// Whether this is the volume server in its own transaction, which may change volumes taken out of file
    /// service.
    pub in_transaction: bool,
    /// The call that makes the change, if it may be executed more than once. It must make only one.
    pub call: Option<RepeatableCall>,
    /// Current server time.
    pub now: UnixTime,
}

/// A call that may be executed more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatableCall {
    /// Its identity.
    pub id: CallId,
    /// The client that has made it; limits count by it.
    pub client: IpAddr,
}

/// Changes to a status (AFSStoreStatus): a `None` field is unchanged, or has its default on creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetStatus {
    /// AFS_SETMODE: Unix mode bits. For an unprivileged actor only `0o777` are used.
    pub mode: Option<u16>,
    /// AFS_SETOWNER.
    pub owner: Option<UserId>,
    /// AFS_SETGROUP.
    pub group: Option<i32>,
    /// AFS_SETMODTIME.
    pub client_modified: Option<UnixTime>,
}

/// Parameters of StoreData: the file is cut to `file_length` if it is longer, then `length` bytes are written
/// at `offset`.
#[derive(Clone, Copy, Debug)]
pub struct StoreRequest {
    /// Offset of the data in bytes.
    pub offset: u64,
    /// Length of the data in bytes. With 0 a shorter file is extended with zeros to `offset`.
    pub length: u64,
    /// Maximum length of the old contents that is kept.
    pub file_length: u64,
    /// Status changes that take effect with the data.
    pub set: SetStatus,
}

impl StoreRequest {
    /// Checks that the range is one that a file can have.
    pub(crate) fn check_range(&self) -> Result<(), VolumeError> {
        let end = self.offset.checked_add(self.length).filter(|&end| i64::try_from(end).is_ok());
        end.map(drop).ok_or(VolumeError::FileTooLarge)
    }
}

/// How another process may store whole chunks of a file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreTerms {
    /// How objects are created.
    pub objects: ObjectTerms,
    /// Base-2 logarithm of the size of a chunk in bytes.
    pub chunk_shift: u8,
    /// Encoding of the chunks.
    pub codec: Codec,
    /// Owner of the file's first chunk; see [`ChunkOwner::at`].
    pub owner: ChunkOwner,
}

impl StoreTerms {
    /// Returns the number of objects that suffice for this many bytes of data.
    pub fn objects_for(&self, bytes: u64) -> u64 {
        // One chunk less than fits in without the headers.
        let in_object =
            (u64::from(self.objects.object_bytes_max) >> self.chunk_shift).saturating_sub(1).max(1);
        (bytes >> self.chunk_shift).div_ceil(in_object)
    }
}

/// Result of creating or linking.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// Status of the file, directory or link.
    pub status: VnodeStatus,
    /// Status of its directory.
    pub directory: VnodeStatus,
}

/// Result of removing a name.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// Status of the vnode that was named; with `links` 0 it is deleted.
    pub target: VnodeStatus,
    /// Status of the directory.
    pub directory: VnodeStatus,
}

impl Removed {
    /// Returns whether the vnode is deleted, so that its callbacks are void.
    pub fn is_gone(&self) -> bool {
        self.target.links == 0
    }
}

/// Result of a rename.
#[derive(Clone, Copy, Debug)]
pub struct Renamed {
    /// Status of the vnode that was moved.
    pub moved: VnodeStatus,
    /// Whether the moved vnode itself changed: a directory gets a new `..`.
    pub moved_changed: bool,
    /// Status of its previous directory.
    pub old_directory: VnodeStatus,
    /// Status of its new directory.
    pub new_directory: VnodeStatus,
    /// Status of the vnode that had the new name before; with `links` 0 it is deleted.
    pub replaced: Option<VnodeStatus>,
}

/// The vnode that a directory entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Vnode number.
    pub vnode: VnodeId,
    /// Uniquifier.
    pub unique: u32,
}

/// Parameters of a new clone.
#[derive(Clone, Debug)]
pub struct CloneVolume {
    /// Volume id, not 0.
    pub id: VolumeId,
    /// Volume name.
    pub name: VolumeName,
    /// Type of the clone: read-only or backup.
    pub kind: VolumeType,
    /// Creation and copy date.
    pub now: UnixTime,
}

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Volume id, not 0.
    pub id: VolumeId,
    /// Volume name.
    pub name: VolumeName,
    /// Type of the volume.
    pub kind: VolumeType,
    /// Read-write volume it belongs to; 0 or `id` if it is read-write.
    pub parent: VolumeId,
    /// Quota in blocks of 1 KiB; 0 for no limit. OpenAFS starts with 5000.
    pub quota_max_kib: u64,
    /// Whether it gets a root directory (mode 0777, owner 0, all rights for system:administrators). Without
    /// one it waits for a restore.
    pub with_root: bool,
    /// Whether it may be used immediately.
    pub in_service: bool,
    /// Initial value of [`crate::VolumeHeader::destroy_me`]: 0, or the mark of a volume that is incomplete.
    pub destroy_me: u8,
    /// Creation, update and copy date.
    pub now: UnixTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_objects_are_offered() {
        for (object_bytes_max, bytes, objects) in [
            (8 << 20, 31 << 18, 1),
            (8 << 20, 32 << 18, 2),
            (1 << 20, 3_000_000, 4),
            (1, 1 << 20, 4),
            (8 << 20, 5, 0),
        ] {
            let objects_of = ObjectTerms { partition: [0; 16], object_bytes_max };
            let (codec, owner) = (Codec::Raw, ChunkOwner::default());
            let terms = StoreTerms { objects: objects_of, chunk_shift: 18, codec, owner };
            assert_eq!(terms.objects_for(bytes), objects, "{object_bytes_max} {bytes}");
        }
    }
}
