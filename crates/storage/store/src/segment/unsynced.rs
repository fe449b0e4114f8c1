//! Tracks how much written data no sync has covered.
//!
//! A disk processes its queue roughly in order. If hundreds of megabytes of bulk data are queued when the log
//! of the metadata is to be synced, even the creation of an empty file waits for all of them. So bulk data is
//! synced as it arrives, a bounded amount at a time.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};

/// Bytes written and bytes synced.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    appended: AtomicU64,
    synced: AtomicU64,
}

impl Unsynced {
    /// Counts bytes written to a file that the next sync will cover.
    pub(super) fn appended(&self, bytes: u64) {
        self.appended.fetch_add(bytes, AcqRel);
    }

    /// Returns the position that a sync started now will cover.
    pub(super) fn seen(&self) -> u64 {
        self.appended.load(Acquire)
    }

    /// Records that a sync covering everything up to `seen` succeeded.
    pub(super) fn synced(&self, seen: u64) {
        self.synced.fetch_max(seen, AcqRel);
    }

    /// Returns the number of unsynced bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.seen().saturating_sub(self.synced.load(Acquire))
    }
}
