//! Finds out what a crash orphaned.
//!
//! A chunk is appended first and named by metadata later. What lies between when the program dies is
//! named by nobody and released by nobody. So after such an end all that metadata names is counted
//! once, in the background, and the rest is dead.
//!
//! What keeps this safe beside writers and purges is that the count is of one state: that at the
//! open, before this run changed anything. Of the segments of earlier runs, exactly the chunks named
//! then are live until they are released, and each of them is released at most once. A chunk whose
//! name was removed while the count was under way was counted as named, and its release was noted;
//! chunks of this run lie in segments of this run, which are not looked at.

use super::SegmentStore;
use crate::{ChunkAddress, Family, KeyRange, Snapshot, StoreError};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Says which chunk a record (key and value) of [`Family::Extents`] names, if any. An error says
/// that the record cannot be read; nothing is reclaimed then.
pub type ChunkOf = fn(&[u8], &[u8]) -> Result<Option<ChunkAddress>, StoreError>;

/// Behind every key that begins with an id.
const BEHIND_ALL: [u8; 9] = [0xff; 9];

/// What a count of everything that metadata names found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recount {
    /// Chunks that are named.
    pub chunks: u64,
    /// Their bytes on disk, headers included.
    pub bytes: u64,
    /// Bytes that turned out to be dead, and were not known to be.
    pub orphaned_bytes: u64,
    /// Named chunks that lie in no segment, or behind the end of theirs: lost data.
    pub missing: u64,
}

/// The count under way.
#[derive(Default)]
struct Count {
    named: BTreeMap<u64, u64>,
    result: Recount,
}

impl SegmentStore {
    /// Whether an earlier run may have left chunks that nobody names, so that [`SegmentStore::recount`]
    /// is worth its while.
    pub fn needs_recount(&self) -> bool {
        self.has_orphans.load(Relaxed)
    }

    /// Counts what `state` names in the segments of earlier runs, and takes everything else in them
    /// for dead; [`SegmentStore::maintain`] deletes what is wholly dead. `state` must be of the
    /// metadata as it was when the store was opened, before anything else changed it. `go_on` is
    /// asked before each record; with `None` it said no, and nothing was done.
    ///
    /// # Errors
    /// What reading the metadata says; nothing was done then.
    pub fn recount(
        &self,
        state: &dyn Snapshot,
        chunk_of: ChunkOf,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Recount>, StoreError> {
        let mut count = Count::default();
        let mut stopped = None;
        state.scan(Family::Extents, KeyRange::ascending(&[], &BEHIND_ALL), &mut |key, value| {
            if !go_on() {
                stopped = Some(Ok(None));
                return ControlFlow::Break(());
            }
            match chunk_of(key, value) {
                Ok(Some(address)) => self.count(&mut count, address),
                Ok(None) => {}
                Err(error) => {
                    stopped = Some(Err(error));
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        stopped.unwrap_or_else(|| Ok(Some(self.apply(&count))))
    }

    fn count(&self, count: &mut Count, address: ChunkAddress) {
        let bytes = u64::from(address.stored_bytes);
        count.result.chunks += 1;
        count.result.bytes += bytes;
        if !self.accounts.lock().had(address) {
            count.result.missing += 1;
            tracing::error!(?address, "metadata names a chunk that is not there");
        }
        *count.named.entry(address.segment).or_default() += bytes;
    }

    fn apply(&self, count: &Count) -> Recount {
        let orphaned_bytes = self.accounts.lock().recount(self.first_id, &count.named);
        self.counters.orphaned_bytes.fetch_add(orphaned_bytes, Relaxed);
        self.has_orphans.store(false, Release);
        Recount { orphaned_bytes, ..count.result }
    }
}
