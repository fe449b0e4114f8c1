//! Who goes last when there are more threads than processors.
//!
//! Dozens of workers may want the processors at once, each for as long as a megabyte takes. Whoever waits at a terminal
//! needs a lane, a worker for a moment, and perhaps the sync of a log: these go before the workers that move bulk
//! data. On Linux each thread has a nice value of its own. A worker that could not have its own back (`CAP_SYS_NICE`,
//! `RLIMIT_NICE`) keeps it.

use std::cell::Cell;

/// How much the nice value of who moves bulk data is above that of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priority {
    /// That of the program.
    own: i32,
    bulk_by: i32,
}

thread_local! {
    /// Whether this thread may lower its nice value, once it was tried.
    static MAY_COME_BACK: Cell<Option<bool>> = const { Cell::new(None) };
}

impl Priority {
    /// By so much, as seen from the thread that starts the others: a thread that is started has the nice value of
    /// who starts it.
    pub(crate) fn new(bulk_by: i32) -> Priority {
        Priority { own: rustix::process::getpriority_process(None).unwrap_or(0), bulk_by }
    }

    /// For a thread that begins: who started it may be moving bulk data.
    pub(crate) fn begin(self) {
        if self.bulk_by != 0 {
            set_own(self.own);
        }
    }

    /// This thread lets others go first from now on, if it may come back.
    pub(crate) fn be_bulk(self) {
        if self.bulk_by != 0 && self.may_come_back() {
            set_own(self.own.saturating_add(self.bulk_by));
        }
    }

    /// This thread takes turns with all others again.
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

/// Whether it was allowed.
fn set_own(nice: i32) -> bool {
    rustix::process::setpriority_process(None, nice).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    /// A thread of its own each time: what a thread has tried it remembers.
    fn on_a_thread<T: Send>(run: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    #[test]
    fn who_moves_bulk_data_goes_last_if_he_may_come_back() {
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
