//! Collects the records of all serving threads in the order in which their calls ended.

use crate::block::Block;
use crate::queue::Queue;
use crate::record;
use crate::thread_writer::Chain;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;

/// The reading end of a chain of blocks.
#[derive(Debug)]
pub(crate) struct Reader {
    chain: Arc<Chain>,
    block: Arc<Block>,
    /// Number of words read in the block, and number known to be filled.
    at: usize,
    end: usize,
}

/// The reader to take records from while they ended no later than `until_ns`.
#[derive(Clone, Copy, Debug)]
struct Turn {
    place: usize,
    until_ns: u64,
}

/// The reading end of a queue. Call [`Intake::look`], then [`Intake::next`] until it returns `None` or enough
/// records were taken, then [`Intake::put_back`].
#[derive(Debug)]
pub(crate) struct Intake {
    queue: Arc<Queue>,
    readers: Vec<Reader>,
    /// Index of each reader with a pending record, ordered by the end time of that record's call.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    turn: Option<Turn>,
    /// Records of calls that ended later are left for the next call of `look`.
    horizon_ns: u64,
    taken: usize,
    /// Blocks that were read completely.
    read: Vec<Arc<Block>>,
}

impl Reader {
    pub(crate) fn new(chain: Arc<Chain>, block: Arc<Block>) -> Reader {
        Reader { chain, block, at: 0, end: 0 }
    }

    /// Returns when the next call ended. Moves completely read blocks to `read`.
    #[inline]
    fn peek(&mut self, read: &mut Vec<Arc<Block>>) -> Option<u64> {
        if self.at == self.end {
            self.find(read)?;
        }
        Some(record::ended_ns(self.block.words().get(self.at..).unwrap_or_default()))
    }

    /// Advances to the next record, if there is one.
    #[cold]
    fn find(&mut self, read: &mut Vec<Arc<Block>>) -> Option<()> {
        while self.at == self.end {
            // Read before the number of filled words, which does not change any more once there is a next
            // block.
            let next = self.block.next().cloned();
            self.end = self.block.filled();
            if self.at == self.end {
                read.push(std::mem::replace(&mut self.block, next?));
                (self.at, self.end) = (0, 0);
            }
        }
        Some(())
    }

    /// Returns the words of the next record; the caller has checked that there is one.
    #[inline]
    fn take(&mut self) -> &[AtomicU64] {
        let words = &self.block.words()[self.at..self.end];
        let words = &words[..record::words(words)];
        self.at += words.len();
        words
    }

    /// Whether its thread has ended and all its records were taken.
    fn is_over(&mut self, read: &mut Vec<Arc<Block>>) -> bool {
        self.at == self.end && self.chain.is_closed.load(Acquire) && self.peek(read).is_none()
    }
}

impl Intake {
    pub(crate) fn new(queue: Arc<Queue>) -> Intake {
        let (readers, read) = Default::default();
        Intake { queue, readers, next: BinaryHeap::new(), turn: None, horizon_ns: 0, taken: 0, read }
    }

    /// Finds the records of calls that ended by `now_ns`. If a client made one call after the reply to
    /// another, its record comes second: the record of the first existed before the second call started.
    pub(crate) fn look(&mut self, now_ns: u64) {
        self.horizon_ns = now_ns;
        self.turn = None;
        self.next.clear();
        self.readers.append(&mut self.queue.newcomers());
        for (place, reader) in self.readers.iter_mut().enumerate() {
            if let Some(ended) = reader.peek(&mut self.read).filter(|ended| *ended <= now_ns) {
                self.next.push(Reverse((ended, place)));
            }
        }
    }

    /// Returns the next record and the number of the thread that left it.
    pub(crate) fn next(&mut self) -> Option<(&[AtomicU64], u32)> {
        let place = loop {
            if let Some(Turn { place, until_ns }) = self.turn {
                match self.readers[place].peek(&mut self.read) {
                    Some(ended) if ended <= until_ns => break place,
                    Some(ended) if ended <= self.horizon_ns => self.next.push(Reverse((ended, place))),
                    _ => {}
                }
                self.turn = None;
            }
            let Reverse((_, place)) = self.next.pop()?;
            let until_ns = self.next.peek().map_or(self.horizon_ns, |Reverse((ended, _))| *ended);
            self.turn = Some(Turn { place, until_ns });
        };
        self.taken += 1;
        let reader = &mut self.readers[place];
        let thread = reader.chain.thread;
        Some((reader.take(), thread))
    }

    /// Returns blocks and space that are not needed any more.
    pub(crate) fn put_back(&mut self) {
        self.readers.retain_mut(|reader| {
            let is_over = reader.is_over(&mut self.read);
            if is_over {
                self.queue.end_chain(&reader.chain);
                self.read.push(Arc::clone(&reader.block));
            }
            !is_over
        });
        // A thread may still be leaving its block; such a block is tried again next time.
        self.read.retain_mut(|block| !self.queue.is_taken_back(block));
        if self.taken > 0 {
            self.queue.took(std::mem::take(&mut self.taken));
        }
    }

    /// Whether there are no records.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.readers.append(&mut self.queue.newcomers());
        self.readers.iter_mut().all(|reader| reader.peek(&mut self.read).is_none())
    }
}
