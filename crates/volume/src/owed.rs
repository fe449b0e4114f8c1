//! Calls that wait for the disk without a thread of their own.
//!
//! A change may be acknowledged when it is durable. A thread that waited for that would sleep and be woken
//! again for each call, which costs more than the call. So who serves calls runs each within
//! [`Owed::collect`]: changes then return at once, and what is still owed comes back with the result. With
//! [`Owed::when_durable`] the end of the call is left with the partition, and the thread is free:
//!
//! ```text
//! thread 1   change A ── leads: sync ············ ends A ── sync ············ ends B, C ── ...
//! thread 2            change B ── change C ── change D ── ...
//! ```
//!
//! Who finds nobody leading leads: it syncs, ends all calls that this covers, and goes on as long as others
//! came meanwhile and nobody else leads. No call is ended before a sync has returned that began after
//! its commit.

use crate::VolumeError;
use crate::group::Group;
use crate::shared::Partition;
use crate::sharing::Doomed;
use parking_lot::Mutex;
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use store::{CommitNumber, StoreError};

/// The end of a call, which is told whether its changes are durable. What it returns is dropped when all
/// others that the same sync covers have ended too.
type End = Box<dyn FnOnce(Result<(), VolumeError>) -> Box<dyn Any> + Send>;

/// A commit that must be durable, and the chunks that it made superfluous.
struct Debt {
    partition: Arc<Partition>,
    number: CommitNumber,
    group: Arc<Group>,
    doomed: Doomed,
}

thread_local! {
    /// What the call that this thread serves owes, if it is served within [`Owed::collect`].
    static OWED: RefCell<Option<Vec<Debt>>> = const { RefCell::new(None) };
}

/// What must be durable before a call may be answered.
#[must_use = "a change that is owed is not durable"]
pub struct Owed(Vec<Debt>);

/// Takes this thread's list away even if the service panics.
struct Scope;

impl Drop for Scope {
    fn drop(&mut self) {
        OWED.set(None);
    }
}

impl Owed {
    /// Runs `serve`, whose changes of volumes do not wait until they are durable.
    pub fn collect<T>(serve: impl FnOnce() -> T) -> (T, Owed) {
        OWED.set(Some(Vec::new()));
        let scope = Scope;
        let result = serve();
        let owed = OWED.take().unwrap_or_default();
        drop(scope);
        (result, Owed(owed))
    }

    /// Whether there is nothing to wait for.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all is durable.
    ///
    /// # Errors
    /// `Store`.
    pub fn wait(self) -> Result<(), VolumeError> {
        for debt in self.0 {
            debt.partition.pay(&debt.group, debt.number, debt.doomed)?;
        }
        Ok(())
    }

    /// Calls `end` when all is durable or cannot be made so: here or on another thread, which does not
    /// wait for anything else meanwhile. Several calls may end together: what `end` returns is dropped when
    /// `end` of all of them has been called, so that something may be done once for all.
    pub fn when_durable<T: 'static>(
        mut self,
        end: impl FnOnce(Result<(), VolumeError>) -> T + Send + 'static,
    ) {
        // What was committed last covers all before it. Of two partitions, the others are waited for.
        let Some(last) = self.0.pop() else { return drop(end(Ok(()))) };
        let elsewhere = self.0.extract_if(.., |debt| !Arc::ptr_eq(&debt.partition, &last.partition));
        if let Err(error) = Owed(elsewhere.collect()).wait() {
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
            debt.partition.release(Some(&debt.group.pins), debt.doomed);
        }
    }
}

/// Notes a commit that the call of this thread owes; gives the chunks back if there is no such call.
pub(crate) fn note(
    partition: &Arc<Partition>,
    group: &Arc<Group>,
    number: CommitNumber,
    doomed: Doomed,
) -> Result<(), Doomed> {
    OWED.with_borrow_mut(|owed| {
        let Some(owed) = owed else { return Err(doomed) };
        let (partition, group) = (Arc::clone(partition), Arc::clone(group));
        owed.push(Debt { partition, number, group, doomed });
        Ok(())
    })
}

/// Ends of calls that wait for a sync.
#[derive(Default)]
struct Waiting {
    ends: Vec<(CommitNumber, End)>,
    is_led: bool,
}

/// Those of a partition.
#[derive(Default)]
pub(crate) struct Ends(Mutex<Waiting>);

impl Ends {
    /// Puts an end to the others; whether the caller leads now.
    fn put(&self, number: CommitNumber, end: End) -> bool {
        let mut waiting = self.0.lock();
        waiting.ends.push((number, end));
        !std::mem::replace(&mut waiting.is_led, true)
    }

    /// All that wait.
    fn take(&self) -> Vec<(CommitNumber, End)> {
        std::mem::take(&mut self.0.lock().ends)
    }

    /// Lets another lead.
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

    /// Leads again, unless there is nothing to do or another leads.
    fn lead_again(&self) -> bool {
        let mut waiting = self.0.lock();
        !waiting.ends.is_empty() && !std::mem::replace(&mut waiting.is_led, true)
    }
}

/// Gives the lead back even if a sync or an end panics; calls that would wait for ever are dropped then,
/// which aborts them.
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
    /// Calls `end` when `number` is durable, or cannot be made so.
    fn later(&self, number: CommitNumber, end: End) {
        if !self.ends.put(number, end) {
            return;
        }
        let _lead = Lead(&self.ends);
        loop {
            // Who is about to change something goes first, and is covered too: one sync costs as much as
            // several calls.
            std::thread::yield_now();
            let ends = self.ends.take();
            let newest = ends.iter().map(|(number, _)| *number).max();
            let durable = newest.map_or(Ok(()), |newest| self.handle.meta.sync(newest));
            // Whoever comes while the calls are ended need not wait for that.
            self.ends.leave();
            let end_one = |(_, end): (CommitNumber, End)| end(durable.as_ref().copied().map_err(same));
            drop(ends.into_iter().map(end_one).collect::<Vec<_>>());
            if !self.ends.lead_again() {
                return;
            }
        }
    }
}

/// A failure for each of those whom it concerns.
fn same(error: &StoreError) -> VolumeError {
    StoreError::Meta(error.to_string()).into()
}
