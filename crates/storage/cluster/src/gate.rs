//! What threads that answer calls read of an ownership, without a lock.

use base::Monotonic;
use cluster_proto::{CallKind, Phase};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::time::Instant;

/// What happens to an ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerEvent {
    /// The lease was renewed, and is valid until then.
    Held {
        /// Its end by this node's clock.
        until: Instant,
    },
    /// The lease was not renewed in time. Nothing may be answered until it is; calls wait.
    Lapsed,
    /// A lease that had lapsed was renewed before another node took anything over: the ownership goes on.
    Resumed {
        /// Its end by this node's clock.
        until: Instant,
    },
    /// The ownership has ended for good. Close the database, and drop the [`Owner`](crate::Owner).
    Lost {
        /// The reason.
        why: String,
    },
}

/// Called on the lease's thread; must not block.
pub(crate) type Watcher = Box<dyn Fn(OwnerEvent) + Send + Sync>;

/// The end of the lease, in nanoseconds of the clock; 0 without one.
#[derive(Debug, Default)]
pub(crate) struct Deadline(AtomicU64);

impl Deadline {
    pub(crate) fn set(&self, until: Option<Monotonic>) {
        self.0.store(until.map_or(0, |until| until.0), Ordering::Relaxed);
    }

    pub(crate) fn is_ahead(&self) -> bool {
        crate::clock::now().0 < self.0.load(Ordering::Relaxed)
    }
}

/// One ownership.
pub(crate) struct Gate {
    deadline: Arc<Deadline>,
    /// Whether reads (1) and changes (2) are answered in its phase.
    answers: AtomicU8,
    has_ended: AtomicBool,
    /// Guards the function that is called; held during the call.
    watcher: Mutex<Option<Watcher>>,
}

impl Gate {
    pub(crate) fn new(deadline: &Arc<Deadline>) -> Gate {
        Gate {
            deadline: Arc::clone(deadline),
            answers: AtomicU8::new(0),
            has_ended: AtomicBool::new(false),
            watcher: Mutex::default(),
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        let bit = |kind, bit| if phase.answers(kind) { bit } else { 0 };
        let answers = bit(CallKind::Read, 1) | bit(CallKind::Change, 2);
        self.answers.store(answers, Ordering::Relaxed);
    }

    /// Whether a reply may be sent whose state was read before.
    pub(crate) fn may_answer(&self, kind: CallKind) -> bool {
        // What the reply shows was read before the deadline is.
        fence(Ordering::Acquire);
        let bit = if kind == CallKind::Read { 1 } else { 2 };
        self.answers.load(Ordering::Relaxed) & bit != 0 && self.deadline.is_ahead()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    pub(crate) fn watch(&self, watcher: Watcher) {
        *self.watcher.lock() = Some(watcher);
    }

    pub(crate) fn notify(&self, event: OwnerEvent) {
        if let Some(watcher) = &*self.watcher.lock() {
            watcher(event);
        }
    }

    /// Ends the ownership, once.
    pub(crate) fn end(&self, why: &str) {
        self.answers.store(0, Ordering::Relaxed);
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            self.notify(OwnerEvent::Lost { why: why.to_owned() });
        }
    }
}
