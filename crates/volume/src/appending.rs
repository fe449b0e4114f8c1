//! Chunks that are encoded and written by threads of their own while the next ones come in.
//!
//! Compressing takes most of the time of a long store: without these threads, data waits in the network
//! while one processor compresses. Nothing depends on them: where all are busy, the caller does it itself.

use bytes::Bytes;
use crossbeam::channel::{Receiver, Sender, bounded};
use std::sync::{Arc, OnceLock};
use std::thread;
use store::{ChunkAddress, ChunkOwner, ChunkStore, Codec, StoreError};

type Job = Box<dyn FnOnce() + Send>;
type Answer = Result<ChunkAddress, StoreError>;

/// The threads; started when first needed, ended when this is dropped.
pub(crate) struct Appenders {
    threads: usize,
    queue: OnceLock<Option<Sender<Job>>>,
}

/// A chunk on its way into the store.
pub(crate) enum Appending {
    Done(Answer),
    Coming(Receiver<Answer>),
}

impl Appenders {
    pub(crate) fn new(threads: usize) -> Appenders {
        Appenders { threads, queue: OnceLock::new() }
    }

    /// How many chunks one caller should have on their way at once.
    pub(crate) fn chunks_at_once(&self) -> usize {
        self.threads + 1
    }

    /// [`ChunkStore::append_for`] on another thread, if one is free.
    pub(crate) fn append(
        &self,
        chunks: &Arc<dyn ChunkStore>,
        owner: ChunkOwner,
        pieces: Vec<Bytes>,
        codec: Codec,
    ) -> Appending {
        let Some(queue) = self.queue.get_or_init(|| self.start()) else {
            return Appending::Done(chunks.append_for(owner, &pieces, codec));
        };
        let (answer, coming) = bounded(1);
        let chunks = Arc::clone(chunks);
        let job = move || {
            let appended = chunks.append_for(owner, &pieces, codec);
            // Whoever waits for the answer may close the store next.
            drop((chunks, pieces));
            _ = answer.send(appended);
        };
        if let Err(refused) = queue.try_send(Box::new(job)) {
            refused.into_inner()();
        }
        Appending::Coming(coming)
    }

    fn start(&self) -> Option<Sender<Job>> {
        let (queue, jobs) = bounded::<Job>(self.threads);
        let mut started = 0;
        for _ in 0..self.threads {
            let jobs = jobs.clone();
            let run = move || jobs.iter().for_each(|job| job());
            let thread = thread::Builder::new().name("append".into()).spawn(run);
            started += usize::from(thread.is_ok());
        }
        (started > 0).then_some(queue)
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
