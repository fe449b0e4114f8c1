//! Enforces quotas.

use crate::VolumeError;

/// Rejects growth by `more` blocks of a volume that uses `used` of at most `quota` blocks (0: no limit). Up
/// to `spare` blocks may exceed the quota, so that a store in progress when the quota is reached still
/// succeeds (`-spare` of OpenAFS's file server).
pub(crate) fn check(used: u64, more: u64, quota: u64, spare: u64) -> Result<(), VolumeError> {
    if quota == 0 || more == 0 || used.saturating_add(more) <= quota.saturating_add(spare) {
        return Ok(());
    }
    Err(VolumeError::OverQuota { used_kib: used, wanted_kib: more, quota_kib: quota })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_quota_and_spare_is_refused() {
        assert!(check(90, 10, 100, 0).is_ok());
        assert!(check(90, 11, 100, 0).is_err());
        assert!(check(90, 11, 100, 1).is_ok());
        assert!(check(200, 0, 100, 0).is_ok());
        assert!(check(200, 1000, 0, 0).is_ok());
    }
}
