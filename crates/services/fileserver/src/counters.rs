//! Counts and times of calls, in atomics.

use base::{AbortCode, Monotonic};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use afs_idl::fs::Operation;

/// Number of operations in extended statistics (FS_STATS_NUM_RPC_OPS).
pub(crate) const XSTAT_OPERATIONS: usize = 28;
const OPERATIONS: usize = Operation::ALL.len();

/// Upper bounds in bytes of the size classes of transfers; the last class is unbounded.
const SIZE_CLASSES: [u64; 8] = [128, 1_024, 8_192, 16_384, 32_768, 131_072, 524_288, 1_048_576];

/// Counts and times of one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCount {
    /// Calls started.
    pub calls: u64,
    /// Calls that succeeded. Only these are included in times.
    pub successes: u64,
    /// Sum of the times.
    pub time: Duration,
    /// Sum of the squares of the times, in square microseconds.
    pub time_squares_us2: u64,
    /// Shortest time; zero before the first success.
    pub time_min: Duration,
    /// Longest time.
    pub time_max: Duration,
}

/// Counts of data transfers in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferCount {
    /// Counts and times of the transfers.
    pub transfers: OperationCount,
    /// Bytes of successful transfers.
    pub bytes: u64,
    /// Size of the smallest transfer in bytes; 0 before the first.
    pub bytes_min: u64,
    /// Size of the largest transfer in bytes.
    pub bytes_max: u64,
    /// Successful transfers of at most 128 B, 1, 8, 16, 32, 128, 512 KiB, 1 MiB, and larger ones.
    pub by_size: [u64; 9],
}

#[derive(Debug, Default)]
struct Times {
    calls: AtomicU64,
    successes: AtomicU64,
    ns: AtomicU64,
    squares_us2: AtomicU64,
    /// The shortest time in ns plus one, or 0 if there is none.
    min_ns_plus_1: AtomicU64,
    max_ns: AtomicU64,
}

/// Lowers a minimum that is stored plus one, with 0 for none.
fn lower(minimum: &AtomicU64, value: u64) {
    let value = value.saturating_add(1);
    let update = |old| (old == 0 || value < old).then_some(value);
    // An error means that the value is not smaller.
    let _ = minimum.fetch_update(Relaxed, Relaxed, update);
}

impl Times {
    fn succeeded(&self, time: Duration) {
        let ns = time.as_nanos() as u64;
        let us = ns / 1_000;
        self.successes.fetch_add(1, Relaxed);
        self.ns.fetch_add(ns, Relaxed);
        self.squares_us2.fetch_add(us.saturating_mul(us), Relaxed);
        lower(&self.min_ns_plus_1, ns);
        self.max_ns.fetch_max(ns, Relaxed);
    }

    fn count(&self) -> OperationCount {
        let duration = |ns: &AtomicU64| Duration::from_nanos(ns.load(Relaxed));
        OperationCount {
            calls: self.calls.load(Relaxed),
            successes: self.successes.load(Relaxed),
            time: duration(&self.ns),
            time_squares_us2: self.squares_us2.load(Relaxed),
            time_min: Duration::from_nanos(self.min_ns_plus_1.load(Relaxed).saturating_sub(1)),
            time_max: duration(&self.max_ns),
        }
    }
}

#[derive(Debug, Default)]
struct Transfers {
    times: Times,
    bytes: AtomicU64,
    min_plus_1: AtomicU64,
    max: AtomicU64,
    by_size: [AtomicU64; 9],
}

impl Transfers {
    fn finished(&self, time: Duration, bytes: Option<u64>) {
        self.times.calls.fetch_add(1, Relaxed);
        let Some(bytes) = bytes else { return };
        self.times.succeeded(time);
        self.bytes.fetch_add(bytes, Relaxed);
        lower(&self.min_plus_1, bytes);
        self.max.fetch_max(bytes, Relaxed);
        let class = SIZE_CLASSES.partition_point(|bound| *bound < bytes);
        self.by_size[class].fetch_add(1, Relaxed);
    }

