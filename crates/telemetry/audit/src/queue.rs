//! The queue of records between the serving threads and the thread that writes.

use crate::block::{BLOCK_WORDS, Block};
use crate::intake::Reader;
use crate::thread_writer::Chain;
use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;
use events::catalogue::AuditFigures;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What happens to a record for which there is no space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The record is dropped and counted; the trail records the number of lost records.
    #[default]
    Drop,
    /// Its call waits until there is space.
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

/// Maximum size of all blocks in use, regardless of the number of records: the size of a request is up to the
/// client.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Maximum number of blocks kept for reuse.
const SPARE_BLOCKS: usize = 256;

/// Maximum number of records that a thread reserves space for at a time; less if the queue is short.
const PORTION_MAX: usize = 8;
/// Minimum number of portions in a queue.
const PORTIONS: usize = 2048;

/// How often a call that waits for space checks whether it has to wait any longer.
const LOOK: Duration = Duration::from_millis(50);

/// The reader checks once more after this time before it sleeps. A thread that adds a record does not wait
/// until the record is visible to others, and may see a reader that is falling asleep as awake; its record is
/// found by this check.
const SETTLING: Duration = Duration::from_millis(1);

/// The writer waits for records, and must be woken by the first.
const ASLEEP: u8 = 0;
/// The writer waits for more records, and must be woken when the queue is half full.
const GATHERING: u8 = 1;
/// The writer is writing.
const AWAKE: u8 = 2;

/// A bounded lock-free queue with one reader. Each thread that adds records has its own chain of blocks.
#[derive(Debug)]
pub(crate) struct Queue {
    records_max: usize,
    portion: usize,
    policy: Policy,
    /// State of the writer: ASLEEP, GATHERING or AWAKE.
    state: AtomicU8,
    writer: OnceLock<Thread>,
    /// Number of records there is space for, without the space reserved by threads.
    room: CachePadded<AtomicUsize>,
    /// Bytes of blocks in chains.
    held: CachePadded<AtomicUsize>,
    spare: ArrayQueue<Arc<Block>>,
    /// Guards the participants. A thread takes it for its first record, the reader when a participant was
    /// added or removed.
    chains: Mutex<Chains>,
    has_newcomers: AtomicBool,
    /// Number of records taken.
    taken: AtomicU64,
    /// Whether calls no longer wait for space.
    is_impatient: AtomicBool,
    /// Whether the reader should write the remaining records and end.
    ending: AtomicBool,
    /// Number of calls that wait for space.
    waiting: AtomicU64,
    /// Guards nothing: calls that wait for space sleep on it. Touched only while there are any.
    has_room: (Mutex<()>, Condvar),
    pub(crate) counts: Counts,
}

/// The participants of a queue.
#[derive(Debug, Default)]
struct Chains {
    present: Vec<Arc<Chain>>,
    /// Chains that the reader has not seen yet.
    new: Vec<Reader>,
    /// Number of records of threads that have ended.
    added_by_others: u64,
    /// Number of threads that have added records.
    threads: u32,
}

