//! Results and progress of a profile.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A document of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// Folded stacks, in microseconds of running or waiting.
    Stacks,
    /// Disk accesses by stack, volume and client; see [`crate::IoRow`].
    Io,
    /// Waits for locks by lock and holder; see [`crate::LockRow`].
    Locks,
    /// Latencies by procedure and by what its calls waited for; see [`crate::LatencyRow`].
    Latencies,
}

impl Document {
    /// All documents, in the order of their numbers, which start at 1.
    pub const ALL: [Document; 4] = [Document::Stacks, Document::Io, Document::Locks, Document::Latencies];

    /// Returns the number that identifies the document on the network.
    pub fn number(self) -> u32 {
        self as u32 + 1
    }
}

/// Counters of a running profile.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) samples: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// The documents, empty where a profile has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report(pub(crate) [Arc<str>; Document::ALL.len()]);

impl Report {
    /// Creates a report with stacks only.
    pub(crate) fn of_stacks(folded: String) -> Report {
        let empty: Arc<str> = Arc::from("");
        Report([folded.into(), empty.clone(), empty.clone(), empty])
    }
}
