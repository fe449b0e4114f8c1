//! Where the time of a call goes: the parts of the time of the call that the calling thread serves.
//!
//! Per thread, as in a profiler: locks and disks report waits from places that know of no call.

use std::cell::Cell;

/// A part of a call's time other than processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Waiting for a worker.
    Queue,
    /// Waiting for another thread's change to the same volume.
    Lock,
    /// Reading or writing a disk, or waiting for a sync.
    Disk,
    /// Waiting for clients to acknowledge a callback break.
    Callback,
    /// Waiting for the calling client to send more data, or to accept a reply.
    Client,
    /// Waiting until a volume that was not in use has been loaded.
    Load,
}

/// Names of [`Part`], in order.
pub const PARTS: [&str; 6] = ["queue", "lock", "disk", "callback", "client", "load"];

thread_local! {
    static PARTS_NS: Cell<[u64; PARTS.len()]> = const { Cell::new([0; PARTS.len()]) };
}

/// Resets the parts at the start of a call.
pub fn begin() {
    PARTS_NS.set([0; PARTS.len()]);
}

/// Adds `ns` nanoseconds to a part.
pub fn spent(part: Part, ns: u64) {
    let mut parts = PARTS_NS.get();
    parts[part as usize] = parts[part as usize].saturating_add(ns);
    PARTS_NS.set(parts);
}

/// A wait of the call. Everything recorded within it counts as part of this wait, whose duration is passed to
/// [`Span::leave`].
#[derive(Debug)]
#[must_use]
pub struct Span {
    part: Part,
    before: [u64; PARTS.len()],
}

/// Starts a wait.
pub fn enter(part: Part) -> Span {
    Span { part, before: PARTS_NS.get() }
}

impl Span {
    /// Ends the wait, which took `ns` nanoseconds.
    pub fn leave(self, ns: u64) {
        PARTS_NS.set(self.before);
        spent(self.part, ns);
    }
}

/// Returns the nanoseconds spent in each [`Part`] since [`begin`].
pub fn spent_ns() -> [u64; PARTS.len()] {
    PARTS_NS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_waits_belong_to_the_outer_one() {
        begin();
        spent(Part::Client, 1);
        let span = enter(Part::Callback);
        spent(Part::Client, 100);
        spent(Part::Callback, 100);
        span.leave(150);
        assert_eq!(spent_ns(), [0, 0, 0, 150, 1, 0]);
        begin();
        assert_eq!(spent_ns(), [0; 6]);
    }
}
