//! A thread pool for optional work: the caller does a job itself when no thread is free.

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads, started when first needed. Dropping the pool waits until they have finished their jobs, so a job
/// must not own the pool.
pub(crate) struct Crew {
    name: &'static str,
    threads: usize,
    /// Number of jobs that may be queued.
    waiting: usize,
    started: OnceLock<Started>,
}

#[derive(Default)]
struct Started {
    /// `None` if no thread could be started.
    queue: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    pub(crate) fn new(name: &'static str, threads: usize, waiting: usize) -> Crew {
        Crew { name, threads, waiting, started: OnceLock::new() }
    }

    /// Returns the maximum number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Queues a job; returns it if no thread is free and the queue is full.
    pub(crate) fn offer(&self, job: Job) -> Result<(), Job> {
        match &self.started.get_or_init(|| self.start()).queue {
            Some(queue) => queue.try_send(job).map_err(TrySendError::into_inner),
            None => Err(job),
        }
    }

    fn start(&self) -> Started {
        let (queue, jobs) = bounded(self.waiting);
        let start = |_| {
            let jobs: Receiver<Job> = jobs.clone();
            let run = move || jobs.iter().for_each(|job| job());
            thread::Builder::new().name(self.name.into()).spawn(run).ok()
        };
        let threads: Vec<_> = (0..self.threads).filter_map(start).collect();
        Started { queue: (!threads.is_empty()).then_some(queue), threads }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let Started { queue, threads } = self.started.take().unwrap_or_default();
        drop(queue);
        for thread in threads {
            // A panic has already been reported.
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    #[test]
    fn untaken_work_is_returned_and_taken_work_is_done() {
        assert!(Crew::new("none", 0, 5).offer(Box::new(|| ())).is_err());
        let crew = Crew::new("one", 1, 1);
        let (release, held) = bounded::<()>(0);
        let done = Arc::new(AtomicU32::new(0));
        let job = || -> Job {
            let (held, done) = (held.clone(), Arc::clone(&done));
            Box::new(move || {
                _ = held.recv();
                done.fetch_add(1, SeqCst);
            })
        };
        let mut taken = 0;
        while taken < 2 {
            // The thread may not have taken the first one out of the queue yet.
            taken += u32::from(crew.offer(job()).is_ok());
            thread::yield_now();
        }
        assert!(crew.offer(job()).is_err());
        drop(release);
        drop(crew);
        assert_eq!(done.load(SeqCst), taken);
    }
}
