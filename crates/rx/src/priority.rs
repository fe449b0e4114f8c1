//! Which threads go first when there are more than processors.
//!
//! Dozens of workers may want the processors at once, each for as long as a megabyte takes. Whoever waits at a terminal
//! needs a lane, a worker for a moment, and perhaps the sync of a log: these go before the workers that move bulk
//! data. On Linux each thread has a nice value of its own. Who may not lower it (`CAP_SYS_NICE`, `RLIMIT_NICE`) goes
//! on as he is.

use std::cell::Cell;

/// How much the nice value of what is urgent is below that of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priority {
    /// That of the program.
    ordinary: i32,
    urgent_by: i32,
}

thread_local! {
    /// Whether this thread could be made urgent, once it was tried.
    static CAN_BE_URGENT: Cell<Option<bool>> = const { Cell::new(None) };
}

impl Priority {
    /// By so much, as seen from the thread that starts the others: a thread that is started has the nice value of
    /// who starts it.
    pub(crate) fn new(urgent_by: i32) -> Priority {
        Priority { ordinary: rustix::process::getpriority_process(None).unwrap_or(0), urgent_by }
    }

    /// This thread goes first from now on, if that is allowed.
    pub(crate) fn be_urgent(self) {
        CAN_BE_URGENT.with(|can| {
            if self.urgent_by != 0 && can.get() != Some(false) {
                can.set(Some(set_own(self.ordinary.saturating_sub(self.urgent_by))));
            }
        });
    }

    /// This thread takes turns with all others from now on.
    pub(crate) fn be_ordinary(self) {
        if self.urgent_by != 0 && CAN_BE_URGENT.get() != Some(false) {
            set_own(self.ordinary);
        }
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
    fn whoever_is_urgent_goes_first_if_he_may_and_comes_back() {
        let ordinary = own();
        on_a_thread(|| {
            let priority = Priority::new(3);
            priority.be_urgent();
            let is_allowed = CAN_BE_URGENT.get().unwrap();
            assert_eq!(own(), if is_allowed { (ordinary - 3).max(-20) } else { ordinary });
            // A thread that an urgent one starts need not stay so.
            let started = on_a_thread(|| {
                priority.be_ordinary();
                own()
            });
            assert_eq!(started, ordinary);
            priority.be_ordinary();
            assert_eq!(own(), ordinary);
        });
        assert_eq!(own(), ordinary, "of other threads nothing is changed");
    }

    #[test]
    fn without_a_difference_nothing_is_touched() {
        on_a_thread(|| {
            let priority = Priority::new(0);
            priority.be_urgent();
            assert_eq!(CAN_BE_URGENT.get(), None);
        });
    }
}
