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

pub(crate) mod pins;

use crate::VolumeError;
use crate::dedup::pins::Pins;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use store::{Batch, ChunkAddress, ChunkStore, CommitNumber, Family, MetaStore};
use volume_records::rows::{RowKey, Sums, load_sums};
use volume_records::{codec, keys};

pub(crate) use changes::{Changes, Step};
pub(crate) use offers::{Look, Offers};

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
    pub(crate) fn lock(&self, meta: &dyn MetaStore) -> Result<MutexGuard<'_, Option<Sums>>, VolumeError> {
        let mut sums = self.sums.lock();
        if sums.is_none() {
            *sums = Some(load_sums(meta)?);
        }
        Ok(sums)
    }
}

impl Step {
    /// Commits `batch` with the rows. The caller holds the lock that guards `sums`.
    pub(crate) fn commit(
        &mut self,
        meta: &dyn MetaStore,
        batch: &mut Batch,
        sums: &mut Option<Sums>,
    ) -> Result<CommitNumber, VolumeError> {
        batch.append(std::mem::take(&mut self.batch));
        batch.put(Family::SYSTEM, keys::SHARED_SUMS, codec::put_sums(&self.sums));
        // Cleared first: if the commit fails its outcome is unknown, and the sums are read again.
        *sums = None;
        let number = meta.commit(std::mem::take(batch))?;
        *sums = Some(self.sums);
        Ok(number)
    }
}
