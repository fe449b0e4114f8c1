//! The queue in front of the workers: [`fair_queue::Queue`] with the waiting that it does not know.

use fair_queue::{Limits, Next, Queue, Ticket, Work};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// Any thread may push, workers ask for the next.
pub(crate) struct CallQueue<T> {
    inner: Mutex<Inner<T>>,
    arrived: Condvar,
}

/// What the queue's lock guards. It is held for no more than a few steps in ordered sets.
struct Inner<T> {
    queue: Queue<T>,
    /// Items that found no idle worker.
    waited: u64,
    idle_workers: usize,
    closed: bool,
}

/// Why an item was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many are waiting, of all users or of this one.
    Full,
    /// [`CallQueue::close`] was called.
    Closed,
}

/// What a push found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// It could be served, but all threads have something to do.
    pub(crate) workers_wanted: bool,
}

/// How full the queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueLoad {
    pub(crate) waiting: usize,
    pub(crate) waited: u64,
    pub(crate) idle_workers: usize,
    /// Calls that may be served at a time, besides those that wait for their clients.
    pub(crate) limit: usize,
    /// Calls wait, and no worker may take one of them.
    pub(crate) is_full: bool,
}

impl<T> CallQueue<T> {
    pub(crate) fn new(limits: Limits) -> CallQueue<T> {
        let inner = Inner { queue: Queue::new(limits), waited: 0, idle_workers: 0, closed: false };
        CallQueue { inner: Mutex::new(inner), arrived: Condvar::new() }
    }

    /// Adds an item.
    pub(crate) fn push(&self, work: Work, item: T) -> Result<Pushed, Refusal> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Refusal::Closed);
        }
        waits::probes::queue_enter(inner.queue.waiting());
        inner.queue.push(work, item).map_err(|_| Refusal::Full)?;
        let can_serve = inner.queue.can_serve();
        let has_idle = inner.queue.waiting() <= inner.idle_workers;
        inner.waited += u64::from(!can_serve || !has_idle);
        drop(inner);
        if can_serve {
            self.arrived.notify_one();
        }
        Ok(Pushed { workers_wanted: can_serve && !has_idle })
    }

    /// Gives back the worker's last item with what it cost, and takes the next; waits for one. `None`
    /// once the queue is closed, or if so many are idle already that this one is not needed.
    pub(crate) fn next(&self, done: Option<(Ticket, u32)>) -> Option<(T, Ticket)> {
        let mut inner = self.inner.lock();
        if let Some((ticket, cost)) = done {
            inner.queue.finish(ticket, cost);
        }
        while !inner.closed {
            match inner.queue.take_next() {
                Next::Serve(item, ticket) => return Some((item, ticket)),
                Next::Again => MutexGuard::bump(&mut inner),
                Next::Nothing if inner.idle_workers >= inner.queue.limits().workers => return None,
                Next::Nothing => {
                    inner.idle_workers += 1;
                    self.arrived.wait(&mut inner);
                    inner.idle_workers -= 1;
                }
            }
        }
        None
    }

    /// A worker waits for its client: another may work in its place. True if one should be started.
    pub(crate) fn stall(&self, ticket: &mut Ticket) -> bool {
        let mut inner = self.inner.lock();
        let may_serve = inner.queue.stall(ticket) && inner.queue.can_serve();
        let is_idle = inner.idle_workers > 0;
        drop(inner);
        if may_serve && is_idle {
            self.arrived.notify_one();
        }
        may_serve && !is_idle
    }

    /// It goes on.
    pub(crate) fn resume(&self, ticket: &mut Ticket) {
        self.inner.lock().queue.resume(ticket);
    }

    /// Ends all waiting; gives back what was in the queue.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let left = inner.queue.drain();
        self.arrived.notify_all();
        left
    }

    /// The numbers now.
    pub(crate) fn load(&self) -> QueueLoad {
        let inner = self.inner.lock();
        let waiting = inner.queue.waiting();
        QueueLoad {
            waiting,
            waited: inner.waited,
            idle_workers: inner.idle_workers,
            limit: inner.queue.limits().workers,
            is_full: waiting > 0 && !inner.queue.can_serve(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fairness;
    use fair_queue::Demand;

    fn queue<T>(waiting_max: usize) -> CallQueue<T> {
        CallQueue::new(Fairness::default().limits(8, waiting_max))
    }

    fn of(user: u64) -> Work {
        Demand::SMALL.of(user, 100)
    }

    #[test]
    fn limits_hold_for_one_user_and_for_all() {
        let queue = queue(4);
        assert!(queue.push(of(1), 0).is_ok());
        assert!(queue.push(of(1), 0).is_ok());
        assert_eq!(queue.push(of(1), 0), Err(Refusal::Full));
        assert!(queue.push(of(2), 0).is_ok());
        assert!(queue.push(of(3), 0).is_ok());
        assert_eq!(queue.push(of(4), 0), Err(Refusal::Full));
        queue.next(None).unwrap();
        assert!(queue.push(of(4), 0).is_ok());
        let load = queue.load();
        assert_eq!((load.waiting, load.waited, load.idle_workers), (4, 5, 0));
    }

    /// However many threads there are: one that stands in for another need not be busy when nothing can be served.
    #[test]
    fn it_is_full_when_calls_wait_that_no_worker_may_take() {
        let queue = queue(100);
        let next = || queue.next(None).unwrap().1;
        (0..8).for_each(|user| _ = queue.push(of(user), 0).unwrap());
        let mut served: Vec<Ticket> = (0..8).map(|_| next()).collect();
        let load = queue.load();
        assert_eq!((load.limit, load.waiting, load.is_full), (8, 0, false), "nothing waits");
        queue.push(of(9), 0).unwrap();
        assert!(queue.load().is_full);
        assert!(queue.stall(&mut served[0]), "another may serve");
        assert!(!queue.load().is_full);
        served.push(next());
        queue.resume(&mut served[0]);
        queue.push(of(10), 0).unwrap();
        assert!(queue.load().is_full, "nine threads, all of them at work");
        let mut left = served.into_iter();
        (0..2).for_each(|_| queue.inner.lock().queue.finish(left.next().unwrap(), 1));
        assert!(!queue.load().is_full);
    }

    #[test]
    fn closing_gives_back_what_waits_and_ends_the_workers() {
        let queue = queue(4);
        let (_, ticket) = queue.push(of(3), 3).map(|_| queue.next(None).unwrap()).unwrap();
        queue.push(of(1), 1).unwrap();
        queue.push(of(2), 2).unwrap();
        let mut left = queue.close();
        left.sort_unstable();
        assert_eq!(left, [1, 2]);
        assert!(queue.next(Some((ticket, 1))).is_none());
        assert_eq!(queue.push(of(1), 1), Err(Refusal::Closed));
    }

    #[test]
    fn a_waiting_worker_is_woken() {
        let queue = queue(4);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| queue.next(None).map(|(item, _)| item));
            queue.push(of(1), 7).unwrap();
            assert_eq!(worker.join().unwrap(), Some(7));
            let worker = scope.spawn(|| queue.next(None).map(|(item, _)| item));
            queue.close();
            assert_eq!(worker.join().unwrap(), None);
        });
    }
}
