//! The status of a vnode, and changes to it.

use base::{Fid, UnixTime, UserId, VnodeId, VolumeId};

/// The kind of a vnode, with the wire numbers of AFSFetchStatus.FileType.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A file with data.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link, or, without execute bits in its mode, a mount point.
    SymbolicLink = 3,
}

impl FileKind {
    /// Returns the kind with this wire number.
    pub fn from_wire(value: u8) -> Option<FileKind> {
        match value {
            1 => Some(FileKind::File),
            2 => Some(FileKind::Directory),
            3 => Some(FileKind::SymbolicLink),
            _ => None,
        }
    }
}

/// The status of one vnode: what AFSFetchStatus carries except rights and locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VnodeStatus {
    /// Vnode number.
    pub vnode: VnodeId,
    /// Uniquifier.
    pub unique: u32,
    /// Kind of the vnode.
    pub kind: FileKind,
    /// Unix mode bits (12 bits).
    pub mode: u16,
    /// Owner.
    pub owner: UserId,
    /// Unix group, not interpreted by the server.
    pub group: i32,
    /// Number of names; for a directory 2 plus one for each subdirectory.
    pub links: u32,
    /// Length in bytes; for a directory that of its blob.
    pub length: u64,
    /// Counts changes of data or entries.
    pub data_version: u64,
    /// Time of the last change of the data, according to the client.
    pub client_modified: UnixTime,
    /// Time of the last change of any kind, by the server's clock.
    pub server_modified: UnixTime,
    /// User who made the last change.
    pub author: UserId,
    /// Parent directory; 0 for the root directory.
    pub parent: VnodeId,
    /// The parent's uniquifier; 0 for the root directory.
    pub parent_unique: u32,
}

impl VnodeStatus {
    /// Returns the FID of this vnode in `volume`.
    pub fn fid(&self, volume: VolumeId) -> Fid {
        Fid { volume, vnode: self.vnode, unique: self.unique }
    }

    /// Returns whether the vnode is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns the quota blocks of 1 KiB that it counts for: at least one.
    pub fn blocks(&self) -> u64 {
        crate::records::quota::blocks(self.length)
    }
}

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
    /// Current server time.
    pub now: UnixTime,
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