/// Counters of a sink.
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
    /// Creates a queue for `records_max` records.
    pub(crate) fn new(records_max: usize, policy: Policy) -> Queue {
        let records_max = records_max.max(1);
        Queue {
            records_max,
            portion: (records_max / PORTIONS).clamp(1, PORTION_MAX),
            policy,
            state: AtomicU8::new(AWAKE),
            writer: OnceLock::new(),
            room: CachePadded::new(AtomicUsize::new(records_max)),
            held: CachePadded::default(),
            spare: ArrayQueue::new(SPARE_BLOCKS),
            chains: Mutex::default(),
            has_newcomers: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            is_impatient: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            has_room: Default::default(),
            counts: Counts::default(),
        }
    }

    /// Registers the calling thread as a source of records.
    pub(crate) fn begin_chain(&self) -> (Arc<Chain>, Arc<Block>) {
        let block = Arc::new(Block::new(0));
        let mut chains = self.chains.lock();
        chains.threads = chains.threads.wrapping_add(1);
        let chain = Arc::new(Chain { thread: chains.threads, ..Chain::default() });
        chains.present.push(chain.clone());
        chains.new.push(Reader::new(chain.clone(), block.clone()));
        self.has_newcomers.store(true, SeqCst);
        (chain, block)
    }

    /// Takes the chains that the reader has not seen yet.
    pub(crate) fn newcomers(&self) -> Vec<Reader> {
        if !self.has_newcomers.swap(false, AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut self.chains.lock().new)
    }

    /// Removes a chain whose records were all taken and that gets no more.
    pub(crate) fn end_chain(&self, chain: &Arc<Chain>) {
        let mut chains = self.chains.lock();
        chains.present.retain(|present| !Arc::ptr_eq(present, chain));
        chains.added_by_others += chain.added.load(Relaxed);
    }

    /// Reserves space and returns for how many records; 0 if there is no space.
    pub(crate) fn take_room(&self) -> usize {
        let mut room = self.room.load(Relaxed);
        loop {
            let portion = self.portion.min(room);
            if portion == 0 {
                return 0;
            }
            match self.room.compare_exchange_weak(room, room - portion, Acquire, Relaxed) {
                Ok(_) if (room - portion) * 2 < self.records_max => break self.wake_gatherer(portion),
                Ok(_) => break portion,
                Err(now) => room = now,
            }
        }
    }

    /// Returns space for `records` records.
    pub(crate) fn give_room(&self, records: usize) {
        self.room.fetch_add(records, AcqRel);
    }

    /// Returns an empty block of at least `words` words, unless that exceeds the memory limit.
    pub(crate) fn block(&self, words: usize) -> Option<Arc<Block>> {
        let words = words.max(BLOCK_WORDS);
        let bytes = words * size_of::<u64>();
        let held = self.held.fetch_add(bytes, Relaxed) + bytes;
        if held > HELD_BYTES_MAX {
            self.held.fetch_sub(bytes, Relaxed);
            return None;
        }
        if held * 2 > HELD_BYTES_MAX {
            self.wake_gatherer(());
        }
        let spare = if words == BLOCK_WORDS { self.spare.pop() } else { None };
        Some(spare.unwrap_or_else(|| Arc::new(Block::new(words))))
    }

    /// Recycles a block that was read completely, unless it is still in use; returns whether it was recycled.
    pub(crate) fn is_taken_back(&self, block: &mut Arc<Block>) -> bool {
        let Some(free) = Arc::get_mut(block) else { return false };
        free.reset();
        self.held.fetch_sub(free.bytes(), Relaxed);
        if free.is_usual() {
            let _ = self.spare.push(Arc::clone(block));
        }
        true
    }

    /// Waits for space if the policy requires it; returns whether the record was added in the end.
    pub(crate) fn is_added_late(&self, mut try_push: impl FnMut() -> bool) -> bool {
        if self.policy == Policy::Drop {
            return false;
        }
        let begun = Instant::now();
        self.counts.waits.fetch_add(1, Relaxed);
        self.waiting.fetch_add(1, AcqRel);
        let added = loop {
            if try_push() {
                break true;
            }
            if self.is_impatient.load(Acquire) {
                break false;
            }
            self.wake();
            // Space freed between the check above and this wait is noticed at the next check.
            self.has_room.1.wait_for(&mut self.has_room.0.lock(), LOOK);
        };
        self.waiting.fetch_sub(1, AcqRel);
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts.blocked_ns.fetch_add(ns, Relaxed);
        added
    }

    /// Whether a thread that must not block can add a record now.
    pub(crate) fn has_room(&self) -> bool {
        self.policy == Policy::Drop || self.is_half_empty()
    }

    fn is_half_empty(&self) -> bool {
        self.room.load(Relaxed) * 2 > self.records_max && self.held.load(Relaxed) < HELD_BYTES_MAX / 2
    }

    /// Wakes a sleeping reader after a record was added.
    pub(crate) fn wake_sleeper(&self) {
        if self.state.load(Relaxed) == ASLEEP {
            self.wake();
        }
    }

    /// Wakes a reader that waits for more records, since the queue is half full.
    #[cold]
    fn wake_gatherer<T>(&self, result: T) -> T {
        if self.state.load(Relaxed) == GATHERING {
            self.wake();
        }
        result
    }

    fn wake(&self) {
        if self.state.swap(AWAKE, AcqRel) != AWAKE {
            self.rouse();
        }
    }

    /// Makes the calling thread the reader.
    pub(crate) fn read_here(&self) {
        let _ = self.writer.set(std::thread::current());
    }

    /// Counts records as taken and frees their space.
    pub(crate) fn took(&self, records: usize) {
        self.taken.fetch_add(records as u64, Relaxed);
        self.give_room(records);
        if self.waiting.load(Acquire) > 0 {
            let _guard = self.has_room.0.lock();
            self.has_room.1.notify_all();
        }
    }

    /// Puts the reader to sleep until a record arrives, the server ends, or it is woken for another reason.
    pub(crate) fn sleep(&self, longest: Duration, is_empty: impl FnOnce() -> bool) {
        self.state.store(ASLEEP, SeqCst);
        std::thread::sleep(SETTLING);
        // A record added just before the state was set woke no thread.
        if is_empty() && !self.is_ending() {
            std::thread::park_timeout(longest);
        }
        self.state.store(AWAKE, Relaxed);
    }

    /// Waits for more records, so that they are written together.
    pub(crate) fn gather(&self, span: Duration) {
        self.state.store(GATHERING, SeqCst);
        if !self.is_ending() && self.is_half_empty() {
            std::thread::park_timeout(span);
        }
        self.state.store(AWAKE, Relaxed);
    }

    /// Stops calls from waiting for space.
    pub(crate) fn let_go(&self) {
        self.is_impatient.store(true, SeqCst);
    }

    /// Stops all waiting; the reader writes the remaining records and ends.
    pub(crate) fn end(&self) {
        self.let_go();
        self.ending.store(true, SeqCst);
        self.rouse();
    }

    /// Wakes the reader.
    pub(crate) fn rouse(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Acquire)
    }

    /// Returns the number of queued records.
    fn queued(&self) -> u64 {
        // Read before the number of added records, so that the difference is never negative.
        let taken = self.taken.load(Acquire);
        let chains = self.chains.lock();
        let added = chains.present.iter().map(|chain| chain.added.load(Relaxed)).sum::<u64>();
        (added + chains.added_by_others).saturating_sub(taken).min(self.records_max as u64)
    }

    /// Returns the size of all blocks in use.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Whether all space is free.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.room.load(Relaxed) == self.records_max
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
            queued: self.queued(),
            queue_limit: self.records_max as u64,
        }
    }
}
