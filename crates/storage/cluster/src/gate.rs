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

/// Flag in [`Gate::answers`].
const UNANSWERED: u8 = 4;

/// One ownership.
pub(crate) struct Gate {
    deadline: Arc<Deadline>,
    /// Whether reads (1) and changes (2) are answered in its phase, and whether none was yet (4).
    answers: AtomicU8,
    /// When the first reply was sent, in nanoseconds of the clock; 0 before.
    first: AtomicU64,
    has_ended: AtomicBool,
    /// Guards the function that is called; held during the call.
    watcher: Mutex<Option<Watcher>>,
}

impl Gate {
    pub(crate) fn new(deadline: &Arc<Deadline>) -> Gate {
        Gate {
            deadline: Arc::clone(deadline),
            answers: AtomicU8::new(UNANSWERED),
            first: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            watcher: Mutex::default(),
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        let bit = |kind, bit| if phase.answers(kind) { bit } else { 0 };
        let answers = bit(CallKind::Read, 1) | bit(CallKind::Change, 2);
        let unanswered = self.answers.load(Ordering::Relaxed) & UNANSWERED;
        self.answers.store(answers | unanswered, Ordering::Relaxed);
    }

    /// Whether a reply may be sent whose state was read before. The first one is noted.
    pub(crate) fn may_answer(&self, kind: CallKind) -> bool {
        let (answers, may_answer) = self.look(kind);
        if may_answer && answers & UNANSWERED != 0 {
            self.note_first();
        }
        may_answer
    }

    /// Whether calls of a kind are answered now.
    pub(crate) fn accepts(&self, kind: CallKind) -> bool {
        self.look(kind).1
    }

    fn look(&self, kind: CallKind) -> (u8, bool) {
        // What a reply shows was read before the deadline is.
        fence(Ordering::Acquire);
        let bit = if kind == CallKind::Read { 1 } else { 2 };
        let answers = self.answers.load(Ordering::Relaxed);
        (answers, answers & bit != 0 && self.deadline.is_ahead())
    }

    #[cold]
    fn note_first(&self) {
        self.answers.fetch_and(!UNANSWERED, Ordering::Relaxed);
        // A change of the phase at the same time may have restored the flag: the first time stays.
        _ = self.first.compare_exchange(0, crate::clock::now().0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns when the first reply was sent.
    pub(crate) fn first_answer(&self) -> Option<Monotonic> {
        Some(self.first.load(Ordering::Relaxed)).filter(|first| *first > 0).map(Monotonic)
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
