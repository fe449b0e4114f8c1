//! How a serving thread leaves records for the thread of a sink: in blocks of its own. It shares nothing with
//! other serving threads except the counter of free space, once every few records and once per block.

use crate::block::Block;
use crate::queue::Queue;
use crate::raw_record::RawRecord;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

thread_local! {
    /// The pens of this thread, one for each sink.
    static PENS: RefCell<Vec<ThreadWriter>> = const { RefCell::new(Vec::new()) };
}

/// State shared by a thread and the reader, in addition to the blocks.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Number of the thread among those that added to the queue, from 1.
    pub(crate) thread: u32,
    /// Number of records that the thread has added.
    pub(crate) added: AtomicU64,
    /// Whether the thread will add no more records.
    pub(crate) is_closed: AtomicBool,
}

/// The writing end of a chain of blocks.
struct ThreadWriter {
    queue: Arc<Queue>,
    chain: Arc<Chain>,
    block: Arc<Block>,
    /// Number of filled words in the block.
    at: usize,
    /// Number of records that the queue has reserved space for.
    room: usize,
    added: u64,
}

/// Adds a record of the calling thread to a queue, or applies the queue's policy if it is full.
pub(crate) fn push(queue: &Arc<Queue>, raw_record: &RawRecord<'_>) {
    let added = PENS.try_with(|pens| {
        let pens = &mut *pens.borrow_mut();
        match pens.iter_mut().find(|thread_writer| Arc::ptr_eq(&thread_writer.queue, queue)) {
            Some(thread_writer) => thread_writer.push(raw_record),
            None => first(pens, queue).push(raw_record),
        }
    });
    // The thread is ending and its thread-locals are destroyed.
    if added.is_err() {
        ThreadWriter::new(queue).push(raw_record);
    }
}

#[cold]
fn first<'a>(pens: &'a mut Vec<ThreadWriter>, queue: &Arc<Queue>) -> &'a mut ThreadWriter {
    pens.retain(|thread_writer| !thread_writer.queue.is_ending());
    pens.push(ThreadWriter::new(queue));
    let last = pens.len() - 1;
    &mut pens[last]
}

impl ThreadWriter {
    fn new(queue: &Arc<Queue>) -> ThreadWriter {
        let (chain, block) = queue.begin_chain();
        ThreadWriter { queue: Arc::clone(queue), chain, block, at: 0, room: 0, added: 0 }
    }

    fn push(&mut self, raw_record: &RawRecord<'_>) {
        if !self.try_push(raw_record) {
            self.push_late(raw_record);
        }
        self.queue.wake_sleeper();
    }

    #[inline]
    fn try_push(&mut self, raw_record: &RawRecord<'_>) -> bool {
        if self.room == 0 {
            self.room = self.queue.take_room();
        }
        let parts = raw_record.parts();
        let words = parts.words;
        if self.room == 0 || self.at + words > self.block.words().len() && !self.turn(words) {
            return false;
        }
        let end = self.at + words;
        raw_record.write(&parts, &self.block.words()[self.at..end]);
        self.block.fill(end);
        self.at = end;
        self.room -= 1;
        self.added += 1;
        self.chain.added.store(self.added, Relaxed);
        true
    }

    /// Continues in a new block.
    #[cold]
    fn turn(&mut self, words: usize) -> bool {
        let Some(next) = self.queue.block(words) else { return false };
        let full = std::mem::replace(&mut self.block, next.clone());
        full.follow(next);
        self.at = 0;
        true
    }

    #[cold]
    fn push_late(&mut self, raw_record: &RawRecord<'_>) {
        let queue = Arc::clone(&self.queue);
        if !queue.is_added_late(|| self.try_push(raw_record)) {
            queue.counts.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for ThreadWriter {
    fn drop(&mut self) {
        self.queue.give_room(self.room);
        self.chain.is_closed.store(true, Release);
    }
}
