//! Waking a lane that sleeps in `poll`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// An event counter that one thread polls and any thread may raise.
pub(crate) struct Waker {
    counter: File,
    /// The counter is raised: no need to raise it again.
    raised: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker { counter: sys::event_counter()?, raised: AtomicBool::new(false) })
    }

    /// What to poll for reading.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.counter.as_raw_fd()
    }

    /// Makes the sleeper wake up, now or when it next wants to sleep.
    pub(crate) fn wake(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            // Adding 1 to a counter that we alone reset cannot overflow it.
            let _ = (&self.counter).write(&1u64.to_ne_bytes());
        }
    }

    /// Lowers the counter; to be called before looking at what the wakers have done.
    pub(crate) fn rest(&self) {
        if self.raised.load(Ordering::SeqCst) {
            let _ = (&self.counter).read(&mut [0; 8]);
            // Reads before it writes: what was done before a `wake` that found it raised is seen.
            self.raised.swap(false, Ordering::SeqCst);
        }
    }
}
