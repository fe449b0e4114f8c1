//! What is known about one vnode, and what can be changed about it.

use base::{Fid, UnixTime, UserId, VnodeId, VolumeId};

/// What a vnode is, with the numbers of the wire (AFSFetchStatus.FileType).
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
    /// The kind with this wire number.
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
    /// The vnode's number.
    pub vnode: VnodeId,
    /// Its uniquifier.
    pub unique: u32,
    /// File, directory or symbolic link.
    pub kind: FileKind,
    /// Unix mode bits, 12 of them.
    pub mode: u16,
    /// Owner.
    pub owner: UserId,
    /// Unix group; no meaning to the server.
    pub group: i32,
    /// Names that lead here; for a directory 2 and one for each subdirectory.
    pub links: u32,
    /// Bytes; a directory's is that of its blob.
    pub length: u64,
    /// Counts the changes of data or entries.
    pub data_version: u64,
    /// When the data changed, as clients say.
    pub client_modified: UnixTime,
    /// When anything changed, by the server's clock.
    pub server_modified: UnixTime,
    /// Who changed it last.
    pub author: UserId,
    /// The directory it lies in; 0 for the root directory.
    pub parent: VnodeId,
    /// The parent's uniquifier; 0 for the root directory.
    pub parent_unique: u32,
}

impl VnodeStatus {
    /// The FID under which `volume` shows this vnode.
    pub fn fid(&self, volume: VolumeId) -> Fid {
        Fid { volume, vnode: self.vnode, unique: self.unique }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Quota blocks of 1 KiB that it counts for: at least one.
    pub fn blocks(&self) -> u64 {
        crate::quota::blocks(self.length)
    }
}

/// Who changes something, and when. Every changing operation takes one.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    /// Becomes the author, and the owner of what is created.
    pub user: UserId,
    /// A member of system:administrators. Only a privileged actor sets the set-id and sticky bits,
    /// and keeps them over a change of data or owner.
    pub privileged: bool,
    /// The volume server in a transaction of its own: may change what is taken from file service.
    pub in_transaction: bool,
    /// The server's time now.
    pub now: UnixTime,
}

/// Changes to a status (AFSStoreStatus): what is `None` stays, or has its default on creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetStatus {
    /// AFS_SETMODE: Unix mode bits. Of an unprivileged actor only `0o777` count.
    pub mode: Option<u16>,
    /// AFS_SETOWNER.
    pub owner: Option<UserId>,
    /// AFS_SETGROUP.
    pub group: Option<i32>,
    /// AFS_SETMODTIME.
    pub client_modified: Option<UnixTime>,
}

/// What StoreData is to do: cut the file to `file_length` if it is longer, then write `length`
/// bytes at `offset`.
#[derive(Clone, Copy, Debug)]
pub struct StoreRequest {
    /// Where the data begins, in bytes.
    pub offset: u64,
    /// How many bytes follow. With 0 the file is extended with zeros to `offset` if it is shorter.
    pub length: u64,
    /// Longest that the old contents may stay.
    pub file_length: u64,
    /// Status changes that take effect with the data.
    pub set: SetStatus,
}

/// After something was created or linked.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// The file, directory or link.
    pub status: VnodeStatus,
    /// The directory it is in.
    pub directory: VnodeStatus,
}

/// After a name was removed.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// What it named, as it is now. With `links` 0 it is gone.
    pub target: VnodeStatus,
    /// The directory.
    pub directory: VnodeStatus,
}

impl Removed {
    /// Whether the vnode is gone, so that its callbacks are void.
    pub fn is_gone(&self) -> bool {
        self.target.links == 0
    }
}

/// After a rename.
#[derive(Clone, Copy, Debug)]
pub struct Renamed {
    /// What was moved.
    pub moved: VnodeStatus,
    /// Whether the status or data of what was moved changed: it is a directory and has a new `..`.
    pub moved_changed: bool,
    /// The directory it was in.
    pub old_directory: VnodeStatus,
    /// The directory it is in now.
    pub new_directory: VnodeStatus,
    /// What had the new name before, as it is now; with `links` 0 it is gone.
    pub replaced: Option<VnodeStatus>,
}

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The vnode.
    pub vnode: VnodeId,
    /// Its uniquifier.
    pub unique: u32,
}
