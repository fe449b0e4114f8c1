//! The queue in front of the workers: adds blocking and wake-ups to [`fair_queue::Queue`].
//!
//! Waking a thread costs more than many calls, so as few as possible are woken. While a woken worker has not
//! arrived yet, no other is woken, because workers that finish a call check the queue themselves. A worker
//! that arrives and finds more than one item wakes the next. So as long as an item can be served and a worker
//! idles, one is on the way, and when items arrive faster than the processors can start threads, few workers
//! serve them. The worker that has idled for the shortest time is woken first because its memory is still in
//! the caches.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fair_queue::{Class, Limits, Next, Queue, Ticket, Work};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// How long surplus workers wait for a call before their threads end.
const SURPLUS_IDLE: Duration = Duration::from_secs(2);

/// A queue to which any thread may push and from which workers pull.
pub(crate) struct CallQueue<T> {
    inner: Mutex<Inner<T>>,
}

/// The place where one worker waits.
#[derive(Default)]
struct Seat {
    called: Condvar,
    /// Written with the queue's lock held.
    is_called: AtomicBool,
}

thread_local! {
    static SEAT: RefCell<Arc<Seat>> = RefCell::default();
}

/// The state under the queue's lock, which is held only for a few operations on ordered sets.
struct Inner<T> {
    queue: Queue<T>,
    /// Number of items that found no idle worker.
    waited: u64,
    /// Workers that wait and have not been called, the latest last.
    idle: Vec<Arc<Seat>>,
    /// Number of workers that have been called and have not arrived yet.
    called: usize,
    closed: bool,
}

/// The reason why an item was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many items of this user wait, or too many of its kind and no user of that kind has more.
    Full,
    /// [`CallQueue::close`] was called.
    Closed,
}

/// The outcome of a push.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pushed<T> {
    /// An item evicted to make room for this one: the newest of the user with the most.
    pub(crate) displaced: Option<T>,
    /// Whether the item could be served if there were another thread.
    pub(crate) workers_wanted: bool,
}

/// How full the queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueLoad {
    pub(crate) waiting: usize,
    pub(crate) waited: u64,
    pub(crate) idle_workers: usize,
    /// Number of calls that may be served at a time, not counting stalled ones.
    pub(crate) limit: usize,
    /// Whether calls wait and no worker may take one of them.
    pub(crate) is_full: bool,
}

impl<T> Inner<T> {
    /// Returns the worker to wake after the lock is released: an idle one, if an item can be served and no
    /// other worker is on the way.
    fn call_one(&mut self) -> Option<Arc<Seat>> {
        if self.called > 0 { None } else { self.call_another() }
    }

    /// Like `call_one`, but even if another worker is on the way.
    fn call_another(&mut self) -> Option<Arc<Seat>> {
        if !self.queue.can_serve() {
            return None;
        }
        let seat = self.idle.pop()?;
        seat.is_called.store(true, Relaxed);
        self.called += 1;
        Some(seat)
    }

    /// Waits until this worker is called or the queue is closed. Returns false if it is a surplus worker and
    /// was not called in time.
    fn wait(inner: &mut MutexGuard<'_, Inner<T>>) -> bool {
        let seat = SEAT.with_borrow(Arc::clone);
        seat.is_called.store(false, Relaxed);
        let is_surplus = inner.idle.len() >= inner.queue.limits().workers;
        inner.idle.push(Arc::clone(&seat));
        while !seat.is_called.load(Relaxed) && !inner.closed {
            if !is_surplus {
                seat.called.wait(inner);
            } else if seat.called.wait_for(inner, SURPLUS_IDLE).timed_out() && !seat.is_called.load(Relaxed) {
                inner.idle.retain(|other| !Arc::ptr_eq(other, &seat));
                return false;
            }
        }
        inner.called = inner.called.saturating_sub(1);
        true
    }
}

fn wake(seat: Option<Arc<Seat>>) {
    if let Some(seat) = seat {
        seat.called.notify_one();
    }
}

impl<T> CallQueue<T> {
    pub(crate) fn new(limits: Limits) -> CallQueue<T> {
        let inner = Inner { queue: Queue::new(limits), waited: 0, idle: vec![], called: 0, closed: false };
        CallQueue { inner: Mutex::new(inner) }
    }

