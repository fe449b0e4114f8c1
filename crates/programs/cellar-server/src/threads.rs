//! Named threads that end with the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Starts a named thread, for `top -H`, debuggers and traces, which show 15 bytes of the name. Panics like
/// [`std::thread::spawn`] if the system has no more threads.
pub(crate) fn thread(name: impl Into<String>, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let spawned = std::thread::Builder::new().name(name.into()).spawn(work);
    spawned.unwrap_or_else(|error| panic!("cannot start a thread: {error}"))
}

/// Sleeps in short intervals; returns false if the server is ending.
pub(crate) fn wait(ending: &AtomicBool, span: Duration) -> bool {
    let mut left = span;
    while !left.is_zero() && !ending.load(Ordering::Relaxed) {
        let nap = left.min(Duration::from_millis(200));
        std::thread::sleep(nap);
        left -= nap;
    }
    !ending.load(Ordering::Relaxed)
}
