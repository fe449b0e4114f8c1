//! Memory for records, which one thread fills and another reads.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, OnceLock};

/// Words of a block, but for one that a longer record has for itself.
pub(crate) const BLOCK_WORDS: usize = 1024;

/// Some words, of which the first so many are filled and do not change any more, and the block that follows.
#[derive(Debug)]
pub(crate) struct Block {
    words: Box<[AtomicU64]>,
    filled: AtomicUsize,
    next: OnceLock<Arc<Block>>,
}

impl Block {
    pub(crate) fn new(words: usize) -> Block {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Block { words, filled: AtomicUsize::new(0), next: OnceLock::new() }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// How many words are filled; they are as whoever filled them left them.
    pub(crate) fn filled(&self) -> usize {
        self.filled.load(Acquire).min(self.words.len())
    }

    /// So many words are filled from now on.
    pub(crate) fn fill(&self, words: usize) {
        self.filled.store(words, Release);
    }

    /// The block that follows, once there is one; from then on this one is not filled any more.
    pub(crate) fn next(&self) -> Option<&Arc<Block>> {
        self.next.get()
    }

    /// That is what follows; said once.
    pub(crate) fn follow(&self, next: Arc<Block>) {
        let _ = self.next.set(next);
    }

    /// It is empty again, and nothing follows.
    pub(crate) fn reset(&mut self) {
        *self.filled.get_mut() = 0;
        self.next.take();
    }

    pub(crate) fn is_usual(&self) -> bool {
        self.words.len() == BLOCK_WORDS
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

impl Drop for Block {
    /// One after the other: a long chain would take a frame of the stack for each.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(block) = next {
            next = Arc::into_inner(block).and_then(|mut block| block.next.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_chain_is_dropped() {
        let first = Arc::new(Block::new(1));
        let mut last = first.clone();
        for _ in 0..1_000_000 {
            let next = Arc::new(Block::new(1));
            last.follow(next.clone());
            last = next;
        }
        drop((first, last));
    }
}
