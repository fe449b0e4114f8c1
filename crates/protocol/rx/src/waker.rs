//! Wakes a lane that sleeps in `poll`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// An event counter that one thread polls and any thread may raise.
pub(crate) struct Waker {
    counter: File,
    /// Whether the counter is raised already.
    raised: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker { counter: sys::event_counter()?, raised: AtomicBool::new(false) })
    }

    /// Returns the descriptor to poll for reading.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.counter.as_raw_fd()
    }

    /// Wakes the sleeping thread, now or as soon as it tries to sleep.
    pub(crate) fn wake(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            // Adding 1 cannot overflow the counter, since every reader resets it.
            let _ = (&self.counter).write(&1u64.to_ne_bytes());
        }
    }

    /// Resets the counter. To be called before checking for work that wakers have left.
    pub(crate) fn rest(&self) {
        if self.raised.load(Ordering::SeqCst) {
            let _ = (&self.counter).read(&mut [0; 8]);
            // A read-modify-write, so that this thread sees the work of a waker that found the flag raised.
            self.raised.swap(false, Ordering::SeqCst);
        }
    }
}
