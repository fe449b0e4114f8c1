//! Codes that this service answers beside those of its own table: errno values as Linux numbers them.

use base::AbortCode;
use volume::VolumeError;

/// Not an administrator, as SplitVolume alone says it.
pub(crate) const EPERM: AbortCode = AbortCode(1);
/// No such transaction, or its volume was deleted.
pub(crate) const ENOENT: AbortCode = AbortCode(2);
/// The store failed.
pub(crate) const EIO: AbortCode = AbortCode(5);
/// A volume's number is missing.
pub(crate) const E2BIG: AbortCode = AbortCode(7);
/// Two volumes that must lie on one partition, or be of one family.
pub(crate) const EXDEV: AbortCode = AbortCode(18);
/// No such volume on the partition.
pub(crate) const ENODEV: AbortCode = AbortCode(19);
/// An argument without a meaning.
pub(crate) const EINVAL: AbortCode = AbortCode(22);
/// The transaction was opened for reading alone.
pub(crate) const EROFS: AbortCode = AbortCode(30);

/// No way to another server.
pub(crate) const ENOTCONN: AbortCode = AbortCode(107);

/// The code for an error of the volumes. `vos` knows no unified codes.
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
