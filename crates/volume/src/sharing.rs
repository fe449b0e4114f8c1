//! Chunks that several files share, in one volume or in many of a partition.
//!
//! Each has a *row*: a record under group 0 of the family extents that says where the chunk is and how many
//! versions of extents name the row. A row changes in the batch that puts or deletes these versions, so that a
//! crash leaves its count as exact as everything else. With the last version the row goes, and its chunk is
//! released when that is durable and nobody reads it any more.
//!
//! # Order
//! Groups know nothing of each other, so a lock of the partition's is held from the look at a row to the
//! commit of the batch that changes it. It is the last of all locks. Before that, when data comes in, rows
//! are looked at without it ([`Offers`]): what was seen then may be gone at the commit, and nothing is
//! committed in that case ([`Outcome::Missing`]).
//!
//! # Readers
//! A chunk that a group gives up may be read in another one, so pins of these chunks are the partition's.

mod changes;
mod offers;
mod row;
mod statistics;

use crate::VolumeError;
use crate::keys;
use crate::pins::{Pin, Pins};
use crate::record::Extent;
use crate::shared::Partition;
use changes::Step;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use store::{Batch, ChunkAddress, ChunkStore, CommitNumber, Family, MetaStore};

pub(crate) use changes::Changes;
pub(crate) use offers::{Look, Offers};
pub(crate) use row::{FoundRow, Row, RowKey, Sums, find_row, get_row, get_sums};
pub use statistics::DeduplicationStatistics;

/// What a partition knows of its shared chunks.
pub(crate) struct Sharing {
    /// The sums over all rows, once they were read. Held from the look at a row until what changes it is
    /// committed; taken after all other locks.
    sums: Mutex<Option<Sums>>,
    pub(crate) pins: Pins,
}

/// Chunks that nobody names once a commit is durable.
#[derive(Default)]
pub(crate) struct Doomed {
    /// Those of one group.
    pub(crate) own: Vec<ChunkAddress>,
    /// Those that groups shared.
    pub(crate) shared: Vec<ChunkAddress>,
}

impl Doomed {
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }
}

/// A batch that was committed.
pub(crate) struct Done {
    pub(crate) number: CommitNumber,
    /// Chunks that lost their row.
    pub(crate) doomed: Vec<ChunkAddress>,
    /// Offered chunks that a row names now.
    pub(crate) used: Vec<ChunkAddress>,
}

/// What became of a batch.
pub(crate) enum Outcome {
    Done(Done),
    /// Nothing was committed: these rows are gone, or are of other contents, since they were looked at.
    Missing(Vec<RowKey>),
}

impl Sharing {
    pub(crate) fn new(chunks: Arc<dyn ChunkStore>) -> Sharing {
        Sharing { sums: Mutex::default(), pins: Pins::new(chunks) }
    }

    /// Keeps others from changing rows.
    fn lock(&self, meta: &dyn MetaStore) -> Result<MutexGuard<'_, Option<Sums>>, VolumeError> {
        let mut sums = self.sums.lock();
        if sums.is_none() {
            *sums = Some(row::load_sums(meta)?);
        }
        Ok(sums)
    }
}

impl Partition {
    /// Commits a batch together with the changes of rows that belong to it; then `batch` is empty.
    pub(crate) fn commit(
        &self,
        batch: &mut Batch,
        changes: &Changes,
        offers: &[&Offers],
    ) -> Result<Outcome, VolumeError> {
        let meta = &*self.handle.meta;
        if changes.is_empty() {
            let number = meta.commit(std::mem::take(batch))?;
            return Ok(Outcome::Done(Done { number, doomed: vec![], used: vec![] }));
        }
        let mut sums = self.sharing.lock(meta)?;
        let mut step = Step::new(sums.unwrap_or_default());
        step.take(meta, changes, offers)?;
        if !step.missing.is_empty() {
            return Ok(Outcome::Missing(step.missing));
        }
        let number = step.commit(meta, batch, &mut sums)?;
        Ok(Outcome::Done(Done { number, doomed: step.doomed, used: step.used }))
    }

    /// Makes rows name copies of their chunks: each with the old place and the new one. Answers which were
    /// taken; the others name something else by now. `None` if none was.
    pub(crate) fn move_shared(
        &self,
        moves: &[(RowKey, ChunkAddress, ChunkAddress)],
    ) -> Result<Option<Done>, VolumeError> {
        let meta = &*self.handle.meta;
        let mut sums = self.sharing.lock(meta)?;
        let mut step = Step::new(sums.unwrap_or_default());
        for &(key, from, to) in moves {
            step.relocate(meta, key, from, to)?;
        }
        if step.used.is_empty() {
            return Ok(None);
        }
        let number = step.commit(meta, &mut Batch::new(), &mut sums)?;
        Ok(Some(Done { number, doomed: step.doomed, used: step.used }))
    }

    /// Finds out where the shared ones among these chunks are, and keeps them there as long as the pin is.
    /// Call it while the extents that were read are sure to be there.
    pub(crate) fn resolve(&self, extents: &mut [(u64, Extent)]) -> Result<Option<Pin>, VolumeError> {
        if !extents.iter().any(|(_, extent)| matches!(extent, Extent::Shared { .. })) {
            return Ok(None);
        }
        // Before the rows are read.
        let pin = self.sharing.pins.pin();
        for (_, extent) in extents {
            if let Extent::Shared { row, length } = *extent
                && let FoundRow::Row(found) = find_row(&*self.handle.meta, row)?
            {
                *extent = Extent::Chunk { address: found.address, length };
            }
        }
        Ok(Some(pin))
    }

    /// Releases chunks of a group and chunks that groups shared, when nobody reads them any more.
    pub(crate) fn release(&self, pins: Option<&Pins>, doomed: Doomed) {
        match pins {
            Some(pins) => pins.release(doomed.own),
            None => doomed.own.into_iter().for_each(|address| self.handle.chunks.release(address)),
        }
        self.sharing.pins.release(doomed.shared);
    }
}

impl Step {
    /// Commits `batch` with the rows; the lock that `sums` stands for is held.
    fn commit(
        &mut self,
        meta: &dyn MetaStore,
        batch: &mut Batch,
        sums: &mut Option<Sums>,
    ) -> Result<CommitNumber, VolumeError> {
        batch.append(std::mem::take(&mut self.batch));
        batch.put(Family::System, keys::SHARED_SUMS, row::put_sums(&self.sums));
        // Where it is not known whether that was done, they are read again.
        *sums = None;
        let number = meta.commit(std::mem::take(batch))?;
        *sums = Some(self.sums);
        Ok(number)
    }
}
