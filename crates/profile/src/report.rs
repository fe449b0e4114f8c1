//! What came of a profile, and how far it is.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A document of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// Folded stacks, in microseconds: of running, or of waiting.
    Stacks,
    /// Accesses to disks by stack, volume and client; see [`crate::IoRow`].
    Io,
    /// Waits for locks by lock and holder; see [`crate::LockRow`].
    Locks,
    /// Latencies by procedure and what its calls waited for; see [`crate::LatencyRow`].
    Latencies,
}

impl Document {
    /// All, in the order of their numbers from 1 on.
    pub const ALL: [Document; 4] = [Document::Stacks, Document::Io, Document::Locks, Document::Latencies];

    /// The number by which the document is asked for over the network.
    pub fn number(self) -> u32 {
        self as u32 + 1
    }
}

/// Counted while a profile runs.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) samples: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// The documents, empty where a profile has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report(pub(crate) [Arc<str>; Document::ALL.len()]);

impl Report {
    /// Nothing but stacks.
    pub(crate) fn of_stacks(folded: String) -> Report {
        let empty: Arc<str> = Arc::from("");
        Report([folded.into(), empty.clone(), empty.clone(), empty])
    }
}
