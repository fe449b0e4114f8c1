//! Read-ahead: separate threads read and decode the next chunks while earlier ones are sent.
//!
//! These threads are optional: a chunk that no thread was free for is read by the reader itself. A chunk that
//! is read ahead but no longer wanted stays in the cache for later readers.

use crate::core::crew::Crew;
use crate::core::group::Group;
use crate::dedup::pins::Pin;
use bytes::Bytes;
use crossbeam::channel::{Receiver, bounded};
use std::collections::VecDeque;
use std::sync::Arc;
use store::{ChunkStore, StoreError};
use volume_records::codec::Extent;

/// Minimum chunk size for read-ahead; for smaller chunks the handover costs more than it gains.
const CHUNK_BYTES_MIN: u32 = 64 << 10;

/// Maximum number of chunks that one reader reads ahead.
const AHEAD_MAX: usize = 4;

/// Chunks to read beyond the requested range if the file seems to be read sequentially from its start.
pub(crate) const BEYOND_CHUNKS: u64 = 2;

/// The read-ahead threads.
pub(crate) struct ReadAhead(Crew);

impl ReadAhead {
    pub(crate) fn new(threads: usize) -> ReadAhead {
        // No queue: the reader itself would be faster than a queued job.
        ReadAhead(Crew::new("read-ahead", threads, 0))
    }
}

/// Keeps chunks in place while they are read.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) group: Arc<Group>,
    /// Pins of the group's own chunks and of shared ones.
    pub(crate) pins: (Pin, Option<Pin>),
}

type Coming = Receiver<Result<Bytes, StoreError>>;

/// The chunks that are being read ahead for one reader, in order.
#[derive(Default)]
pub(crate) struct Ahead(VecDeque<(u64, Coming)>);

impl Ahead {
    /// Starts reading the next chunks: `extents`, in order, are those after the reader's position.
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

    /// Waits for the chunk at `index` if a thread is reading it, and drops earlier ones.
    pub(crate) fn take(&mut self, index: u64) -> Option<Result<Bytes, StoreError>> {
        while self.0.front().is_some_and(|(first, _)| *first < index) {
            self.0.pop_front();
        }
        let is_next = self.0.front().is_some_and(|(first, _)| *first == index);
        let (_, coming) = if is_next { self.0.pop_front() } else { None }?;
        // `None` if the thread panicked.
        coming.recv().ok()
    }
}
