//! The watcher that is notified of every wait while a profile runs.

use crate::call::Current;
use events::parts::{PARTS, Part};
use parking_lot::RwLock;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A disk access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Kind: read, write, sync.
    pub kind: &'static str,
    /// Bytes read or written.
    pub bytes: u64,
}

/// A contended lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contended {
    /// Name of the lock.
    pub lock: &'static str,
    /// Source location where the lock was held when the wait began.
    pub holder: Option<&'static Location<'static>>,
}

/// A wait that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Part of the call's time; `None` if the wait was nested in another one, which is reported as a whole.
    pub part: Option<Part>,
    /// Duration in nanoseconds.
    pub ns: u64,
    /// The disk access, if it waited for one.
    pub access: Option<Access>,
    /// The lock, if it waited for one.
    pub lock: Option<Contended>,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The service.
    pub service: &'static str,
    /// The procedure.
    pub procedure: &'static str,
    /// Nanoseconds from arrival to end.
    pub total_ns: u64,
    /// Nanoseconds of these spent waiting, by [`PARTS`].
    pub parts_ns: [u64; PARTS.len()],
}

/// Receives notifications, on the waiting threads and concurrently. Must not itself wait for anything that it
/// would be notified of.
pub trait Watcher: Send + Sync {
    /// Called after this thread has waited, with the call that it serves.
    fn waited(&self, wait: &Wait, call: &Current);

    /// Called when a call has ended.
    fn called(&self, call: &Called);
}

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Guards the watcher; held for reading during each notification.
static WATCHER: RwLock<Option<Arc<dyn Watcher>>> = RwLock::new(None);

/// Keeps its watcher registered while it exists.
#[derive(Debug)]
#[must_use]
pub struct Watching(());

/// Registers `watcher` for all waits from now on; `None` if there is a watcher already.
pub fn watch(watcher: Arc<dyn Watcher>) -> Option<Watching> {
    let mut current = WATCHER.write();
    if current.is_some() {
        return None;
    }
    *current = Some(watcher);
    IS_WATCHED.store(true, Relaxed);
    Some(Watching(()))
}

/// Unregisters the watcher, which is not called again once this returns.
impl Drop for Watching {
    fn drop(&mut self) {
        IS_WATCHED.store(false, Relaxed);
        WATCHER.write().take();
    }
}

/// Whether a watcher is registered.
#[inline]
pub fn is_watched() -> bool {
    IS_WATCHED.load(Relaxed)
}

/// Notifies the watcher of a wait.
#[inline]
pub(crate) fn notify(wait: &Wait) {
    if is_watched() {
        notify_watcher(wait);
    }
}

#[cold]
fn notify_watcher(wait: &Wait) {
    if let Some(watcher) = &*WATCHER.read() {
        watcher.waited(wait, &crate::call::current());
    }
}

/// Notifies the watcher of a call that has ended.
#[inline]
pub fn called(call: &Called) {
    if is_watched()
        && let Some(watcher) = &*WATCHER.read()
    {
        watcher.called(call);
    }
}
