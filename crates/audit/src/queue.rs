//! The way of records from the threads that serve to the thread that writes.

use crate::record::Record;
use crossbeam::queue::ArrayQueue;
use events::catalogue::AuditFigures;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What happens to a record for which there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// It is lost, and counted; the trail says how many were.
    #[default]
    Drop,
    /// Its call waits until there is room.
    Block,
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        match text {
            "drop" => Ok(Policy::Drop),
            "block" => Ok(Policy::Block),
            _ => Err(format!("`{text}` is neither `drop` nor `block`")),
        }
    }
}

/// Bytes that waiting records may hold, whatever their number: requests are as long as clients make them.
const HELD_BYTES_MAX: usize = 64 << 20;

/// How often a call that waits for room looks whether it need not wait any more.
const LOOK: Duration = Duration::from_millis(50);

/// The writer waits for records, and wants to be woken by the first.
const ASLEEP: u8 = 0;
/// It waits for more records to come, and wants to be woken when the queue is half full.
const GATHERING: u8 = 1;
/// It writes.
const AWAKE: u8 = 2;

/// A bounded lock-free queue with one reader.
#[derive(Debug)]
pub(crate) struct Queue {
    ring: ArrayQueue<Arc<Record>>,
    policy: Policy,
    /// What the writer does: ASLEEP, GATHERING or AWAKE.
    state: AtomicU8,
    writer: OnceLock<Thread>,
    /// Bytes that the records hold.
    held: AtomicUsize,
    /// Nobody waits for room any more.
    is_impatient: AtomicBool,
    /// The reader writes what there is and ends.
    ending: AtomicBool,
    /// Calls that wait for room.
    waiting: AtomicU64,
    /// Guards nothing; who waits for room sleeps on it, and it is touched only by those.
    room: (Mutex<()>, Condvar),
    pub(crate) counts: Counts,
}

/// What is counted of a sink.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) records: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) blocked_ns: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) opened: AtomicU64,
    pub(crate) failing: AtomicBool,
}

impl Queue {
    /// Of so many records.
    pub(crate) fn new(records_max: usize, policy: Policy) -> Queue {
        Queue {
            ring: ArrayQueue::new(records_max.max(1)),
            policy,
            state: AtomicU8::new(AWAKE),
            writer: OnceLock::new(),
            held: AtomicUsize::new(0),
            is_impatient: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            room: Default::default(),
            counts: Counts::default(),
        }
    }

    /// Adds a record, or does what the policy says.
    pub(crate) fn push(&self, record: Arc<Record>) {
        if let Err(record) = self.try_push(record) {
            self.push_late(record);
        }
        self.wake();
    }

    fn try_push(&self, record: Arc<Record>) -> Result<(), Arc<Record>> {
        let bytes = record.bytes();
        if self.held.fetch_add(bytes, Relaxed) + bytes <= HELD_BYTES_MAX {
            self.ring.push(record).inspect_err(|_| _ = self.held.fetch_sub(bytes, Relaxed))
        } else {
            self.held.fetch_sub(bytes, Relaxed);
            Err(record)
        }
    }

    #[cold]
    fn push_late(&self, record: Arc<Record>) {
        let lost = self.policy == Policy::Drop || !self.wait_for_room(record);
        if lost {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Whether the record was added in the end.
    fn wait_for_room(&self, mut record: Arc<Record>) -> bool {
        let begun = Instant::now();
        self.counts.waits.fetch_add(1, Relaxed);
        self.waiting.fetch_add(1, AcqRel);
        let added = loop {
            match self.try_push(record) {
                Ok(()) => break true,
                Err(_) if self.is_impatient.load(Acquire) => break false,
                Err(refused) => record = refused,
            }
            self.wake();
            // Whoever makes room between the two lines above and below is seen at the next look.
            self.room.1.wait_for(&mut self.room.0.lock(), LOOK);
        };
        self.waiting.fetch_sub(1, AcqRel);
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts.blocked_ns.fetch_add(ns, Relaxed);
        added
    }

    /// Whether a record of a thread that must not wait can be added now.
    pub(crate) fn has_room(&self) -> bool {
        let is_half_empty =
            || self.ring.len() < self.ring.capacity() / 2 && self.held.load(Relaxed) < HELD_BYTES_MAX / 2;
        self.policy == Policy::Drop || is_half_empty()
    }

    fn wake(&self) {
        let wanted = match self.state.load(Relaxed) {
            ASLEEP => true,
            GATHERING => self.ring.len() * 2 >= self.ring.capacity(),
            _ => false,
        };
        if wanted
            && self.state.swap(AWAKE, AcqRel) != AWAKE
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }

    /// The calling thread is the reader from now on.
    pub(crate) fn read_here(&self) {
        let _ = self.writer.set(std::thread::current());
    }

    /// The next record.
    pub(crate) fn pop(&self) -> Option<Arc<Record>> {
        self.ring.pop().inspect(|record| _ = self.held.fetch_sub(record.bytes(), Relaxed))
    }

    /// Records were taken: there is room again.
    pub(crate) fn made_room(&self) {
        if self.waiting.load(Acquire) > 0 {
            let _guard = self.room.0.lock();
            self.room.1.notify_all();
        }
    }

    /// The reader waits until there is a record, or the server ends, or something else wants it to look.
    pub(crate) fn sleep(&self, longest: Duration) {
        self.state.store(ASLEEP, SeqCst);
        // A record that came before that woke nobody.
        if self.ring.is_empty() && !self.is_ending() {
            std::thread::park_timeout(longest);
        }
        self.state.store(AWAKE, Relaxed);
    }

    /// The reader waits so that more records come together.
    pub(crate) fn gather(&self, span: Duration) {
        self.state.store(GATHERING, SeqCst);
        if !self.is_ending() && self.ring.len() * 2 < self.ring.capacity() {
            std::thread::park_timeout(span);
        }
        self.state.store(AWAKE, Relaxed);
    }

    /// Nobody waits for room any more.
    pub(crate) fn let_go(&self) {
        self.is_impatient.store(true, SeqCst);
    }

    /// Nobody waits any more, and the reader writes what there is and ends.
    pub(crate) fn end(&self) {
        self.let_go();
        self.ending.store(true, SeqCst);
        self.rouse();
    }

    /// The reader looks what there is to do.
    pub(crate) fn rouse(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Acquire)
    }

    pub(crate) fn figures(&self) -> AuditFigures {
        let counts = &self.counts;
        AuditFigures {
            records: counts.records.load(Relaxed),
            written: counts.written.load(Relaxed),
            dropped: counts.dropped.load(Relaxed),
            waits: counts.waits.load(Relaxed),
            blocked: counts.blocked_ns.load(Relaxed),
            failures: counts.failures.load(Relaxed),
            opened: counts.opened.load(Relaxed),
            failing: counts.failing.load(Relaxed).into(),
            queued: self.ring.len() as u64,
            queue_limit: self.ring.capacity() as u64,
        }
    }
}
