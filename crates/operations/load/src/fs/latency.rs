//! Measurements: latencies of calls by group and kind, and over time.

use super::Schedule;
use super::client::{Done, End};
use super::step::{CallKind, KINDS};
use base::Monotonic;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Results of all groups.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Groups in the order of the mix.
    pub(super) groups: Vec<GroupMeasured>,
    schedule: Schedule,
    interval: Duration,
    /// Data packets of all clients, including warm-up and shutdown.
    pub(super) packets: crate::rxperf::Packets,
    /// Datagrams that the kernel dropped at the clients' sockets.
    pub(super) client_drops: u64,
}

/// Results of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupMeasured {
    /// Results in the order of [`KINDS`].
    pub(super) kinds: [KindMeasured; KINDS.len()],
    /// Latency in nanoseconds of each client's first call, whenever it was made: the server identifies the
    /// client before it answers that call.
    pub(super) first: Option<Histogram<u64>>,
    /// Latency of all other calls, per interval.
    pub(super) timeline: Vec<Option<Histogram<u64>>>,
    /// Calls that failed, by abort code.
    pub(super) failures: BTreeMap<i32, u64>,
    /// Incorrect replies, by the kind of error.
    pub(super) wrong: BTreeMap<&'static str, u64>,
}

/// Results of one kind of call.
#[derive(Clone, Debug, Default)]
pub(super) struct KindMeasured {
    /// Latency in nanoseconds.
    pub(super) latency: Option<Histogram<u64>>,
    pub(super) payload: u64,
    pub(super) busy: u64,
    pub(super) failed: u64,
}

/// Maximum number of intervals in a run; none is shorter than a second.
const INTERVALS_MAX: u32 = 300;

/// Significant digits of latencies, and of the many histograms of the timeline.
const DIGITS: u8 = 3;
const TIMELINE_DIGITS: u8 = 2;

impl Measured {
    pub(super) fn new(groups: usize, schedule: Schedule) -> Measured {
        let interval = (schedule.to.since(schedule.from) / INTERVALS_MAX).max(Duration::from_secs(1));
        Measured {
            groups: vec![GroupMeasured::default(); groups],
            schedule,
            interval,
            packets: crate::rxperf::Packets::default(),
            client_drops: 0,
        }
    }

    /// Records the latency of a client's first call.
    pub(super) fn record_first(&mut self, group: usize, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        add(&mut self.groups[group].first, nanoseconds, DIGITS);
    }

    /// Records any other call that ended now. Wrong data counts at any time, everything else only during the
    /// measurement.
    pub(super) fn record(&mut self, group: usize, done: &Done, now: Monotonic) {
        let group = &mut self.groups[group];
        if let End::Wrong(what) = done.end {
            *group.wrong.entry(what).or_default() += 1;
        }
        let Some(index) = KINDS.iter().position(|kind| *kind == done.kind) else { return };
        if now < self.schedule.from || now >= self.schedule.to {
            return;
        }
        let kind = &mut group.kinds[index];
        match done.end {
            End::Right { payload } => {
                kind.payload += payload;
                let nanoseconds = u64::try_from(now.since(done.begun).as_nanos()).unwrap_or(u64::MAX);
                add(&mut kind.latency, nanoseconds, DIGITS);
                let at = now.since(self.schedule.from).as_nanos() / self.interval.as_nanos();
                let at = at as usize;
                group.timeline.resize(group.timeline.len().max(at + 1), None);
                add(&mut group.timeline[at], nanoseconds, TIMELINE_DIGITS);
            }
            End::Busy => kind.busy += 1,
            End::Failed(code) => {
                kind.failed += 1;
                *group.failures.entry(code.0).or_default() += 1;
            }
            End::Wrong(_) => kind.failed += 1,
        }
    }

