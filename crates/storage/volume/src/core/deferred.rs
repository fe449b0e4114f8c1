//! Group commit for calls that wait for the disk without occupying a thread.
//!
//! A change may be acknowledged when it is durable. A thread waiting for that would sleep and be woken for
//! each call, which costs more than the call. So a worker runs each call within
//! [`Deferred::collect`]: changes return immediately, and the pending commits come back with the result. With
//! [`Deferred::when_durable`] the partition takes over completion of the call, and the thread is free:
//!
//! ```text
//! thread 1   change A ── leads: sync ············ ends A ── sync ············ ends B, C ── ...
//! thread 2            change B ── change C ── change D ── ...
//! ```
//!
//! The first waiter becomes the leader: it syncs, completes all calls that the sync covers, and repeats as
//! long as other calls have arrived meanwhile and no other thread leads. A call is completed only after the
//! return of a sync that began after its commit.

use crate::VolumeError;
use crate::core::group::Group;
use crate::core::shared::Partition;
use crate::dedup::Obsolete;
use parking_lot::Mutex;
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use store::{CommitNumber, StoreError};

/// Completes a call, given whether its changes are durable. The returned value is dropped when all calls
/// covered by the same sync have been completed.
type End = Box<dyn FnOnce(Result<(), VolumeError>) -> Box<dyn Any> + Send>;

/// A commit that must become durable, and the chunks that it superseded.
struct PendingCommit {
    partition: Arc<Partition>,
    number: CommitNumber,
    group: Arc<Group>,
    obsolete: Obsolete,
}

thread_local! {
    /// Pending commits of the call that this thread serves within [`Deferred::collect`].
    static OWED: RefCell<Option<Vec<PendingCommit>>> = const { RefCell::new(None) };
}

/// Commits that must be durable before a call may be answered.
#[must_use = "a deferred commit is not durable"]
pub struct Deferred(Vec<PendingCommit>);

/// Clears this thread's list even if the handler panics.
struct Scope;

impl Drop for Scope {
    fn drop(&mut self) {
        OWED.set(None);
    }
}

impl Deferred {
    /// Runs `serve`, whose volume changes do not wait until they are durable.
    pub fn collect<T>(serve: impl FnOnce() -> T) -> (T, Deferred) {
        OWED.set(Some(Vec::new()));
        let scope = Scope;
        let result = serve();
        let deferred = OWED.take().unwrap_or_default();
        drop(scope);
        (result, Deferred(deferred))
    }

    /// Returns whether there is nothing to wait for.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until everything is durable.
    pub fn wait(self) -> Result<(), VolumeError> {
        for debt in self.0 {
            debt.partition.wait_durable(&debt.group, debt.number, debt.obsolete)?;
        }
        Ok(())
    }

    /// Calls `end` when all commits are durable or have failed, on this thread or on another one that waits
    /// for nothing else meanwhile. Several calls may be completed together: what `end` returns is dropped
    /// when `end` of all of them has been called, which allows batched work at the end.
    pub fn when_durable<T: 'static>(
        mut self,
        end: impl FnOnce(Result<(), VolumeError>) -> T + Send + 'static,
    ) {
        // The newest commit covers all earlier ones of its partition. Commits on other partitions are waited
        // for here.
        let Some(last) = self.0.pop() else { return drop(end(Ok(()))) };
        let elsewhere = self.0.extract_if(.., |debt| !Arc::ptr_eq(&debt.partition, &last.partition));
        if let Err(error) = Deferred(elsewhere.collect()).wait() {
            return drop(end(Err(error)));
        }
        let number = self.0.iter().fold(last.number, |most, debt| most.max(debt.number));
        let partition = Arc::clone(&last.partition);
        self.0.push(last);
        partition.later(
            number,
            Box::new(move |durable| {
                if durable.is_ok() {
                    self.release();
                }
                Box::new(end(durable))
            }),
        );
    }

    fn release(self) {
        for debt in self.0 {
            debt.partition.release(Some(&debt.group.pins), debt.obsolete);
        }
    }
}

/// Records a pending commit of this thread's call; returns the chunks if there is no such call.
pub(crate) fn note(
    partition: &Arc<Partition>,
    group: &Arc<Group>,
    number: CommitNumber,
    obsolete: Obsolete,
) -> Result<(), Obsolete> {
    OWED.with_borrow_mut(|deferred| {
        let Some(deferred) = deferred else { return Err(obsolete) };
        let (partition, group) = (Arc::clone(partition), Arc::clone(group));
        deferred.push(PendingCommit { partition, number, group, obsolete });
        Ok(())
    })
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
            let durable = newest.map_or(Ok(()), |newest| self.handle.meta.sync(newest));
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

/// Copies the error for each call it affects.
fn same(error: &StoreError) -> VolumeError {
    StoreError::Meta(error.to_string()).into()
}
