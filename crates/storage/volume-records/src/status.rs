//! The status of a vnode.

use crate::quota;
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
        quota::blocks(self.length)
    }
}
