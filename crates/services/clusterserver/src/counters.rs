//! Counts of calls between nodes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Clients' calls that another node has answered, also with an error.
    pub forwarded: u64,
    /// Nanoseconds that these calls took here, with all attempts.
    pub forward_ns: u64,
    /// Attempts that a node has refused because it is not the owner, or cannot answer.
    pub refused: u64,
    /// Attempts of unknown outcome.
    pub unknown: u64,
    /// Clients' calls that were given up.
    pub given_up: u64,
    /// Client fetches for which this node read data from the bucket.
    pub reads: u64,
    /// Bytes of that data, from the bucket or a cache of this node.
    pub read_bytes: u64,
    /// Fetches whose rest the owner had to send, because something in the bucket could not be read here.
    pub reads_failed: u64,
    /// Client stores for which this node wrote data to the bucket.
    pub writes: u64,
    /// Bytes of that data, before compression.
    pub written_bytes: u64,
    /// Stores whose rest was sent to the owner, because an object was not created in the bucket.
    pub writes_failed: u64,
    /// Bytes of replies of other nodes that this node has passed on to clients.
    pub relayed_bytes: u64,
    /// Calls of other nodes' clients that were executed here.
    pub executed: u64,
    /// Repeated calls that have found their result.
    pub found: u64,
    /// Calls to clients that were made through another node.
    pub sent_through: u64,
    /// Of these, the number that were then made directly, because the other node does not answer.
    pub sent_directly: u64,
    /// Calls by callers that are not nodes.
    pub strangers: u64,
}

macro_rules! tally {
    ($($name:ident),* $(,)?) => {
        /// The present counts.
        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Tally {
            pub(crate) fn counters(&self) -> Counters {
                Counters { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

tally!(
    forwarded,
    forward_ns,
    refused,
    unknown,
    given_up,
    reads,
    read_bytes,
    reads_failed,
    writes,
    written_bytes,
    writes_failed,
    relayed_bytes,
    executed,
    found,
    sent_through,
    sent_directly,
    strangers
);

impl std::ops::Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        Counters {
            forwarded: self.forwarded + other.forwarded,
            forward_ns: self.forward_ns + other.forward_ns,
            refused: self.refused + other.refused,
            unknown: self.unknown + other.unknown,
            given_up: self.given_up + other.given_up,
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            reads_failed: self.reads_failed + other.reads_failed,
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            writes_failed: self.writes_failed + other.writes_failed,
            relayed_bytes: self.relayed_bytes + other.relayed_bytes,
            executed: self.executed + other.executed,
            found: self.found + other.found,
            sent_through: self.sent_through + other.sent_through,
            sent_directly: self.sent_directly + other.sent_directly,
            strangers: self.strangers + other.strangers,
        }
    }
}

/// Adds the time of a forwarded call.
pub(crate) fn add_time(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Adds a number of bytes.
pub(crate) fn add(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(bytes as u64, Relaxed);
}
