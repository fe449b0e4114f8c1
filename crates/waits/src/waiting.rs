//! Telling of waits.

use crate::raw;
use crate::watch::{Access, Contended, Wait, tell};
use events::current::{self, Part};
use std::cell::Cell;
use std::panic::Location;

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

/// The thread read, wrote or synced (`kind`), which took so long.
pub fn disk(kind: &'static str, bytes: u64, ns: u64, failed: bool) {
    raw::disk_access(kind, bytes, ns, failed);
    current::spent(Part::Disk, ns);
    let access = Some(Access { kind, bytes });
    tell(&Wait { part: outermost(Part::Disk), ns, access, lock: None });
}

/// The thread waited for a lock; of calls that is noted only if `noted`.
pub(crate) fn contended(
    lock: &'static str,
    holder: Option<&'static Location<'static>>,
    ns: u64,
    is_noted: bool,
) {
    raw::lock_wait(lock, ns, holder);
    if is_noted {
        current::spent(Part::Lock, ns);
    }
    tell(&Wait { part: outermost(Part::Lock), ns, access: None, lock: Some(Contended { lock, holder }) });
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
