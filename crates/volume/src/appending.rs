//! Chunks on their way into the store: gathered, or encoded and written by threads of their own while the next ones
//! come in.
//!
//! Compressing takes most of the time of a long store: without these threads, data waits in the network
//! while one processor compresses. Nothing depends on them: where all are busy, the caller does it itself.

use crate::crew::Crew;
use crossbeam::channel::{Receiver, bounded};
use std::sync::Arc;
use store::{ChunkAddress, ChunkOwner, ChunkStore, Codec, EncodedChunk, RawChunk, StoreError};

type Answer = Result<ChunkAddress, StoreError>;

/// The threads.
pub(crate) struct Appenders(Crew);

/// A chunk on its way into the store.
pub(crate) enum Appending {
    Done(Answer),
    Coming(Receiver<Answer>),
}

impl Appenders {
    pub(crate) fn new(threads: usize) -> Appenders {
        Appenders(Crew::new("append", threads, threads))
    }

    /// How many chunks of one caller should be on their way at once.
    pub(crate) fn at_once(&self) -> usize {
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
            // Whoever waits for the answer may close the store next.
            drop(chunks);
            _ = answer.send(appended);
        };
        if let Err(refused) = self.0.offer(Box::new(job)) {
            refused();
        }
        Appending::Coming(coming)
    }
}

/// Whole chunks that are soon encoded are gathered up to this many bytes of contents and written at once. In writes of
/// 256 KiB each, the same takes a third more processor time.
const GATHERED_BYTES: usize = 1 << 20;

/// Chunks that are to be appended together, each with what is to be known of it then.
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

    /// Whether they are to be appended now.
    pub(crate) fn is_enough(&self) -> bool {
        self.bytes >= GATHERED_BYTES
    }

    /// All of them, in the order in which they came.
    pub(crate) fn take(&mut self) -> (Vec<T>, Vec<EncodedChunk>) {
        self.bytes = 0;
        self.chunks.drain(..).unzip()
    }
}

impl Appending {
    /// Waits for the chunk's place.
    pub(crate) fn wait(self) -> Answer {
        match self {
            Appending::Done(answer) => answer,
            Appending::Coming(coming) => coming.recv().unwrap_or_else(|_| {
                Err(StoreError::ReadOnly("a thread that writes chunks ended with a panic".into()))
            }),
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
                appenders.append(&chunks, ChunkOwner::default(), RawChunk::landed(room), Codec::Lz4)
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
