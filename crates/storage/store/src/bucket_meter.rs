//! Counters of the requests to the bucket of one partition.

use events::catalogue::BucketFigures;
use events::{Figures, Sharded};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Kinds of requests, in the order of [`BucketMeter::figures`].
pub const REQUESTS: [&str; 6] = ["put", "get", "list", "delete", "copy", "part"];

/// For how long a failure counts without another request.
const MEMORY: Duration = Duration::from_secs(60);

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// An object is created or replaced.
    Put,
    /// An object is read, or its length is.
    Get,
    /// Objects are listed, however many answers that takes.
    List,
    /// An object is deleted.
    Delete,
    /// An object is copied.
    Copy,
    /// A step of the creation of an object in parts.
    Part,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// It was done, or there is no such object.
    Done,
    /// Its condition was not met.
    Conflict,
    /// The bucket does not carry it out.
    Refused,
    /// Any other error.
    Failed,
    /// It was given up.
    Unanswered,
}

/// Counters of one bucket.
#[derive(Debug)]
pub struct BucketMeter {
    figures: Sharded<[BucketFigures; REQUESTS.len()]>,
    failures: [Failures; REQUESTS.len()],
    begun: Instant,
}

/// Times since the beginning of the meter in nanoseconds; 0 if there is none.
#[derive(Debug, Default)]
struct Failures {
    /// Of the first failure after the last success.
    first: AtomicU64,
    last: AtomicU64,
}

impl Default for BucketMeter {
    fn default() -> BucketMeter {
        let (figures, failures) = (Sharded::default(), Default::default());
        BucketMeter { figures, failures, begun: Instant::now() }
    }
}

impl BucketMeter {
    /// Counts a request that took this time, with the bytes that were sent and received.
    pub fn count(&self, kind: RequestKind, end: RequestEnd, time: Duration, (sent, received): (u64, u64)) {
        let mut shard = self.figures.mine();
        let figures = &mut shard[kind as usize];
        figures.requests += 1;
        figures.sent += sent;
        figures.received += received;
        figures.time.record(nanoseconds(time));
        match end {
            RequestEnd::Done => {}
            RequestEnd::Conflict => figures.conflicts += 1,
            RequestEnd::Refused => figures.refused += 1,
            RequestEnd::Failed => figures.failed += 1,
            RequestEnd::Unanswered => figures.unanswered += 1,
        }
        drop(shard);
        // A bucket that copies nothing is good enough.
        if (kind, end) != (RequestKind::Copy, RequestEnd::Refused) {
            self.failures[kind as usize].note(end, nanoseconds(self.begun.elapsed()).max(1));
        }
    }

    /// Returns the figures for each kind of request.
    pub fn figures(&self) -> [BucketFigures; REQUESTS.len()] {
        let mut sums = <[BucketFigures; REQUESTS.len()]>::default();
        self.figures.each(|shard| sums.iter_mut().zip(shard).for_each(|(sum, part)| sum.add(part)));
        let now = nanoseconds(self.begun.elapsed());
        for (sum, failures) in sums.iter_mut().zip(&self.failures) {
            sum.failing = failures.failing(now);
        }
        sums
    }
}

impl Failures {
    fn note(&self, end: RequestEnd, now: u64) {
        if matches!(end, RequestEnd::Done | RequestEnd::Conflict) {
            return self.first.store(0, Relaxed);
        }
        self.last.store(now, Relaxed);
        _ = self.first.compare_exchange(0, now, Relaxed, Relaxed);
    }

    /// Returns the time between the first failure and the last: one alone may have been given up by the caller.
    fn failing(&self, now: u64) -> u64 {
        let (first, last) = (self.first.load(Relaxed), self.last.load(Relaxed));
        let is_over = first == 0 || now.saturating_sub(last) > nanoseconds(MEMORY);
        if is_over { 0 } else { last.saturating_sub(first) }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_kind_and_end() {
        let meter = BucketMeter::default();
        let time = Duration::from_millis(3);
        meter.count(RequestKind::Get, RequestEnd::Done, time, (0, 500));
        meter.count(RequestKind::Put, RequestEnd::Conflict, time, (100, 0));
        meter.count(RequestKind::Put, RequestEnd::Unanswered, time, (100, 0));
        meter.count(RequestKind::Put, RequestEnd::Unanswered, time, (0, 0));
        let [put, get, rest @ ..] = meter.figures();
        assert_eq!((get.requests, get.received, get.time.count(), get.failing), (1, 500, 1, 0));
        assert_eq!((put.requests, put.conflicts, put.unanswered, put.sent), (3, 1, 2, 200));
        assert!(put.failing > 0 && rest.iter().all(|row| *row == BucketFigures::default()));
        meter.count(RequestKind::Put, RequestEnd::Done, time, (100, 0));
        assert_eq!(meter.figures()[0].failing, 0);
    }

    #[test]
    fn a_failure_lasts_until_a_success_or_a_minute() {
        let (failures, second) = (Failures::default(), 1_000_000_000);
        failures.note(RequestEnd::Failed, second);
        failures.note(RequestEnd::Refused, 31 * second);
        assert_eq!(failures.failing(91 * second), 30 * second);
        assert_eq!(failures.failing(92 * second), 0);
        failures.note(RequestEnd::Done, 92 * second);
        failures.note(RequestEnd::Unanswered, 93 * second);
        assert_eq!(failures.failing(95 * second), 0);
        failures.note(RequestEnd::Failed, 96 * second);
        assert_eq!(failures.failing(97 * second), 3 * second);
    }
}
