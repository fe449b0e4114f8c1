//! Durable records of file locks, on partitions that another server can take over.
//!
//! A record has the number of locks of a file, and not when they expire: servers do not compare their clocks. A server that
//! takes the partition over lets them last as long as new ones.

use crate::core::call::InCall;
use crate::core::pending::{Pending, PendingCommit, Unsynced};
use crate::core::shared::Partition;
use crate::dedup::Obsolete;
use crate::{VolumeError, Volumes};
use base::{Fid, PartitionId};
use parking_lot::MutexGuard;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, CommitNumber, Family, KeyRange, MetaStore, StoreError};
use volume_records::{codec, keys};

/// Returns the files of the partition with this metadata that have records of locks, each with the number of readers or -1 for a
/// writer. Records that cannot be read are logged and left out.
///
/// # Errors
/// `Store` if the metadata cannot be read.
pub fn recorded_locks(meta: &dyn MetaStore) -> Result<Vec<(Fid, i32)>, VolumeError> {
    let (from, to) = keys::locks();
    let mut locks = Vec::new();
    meta.scan(Family::SYSTEM, KeyRange::ascending(&from, &to), &mut |key, value| {
        if let (Some(fid), Some(count)) = (keys::lock_of(key), codec::get_lock(value)) {
            locks.push((fid, count));
        } else {
            tracing::error!(key = %key.escape_ascii(), "the record of locks cannot be read");
        }
        ControlFlow::Continue(())
    })?;
    Ok(locks)
}

/// Commits the records of files, `None` for no locks.
fn commit(home: &Partition, records: &[(Fid, Option<i32>)]) -> Result<CommitNumber, StoreError> {
    let mut batch = Batch::new();
    for &(fid, count) in records {
        match count {
            Some(count) => batch.put(Family::SYSTEM, keys::lock(fid), codec::put_lock(count)),
            None => batch.delete(Family::SYSTEM, keys::lock(fid)),
        }
    }
    home.handle.meta.commit(batch)
}

fn pending(home: &Arc<Partition>, number: CommitNumber) -> PendingCommit {
    PendingCommit { partition: Arc::clone(home), number, group: None, obsolete: Obsolete::default() }
}

impl InCall<'_> {
    /// Returns a guard to be held from a change of locks until it is recorded; `None` if the partition needs no records. A
    /// commit may wait while the bucket is away, so no lock that readers need may be held then.
    pub fn lock_records(&self) -> Option<MutexGuard<'_, ()>> {
        self.home().limits.get().map(|limits| limits.locking.lock())
    }

    /// Records how many locks a file has, 0 for none, and makes the reply wait until that is durable. Returns false if the
    /// partition needs no record. The caller holds [`lock_records`](Self::lock_records).
    ///
    /// # Errors
    /// `Store`.
    pub fn record_lock(&self, fid: Fid, count: i32) -> Result<bool, VolumeError> {
        let home = self.home();
        if home.limits.get().is_none() {
            return Ok(false);
        }
        let number = commit(home, &[(fid, (count != 0).then_some(count))])?;
        let mut unsynced = Unsynced::default();
        unsynced.push(pending(home, number));
        self.keep(Pending::new((), unsynced));
        Ok(true)
    }
}

impl Volumes {
    /// Deletes the records of the locks that `ended` returns; it is called while no other lock of the partition changes. They are
    /// gone durably with a later sync; a failure is logged.
    pub fn forget_locks(&self, partition: PartitionId, ended: impl FnOnce() -> Vec<Fid>) {
        let Ok(home) = self.partition(partition) else { return };
        let Some(limits) = home.limits.get() else { return };
        let _changes = limits.locking.lock();
        let fids = ended();
        if fids.is_empty() {
            return;
        }
        let records: Vec<(Fid, Option<i32>)> = fids.iter().map(|fid| (*fid, None)).collect();
        match commit(&home, &records) {
            Ok(number) => Partition::sync_later(pending(&home, number)),
            Err(error) => tracing::warn!(%partition, %error, "records of locks that have ended stay in it"),
        }
    }
}
