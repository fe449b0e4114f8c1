//! The steps of a copy, performed by several threads.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Steps that wait to be performed. A step can add further ones, which are taken before those added earlier. Of a tree
/// therefore only the directories on the way to those in progress are in memory, however many files it has.
pub(super) struct Steps<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

/// What is waiting and in progress.
struct Waiting<T> {
    lists: Vec<std::vec::IntoIter<T>>,
    /// Number of steps in progress.
    active: usize,
    is_stopped: bool,
}

impl<T> Steps<T> {
    /// Creates a list of the first steps.
    pub(super) fn new(first: Vec<T>) -> Steps<T> {
        let waiting = Waiting { lists: vec![first.into_iter()], active: 0, is_stopped: false };
        Steps { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    /// Adds steps, to be taken in order.
    pub(super) fn add(&self, steps: Vec<T>) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_stopped {
            waiting.lists.push(steps.into_iter());
            self.changed.notify_all();
        }
    }

    /// Drops all steps that have not begun.
    pub(super) fn stop(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_stopped = true;
        let dropped = std::mem::take(&mut waiting.lists);
        self.changed.notify_all();
        drop(waiting);
        drop(dropped);
    }

    /// Performs steps until there are no more and none is in progress that could add some.
    pub(super) fn work(&self, perform: impl Fn(T)) {
        while let Some(step) = self.take() {
            let _active = Active(self);
            perform(step);
        }
    }

    /// Waits until all steps have been performed, but no longer than `time`; returns whether they have.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.is_at_end() {
            self.changed.wait_for(&mut waiting, time);
        }
        waiting.is_at_end()
    }

    fn take(&self) -> Option<T> {
        let mut waiting = self.waiting.lock();
        loop {
            while let Some(last) = waiting.lists.last_mut() {
                if let Some(step) = last.next() {
                    waiting.active += 1;
                    return Some(step);
                }
                waiting.lists.pop();
            }
            if waiting.active == 0 {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }
}

impl<T> Waiting<T> {
    fn is_at_end(&self) -> bool {
        self.active == 0 && self.lists.iter().all(|list| list.as_slice().is_empty())
    }
}

/// A step in progress.
struct Active<'a, T>(&'a Steps<T>);

impl<T> Drop for Active<'_, T> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        waiting.active -= 1;
        if waiting.is_at_end() {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::{Relaxed, SeqCst};
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    /// The numbers of steps of a run.
    #[derive(Debug, Default, PartialEq)]
    struct Numbers {
        performed: usize,
        /// Of these, how many began after the stop.
        late: usize,
        waiting_max: usize,
    }

    /// Performs a tree of steps in which each step of a depth adds `width` steps of the next.
    fn run(threads: usize, width: usize, depth: usize, stop_at: usize) -> Numbers {
        let (steps, is_stopped) = (Steps::new(vec![0]), AtomicBool::new(false));
        let [performed, late, waiting_max] = [0; 3].map(AtomicUsize::new);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    steps.work(|level| {
                        late.fetch_add(is_stopped.load(SeqCst).into(), Relaxed);
                        if performed.fetch_add(1, Relaxed) + 1 == stop_at {
                            steps.stop();
                            is_stopped.store(true, SeqCst);
                        }
                        if level < depth {
                            steps.add(vec![level + 1; width]);
                        }
                        let lists = steps.waiting.lock().lists.iter().map(ExactSizeIterator::len).sum();
                        waiting_max.fetch_max(lists, Relaxed);
                    });
                });
            }
            while !steps.wait(Duration::from_secs(60)) {}
        });
        let [performed, late, waiting_max] = [performed, late, waiting_max].map(AtomicUsize::into_inner);
        Numbers { performed, late, waiting_max }
    }

    #[test]
    fn every_step_is_performed_and_few_wait() {
        for threads in [1, 4, 32] {
            let Numbers { performed, late, waiting_max } = run(threads, 10, 4, usize::MAX);
            assert_eq!((performed, late), (11_111, 0), "{threads} threads");
            assert!(waiting_max <= 100 * (threads + 1), "{waiting_max} steps with {threads} threads");
        }
    }

    #[test]
    fn a_stop_ends_the_work() {
        let Numbers { performed, late, .. } = run(4, 10, 4, 100);
        // Each other thread may have taken a step just before.
        assert!((100..11_111).contains(&performed) && late <= 3, "{performed}, {late} of them late");
        assert_eq!(run(1, 10, 4, 1), Numbers { performed: 1, ..Numbers::default() });
    }
}
