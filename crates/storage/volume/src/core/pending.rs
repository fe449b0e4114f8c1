//! Changes that are committed and visible, but not yet durable.
//!
//! A change may be acknowledged when it is durable. A thread waiting for that would sleep and be woken for
//! each call, which costs more than the call. So a worker serves a call within [`Commits::collect`], which
//! returns the call's result as [`Pending`]: the result is available only after the commits are durable. With
//! [`Pending::when_durable`] the partition takes over completion of the call, and the thread is free:
//!
//! ```text
//! thread 1   change A ── leads: sync ············ ends A ── sync ············ ends B, C ── ...
//! thread 2            change B ── change C ── change D ── ...
//! ```
//!
//! The first waiter becomes the leader: it syncs, completes all calls that the sync covers, and repeats as
//! long as other calls have arrived meanwhile and no other thread leads. A call is completed only after the
//! return of a sync that began after its commit.
//!
//! [`Commits::collect`]: crate::Commits::collect

use crate::VolumeError;
use crate::core::group::Group;
use crate::core::permit::ReplyKind;
use crate::core::shared::Partition;
use crate::dedup::Obsolete;
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use store::{CommitNumber, StoreError};

/// Completes a call, given whether its changes are durable. The returned value is dropped when all calls
/// covered by the same sync have been completed.
type End = Box<dyn FnOnce(Result<(), VolumeError>) -> Box<dyn Any> + Send>;

/// A commit that must become durable, and the chunks that it superseded.
pub(crate) struct PendingCommit {
    pub(crate) partition: Arc<Partition>,
    pub(crate) number: CommitNumber,
    /// The group that was changed, if it is a change of volumes.
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) obsolete: Obsolete,
}

/// Commits that must be waited for until they are durable. If they are dropped instead, the next
/// [`Partition::sync`] makes them durable and releases the chunks that they superseded.
#[derive(Default)]
pub(crate) struct Unsynced {
    commits: Vec<PendingCommit>,
    /// Partitions that were read and need a permit for each reply.
    limited: Vec<Arc<Partition>>,
    kind: ReplyKind,
}

impl Unsynced {
    pub(crate) fn push(&mut self, commit: PendingCommit) {
        self.commits.push(commit);
    }

    pub(crate) fn append(&mut self, mut more: Unsynced) {
        if self.commits.is_empty() {
            std::mem::swap(&mut self.commits, &mut more.commits);
        } else {
            self.commits.append(&mut more.commits);
        }
        self.limited.append(&mut more.limited);
    }

    /// Records that the reply acknowledges a change.
    pub(crate) fn acknowledge(&mut self) {
        self.kind = ReplyKind::Change;
    }

    /// Makes the reply wait for the permit of a partition, if it needs one.
    pub(crate) fn limit(&mut self, partition: &Arc<Partition>) {
        let is_known = |known: &Arc<Partition>| Arc::ptr_eq(known, partition);
        if partition.limits.get().is_some() && !self.limited.iter().any(is_known) {
            self.limited.push(Arc::clone(partition));
        }
    }

    /// Whether there is nothing to wait for.
    fn is_ready(&self) -> bool {
        self.commits.is_empty() && self.limited.iter().all(|partition| partition.may_reply(self.kind))
    }

    fn wait(self) -> Result<(), VolumeError> {
        for commit in &self.commits {
            commit.partition.make_durable(commit.number).map_err(|error| self.kind.error(error.into()))?;
        }
        self.await_permits()?;
        self.release();
        Ok(())
    }

    /// Waits until the reply may be sent. Comes last: what the reply shows was read before.
    fn await_permits(&self) -> Result<(), StoreError> {
        self.limited.iter().try_for_each(|partition| partition.await_permit(self.kind))
    }

    /// Releases the superseded chunks of commits that are durable.
    fn release(mut self) {
        for commit in self.commits.drain(..) {
            let pins = commit.group.as_ref().map(|group| &group.pins);
            commit.partition.release(pins, commit.obsolete);
        }
    }
}

impl Drop for Unsynced {
    fn drop(&mut self) {
        self.commits.drain(..).for_each(Partition::sync_later);
    }
}

/// The result of changes that may not be durable yet. It must not be acknowledged before they are, so it is
/// returned only after waiting for that.
///
/// Dropping it loses the result, but not the changes: they become durable with the next
/// [`Volumes::sync`](crate::Volumes::sync) or an earlier sync of the same partition.
#[must_use = "the changes are not durable yet"]
pub struct Pending<T> {
    value: T,
    unsynced: Unsynced,
}

impl<T> Pending<T> {
    /// Returns a result that depends on no change.
    pub fn ready(value: T) -> Pending<T> {
        Pending::new(value, Unsynced::default())
    }

    pub(crate) fn new(value: T, unsynced: Unsynced) -> Pending<T> {
        Pending { value, unsynced }
    }

    pub(crate) fn into_unsynced(self) -> (T, Unsynced) {
        (self.value, self.unsynced)
    }

    /// Returns the result if there is nothing to wait for.
    ///
    /// # Errors
    /// The same value if there is.
    pub fn into_ready(self) -> Result<T, Pending<T>> {
        if self.unsynced.is_ready() { Ok(self.value) } else { Err(self) }
    }

    /// Converts the result.
    pub fn map<R>(self, convert: impl FnOnce(T) -> R) -> Pending<R> {
        Pending { value: convert(self.value), unsynced: self.unsynced }
    }

    /// Returns the result, and the changes on which it depends. The caller must not acknowledge the result
    /// before it has waited for the second part.
    pub fn into_parts(self) -> (T, Pending<()>) {
        (self.value, Pending { value: (), unsynced: self.unsynced })
    }

