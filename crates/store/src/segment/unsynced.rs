//! How much was written that no sync has covered.
//!
//! What stands before the disk is written in the order in which it came, more or less. If hundreds of megabytes of
//! bulk data stand there when the log of the metadata is to be synced, whoever made an empty file waits for all
//! of them. So bulk data is synced while it comes in, a bounded piece at a time.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};

/// Bytes that were written, and of these, how many are synced.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    appended: AtomicU64,
    synced: AtomicU64,
}

impl Unsynced {
    /// So many bytes more were written, to a file that the next sync will find.
    pub(super) fn appended(&self, bytes: u64) {
        self.appended.fetch_add(bytes, AcqRel);
    }

    /// What a sync that begins now will cover.
    pub(super) fn seen(&self) -> u64 {
        self.appended.load(Acquire)
    }

    /// A sync that covered so much has ended well.
    pub(super) fn synced(&self, seen: u64) {
        self.synced.fetch_max(seen, AcqRel);
    }

    /// What is not synced.
    pub(super) fn bytes(&self) -> u64 {
        self.seen().saturating_sub(self.synced.load(Acquire))
    }
}
