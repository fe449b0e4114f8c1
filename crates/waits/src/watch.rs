//! Who is told of every wait while a profile runs.

use crate::call::Current;
use events::current::{PARTS, Part};
use parking_lot::RwLock;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// An access to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What: read, write, sync.
    pub kind: &'static str,
    /// Bytes read or written.
    pub bytes: u64,
}

/// A lock that somebody else held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contended {
    /// Its name.
    pub lock: &'static str,
    /// Where it was taken by who held it when the wait began.
    pub holder: Option<&'static Location<'static>>,
}

/// A wait that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What for; nothing if it was within another wait, which will be told as a whole.
    pub part: Option<Part>,
    /// How long.
    pub ns: u64,
    /// If it was for a disk, the access.
    pub access: Option<Access>,
    /// If it was for a lock, which.
    pub lock: Option<Contended>,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The service.
    pub service: &'static str,
    /// The procedure.
    pub procedure: &'static str,
    /// From its arrival to its end.
    pub total_ns: u64,
    /// What of that it waited, by [`PARTS`].
    pub parts_ns: [u64; PARTS.len()],
}

/// Who wants to know. Told on the waiting thread, by many threads at a time; must not wait for anything of
/// which it would be told.
pub trait Watcher: Send + Sync {
    /// This thread, which serves this call, has waited.
    fn waited(&self, wait: &Wait, call: &Current);

    /// A call has ended.
    fn called(&self, call: &Called);
}

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Guards who watches; read for as long as he is told something.
static WATCHER: RwLock<Option<Arc<dyn Watcher>>> = RwLock::new(None);

/// As long as it lives, its watcher is told.
#[derive(Debug)]
#[must_use]
pub struct Watching(());

/// Tells `watcher` of all waits from now on; `None` if somebody watches already.
pub fn watch(watcher: Arc<dyn Watcher>) -> Option<Watching> {
    let mut current = WATCHER.write();
    if current.is_some() {
        return None;
    }
    *current = Some(watcher);
    IS_WATCHED.store(true, Relaxed);
    Some(Watching(()))
}

/// When this returns, the watcher is told nothing more.
impl Drop for Watching {
    fn drop(&mut self) {
        IS_WATCHED.store(false, Relaxed);
        WATCHER.write().take();
    }
}

/// Whether somebody watches.
#[inline]
pub fn is_watched() -> bool {
    IS_WATCHED.load(Relaxed)
}

/// Tells who watches of a wait.
#[inline]
pub(crate) fn tell(wait: &Wait) {
    if is_watched() {
        tell_watcher(wait);
    }
}

#[cold]
fn tell_watcher(wait: &Wait) {
    if let Some(watcher) = &*WATCHER.read() {
        watcher.waited(wait, &crate::call::current());
    }
}

/// Tells who watches of a call that has ended.
#[inline]
pub fn called(call: &Called) {
    if is_watched()
        && let Some(watcher) = &*WATCHER.read()
    {
        watcher.called(call);
    }
}
