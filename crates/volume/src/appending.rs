//! Chunks that are encoded and written by threads of their own while the next ones come in.
//!
//! Compressing takes most of the time of a long store: without these threads, data waits in the network
//! while one processor compresses. Nothing depends on them: where all are busy, the caller does it itself.

use crate::crew::Crew;
use bytes::Bytes;
use crossbeam::channel::{Receiver, bounded};
use std::sync::Arc;
use store::{ChunkAddress, ChunkOwner, ChunkStore, Codec, StoreError};

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

    /// How many chunks one caller should have on their way at once.
    pub(crate) fn chunks_at_once(&self) -> usize {
        self.0.threads() + 1
    }

    /// [`ChunkStore::append_for`] on another thread, if one is free.
    pub(crate) fn append(
        &self,
        chunks: &Arc<dyn ChunkStore>,
        owner: ChunkOwner,
        pieces: Vec<Bytes>,
        codec: Codec,
    ) -> Appending {
        if self.0.threads() == 0 {
            return Appending::Done(chunks.append_for(owner, &pieces, codec));
        }
        let (answer, coming) = bounded(1);
        let chunks = Arc::clone(chunks);
        let job = move || {
            let appended = chunks.append_for(owner, &pieces, codec);
            // Whoever waits for the answer may close the store next.
            drop((chunks, pieces));
            _ = answer.send(appended);
        };
        if let Err(refused) = self.0.offer(Box::new(job)) {
            refused();
        }
        Appending::Coming(coming)
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
    use store::MemoryChunks;

    #[test]
    fn chunks_arrive_with_and_without_threads() {
        for threads in [0, 1, 3] {
            let store = Arc::new(MemoryChunks::new());
            let chunks: Arc<dyn ChunkStore> = store.clone();
            let appenders = Appenders::new(threads);
            let data: Vec<Bytes> = (0..50u8).map(|byte| vec![byte; 100].into()).collect();
            let owner = ChunkOwner::default();
            let append = |data: &Bytes| appenders.append(&chunks, owner, vec![data.clone()], Codec::Lz4);
            let coming: Vec<Appending> = data.iter().map(append).collect();
            for (appending, data) in coming.into_iter().zip(&data) {
                assert_eq!(chunks.read(appending.wait().unwrap()).unwrap(), data);
            }
            assert_eq!(store.live_chunks(), 50);
            assert_eq!(Arc::strong_count(&store), 2, "no thread holds the store any more");
        }
    }
}
