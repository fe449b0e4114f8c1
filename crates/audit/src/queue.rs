//! The way of records from the threads that serve to the thread that writes.

use crate::block::{BLOCK_WORDS, Block};
use crate::intake::Reader;
use crate::pen::Chain;
use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;
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

/// Bytes of blocks that are filled or to be filled, whatever the number of records: requests are as long as clients make
/// them.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Blocks that were read and wait to be filled again.
const SPARE_BLOCKS: usize = 256;

/// A thread is promised room for so many records at a time, and less if the queue is short.
const PORTION_MAX: usize = 8;
/// Portions that make a queue at least.
const PORTIONS: usize = 2048;

/// How often a call that waits for room looks whether it need not wait any more.
const LOOK: Duration = Duration::from_millis(50);

/// The reader looks once more after this time before it sleeps. Who adds a record does not wait until others see it, and
/// may take a reader that falls asleep for one that is awake; what it added is seen in this time.
const SETTLING: Duration = Duration::from_millis(1);

/// The writer waits for records, and wants to be woken by the first.
const ASLEEP: u8 = 0;
/// It waits for more records to come, and wants to be woken when the queue is half full.
const GATHERING: u8 = 1;
/// It writes.
const AWAKE: u8 = 2;

/// A bounded lock-free queue with one reader. Each thread that adds records has a chain of blocks of its own.
#[derive(Debug)]
pub(crate) struct Queue {
    records_max: usize,
    portion: usize,
    policy: Policy,
    /// What the writer does: ASLEEP, GATHERING or AWAKE.
    state: AtomicU8,
    writer: OnceLock<Thread>,
    /// Records that there is room for, without those whose room is promised to a thread.
    room: CachePadded<AtomicUsize>,
    /// Bytes of blocks that are in chains.
    held: CachePadded<AtomicUsize>,
    spare: ArrayQueue<Arc<Block>>,
    /// Guards who takes part. A thread takes it for its first record, the reader when somebody came or went.
    chains: Mutex<Chains>,
    has_newcomers: AtomicBool,
    /// Records that were taken.
    taken: AtomicU64,
    /// Nobody waits for room any more.
    is_impatient: AtomicBool,
    /// The reader writes what there is and ends.
    ending: AtomicBool,
    /// Calls that wait for room.
    waiting: AtomicU64,
    /// Guards nothing; who waits for room sleeps on it, and it is touched only by those.
    has_room: (Mutex<()>, Condvar),
    pub(crate) counts: Counts,
}

/// Who takes part.
#[derive(Debug, Default)]
struct Chains {
    present: Vec<Arc<Chain>>,
    /// Those that the reader does not know yet.
    new: Vec<Reader>,
    /// Records of threads that have ended.
    added_by_others: u64,
    /// Threads that have added records.
    threads: u32,
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

    /// The calling thread adds records from now on.
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

    /// Those that the reader does not know yet.
    pub(crate) fn newcomers(&self) -> Vec<Reader> {
        if !self.has_newcomers.swap(false, AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut self.chains.lock().new)
    }

    /// All records of a chain were taken, and there will be no others.
    pub(crate) fn end_chain(&self, chain: &Arc<Chain>) {
        let mut chains = self.chains.lock();
        chains.present.retain(|present| !Arc::ptr_eq(present, chain));
        chains.added_by_others += chain.added.load(Relaxed);
    }

    /// For how many records more the calling thread may take memory; 0 if there is no room.
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

    /// There is room for so many records again.
    pub(crate) fn give_room(&self, records: usize) {
        self.room.fetch_add(records, AcqRel);
    }

    /// An empty block for at least so many words, if so much memory may be taken.
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

    /// A block has been read; it is kept for others, if nobody else has it any more.
    pub(crate) fn is_taken_back(&self, block: &mut Arc<Block>) -> bool {
        let Some(free) = Arc::get_mut(block) else { return false };
        free.reset();
        self.held.fetch_sub(free.bytes(), Relaxed);
        if free.is_usual() {
            let _ = self.spare.push(Arc::clone(block));
        }
        true
    }

    /// Whether a record for which there was no room was added in the end.
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
            // Whoever makes room between the two lines above and below is seen at the next look.
            self.has_room.1.wait_for(&mut self.has_room.0.lock(), LOOK);
        };
        self.waiting.fetch_sub(1, AcqRel);
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts.blocked_ns.fetch_add(ns, Relaxed);
        added
    }

    /// Whether a record of a thread that must not wait can be added now.
    pub(crate) fn has_room(&self) -> bool {
        self.policy == Policy::Drop || self.is_half_empty()
    }

    fn is_half_empty(&self) -> bool {
        self.room.load(Relaxed) * 2 > self.records_max && self.held.load(Relaxed) < HELD_BYTES_MAX / 2
    }

    /// A record was added: a reader that sleeps is woken.
    pub(crate) fn wake_sleeper(&self) {
        if self.state.load(Relaxed) == ASLEEP {
            self.wake();
        }
    }

    /// The queue is half full: a reader that waits for more is woken.
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

    /// The calling thread is the reader from now on.
    pub(crate) fn read_here(&self) {
        let _ = self.writer.set(std::thread::current());
    }

    /// So many records were taken: there is room again.
    pub(crate) fn took(&self, records: usize) {
        self.taken.fetch_add(records as u64, Relaxed);
        self.give_room(records);
        if self.waiting.load(Acquire) > 0 {
            let _guard = self.has_room.0.lock();
            self.has_room.1.notify_all();
        }
    }

    /// The reader waits until there is a record, or the server ends, or something else wants it to look.
    pub(crate) fn sleep(&self, longest: Duration, is_empty: impl FnOnce() -> bool) {
        self.state.store(ASLEEP, SeqCst);
        std::thread::sleep(SETTLING);
        // A record that came before that woke nobody.
        if is_empty() && !self.is_ending() {
            std::thread::park_timeout(longest);
        }
        self.state.store(AWAKE, Relaxed);
    }

    /// The reader waits so that more records come together.
    pub(crate) fn gather(&self, span: Duration) {
        self.state.store(GATHERING, SeqCst);
        if !self.is_ending() && self.is_half_empty() {
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

    /// Records that wait.
    fn queued(&self) -> u64 {
        // Before what was added, so that the difference is never less than nothing.
        let taken = self.taken.load(Acquire);
        let chains = self.chains.lock();
        let added = chains.present.iter().map(|chain| chain.added.load(Relaxed)).sum::<u64>();
        (added + chains.added_by_others).saturating_sub(taken).min(self.records_max as u64)
    }

    /// Bytes of blocks that are filled or to be filled.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Whether all room is there again.
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
