//! What can go wrong with a volume, and the abort code that says so on the wire.

use afs_format::directory::DirectoryError;
use base::{AbortCode, PartitionId, SnapshotName, VnodeId, VolumeId};
use store::StoreError;
use thiserror::Error;

/// An operation that did not happen. Nothing was changed.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// No volume with this id is here.
    #[error("volume {0} is not on this server")]
    NoVolume(VolumeId),
    /// The volume is out of service.
    #[error("volume {0} is offline")]
    Offline(VolumeId),
    /// A volume transaction has it; the client is to try again soon.
    #[error("volume {0} is busy")]
    Busy(VolumeId),
    /// It lives on another server now.
    #[error("volume {0} has moved")]
    Moved(VolumeId),
    /// The id is taken.
    #[error("volume {0} exists already")]
    VolumeExists(VolumeId),
    /// The volume has a snapshot of that name.
    #[error("volume {0} has a snapshot {1} already")]
    SnapshotExists(VolumeId, SnapshotName),
    /// Not one of this server's partitions.
    #[error("{0} is not a partition of this server")]
    NoPartition(PartitionId),
    /// No vnode of this number and uniquifier.
    #[error("no vnode {0:?} with uniquifier {1}")]
    NoVnode(VnodeId, u32),
    /// The volume is a clone or read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// Anything but a directory was needed.
    #[error("is a directory")]
    IsDirectory,
    /// The name is taken.
    #[error("the name exists already")]
    Exists,
    /// No entry of that name.
    #[error("no such name")]
    NoEntry,
    /// The directory to be removed has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The name is empty, has a `/` or a NUL, or ends in `@sys`.
    #[error("not a valid name")]
    InvalidName,
    /// The name has more than 256 bytes, or a link's contents more than 1024.
    #[error("{got} bytes are too long for a name or path")]
    NameTooLong {
        /// Its length in bytes.
        got: usize,
    },
    /// A link or rename between what must stay apart.
    #[error("not within one volume and directory")]
    CrossDevice,
    /// A directory would become its own ancestor.
    #[error("the directory would lie within itself")]
    Loop,
    /// An argument that makes no sense here.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The volume would use more than its quota.
    #[error("over quota: {used_kib} KiB used and {wanted_kib} KiB wanted of {quota_kib} KiB")]
    OverQuota {
        /// Used now.
        used_kib: u64,
        /// More by this.
        wanted_kib: u64,
        /// The volume's maximum.
        quota_kib: u64,
    },
    /// What directories hold is not known (yet).
    #[error("what the directories of volume {0} hold is not counted yet")]
    NotCounted(VolumeId),
    /// No room on the partition.
    #[error("the partition is full")]
    PartitionFull,
    /// The directory has no room for another entry.
    #[error("the directory is full")]
    DirectoryFull,
    /// A file would be longer than 2^63-1 bytes.
    #[error("the file would be too large")]
    FileTooLarge,
    /// The data of a store did not all come; nothing was changed.
    #[error("the transfer failed: {0}")]
    Transfer(AbortCode),
    /// Two chunks that were stored at the same moment have different contents and digests with the same
    /// first half; the client is to try again.
    #[error("another chunk is shared under the same key")]
    DigestsCollide,
    /// A directory cannot be read.
    #[error("directory vnode {}: {error}", directory.0)]
    Directory {
        /// Its vnode.
        directory: VnodeId,
        /// What is wrong with it.
        error: DirectoryError,
    },
    /// Restored contents that are inconsistent.
    #[error("{place}: {what}")]
    Unsound {
        /// Which vnode, and the name if there is one.
        place: String,
        /// Which check failed.
        what: &'static str,
    },
    /// A stored record cannot be read.
    #[error("damaged record {key}: {what}")]
    Damaged {
        /// Family and key.
        key: String,
        /// Which check failed.
        what: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl VolumeError {
    /// The code for the wire, as OpenAFS's file server answers in the same case.
    pub fn abort_code(&self) -> AbortCode {
        match self {
            VolumeError::NoVolume(_) => AbortCode::VNOVOL,
            VolumeError::Offline(_) => AbortCode::VOFFLINE,
            VolumeError::Busy(_) | VolumeError::DigestsCollide => AbortCode::VBUSY,
            VolumeError::Moved(_) => AbortCode::VMOVED,
            VolumeError::VolumeExists(_) | VolumeError::SnapshotExists(..) => AbortCode::VVOLEXISTS,
            VolumeError::NoPartition(_) => AbortCode::UAENODEV,
            VolumeError::NoVnode(..) => AbortCode::VNOVNODE,
            VolumeError::ReadOnly | VolumeError::Store(StoreError::ReadOnly(_)) => AbortCode::UAEROFS,
            VolumeError::NotDirectory => AbortCode::UAENOTDIR,
            VolumeError::IsDirectory => AbortCode::UAEISDIR,
            // A directory that is not empty is answered with EEXIST, which POSIX allows.
            VolumeError::Exists | VolumeError::NotEmpty => AbortCode::UAEEXIST,
            VolumeError::NoEntry => AbortCode::UAENOENT,
            VolumeError::InvalidName | VolumeError::Invalid(_) | VolumeError::Unsound { .. } => {
                AbortCode::UAEINVAL
            }
            VolumeError::NameTooLong { .. } => AbortCode::UAENAMETOOLONG,
            VolumeError::CrossDevice => AbortCode::UAEXDEV,
            VolumeError::Loop => AbortCode::UAELOOP,
            VolumeError::OverQuota { .. } => AbortCode::VOVERQUOTA,
            VolumeError::PartitionFull | VolumeError::Store(StoreError::Full) => AbortCode::VDISKFULL,
            VolumeError::NotCounted(_) => AbortCode::UAEAGAIN,
            VolumeError::DirectoryFull | VolumeError::FileTooLarge => AbortCode::UAEFBIG,
            VolumeError::Transfer(code) => *code,
            VolumeError::Directory { .. } | VolumeError::Damaged { .. } | VolumeError::Store(_) => {
                AbortCode::UAEIO
            }
        }
    }
}

impl From<StoreError> for VolumeError {
    fn from(error: StoreError) -> VolumeError {
        match error {
            StoreError::Full => VolumeError::PartitionFull,
            other => VolumeError::Store(other),
        }
    }
}

impl From<VolumeError> for AbortCode {
    fn from(error: VolumeError) -> AbortCode {
        error.abort_code()
    }
}
