//! Tracks whether there is space for another chunk.

use super::config::Reserve;
use crate::{StoreError, gauge};
use disk::{Disk, Space};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The file system is queried again after at most this many bytes were written, since others write too.
const TRUST_BYTES_MAX: u64 = 16 << 20;

/// Purpose of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// New data.
    Data,
    /// Copies made to free more space than they take.
    Compaction,
}

/// Space known to be free. Every append uses some of it, and the file system is queried when none is left.
/// Concurrent threads may overdraw it by the size of their writes; the reserve is far larger.
pub(super) struct Room {
    reserve: Reserve,
    /// Bytes kept for compaction, in addition to the reserve.
    compaction_bytes: u64,
    left: AtomicU64,
}

impl Room {
    pub(super) fn new(reserve: Reserve, compaction_bytes: u64) -> Room {
        Room { reserve, compaction_bytes, left: AtomicU64::new(0) }
    }

    /// Returns the bytes that may still be written.
    pub(super) fn usable(&self, space: Space, purpose: Purpose) -> u64 {
        space.free_bytes.saturating_sub(self.kept(space, purpose))
    }

    /// Returns the total and remaining space for data.
    pub(super) fn for_data(&self, space: Space) -> gauge::Room {
        let total_bytes = space.total_bytes.saturating_sub(self.kept(space, Purpose::Data));
        gauge::Room { total_bytes, usable_bytes: self.usable(space, Purpose::Data) }
    }

    /// Returns the bytes withheld from writers with this purpose.
    fn kept(&self, space: Space, purpose: Purpose) -> u64 {
        let compaction = if purpose == Purpose::Data { self.compaction_bytes } else { 0 };
        self.reserve.of(space).saturating_add(compaction)
    }

    /// Reserves space for `bytes`; `Full` if that would use space kept for other purposes.
    pub(super) fn take(
        &self,
        bytes: u64,
        purpose: Purpose,
        disk: &dyn Disk,
        path: &Path,
    ) -> Result<(), StoreError> {
        if purpose == Purpose::Data && self.take_known(bytes) {
            return Ok(());
        }
        let usable = self.usable(space(disk, path)?, purpose);
        if usable < bytes {
            return Err(StoreError::Full);
        }
        if purpose == Purpose::Data {
            self.left.store((usable - bytes).min(TRUST_BYTES_MAX), Relaxed);
        } else {
            _ = self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(bytes)));
        }
        Ok(())
    }

    fn take_known(&self, bytes: u64) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Discards the cached value, so that the next append queries the file system.
    pub(super) fn forget(&self) {
        self.left.store(0, Relaxed);
    }
}

/// Returns the space on the file system that holds `path`.
pub(super) fn space(disk: &dyn Disk, path: &Path) -> Result<Space, StoreError> {
    let fail = |source: io::Error| crate::home::failed("ask for the free space of", path, source);
    disk.space(path).map_err(fail)
}