    fn count(&self) -> TransferCount {
        TransferCount {
            transfers: self.times.count(),
            bytes: self.bytes.load(Relaxed),
            bytes_min: self.min_plus_1.load(Relaxed).saturating_sub(1),
            bytes_max: self.max.load(Relaxed),
            by_size: std::array::from_fn(|class| self.by_size[class].load(Relaxed)),
        }
    }
}

/// All counters of the file service.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    operations: [Times; OPERATIONS],
    fetched: Transfers,
    stored: Transfers,
    busy: AtomicU64,
    statistics_calls: AtomicU64,
}

impl Counters {
    /// Counts the start of a call.
    pub(crate) fn begin(&self, operation: Operation) {
        self.operations[operation as usize].calls.fetch_add(1, Relaxed);
    }

    /// Counts the end of a call.
    pub(crate) fn end(&self, operation: Operation, time: Duration, error: Option<AbortCode>) {
        match error {
            None => self.operations[operation as usize].succeeded(time),
            Some(AbortCode::VBUSY) => {
                self.busy.fetch_add(1, Relaxed);
            }
            Some(_) => {}
        }
    }

    /// Counts the end of a transfer to a client; `bytes` is `None` if it failed.
    pub(crate) fn fetched(&self, begun: Monotonic, now: Monotonic, bytes: Option<u64>) {
        self.fetched.finished(now.since(begun), bytes);
    }

    /// Counts the end of a transfer from a client; `bytes` is `None` if it failed.
    pub(crate) fn stored(&self, begun: Monotonic, now: Monotonic, bytes: Option<u64>) {
        self.stored.finished(now.since(begun), bytes);
    }

    /// Returns the counts of one kind of call.
    pub(crate) fn operation(&self, operation: Operation) -> OperationCount {
        self.operations[operation as usize].count()
    }

    /// Returns the number of calls of all kinds.
    pub(crate) fn all_calls(&self) -> u64 {
        self.operations.iter().map(|times| times.calls.load(Relaxed)).sum()
    }

    /// Returns the counts of transfers to clients and from clients.
    pub(crate) fn transfers(&self) -> [TransferCount; 2] {
        [self.fetched.count(), self.stored.count()]
    }

    /// Returns the number of calls answered with VBUSY.
    pub(crate) fn busy(&self) -> u64 {
        self.busy.load(Relaxed)
    }

    /// Counts a request for performance data, and returns the new count (numPerfCalls).
    pub(crate) fn count_statistics_call(&self) -> u64 {
        self.statistics_calls.fetch_add(1, Relaxed) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_successes_only() {
        let counters = Counters::default();
        for (ms, error) in [(5, None), (1, Some(AbortCode::UAEACCES)), (3, None), (4, Some(AbortCode::VBUSY))]
        {
            counters.begin(Operation::Link);
            counters.end(Operation::Link, Duration::from_millis(ms), error);
        }
        let count = counters.operation(Operation::Link);
        assert_eq!((count.calls, count.successes), (4, 2));
        assert_eq!(count.time, Duration::from_millis(8));
        assert_eq!((count.time_min, count.time_max), (Duration::from_millis(3), Duration::from_millis(5)));
        assert_eq!(count.time_squares_us2, 34_000_000);
        assert_eq!((counters.busy(), counters.all_calls()), (1, 4));
    }

    #[test]
    fn transfers_are_classed_by_size() {
        let counters = Counters::default();
        for bytes in [0, 128, 129, 1_048_576, 1_048_577] {
            counters.fetched(Monotonic(0), Monotonic(1_000), Some(bytes));
        }
        counters.fetched(Monotonic(0), Monotonic(9), None);
        let [fetched, stored] = counters.transfers();
        assert_eq!(fetched.by_size, [2, 1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((fetched.transfers.calls, fetched.transfers.successes), (6, 5));
        assert_eq!((fetched.bytes_min, fetched.bytes_max), (0, 1_048_577));
        assert_eq!(stored, TransferCount::default());
    }

    #[test]
    fn the_order_is_that_of_extended_statistics() {
        assert_eq!(Operation::GetXStats as usize, XSTAT_OPERATIONS - 1);
        assert_eq!(Operation::ALL[25].name(), "BulkStatus");
    }
}
