//! Chunks that are read and decoded by threads of their own while those before them go out.
//!
//! Nothing depends on these threads: a chunk that none of them was free for is read by whoever needs it. A chunk
//! that is not wanted any more is in the cache afterwards, for who comes next.

use crate::crew::Crew;
use crate::group::Group;
use crate::pins::Pin;
use crate::record::Extent;
use bytes::Bytes;
use crossbeam::channel::{Receiver, bounded};
use std::collections::VecDeque;
use std::sync::Arc;
use store::{ChunkStore, StoreError};

/// Of chunks smaller than this, giving them to another thread costs more than it gains.
const CHUNK_BYTES_MIN: u32 = 64 << 10;

/// Chunks that one reader has on their way at most.
const AHEAD_MAX: usize = 4;

/// Chunks behind what a reader was asked for that are read if its file seems to be read from the beginning on.
pub(crate) const BEYOND_CHUNKS: u64 = 2;

/// The threads.
pub(crate) struct ReadAhead(Crew);

impl ReadAhead {
    pub(crate) fn new(threads: usize) -> ReadAhead {
        // Nothing waits for a thread: the reader would be faster.
        ReadAhead(Crew::new("read-ahead", threads, 0))
    }
}

/// What keeps chunks where they are while they are read.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) group: Arc<Group>,
    /// Of the group's own chunks, and of those that groups share.
    pub(crate) pins: (Pin, Option<Pin>),
}

type Coming = Receiver<Result<Bytes, StoreError>>;

/// The chunks of one reader that are on their way, in order.
#[derive(Default)]
pub(crate) struct Ahead(VecDeque<(u64, Coming)>);

impl Ahead {
    /// Lets the threads read what comes next: `extents` in order, behind the one that the reader is at.
    pub(crate) fn begin<'a>(
        &mut self,
        threads: &ReadAhead,
        chunks: &Arc<dyn ChunkStore>,
        held: &Held,
        extents: impl Iterator<Item = &'a (u64, Extent)>,
    ) {
        let most = AHEAD_MAX.min(threads.0.threads());
        let known_to = self.0.back().map_or(0, |(index, _)| index + 1);
        for (index, extent) in extents.take(most).filter(|(index, _)| *index >= known_to) {
            let &Extent::Chunk { address, length } = extent else { return };
            if self.0.len() >= most || length < CHUNK_BYTES_MIN {
                return;
            }
            if chunks.is_at_hand(address) {
                continue;
            }
            let (answer, coming) = bounded(1);
            let (chunks, held) = (Arc::clone(chunks), held.clone());
            let job = move || {
                _ = answer.send(chunks.read_for(held.group.id, address));
            };
            if threads.0.offer(Box::new(job)).is_err() {
                return;
            }
            self.0.push_back((*index, coming));
        }
    }

    /// What a thread read of a chunk, if one was asked to; those before it are not wanted any more.
    pub(crate) fn take(&mut self, index: u64) -> Option<Result<Bytes, StoreError>> {
        while self.0.front().is_some_and(|(first, _)| *first < index) {
            self.0.pop_front();
        }
        let is_next = self.0.front().is_some_and(|(first, _)| *first == index);
        let (_, coming) = if is_next { self.0.pop_front() } else { None }?;
        // Unless the thread panicked.
        coming.recv().ok()
    }
}
