//! Appends chunks to the store: gathered into batches, or encoded and written by separate threads while the
//! next chunks arrive.
//!
//! Compression takes most of the time of a long store: without these threads, data waits in the network while
//! one processor compresses. They are optional: when all are busy, the caller does the work itself.

use crate::core::crew::Crew;
use crossbeam::channel::{Receiver, bounded};
use std::sync::Arc;
use store::{ChunkAddress, ChunkOwner, ChunkStore, Codec, EncodedChunk, RawChunk, StoreError};

type Answer = Result<ChunkAddress, StoreError>;

/// The append threads.
pub(crate) struct Appenders(Crew);

/// A chunk that is being appended.
pub(crate) enum Appending {
    Done(Answer),
    Coming(Receiver<Answer>),
}

impl Appenders {
    pub(crate) fn new(threads: usize) -> Appenders {
        Appenders(Crew::new("append", threads, threads))
    }

    /// Returns how many chunks one caller should have in flight.
    pub(crate) fn concurrency(&self) -> usize {
        self.0.threads() + 1
    }

    /// Encodes and appends a chunk on another thread, if one is free.
    pub(crate) fn append(
        &self,
        chunks: &Arc<dyn ChunkStore>,
        owner: ChunkOwner,
        contents: RawChunk,
        codec: Codec,
    ) -> Appending {
        let append = move |chunks: &dyn ChunkStore| chunks.append_one(contents.encode(owner, codec)?);
        if self.0.threads() == 0 {
            return Appending::Done(append(&**chunks));
        }
        let (answer, coming) = bounded(1);
        let chunks = Arc::clone(chunks);
        let job = move || {
            let appended = append(&*chunks);
            // The receiver of the result may close the store next.
            drop(chunks);
            _ = answer.send(appended);
        };
        if let Err(refused) = self.0.offer(Box::new(job)) {
            refused();
        }
        Appending::Coming(coming)
    }
}

/// Maximum contents, in bytes, that are gathered before they are written together. Only whole chunks that are
/// cheap to encode are gathered. Writes of 256 KiB each take a third more processor time.
const GATHERED_BYTES: usize = 1 << 20;

/// Chunks to append together, each with the caller's data about it.
pub(crate) struct Gathering<T> {
    chunks: Vec<(T, EncodedChunk)>,
    bytes: usize,
}

impl<T> Default for Gathering<T> {
    fn default() -> Gathering<T> {
        Gathering { chunks: Vec::new(), bytes: 0 }
    }
}

impl<T> Gathering<T> {
    pub(crate) fn add(&mut self, known: T, chunk: EncodedChunk) {
        self.bytes += chunk.raw_bytes();
        self.chunks.push((known, chunk));
    }

    /// Returns whether enough chunks have been gathered to append them.
    pub(crate) fn is_enough(&self) -> bool {
        self.bytes >= GATHERED_BYTES
    }

    /// Takes all gathered chunks, in order of arrival.
    pub(crate) fn take(&mut self) -> (Vec<T>, Vec<EncodedChunk>) {
        self.bytes = 0;
        self.chunks.drain(..).unzip()
    }
}

impl Appending {
    /// Waits for the chunk's address.
    pub(crate) fn wait(self) -> Answer {
        match self {
            Appending::Done(answer) => answer,
            Appending::Coming(coming) => coming
                .recv()
                .unwrap_or_else(|_| Err(StoreError::ReadOnly("a thread that writes chunks panicked".into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use store::MemoryChunks;

    #[test]
    fn a_mebibyte_is_enough() {
        let mut gathering = Gathering::default();
        let pieces = vec![Bytes::from(vec![1; 300_000]), Bytes::from(vec![2; 49_526])];
        for number in 0..7 {
            assert_eq!(gathering.is_enough(), [3, 6].contains(&number), "{number}");
            if number == 3 {
                assert_eq!(gathering.take().0, [0, 1, 2]);
            }
            let chunk = EncodedChunk::new(ChunkOwner::default(), &pieces, Codec::Lz4).unwrap();
            gathering.add(number, chunk);
        }
        let (known, chunks) = gathering.take();
        assert_eq!((known, chunks.len()), (vec![3, 4, 5, 6], 4));
        assert!(!gathering.is_enough() && gathering.take().1.is_empty());
    }

    #[test]
    fn chunks_arrive_with_and_without_threads() {
        for threads in [0, 1, 3] {
            let store = Arc::new(MemoryChunks::new());
            let chunks: Arc<dyn ChunkStore> = store.clone();
            let appenders = Appenders::new(threads);
            let data: Vec<Bytes> = (0..50u8).map(|byte| vec![byte; 100].into()).collect();
            let append = |data: &Bytes| {
                let mut room = RawChunk::room(data.len());
                room.put(data);
                appenders.append(&chunks, ChunkOwner::default(), RawChunk::from_filled(room), Codec::Lz4)
            };
            let coming: Vec<Appending> = data.iter().map(append).collect();
            for (appending, data) in coming.into_iter().zip(&data) {
                assert_eq!(chunks.read(appending.wait().unwrap()).unwrap(), data);
            }
            assert_eq!(store.live_chunks(), 50);
            assert_eq!(Arc::strong_count(&store), 2, "no thread holds the store any more");
        }
    }
}
