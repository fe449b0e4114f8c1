//! Priorities of threads when there are more threads than processors.
//!
//! Dozens of workers may compete for the processors, each for as long as a megabyte takes. An interactive
//! user needs a lane, a worker for a moment, and perhaps the sync of a log; these run before the workers that
//! move bulk data. On Linux each thread has its own nice value. A worker that could not lower it again
//! (`CAP_SYS_NICE`, `RLIMIT_NICE`) keeps the ordinary one.

use std::cell::Cell;

/// The nice values of ordinary threads and of those that move bulk data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priority {
    /// Nice value of the program.
    own: i32,
    bulk_by: i32,
}

thread_local! {
    /// Whether this thread may lower its nice value; `None` until tried.
    static MAY_COME_BACK: Cell<Option<bool>> = const { Cell::new(None) };
}

impl Priority {
    /// Creates priorities in which bulk work has `bulk_by` added to the nice value of the current thread. To
    /// be called on the thread that starts the others, since a new thread inherits its creator's nice value.
    pub(crate) fn new(bulk_by: i32) -> Priority {
        Priority { own: rustix::process::getpriority_process(None).unwrap_or(0), bulk_by }
    }

    /// Resets a new thread to the ordinary priority, since its creator may have been moving bulk data.
    pub(crate) fn begin(self) {
        if self.bulk_by != 0 {
            set_own(self.own);
        }
    }

    /// Lowers this thread's priority if it will be able to restore it.
    pub(crate) fn be_bulk(self) {
        if self.bulk_by != 0 && self.may_come_back() {
            set_own(self.own.saturating_add(self.bulk_by));
        }
    }

    /// Restores this thread's ordinary priority.
    pub(crate) fn be_ordinary(self) {
        if self.bulk_by != 0 && MAY_COME_BACK.get() == Some(true) {
            set_own(self.own);
        }
    }

    fn may_come_back(self) -> bool {
        MAY_COME_BACK.get().unwrap_or_else(|| {
            let may = set_own(self.own - 1) && set_own(self.own);
            MAY_COME_BACK.set(Some(may));
            may
        })
    }
}

/// Sets this thread's nice value. Returns whether that was permitted.
fn set_own(nice: i32) -> bool {
    rustix::process::setpriority_process(None, nice).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    /// Runs a function on a new thread, because each thread remembers what it has tried.
    fn on_a_thread<T: Send>(run: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    #[test]
    fn bulk_transfers_are_scheduled_last() {
        let ordinary = own();
        on_a_thread(|| {
            let priority = Priority::new(3);
            for _ in 0..2 {
                priority.be_bulk();
                let may = MAY_COME_BACK.get().unwrap();
                assert_eq!(own(), if may { (ordinary + 3).min(19) } else { ordinary });
                let started = on_a_thread(|| {
                    priority.begin();
                    own()
                });
                assert_eq!(started, ordinary);
                priority.be_ordinary();
                assert_eq!(own(), ordinary);
            }
        });
        assert_eq!(own(), ordinary, "of other threads nothing is changed");
    }

    #[test]
    fn without_a_difference_nothing_is_touched() {
        on_a_thread(|| {
            let priority = Priority::new(0);
            priority.be_bulk();
            assert_eq!(MAY_COME_BACK.get(), None);
        });
    }
}
