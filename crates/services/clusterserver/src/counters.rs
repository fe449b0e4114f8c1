//! Counts of calls between nodes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Clients' calls that another node has answered, also with an error.
    pub forwarded: u64,
    /// Attempts that a node has refused because it is not the owner, or cannot answer.
    pub refused: u64,
    /// Attempts of unknown outcome.
    pub unknown: u64,
    /// Clients' calls that were given up.
    pub given_up: u64,
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

tally!(forwarded, refused, unknown, given_up, executed, found, sent_through, sent_directly, strangers);

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
