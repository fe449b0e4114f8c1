//! What was measured: times of calls by group and kind, and how they went over time.

use super::Schedule;
use super::client::{Done, End};
use super::step::{CallKind, KINDS};
use base::Monotonic;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// All groups' results.
#[derive(Clone, Debug)]
pub struct Measured {
    /// In the mix's order.
    pub(super) groups: Vec<GroupMeasured>,
    schedule: Schedule,
    interval: Duration,
    /// Data packets of all clients, warm-up and farewell included.
    pub(super) packets: crate::rxperf::Packets,
    /// Datagrams that the kernel dropped at the clients' sockets.
    pub(super) client_drops: u64,
}

/// One group's.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupMeasured {
    /// By [`KINDS`]' order.
    pub(super) kinds: [KindMeasured; KINDS.len()],
    /// Of each client the first call, whenever it was, in nanoseconds: before the server answers that one it asks
    /// the client who it is.
    pub(super) first: Option<Histogram<u64>>,
    /// All other calls of each interval.
    pub(super) timeline: Vec<Option<Histogram<u64>>>,
    /// Calls that failed, by abort code.
    pub(super) failures: BTreeMap<i32, u64>,
    /// What was not as it had been stored.
    pub(super) wrong: BTreeMap<&'static str, u64>,
}

/// One kind's.
#[derive(Clone, Debug, Default)]
pub(super) struct KindMeasured {
    /// In nanoseconds.
    pub(super) latency: Option<Histogram<u64>>,
    pub(super) payload: u64,
    pub(super) busy: u64,
    pub(super) failed: u64,
}

/// Intervals of a run at most; none is shorter than a second.
const INTERVALS_MAX: u32 = 300;

/// Digits of latencies that are kept, and for the many histograms of the timeline.
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

    /// Takes note of the time of a client's first call.
    pub(super) fn record_first(&mut self, group: usize, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        add(&mut self.groups[group].first, nanoseconds, DIGITS);
    }

    /// Takes note of any other call that ended now. Wrong data count at any time, the rest while the clock runs.
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

    /// Adds another thread's.
    pub(super) fn merge(&mut self, other: &Measured) {
        for (group, others) in self.groups.iter_mut().zip(&other.groups) {
            group.merge(others);
        }
        self.packets += other.packets;
        self.client_drops += other.client_drops;
    }

    /// How the latencies of a group went over time.
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

    /// Calls that went well.
    pub(super) fn calls(&self) -> u64 {
        self.kinds.iter().filter_map(|kind| kind.latency.as_ref()).map(Histogram::len).sum()
    }

    /// Times of calls of all kinds.
    pub(super) fn latency(&self) -> Distribution {
        let mut all = None;
        for kind in &self.kinds {
            join(&mut all, kind.latency.as_ref());
        }
        all.as_ref().map(Distribution::of).unwrap_or_default()
    }

    /// Payload that they moved.
    pub(super) fn payload(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.payload).sum()
    }
}

fn add(histogram: &mut Option<Histogram<u64>>, nanoseconds: u64, digits: u8) {
    let histogram = histogram.get_or_insert_with(|| empty(digits));
    histogram.record(nanoseconds).expect("a histogram that grows takes any number");
}

fn empty(digits: u8) -> Histogram<u64> {
    let mut histogram = Histogram::new(digits).expect("1 to 5 digits are allowed");
    histogram.auto(true);
    histogram
}

fn join(to: &mut Option<Histogram<u64>>, from: Option<&Histogram<u64>>) {
    let Some(from) = from else { return };
    match to {
        Some(to) => to.add(from).expect("a histogram that grows takes any other"),
        None => *to = Some(from.clone()),
    }
}

/// Percentiles of some calls' times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// How many calls.
    pub calls: u64,
    /// Half of them were at least as fast.
    pub p50_us: f64,
    /// 90 of 100 were.
    pub p90_us: f64,
    /// 99 of 100 were.
    pub p99_us: f64,
    /// All were.
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

/// A second of a run, or a longer piece of a long one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// When it began, in seconds since the clock ran.
    pub second: f64,
    /// Of all calls that ended in it.
    pub latency: Distribution,
}

/// The kinds that happened in a group, with what was measured.
pub(super) fn kinds(group: &GroupMeasured) -> impl Iterator<Item = (CallKind, &KindMeasured)> {
    let happened = |kind: &KindMeasured| kind.latency.is_some() || kind.busy + kind.failed > 0;
    KINDS.into_iter().zip(&group.kinds).filter(move |(_, kind)| happened(kind))
}
