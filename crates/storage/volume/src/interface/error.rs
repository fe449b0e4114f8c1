//! Errors of volume operations, and their abort codes.

use afs_format::directory::DirectoryError;
use base::{AbortCode, PartitionId, SnapshotName, VnodeId, VolumeId};
use store::{Family, StoreError};
use thiserror::Error;
use volume_records::RecordError;

/// A failed operation. Nothing was changed.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// The server has no volume with this id.
    #[error("volume {0} is not on this server")]
    NoVolume(VolumeId),
    /// The volume is out of service.
    #[error("volume {0} is offline")]
    Offline(VolumeId),
    /// The volume is in use by a volume transaction; the client should retry soon.
    #[error("volume {0} is busy")]
    Busy(VolumeId),
    /// The volume has moved to another server.
    #[error("volume {0} has moved")]
    Moved(VolumeId),
    /// The id is in use.
    #[error("volume {0} exists already")]
    VolumeExists(VolumeId),
    /// The volume already has a snapshot of this name.
    #[error("volume {0} has a snapshot {1} already")]
    SnapshotExists(VolumeId, SnapshotName),
    /// Not one of this server's partitions.
    #[error("{0} is not a partition of this server")]
    NoPartition(PartitionId),
    /// There is no vnode with this number and uniquifier.
    #[error("no vnode {0:?} with uniquifier {1}")]
    NoVnode(VnodeId, u32),
    /// The volume is a clone or read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The operation requires a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The operation does not permit a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The name is in use.
    #[error("the name exists already")]
    Exists,
    /// The directory has no such entry.
    #[error("no such name")]
    NoEntry,
    /// The directory to be removed has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The name is empty, has a `/` or a NUL, or ends in `@sys`.
    #[error("not a valid name")]
    InvalidName,
    /// The name is longer than 256 bytes, or the contents of a symbolic link are longer than 1024 bytes.
    #[error("{got} bytes are too long for a name or path")]
    NameTooLong {
        /// Length in bytes.
        got: usize,
    },
    /// A link or rename across a boundary that it must not cross.
    #[error("not within one volume and directory")]
    CrossDevice,
    /// A directory would become its own ancestor.
    #[error("the directory would be inside itself")]
    Loop,
    /// An argument that is invalid here.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The volume would use more than its quota.
    #[error("over quota: {used_kib} KiB used and {wanted_kib} KiB wanted of {quota_kib} KiB")]
    OverQuota {
        /// Blocks in use.
        used_kib: u64,
        /// Additional blocks requested.
        wanted_kib: u64,
        /// Quota of the volume.
        quota_kib: u64,
    },
    /// The totals of directories are not known yet.
    #[error("the totals of volume {0}'s directories are not computed yet")]
    NotCounted(VolumeId),
    /// The partition has no space left.
    #[error("the partition is full")]
    PartitionFull,
    /// The directory has no space for another entry.
    #[error("the directory is full")]
    DirectoryFull,
    /// A file would be longer than 2^63-1 bytes.
    #[error("the file would be too large")]
    FileTooLarge,
    /// The data of a store did not arrive completely.
    #[error("the transfer failed: {0}")]
    Transfer(AbortCode),
    /// The change may have been made by an earlier attempt of the call, whose result is not known any more.
    #[error("an earlier attempt of the call may have made the change")]
    Uncertain,
    /// The vnode's last change could not be made durable; its earlier state can be read soon.
    #[error("a change that did not become durable is being reverted")]
    Reverting,
    /// Two chunks stored at the same moment have different contents, but digests with the same first half;
    /// the client should retry.
    #[error("another chunk is shared under the same key")]
    DigestsCollide,
    /// A directory cannot be read.
    #[error("directory vnode {}: {error}", directory.0)]
    Directory {
        /// Vnode of the directory.
        directory: VnodeId,
        /// What is wrong with it.
        error: DirectoryError,
    },
    /// Restored contents are inconsistent.
    #[error("{place}: {what}")]
    Unsound {
        /// The vnode, and the name if there is one.
        place: String,
        /// The check that failed.
        what: &'static str,
    },
    /// A stored record cannot be read.
    #[error("damaged record {key}: {what}")]
    Damaged {
        /// Family and key.
        key: String,
        /// The check that failed.
        what: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl VolumeError {
    /// Returns the abort code that OpenAFS's file server returns in the same case.
    pub fn abort_code(&self) -> AbortCode {
        match self {
            VolumeError::NoVolume(_) => AbortCode::VNOVOL,
            // Another server has the partition, so its volumes are not in service here.
            VolumeError::Offline(_) | VolumeError::Store(StoreError::Fenced { .. }) => AbortCode::VOFFLINE,
            VolumeError::Busy(_) | VolumeError::Reverting | VolumeError::DigestsCollide => AbortCode::VBUSY,
            VolumeError::Moved(_) => AbortCode::VMOVED,
            VolumeError::VolumeExists(_) | VolumeError::SnapshotExists(..) => AbortCode::VVOLEXISTS,
            VolumeError::NoPartition(_) => AbortCode::UAENODEV,
            VolumeError::NoVnode(..) => AbortCode::VNOVNODE,
            VolumeError::ReadOnly | VolumeError::Store(StoreError::ReadOnly(_)) => AbortCode::UAEROFS,
            // The change may still take effect, so a client must not be asked to repeat it.
            VolumeError::Store(StoreError::Unavailable { .. }) => AbortCode::UAETIMEDOUT,
            VolumeError::NotDirectory => AbortCode::UAENOTDIR,
            VolumeError::IsDirectory => AbortCode::UAEISDIR,
            // A directory that is not empty yields EEXIST, which POSIX permits.
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
            // The client begins anew.
            VolumeError::Uncertain => AbortCode::VRESTARTING,
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

impl From<RecordError> for VolumeError {
    fn from(error: RecordError) -> VolumeError {
        match error {
            RecordError::Damaged { key, what } => VolumeError::Damaged { key, what },
            RecordError::Store(error) => error.into(),
        }
    }
}

impl From<VolumeError> for AbortCode {
    fn from(error: VolumeError) -> AbortCode {
        error.abort_code()
    }
}

/// Returns the error for a record that cannot be read.
pub(crate) fn damage(family: Family, key: &[u8], what: &'static str) -> VolumeError {
    volume_records::damage(family, key, what).into()
}
