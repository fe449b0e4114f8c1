//! Chunks that several files share, in one or many volumes of a partition.
//!
//! Each shared chunk has a *row*: a record under group 0 of the family extents with the chunk's address and
//! the number of extent versions that name the row. A row changes in the batch that puts or deletes these
//! versions, so its count is as crash-safe as everything else. With the last version the row is deleted, and
//! its chunk is released when that is durable and the chunk has no readers left.
//!
//! # Locking
//! Groups are independent of each other, so a lock of the partition is held from reading a row until the
//! commit of the batch that changes it. It is the last of all locks. Before that, when data arrives, rows are
//! read without it ([`Offers`]): a row seen then may be gone at the commit, in which case nothing is
//! committed ([`Outcome::Missing`]).
//!
//! # Readers
//! A chunk that one group gives up may still be read in another, so the pins of these chunks belong to the
//! partition.

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

/// State of a partition's shared chunks.
pub(crate) struct Sharing {
    /// The sums over all rows, once read. Locked from reading a row until its change is committed; locked
    /// after all other locks.
    sums: Mutex<Option<Sums>>,
    pub(crate) pins: Pins,
}

/// Chunks that no record names once a commit is durable.
#[derive(Default)]
pub(crate) struct Obsolete {
    /// Chunks that belong to one group.
    pub(crate) own: Vec<ChunkAddress>,
    /// Chunks shared between groups.
    pub(crate) shared: Vec<ChunkAddress>,
}

impl Obsolete {
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }
}

/// A committed batch.
pub(crate) struct Done {
    pub(crate) number: CommitNumber,
    /// Chunks whose row was deleted.
    pub(crate) obsolete: Vec<ChunkAddress>,
    /// Offered chunks that a row now names.
    pub(crate) used: Vec<ChunkAddress>,
}

/// Result of committing a batch.
pub(crate) enum Outcome {
    Done(Done),
    /// Nothing was committed: since they were read, these rows were deleted or now have other contents.
    Missing(Vec<RowKey>),
}

impl Sharing {
    pub(crate) fn new(chunks: Arc<dyn ChunkStore>) -> Sharing {
        Sharing { sums: Mutex::default(), pins: Pins::new(chunks) }
    }

    /// Locks the rows against changes.
    fn lock(&self, meta: &dyn MetaStore) -> Result<MutexGuard<'_, Option<Sums>>, VolumeError> {
        let mut sums = self.sums.lock();
        if sums.is_none() {
            *sums = Some(row::load_sums(meta)?);
        }
        Ok(sums)
    }
}

impl Partition {
    /// Commits a batch together with its changes of rows; afterwards `batch` is empty.
    pub(crate) fn commit(
        &self,
        batch: &mut Batch,
        changes: &Changes,
        offers: &[&Offers],
    ) -> Result<Outcome, VolumeError> {
        let meta = &*self.handle.meta;
        if changes.is_empty() {
            let number = meta.commit(std::mem::take(batch))?;
            return Ok(Outcome::Done(Done { number, obsolete: vec![], used: vec![] }));
        }
        let mut sums = self.sharing.lock(meta)?;
        let mut step = Step::new(sums.unwrap_or_default());
        step.take(meta, changes, offers)?;
        if !step.missing.is_empty() {
            return Ok(Outcome::Missing(step.missing));
        }
        let number = step.commit(meta, batch, &mut sums)?;
        Ok(Outcome::Done(Done { number, obsolete: step.obsolete, used: step.used }))
    }

    /// Makes rows name copies of their chunks; each move has the old and the new address. The result lists
    /// the copies that were used; the other rows no longer name the old address. `None` if no copy was used.
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
        Ok(Some(Done { number, obsolete: step.obsolete, used: step.used }))
    }

    /// Resolves shared extents to chunk addresses, which stay valid as long as the returned pin exists. Call
    /// this while the extents that were read are certain to exist.
    pub(crate) fn resolve(&self, extents: &mut [(u64, Extent)]) -> Result<Option<Pin>, VolumeError> {
        if !extents.iter().any(|(_, extent)| matches!(extent, Extent::Shared { .. })) {
            return Ok(None);
        }
        // Taken before the rows are read.
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

    /// Releases a group's own chunks and shared chunks once they have no readers.
    pub(crate) fn release(&self, pins: Option<&Pins>, obsolete: Obsolete) {
        match pins {
            Some(pins) => pins.release(obsolete.own),
            None => obsolete.own.into_iter().for_each(|address| self.handle.chunks.release(address)),
        }
        self.sharing.pins.release(obsolete.shared);
    }
}

impl Step {
    /// Commits `batch` with the rows. The caller holds the lock that guards `sums`.
    fn commit(
        &mut self,
        meta: &dyn MetaStore,
        batch: &mut Batch,
        sums: &mut Option<Sums>,
    ) -> Result<CommitNumber, VolumeError> {
        batch.append(std::mem::take(&mut self.batch));
        batch.put(Family::System, keys::SHARED_SUMS, row::put_sums(&self.sums));
        // Cleared first: if the commit fails its outcome is unknown, and the sums are read again.
        *sums = None;
        let number = meta.commit(std::mem::take(batch))?;
        *sums = Some(self.sums);
        Ok(number)
    }
}
