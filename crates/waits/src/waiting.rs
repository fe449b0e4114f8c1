//! Telling of waits.

use crate::raw;
use crate::watch::{Access, Contended, Wait, tell};
use events::catalogue::{CacheAction, DiskAccess, LockWait};
use events::current::{self, Part};
use events::{Happened, LINES, Told};
use std::cell::Cell;

thread_local! {
    /// Spans that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The part, if it is not within another wait.
fn outermost(part: Part) -> Option<Part> {
    (DEPTH.get() == 0).then_some(part)
}

/// The thread waited so long for that.
pub fn waited(part: Part, ns: u64) {
    current::spent(part, ns);
    tell(&Wait { part: outermost(part), ns, access: None, lock: None });
}

/// The call that this thread serves has waited so long for a worker. Who watches is told only here, where it
/// is known which procedure it is; the call has noted it before.
pub fn queued(ns: u64) {
    tell(&Wait { part: outermost(Part::Queue), ns, access: None, lock: None });
}

/// The thread read, wrote or synced.
pub fn disk(event: &DiskAccess) {
    let &DiskAccess { access, failed, moved, time, .. } = event;
    raw::disk_access(access, moved, time, failed != 0);
    current::spent(Part::Disk, time);
    let access = Some(Access { kind: access, bytes: moved });
    tell(&Wait { part: outermost(Part::Disk), ns: time, access, lock: None });
    line(event);
}

/// The thread waited for a lock; of calls that is noted only if `noted`.
pub(crate) fn contended(event: &LockWait, is_noted: bool) {
    let &LockWait { lock, holder, wait } = event;
    raw::lock_wait(lock, wait, holder);
    if is_noted {
        current::spent(Part::Lock, wait);
    }
    tell(&Wait {
        part: outermost(Part::Lock),
        ns: wait,
        access: None,
        lock: Some(Contended { lock, holder }),
    });
    line(event);
}

/// A cache lacked or let go of something on this thread.
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

/// Leaves a line of what happened to this thread, with the call that it serves, if such lines are wanted.
#[inline]
fn line<E: Happened>(event: &E) {
    if LINES.wants(E::EVENT) {
        LINES.tell(event, of_call);
    }
}

/// What a line says of the call that this thread serves; nothing if it serves none.
fn of_call() -> Vec<(&'static str, Told)> {
    let call = crate::call::current();
    if call.service.is_empty() {
        return Vec::new();
    }
    let volume = Told::Number(call.volume.into());
    vec![("service", call.service.into()), ("procedure", call.procedure.into()), ("volume", volume)]
}

/// A wait within which whatever else is waited for belongs to it; see [`events::current::enter`].
#[derive(Debug)]
#[must_use]
pub struct Span {
    part: Part,
    span: Option<current::Span>,
}

/// The thread begins to wait for that.
pub fn enter(part: Part) -> Span {
    DEPTH.set(DEPTH.get() + 1);
    Span { part, span: Some(current::enter(part)) }
}

impl Span {
    /// It waited so long.
    pub fn leave(mut self, ns: u64) {
        let (part, span) = (self.part, self.span.take());
        drop(self);
        if let Some(span) = span {
            span.leave(ns);
        }
        tell(&Wait { part: outermost(part), ns, access: None, lock: None });
    }
}

/// Also if what was waited for panicked.
impl Drop for Span {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}
