//! Memory for records, filled by one thread and read by another.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, OnceLock};

/// Number of words in a block; a longer record gets a larger block of its own.
pub(crate) const BLOCK_WORDS: usize = 1024;

/// Words in memory and the next block of the chain. The filled words form a prefix and do not change.
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

    /// Returns the number of filled words. Their contents are visible to the caller.
    pub(crate) fn filled(&self) -> usize {
        self.filled.load(Acquire).min(self.words.len())
    }

    /// Publishes the first `words` words as filled.
    pub(crate) fn fill(&self, words: usize) {
        self.filled.store(words, Release);
    }

    /// Returns the next block if there is one. From then on this block is not filled any more.
    pub(crate) fn next(&self) -> Option<&Arc<Block>> {
        self.next.get()
    }

    /// Sets the next block; called only once.
    pub(crate) fn follow(&self, next: Arc<Block>) {
        let _ = self.next.set(next);
    }

    /// Makes the block empty and the last of its chain.
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
    /// Drops the chain iteratively: recursion would take a stack frame for each block.
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