    /// Adds the results of another thread.
    pub(super) fn merge(&mut self, other: &Measured) {
        for (group, others) in self.groups.iter_mut().zip(&other.groups) {
            group.merge(others);
        }
        self.packets += other.packets;
        self.client_drops += other.client_drops;
    }

    /// Returns a group's latencies over time.
    pub(super) fn timeline(&self, group: usize) -> Vec<Interval> {
        let seconds = self.interval.as_secs_f64();
        let interval = |(number, histogram): (usize, &Option<Histogram<u64>>)| Interval {
            second: number as f64 * seconds,
            latency: histogram.as_ref().map(Distribution::of).unwrap_or_default(),
        };
        self.groups[group].timeline.iter().enumerate().map(interval).collect()
    }
}

impl GroupMeasured {
    fn merge(&mut self, other: &GroupMeasured) {
        for (kind, others) in self.kinds.iter_mut().zip(&other.kinds) {
            join(&mut kind.latency, others.latency.as_ref());
            kind.payload += others.payload;
            kind.busy += others.busy;
            kind.failed += others.failed;
        }
        join(&mut self.first, other.first.as_ref());
        let intervals = self.timeline.len().max(other.timeline.len());
        self.timeline.resize(intervals, None);
        for (interval, others) in self.timeline.iter_mut().zip(&other.timeline) {
            join(interval, others.as_ref());
        }
        for (code, count) in &other.failures {
            *self.failures.entry(*code).or_default() += count;
        }
        for (what, count) in &other.wrong {
            *self.wrong.entry(what).or_default() += count;
        }
    }

    /// Returns the number of successful calls.
    pub(super) fn calls(&self) -> u64 {
        self.kinds.iter().filter_map(|kind| kind.latency.as_ref()).map(Histogram::len).sum()
    }

    /// Returns the latencies of calls of all kinds.
    pub(super) fn latency(&self) -> Distribution {
        let mut all = None;
        for kind in &self.kinds {
            join(&mut all, kind.latency.as_ref());
        }
        all.as_ref().map(Distribution::of).unwrap_or_default()
    }

    /// Returns the payload of successful calls.
    pub(super) fn payload(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.payload).sum()
    }
}

fn add(histogram: &mut Option<Histogram<u64>>, nanoseconds: u64, digits: u8) {
    let histogram = histogram.get_or_insert_with(|| empty(digits));
    histogram.record(nanoseconds).expect("a growing histogram accepts any value");
}

fn empty(digits: u8) -> Histogram<u64> {
    let mut histogram = Histogram::new(digits).expect("1 to 5 digits are allowed");
    histogram.auto(true);
    histogram
}

fn join(to: &mut Option<Histogram<u64>>, from: Option<&Histogram<u64>>) {
    let Some(from) = from else { return };
    match to {
        Some(to) => to.add(from).expect("a growing histogram merges with any other"),
        None => *to = Some(from.clone()),
    }
}

/// Percentiles of latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of calls.
    pub calls: u64,
    /// Median latency.
    pub p50_us: f64,
    /// 90th percentile of the latency.
    pub p90_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// Maximum latency.
    pub max_us: f64,
}

impl Distribution {
    pub(super) fn of(histogram: &Histogram<u64>) -> Distribution {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let at = |quantile| microseconds(histogram.value_at_quantile(quantile));
        Distribution {
            calls: histogram.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: microseconds(histogram.max()),
        }
    }
}

/// A second of a run, or a longer interval of a long one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// Start of the interval, in seconds since the start of the measurement.
    pub second: f64,
    /// Latency of all calls that ended in the interval.
    pub latency: Distribution,
}

/// Returns the kinds of calls that occurred in a group, with their measurements.
pub(super) fn kinds(group: &GroupMeasured) -> impl Iterator<Item = (CallKind, &KindMeasured)> {
    let happened = |kind: &KindMeasured| kind.latency.is_some() || kind.busy + kind.failed > 0;
    KINDS.into_iter().zip(&group.kinds).filter(move |(_, kind)| happened(kind))
}
