//! The file data of a partition, on a disk or in a bucket.

use crate::{ChunkNames, ChunkStatistics, ChunkStore, Recount, Room, Snapshot, StoreError};
use disk::Space;

/// What a partition needs of its file data besides reading and writing chunks.
pub trait FileData: ChunkStore {
    /// Records chunks released since the last call, and frees the space of segments that were already entirely dead
    /// then. Returns their number. Call it every few seconds.
    ///
    /// # Errors
    /// Errors of the medium or the metadata; the next call does the rest.
    fn maintain(&self) -> Result<usize, StoreError> {
        self.maintain_resting(&mut || true)
    }

    /// Does the same as [`FileData::maintain`], but frees space piece by piece where that takes the medium's time.
    /// `rest` is called before each piece and returns whether to continue.
    ///
    /// # Errors
    /// Those of [`FileData::maintain`].
    fn maintain_resting(&self, rest: &mut dyn FnMut() -> bool) -> Result<usize, StoreError>;

    /// Whether an earlier run may have left unreferenced chunks, so that [`FileData::recount`] is worthwhile.
    fn needs_recount(&self) -> bool;

    /// Counts the chunks that `state` references in the segments of earlier runs, and marks everything else in them as
    /// dead; [`FileData::maintain`] frees segments that are entirely dead. `state` must be the metadata as of the open
    /// of the store, before any change. `go_on` is called before each record; if it returns false, the result is
    /// `None` and nothing was changed.
    ///
    /// # Errors
    /// Errors of reading the metadata; nothing was changed then.
    fn recount(
        &self,
        state: &dyn Snapshot,
        names: ChunkNames,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Recount>, StoreError>;

    /// Finds and removes what nothing knows of, if the medium can have that; see
    /// [`ObjectChunks`](crate::ObjectChunks). `go_on` is called before each object; if it returns false, the rest is
    /// left. Returns the number of objects removed. Call it after the open and about once a day.
    ///
    /// # Errors
    /// Errors of the medium; the next call continues.
    fn sweep(&self, _go_on: &mut dyn FnMut() -> bool) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Returns the space on the medium.
    ///
    /// # Errors
    /// `Io`.
    fn space(&self) -> Result<Space, StoreError>;

    /// Returns the space for data, without the reserves for metadata and compaction.
    ///
    /// # Errors
    /// `Io`.
    fn room(&self) -> Result<Room, StoreError>;

    /// Returns the space still available to new data, in bytes.
    ///
    /// # Errors
    /// `Io`.
    fn usable_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.room()?.usable_bytes)
    }

    /// Returns the statistics of this store.
    fn statistics(&self) -> ChunkStatistics;
}
