//! Codes that this service returns in addition to its own table: errno values as numbered on Linux.

use base::AbortCode;
use volume::VolumeError;

/// The caller is not an administrator; used only by SplitVolume.
pub(crate) const EPERM: AbortCode = AbortCode(1);
/// No such transaction, or its volume was deleted.
pub(crate) const ENOENT: AbortCode = AbortCode(2);
/// The store failed.
pub(crate) const EIO: AbortCode = AbortCode(5);
/// A volume id is missing.
pub(crate) const E2BIG: AbortCode = AbortCode(7);
/// Two volumes that must be on one partition or in one family are not.
pub(crate) const EXDEV: AbortCode = AbortCode(18);
/// No such volume on the partition.
pub(crate) const ENODEV: AbortCode = AbortCode(19);
/// An invalid argument.
pub(crate) const EINVAL: AbortCode = AbortCode(22);
/// The transaction was opened for reading only.
pub(crate) const EROFS: AbortCode = AbortCode(30);

/// No connection to another server is possible.
pub(crate) const ENOTCONN: AbortCode = AbortCode(107);

/// Returns the code for an error of a volume operation. `vos` does not know unified (UAE) codes.
pub(crate) fn of(error: &VolumeError) -> AbortCode {
    match error {
        VolumeError::NoVolume(_) => AbortCode::VNOVOL,
        VolumeError::VolumeExists(_) => AbortCode::VVOLEXISTS,
        VolumeError::NoPartition(_) => AbortCode::VOLSERILLEGAL_PARTITION,
        VolumeError::PartitionFull => AbortCode::VDISKFULL,
        VolumeError::Invalid(_) | VolumeError::Unsound { .. } => EINVAL,
        _ => EIO,
    }
}
