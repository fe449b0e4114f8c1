//! What the threads that serve have left, in the order in which calls ended.

use crate::block::Block;
use crate::pen::Chain;
use crate::queue::Queue;
use crate::record;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;

/// The reader's end of a chain of blocks.
#[derive(Debug)]
pub(crate) struct Reader {
    chain: Arc<Chain>,
    block: Arc<Block>,
    /// Words of the block that were read, and that are known to be filled.
    at: usize,
    end: usize,
}

/// Whom a record is taken from next, while it ended not after that.
#[derive(Clone, Copy, Debug)]
struct Turn {
    place: usize,
    until_ns: u64,
}

/// The reading end of a queue: [`Intake::look`], then [`Intake::next`] until it has nothing more or no more is wanted, then
/// [`Intake::put_back`].
#[derive(Debug)]
pub(crate) struct Intake {
    queue: Arc<Queue>,
    readers: Vec<Reader>,
    /// Places of readers by the end of their next call, those that have one to give.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    turn: Option<Turn>,
    /// Calls that ended later wait for the next look.
    horizon_ns: u64,
    taken: usize,
    /// Blocks that have been read.
    read: Vec<Arc<Block>>,
}

impl Reader {
    pub(crate) fn new(chain: Arc<Chain>, block: Arc<Block>) -> Reader {
        Reader { chain, block, at: 0, end: 0 }
    }

    /// When the next call ended. Blocks that were read go to `read`.
    #[inline]
    fn peek(&mut self, read: &mut Vec<Arc<Block>>) -> Option<u64> {
        if self.at == self.end {
            self.find(read)?;
        }
        Some(record::ended_ns(self.block.words().get(self.at..).unwrap_or_default()))
    }

    /// Looks for more records.
    #[cold]
    fn find(&mut self, read: &mut Vec<Arc<Block>>) -> Option<()> {
        while self.at == self.end {
            // Before what is filled, which does not change any more once something follows.
            let next = self.block.next().cloned();
            self.end = self.block.filled();
            if self.at == self.end {
                read.push(std::mem::replace(&mut self.block, next?));
                (self.at, self.end) = (0, 0);
            }
        }
        Some(())
    }

    /// The words of the next call, which there is.
    #[inline]
    fn take(&mut self) -> &[AtomicU64] {
        let words = &self.block.words()[self.at..self.end];
        let words = &words[..record::words(words)];
        self.at += words.len();
        words
    }

    /// Its thread has ended, and all was taken.
    fn is_over(&mut self, read: &mut Vec<Arc<Block>>) -> bool {
        self.at == self.end && self.chain.is_closed.load(Acquire) && self.peek(read).is_none()
    }
}

impl Intake {
    pub(crate) fn new(queue: Arc<Queue>) -> Intake {
        let (readers, read) = Default::default();
        Intake { queue, readers, next: BinaryHeap::new(), turn: None, horizon_ns: 0, taken: 0, read }
    }

    /// Looks what there is of calls that ended until now. A call that its client made after another had been answered
    /// comes after that one: the other's record was there before it began.
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

    /// The next record, and the number of the thread that left it.
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

    /// Gives back what is not needed any more.
    pub(crate) fn put_back(&mut self) {
        self.readers.retain_mut(|reader| {
            let is_over = reader.is_over(&mut self.read);
            if is_over {
                self.queue.end_chain(&reader.chain);
                self.read.push(Arc::clone(&reader.block));
            }
            !is_over
        });
        // A thread may be about to leave its block: it is looked at again.
        self.read.retain_mut(|block| !self.queue.is_taken_back(block));
        if self.taken > 0 {
            self.queue.took(std::mem::take(&mut self.taken));
        }
    }

    /// Whether nobody has left anything.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.readers.append(&mut self.queue.newcomers());
        self.readers.iter_mut().all(|reader| reader.peek(&mut self.read).is_none())
    }
}