    /// Returns the result when all changes are durable.
    ///
    /// # Errors
    /// `Store` if a change cannot be made durable now, and whether it survives a crash is then undetermined; or if the
    /// server may not answer for a partition that was read.
    pub fn wait(self) -> Result<T, VolumeError> {
        self.unsynced.wait()?;
        Ok(self.value)
    }

    /// Calls `end` when all changes are durable and the reply may be sent, or that has failed, on this thread or on
    /// another one that waits for nothing else meanwhile. Several calls may be completed together: what `end` returns
    /// is dropped when `end` of all of them has been called, which allows batched work at the end.
    pub fn when_durable<R: 'static>(self, end: impl FnOnce(Result<T, VolumeError>) -> R + Send + 'static)
    where
        T: Send + 'static,
    {
        let Pending { value, mut unsynced } = self;
        // The newest commit covers all earlier ones of its partition. Commits on other partitions are waited
        // for here.
        let Some(last) = unsynced.commits.last() else {
            return drop(end(unsynced.wait().map(|()| value)));
        };
        let partition = Arc::clone(&last.partition);
        let is_elsewhere = |commit: &mut PendingCommit| !Arc::ptr_eq(&commit.partition, &partition);
        let commits = unsynced.commits.extract_if(.., is_elsewhere).collect();
        let elsewhere = Unsynced { commits, limited: Vec::new(), kind: unsynced.kind };
        if let Err(error) = elsewhere.wait() {
            return drop(end(Err(error)));
        }
        let newest = unsynced.commits.iter().map(|commit| commit.number).max().unwrap_or_default();
        partition.later(
            newest,
            Box::new(move |durable| {
                let is_permitted = || unsynced.await_permits().map_err(VolumeError::from);
                let kind = unsynced.kind;
                let durable = durable.map_err(|error| kind.error(error));
                let ended = durable.and_then(|()| is_permitted()).map(|()| {
                    unsynced.release();
                    value
                });
                Box::new(end(ended))
            }),
        );
    }
}

/// Completions that wait for a sync.
#[derive(Default)]
struct Waiting {
    ends: Vec<(CommitNumber, End)>,
    is_led: bool,
}

/// The waiting completions of a partition.
#[derive(Default)]
pub(crate) struct Ends(Mutex<Waiting>);

impl Ends {
    /// Adds a completion; returns whether the caller becomes the leader.
    fn put(&self, number: CommitNumber, end: End) -> bool {
        let mut waiting = self.0.lock();
        waiting.ends.push((number, end));
        !std::mem::replace(&mut waiting.is_led, true)
    }

    /// Takes all waiting completions.
    fn take(&self) -> Vec<(CommitNumber, End)> {
        std::mem::take(&mut self.0.lock().ends)
    }

    /// Gives up leadership.
    fn leave(&self) {
        self.0.lock().is_led = false;
    }

    #[cfg(test)]
    pub(crate) fn is_led(&self) -> bool {
        self.0.lock().is_led
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().ends.len()
    }

    /// Resumes leadership, unless nothing is waiting or another thread leads.
    fn lead_again(&self) -> bool {
        let mut waiting = self.0.lock();
        !waiting.ends.is_empty() && !std::mem::replace(&mut waiting.is_led, true)
    }
}

/// Gives up leadership even if a sync or a completion panics; calls that would then wait for ever are
/// dropped, which aborts them.
struct Lead<'a>(&'a Ends);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.leave();
            drop(self.0.take());
        }
    }
}

impl Partition {
    /// Calls `end` when `number` is durable or cannot be made so.
    fn later(&self, number: CommitNumber, end: End) {
        if !self.ends.put(number, end) {
            return;
        }
        let _lead = Lead(&self.ends);
        loop {
            // Lets other threads commit first, so that this sync covers them too: one sync costs as much as
            // several calls.
            std::thread::yield_now();
            let ends = self.ends.take();
            let newest = ends.iter().map(|(number, _)| *number).max();
            let durable = newest.map_or(Ok(()), |newest| self.make_durable(newest));
            // Calls that arrive while these are completed need not wait for that.
            self.ends.leave();
            let end_one = |(_, end): (CommitNumber, End)| end(durable.as_ref().copied().map_err(same));
            drop(ends.into_iter().map(end_one).collect::<Vec<_>>());
            if !self.ends.lead_again() {
                return;
            }
        }
    }
}

/// Copies the error for each call it affects, with the reasons that callers distinguish.
fn same(error: &StoreError) -> VolumeError {
    let copy = match error {
        StoreError::Full => StoreError::Full,
        StoreError::ReadOnly(what) => StoreError::ReadOnly(what.clone()),
        StoreError::Fenced { place } => StoreError::Fenced { place: place.clone() },
        StoreError::Unavailable { place, what } => {
            StoreError::Unavailable { place: place.clone(), what: what.clone() }
        }
        other => StoreError::Meta(other.to_string()),
    };
    copy.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::AbortCode;

    #[test]
    fn copied_errors_keep_their_codes() {
        let (place, what) = ("/vicepa".to_owned(), "a sync".to_owned());
        for (error, code) in [
            (StoreError::Full, AbortCode::VDISKFULL),
            (StoreError::ReadOnly(what.clone()), AbortCode::UAEROFS),
            (StoreError::Fenced { place: place.clone() }, AbortCode::VOFFLINE),
            (StoreError::Unavailable { place, what }, AbortCode::UAETIMEDOUT),
        ] {
            assert_eq!(same(&error).abort_code(), code, "{error}");
        }
    }
}
