//! Whether there is room for another chunk.

use super::config::Reserve;
use crate::StoreError;
use disk::{Disk, Space};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The file system is asked again after at most this much was written, since others write too.
const TRUST_BYTES_MAX: u64 = 16 << 20;

/// Room known to be there, used up by every append and asked for again when it is gone. Threads that
/// ask at the same time may overdraw it by what they write: the reserve is far larger.
pub(super) struct Room {
    reserve: Reserve,
    left: AtomicU64,
}

impl Room {
    pub(super) fn new(reserve: Reserve) -> Room {
        Room { reserve, left: AtomicU64::new(0) }
    }

    /// Takes room for `bytes`; `Full` if that would go into the reserve.
    pub(super) fn take(&self, bytes: u64, disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
        if self.take_known(bytes) {
            return Ok(());
        }
        let space = space(disk, path)?;
        let usable = self.reserve.usable(space);
        if usable < bytes {
            return Err(StoreError::Full);
        }
        self.left.store((usable - bytes).min(TRUST_BYTES_MAX), Relaxed);
        Ok(())
    }

    fn take_known(&self, bytes: u64) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Forgets what was known: asks at the next append.
    pub(super) fn forget(&self) {
        self.left.store(0, Relaxed);
    }
}

/// Room on the file system that holds `path`.
pub(super) fn space(disk: &dyn Disk, path: &Path) -> Result<Space, StoreError> {
    let fail = |source: io::Error| crate::home::failed("ask for the free space of", path, source);
    disk.space(path).map_err(fail)
}
