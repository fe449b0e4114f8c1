//! Durable records of file locks, on partitions that another server can take over.
//!
//! A record has the number of locks of a file, and not when they expire: servers do not compare their clocks. A server that
//! takes the partition over lets them last as long as new ones. The result of a call that sets or releases a lock is recorded with
//! its change, as that of any other change ([`crate::core::call_results`]).

use crate::core::call::InCall;
use crate::core::call_results::{CallResults, Earlier};
use crate::core::pending::{Pending, PendingCommit, Unsynced};
use crate::core::shared::Partition;
use crate::dedup::Obsolete;
use crate::{Actor, VolumeError, Volumes};
use base::{Fid, PartitionId};
use parking_lot::MutexGuard;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, CommitNumber, Family, KeyRange, MetaStore};
use volume_records::{CallResult, RecordedCall, codec, keys};

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

/// Returns a change of the records of files, `None` for no locks.
fn batch(records: &[(Fid, Option<i32>)]) -> Batch {
    let mut batch = Batch::new();
    for &(fid, count) in records {
        match count {
            Some(count) => batch.put(Family::SYSTEM, keys::lock(fid), codec::put_lock(count)),
            None => batch.delete(Family::SYSTEM, keys::lock(fid)),
        }
    }
    batch
}

fn pending(home: &Arc<Partition>, number: CommitNumber) -> PendingCommit {
    PendingCommit { partition: Arc::clone(home), number, group: None, obsolete: Obsolete::default() }
}

/// The records of the locks of a call's volume. No other locks of the partition change while this exists. A commit may wait while
/// the bucket is away, so no lock that readers need may be held then.
pub struct LockRecords<'c> {
    volume: &'c InCall<'c>,
    actor: Actor,
    /// The last commit of such records; `None` if the partition needs none.
    last: Option<MutexGuard<'c, Option<CommitNumber>>>,
}

impl InCall<'_> {
    /// Returns the records of locks for a change by this call. To be held from the change until it is recorded.
    pub fn lock_records(&self, actor: Actor) -> LockRecords<'_> {
        let last = self.home().limits.get().map(|limits| limits.locking.lock());
        LockRecords { volume: self, actor, last }
    }
}

impl LockRecords<'_> {
    /// Whether the call has changed the locks before. Its reply waits until that is durable.
    ///
    /// # Errors
    /// `Uncertain` if it is not known any more, or if the call has made another change. `Store`, `Damaged`.
    pub fn has_result(&self) -> Result<bool, VolumeError> {
        let (Some(last), Some(limits), Some(call)) =
            (&self.last, self.volume.home().limits.get(), self.actor.call)
        else {
            return Ok(false);
        };
        match limits.results.find(call.id)? {
            Earlier::Never => return Ok(false),
            Earlier::Done(recorded) if *recorded == self.result() => {}
            Earlier::Done(_) | Earlier::Unknown => return Err(VolumeError::Uncertain),
        }
        if let Some(number) = **last {
            self.await_commit(number);
        }
        Ok(true)
    }

    fn result(&self) -> RecordedCall {
        RecordedCall { volume: self.volume.id(), user: self.actor.user, result: CallResult::Locked }
    }

    /// Whether a change of this call is recorded although it changes no lock, so that a repetition changes none either.
    pub fn keeps_results(&self) -> bool {
        self.last.is_some() && self.actor.call.is_some()
    }

    /// Records how many locks a file has, 0 for none, with the result of the call, and makes the reply wait until that is
    /// durable. Returns false if the partition needs no record.
    ///
    /// # Errors
    /// `Store`.
    pub fn record(&mut self, fid: Fid, count: i32) -> Result<bool, VolumeError> {
        let home = self.volume.home();
        let Some(limits) = home.limits.get() else { return Ok(false) };
        let mut batch = batch(&[(fid, (count != 0).then_some(count))]);
        if let Some(call) = self.actor.call {
            CallResults::record(&mut batch, call.id, &self.result());
        }
        let number = home.handle.meta.commit(batch)?;
        if let Some(last) = &mut self.last {
            **last = Some(number);
        }
        if let Some(call) = self.actor.call {
            limits.results.committed(call.id, call.client);
        }
        self.await_commit(number);
        Ok(true)
    }

    fn await_commit(&self, number: CommitNumber) {
        let mut unsynced = Unsynced::default();
        unsynced.push(pending(self.volume.home(), number));
        self.volume.keep(Pending::new((), unsynced));
    }
}

impl Volumes {
    /// Deletes the records of the locks that `ended` returns; it is called while no other lock of the partition changes. They are
    /// gone durably with a later sync; a failure is logged.
    pub fn forget_locks(&self, partition: PartitionId, ended: impl FnOnce() -> Vec<Fid>) {
        let Ok(home) = self.partition(partition) else { return };
        let Some(limits) = home.limits.get() else { return };
        let mut last = limits.locking.lock();
        let fids = ended();
        if fids.is_empty() {
            return;
        }
        let records: Vec<(Fid, Option<i32>)> = fids.iter().map(|fid| (*fid, None)).collect();
        match home.handle.meta.commit(batch(&records)) {
            Ok(number) => {
                *last = Some(number);
                Partition::sync_later(pending(&home, number));
            }
            Err(error) => tracing::warn!(%partition, %error, "records of locks that have ended stay in it"),
        }
    }
}