    /// Adds an item.
    pub(crate) fn push(&self, work: Work, item: T) -> Result<Pushed<T>, Refusal> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Refusal::Closed);
        }
        waits::probes::queue_enter(inner.queue.waiting());
        let displaced = inner.queue.push(work, item).map_err(|_| Refusal::Full)?;
        let can_serve = inner.queue.can_serve();
        let has_idle = inner.queue.waiting() <= inner.idle.len() + inner.called;
        inner.waited += u64::from(!can_serve || !has_idle);
        // Serving an unidentified client is mostly waiting for its answer, so there is no need to be sparing.
        let is_stranger = work.class == Class::Stranger;
        let seat = if is_stranger { inner.call_another() } else { inner.call_one() };
        drop(inner);
        wake(seat);
        Ok(Pushed { displaced, workers_wanted: can_serve && !has_idle })
    }

    /// Returns the worker's previous item with its cost, and takes the next, waiting for one if necessary.
    /// Returns `None` if the queue is closed, or if enough other workers have been idle for a while.
    pub(crate) fn next(&self, done: Option<(Ticket, u32)>) -> Option<(T, Ticket)> {
        let mut inner = self.inner.lock();
        if let Some((ticket, cost)) = done {
            inner.queue.finish(ticket, cost);
        }
        while !inner.closed {
            match inner.queue.take_next() {
                Next::Serve(item, ticket) => {
                    let seat = inner.call_one();
                    drop(inner);
                    wake(seat);
                    return Some((item, ticket));
                }
                Next::Again => MutexGuard::bump(&mut inner),
                Next::Nothing => {
                    if !Inner::wait(&mut inner) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Marks a worker as waiting for its client, so that another may work in its place. Returns whether one
    /// should be started.
    pub(crate) fn stall(&self, ticket: &mut Ticket) -> bool {
        let mut inner = self.inner.lock();
        let may_serve = inner.queue.stall(ticket) && inner.queue.can_serve();
        let is_idle = inner.queue.waiting() <= inner.idle.len() + inner.called;
        let seat = inner.call_one();
        drop(inner);
        wake(seat);
        may_serve && !is_idle
    }

    /// Marks a stalled worker as working again.
    pub(crate) fn resume(&self, ticket: &mut Ticket) {
        self.inner.lock().queue.resume(ticket);
    }

    /// Wakes all waiting workers and returns the queued items.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let left = inner.queue.drain();
        inner.idle.drain(..).for_each(|seat| wake(Some(seat)));
        left
    }

    /// Returns the current load.
    pub(crate) fn load(&self) -> QueueLoad {
        let inner = self.inner.lock();
        let waiting = inner.queue.waiting();
        QueueLoad {
            waiting,
            waited: inner.waited,
            idle_workers: inner.idle.len(),
            limit: inner.queue.limits().workers,
            is_full: waiting > 0 && !inner.queue.can_serve(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fairness;
    use fair_queue::{Demand, Kind};

    fn queue<T>(waiting_max: usize) -> CallQueue<T> {
        CallQueue::new(Fairness { waiting_max, ..Fairness::default() }.limits(8))
    }

    fn of(user: u64) -> Work {
        Demand::SMALL.of(user, 100, Kind::Reachable)
    }

    #[test]
    fn limits_hold_for_one_user_and_for_all() {
        let queue = queue(4);
        assert!(queue.push(of(1), 0).is_ok());
        assert!(queue.push(of(1), 0).is_ok());
        assert_eq!(queue.push(of(1), 0), Err(Refusal::Full));
        assert!(queue.push(of(2), 0).is_ok());
        assert!(queue.push(of(3), 0).is_ok());
        let pushed = queue.push(of(4), 0).unwrap();
        assert_eq!(pushed.displaced, Some(0), "user 1 has most");
        assert_eq!(queue.push(of(5), 0), Err(Refusal::Full), "all have one");
        queue.next(None).unwrap();
        assert!(queue.push(of(5), 0).is_ok());
        let load = queue.load();
        assert_eq!((load.waiting, load.waited, load.idle_workers), (4, 6, 0));
    }

    /// Independent of the number of threads: a stand-in for a stalled worker need not be busy when nothing
    /// can be served.
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
    fn verified_items_are_served_despite_12000_anonymous_ones() {
        let queue = CallQueue::new(Fairness::default().limits(64));
        let verified = Work { kind: Kind::Verified, ..of(1 << 40) };
        for class in [Class::Small, Class::Stranger] {
            let refused =
                (0..12_000).filter(|user| queue.push(Work { class, ..of(*user) }, 0).is_err()).count();
            assert_eq!(refused, 2_000);
            // Workers take all items that they may take.
            let may_take = || queue.inner.lock().queue.can_serve();
            while may_take() {
                queue.next(None).unwrap();
            }
            let pushed = queue.push(Work { class, ..verified }, 1).unwrap();
            assert_eq!(pushed, Pushed { displaced: None, workers_wanted: true });
            assert_eq!(queue.next(None).unwrap().0, 1);
        }
    }

    #[test]
    fn closing_returns_waiting_calls_and_ends_workers() {
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

    #[test]
    fn a_woken_worker_wakes_the_next() {
        let queue = queue(64);
        std::thread::scope(|scope| {
            let next = || queue.next(None).map(|(item, _)| item);
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(next)).collect();
            while queue.load().idle_workers < 4 {
                std::thread::yield_now();
            }
            // No worker takes a second item, so all four workers have to come.
            (0..4).for_each(|item| _ = queue.push(of(1), item).unwrap());
            let mut served: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
            served.sort_unstable();
            assert_eq!(served, [0, 1, 2, 3].map(Some));
        });
        let load = queue.load();
        assert_eq!((load.waiting, load.waited, load.idle_workers), (0, 0, 0));
    }

    #[test]
    fn one_worker_is_called_at_a_time() {
        let queue = queue(64);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| queue.next(None).map(|(item, _)| item));
            while queue.load().idle_workers < 1 {
                std::thread::yield_now();
            }
            // No worker is idle for the second item because the only one is on the way.
            assert!(!queue.push(of(1), 1).unwrap().workers_wanted);
            let second = queue.push(of(1), 2).unwrap();
            assert_eq!(worker.join().unwrap(), Some(1));
            assert!(second.workers_wanted);
            assert_eq!(queue.next(None).map(|(item, _)| item), Some(2));
        });
    }
}
