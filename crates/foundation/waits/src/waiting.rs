//! Reports waits.

use crate::raw;
use crate::watch::{Access, Contended, Wait, notify};
use events::catalogue::{CacheAction, DiskAccess, LockWait};
use events::parts::{self, Part};
use events::{FieldValue, LINES, LoggedEvent};
use std::cell::Cell;

thread_local! {
    /// Number of nested spans that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Returns the part, unless it is nested in another wait.
fn outermost(part: Part) -> Option<Part> {
    (DEPTH.get() == 0).then_some(part)
}

/// Reports that the thread waited `ns` nanoseconds for `part`.
pub fn waited(part: Part, ns: u64) {
    parts::spent(part, ns);
    notify(&Wait { part: outermost(part), ns, access: None, lock: None });
}

/// Reports how long the thread's call waited for a worker. The watcher is notified only here, where the
/// procedure is known; the call has recorded the time earlier.
pub fn queued(ns: u64) {
    notify(&Wait { part: outermost(Part::Queue), ns, access: None, lock: None });
}

/// Reports a disk access of this thread.
pub fn disk(event: &DiskAccess) {
    let &DiskAccess { access, failed, moved, time, .. } = event;
    raw::disk_access(access, moved, time, failed != 0);
    parts::spent(Part::Disk, time);
    let access = Some(Access { kind: access, bytes: moved });
    notify(&Wait { part: outermost(Part::Disk), ns: time, access, lock: None });
    line(event);
}

/// Reports a wait for a lock; it is recorded for the call only if `is_noted`.
pub(crate) fn contended(event: &LockWait, is_noted: bool) {
    let &LockWait { lock, holder, wait } = event;
    raw::lock_wait(lock, wait, holder);
    if is_noted {
        parts::spent(Part::Lock, wait);
    }
    notify(&Wait {
        part: outermost(Part::Lock),
        ns: wait,
        access: None,
        lock: Some(Contended { lock, holder }),
    });
    line(event);
}

/// Reports a cache miss or eviction on this thread.
pub fn cache(event: &CacheAction) {
    let &CacheAction { cache, misses, evictions, purged, freed, age } = event;
    if misses > 0 {
        raw::cache_miss(cache);
    }
    if evictions > 0 {
        raw::cache_evict(cache, freed, age);
    }
    if purged > 0 {
        raw::cache_purge(cache, purged, freed);
    }
    line(event);
}

/// Logs an event of this thread together with the call that it serves, if such lines are enabled.
#[inline]
fn line<E: LoggedEvent>(event: &E) {
    if LINES.wants(E::EVENT) {
        LINES.log(event, of_call);
    }
}

/// Returns the fields that describe this thread's call; empty if it serves none.
fn of_call() -> Vec<(&'static str, FieldValue)> {
    let call = crate::call::current();
    if call.service.is_empty() {
        return Vec::new();
    }
    let volume = FieldValue::Number(call.volume.into());
    vec![("service", call.service.into()), ("procedure", call.procedure.into()), ("volume", volume)]
}

/// A wait that includes all waits nested in it; see [`events::parts::enter`].
#[derive(Debug)]
#[must_use]
pub struct Span {
    part: Part,
    span: Option<parts::Span>,
}

/// Starts a wait.
pub fn enter(part: Part) -> Span {
    DEPTH.set(DEPTH.get() + 1);
    Span { part, span: Some(parts::enter(part)) }
}

impl Span {
    /// Ends the wait, which took `ns` nanoseconds.
    pub fn leave(mut self, ns: u64) {
        let (part, span) = (self.part, self.span.take());
        drop(self);
        if let Some(span) = span {
            span.leave(ns);
        }
        notify(&Wait { part: outermost(part), ns, access: None, lock: None });
    }
}

/// Leaves the span even if the wait panicked.
impl Drop for Span {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}
