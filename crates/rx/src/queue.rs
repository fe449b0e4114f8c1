//! The queue in front of the workers: fair between the hosts that call.
//!
//! Each host has a line of its own, and the lines are served in turn, so that a host which sends
//! hundreds of calls delays its own and not those of the others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use parking_lot::{Condvar, Mutex};

/// Lines by host; any thread may push, workers pop.
pub(crate) struct FairQueue<T> {
    inner: Mutex<Inner<T>>,
    arrived: Condvar,
    limit: usize,
}

/// What the queue's lock guards.
struct Inner<T> {
    lines: HashMap<IpAddr, VecDeque<T>>,
    /// Hosts with a line that is not empty, the next to be served in front.
    turns: VecDeque<IpAddr>,
    waiting: usize,
    /// Items that found no idle worker.
    waited: u64,
    idle_workers: usize,
    closed: bool,
}

/// Why an item was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many are waiting, of all hosts or of this one.
    Full,
    /// [`FairQueue::close`] was called.
    Closed,
}

/// What a push found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// More items are waiting than workers are idle.
    pub(crate) workers_wanted: bool,
}

/// How full the queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueLoad {
    pub(crate) waiting: usize,
    pub(crate) waited: u64,
    pub(crate) idle_workers: usize,
}

impl<T> FairQueue<T> {
    /// A queue for up to `limit` items, half of them from one host.
    pub(crate) fn new(limit: usize) -> FairQueue<T> {
        let inner = Inner {
            lines: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            waited: 0,
            idle_workers: 0,
            closed: false,
        };
        FairQueue { inner: Mutex::new(inner), arrived: Condvar::new(), limit }
    }

    /// Puts an item at the end of its host's line.
    pub(crate) fn push(&self, host: IpAddr, item: T) -> Result<Pushed, Refusal> {
        let mut inner = self.inner.lock();
        inner.admit(host, self.limit)?;
        inner.append(host, item);
        let workers_wanted = inner.waiting > inner.idle_workers;
        inner.waited += u64::from(workers_wanted);
        drop(inner);
        self.arrived.notify_one();
        Ok(Pushed { workers_wanted })
    }

    /// Takes the next item; waits for one. `None` once the queue is closed.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut inner = self.inner.lock();
        inner.idle_workers += 1;
        while inner.waiting == 0 && !inner.closed {
            self.arrived.wait(&mut inner);
        }
        inner.idle_workers -= 1;
        if inner.closed { None } else { inner.take() }
    }

    /// Ends all waiting; gives back what was in the queue.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let left = std::iter::from_fn(|| inner.take()).collect();
        self.arrived.notify_all();
        left
    }

    /// The numbers now.
    pub(crate) fn load(&self) -> QueueLoad {
        let inner = self.inner.lock();
        QueueLoad { waiting: inner.waiting, waited: inner.waited, idle_workers: inner.idle_workers }
    }
}

impl<T> Inner<T> {
    fn admit(&self, host: IpAddr, limit: usize) -> Result<(), Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        let of_host = self.lines.get(&host).map_or(0, VecDeque::len);
        if self.waiting >= limit || of_host >= limit.div_ceil(2) {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    fn append(&mut self, host: IpAddr, item: T) {
        let line = self.lines.entry(host).or_default();
        if line.is_empty() {
            self.turns.push_back(host);
        }
        line.push_back(item);
        self.waiting += 1;
    }

    fn take(&mut self) -> Option<T> {
        let host = self.turns.pop_front()?;
        let line = self.lines.get_mut(&host)?;
        let item = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&host);
        } else {
            self.turns.push_back(host);
        }
        self.waiting -= usize::from(item.is_some());
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn hosts_take_turns_and_keep_their_order() {
        let queue = FairQueue::new(100);
        for item in 0..5 {
            queue.push(host(1), (1, item)).unwrap();
        }
        queue.push(host(2), (2, 0)).unwrap();
        queue.push(host(3), (3, 0)).unwrap();
        queue.push(host(2), (2, 1)).unwrap();
        let order: Vec<(i32, i32)> = (0..8).map(|_| queue.pop().unwrap()).collect();
        let expected = [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2), (1, 3), (1, 4)];
        assert_eq!(order, expected);
        assert!(queue.inner.lock().lines.is_empty(), "empty lines are forgotten");
    }

    #[test]
    fn limits_hold_for_one_host_and_for_all() {
        let queue = FairQueue::new(4);
        assert!(queue.push(host(1), 0).is_ok());
        assert!(queue.push(host(1), 0).is_ok());
        assert_eq!(queue.push(host(1), 0), Err(Refusal::Full));
        assert!(queue.push(host(2), 0).is_ok());
        assert!(queue.push(host(3), 0).is_ok());
        assert_eq!(queue.push(host(4), 0), Err(Refusal::Full));
        queue.pop().unwrap();
        assert!(queue.push(host(4), 0).is_ok());
        assert_eq!(queue.load(), QueueLoad { waiting: 4, waited: 5, idle_workers: 0 });
    }

    #[test]
    fn closing_gives_back_what_waits_and_ends_the_workers() {
        let queue = FairQueue::new(4);
        queue.push(host(1), 1).unwrap();
        queue.push(host(2), 2).unwrap();
        assert_eq!(queue.close(), [1, 2]);
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.push(host(1), 1), Err(Refusal::Closed));
    }

    #[test]
    fn a_waiting_worker_is_woken() {
        let queue = FairQueue::new(4);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| queue.pop());
            queue.push(host(1), 7).unwrap();
            assert_eq!(worker.join().unwrap(), Some(7));
            let worker = scope.spawn(|| queue.pop());
            queue.close();
            assert_eq!(worker.join().unwrap(), None);
        });
    }
}
