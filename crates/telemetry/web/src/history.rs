//! Recent history: a sample every two seconds for a quarter of an hour, including distributions. Takes 450
//! times about 850 bytes, which is 380 KiB.

use events::Histogram;
use events::catalogue::{CacheCounts, CallFigures, DiskFigures, LaneFigures, WorkerFigures};
use events::{Declared, Figures};
use observe::{Observed, Sheet};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// Interval between samples.
pub const PERIOD: Duration = Duration::from_secs(2);

/// Number of samples kept.
const SAMPLES_MAX: usize = 450;

/// Rows of a heat map: two for each power of two of nanoseconds from 2^9 (half a microsecond) to 2^36 (69 s),
/// one for everything below, and one for everything above.
const LOWEST_POWER: u32 = 9;
const HIGHEST_POWER: u32 = 36;
const HEAT_ROWS: usize = 2 * (HIGHEST_POWER - LOWEST_POWER) as usize + 2;

/// A line of a chart and its unit: the rate per second of a counter, or the value of a gauge.
struct Line {
    name: &'static str,
    title: &'static str,
    grows: bool,
    read: fn(&Sums) -> u64,
}

/// Lines that share a chart.
struct Chart {
    title: &'static str,
    unit: &'static str,
    lines: &'static [Line],
}

const fn grows(name: &'static str, title: &'static str, read: fn(&Sums) -> u64) -> Line {
    Line { name, title, grows: true, read }
}

const fn is_now(name: &'static str, title: &'static str, read: fn(&Sums) -> u64) -> Line {
    Line { name, title, grows: false, read }
}

const CHARTS: &[Chart] = &[
    Chart {
        title: "Calls",
        unit: "count",
        lines: &[
            grows("calls", "calls", |sums| sums.calls.calls),
            grows("failed", "failed", |sums| sums.calls.calls - sums.calls.outcomes[0].min(sums.calls.calls)),
        ],
    },
    Chart {
        title: "Data",
        unit: "bytes",
        lines: &[
            grows("sent", "sent", |sums| sums.calls.sent),
            grows("received", "received", |sums| sums.calls.received),
        ],
    },
    Chart {
        title: "Workers",
        unit: "count",
        lines: &[
            is_now("busy", "busy", |sums| sums.workers.busy),
            is_now("waiting", "calls waiting", |sums| sums.workers.waiting),
        ],
    },
    Chart {
        title: "Disk",
        unit: "bytes",
        lines: &[
            grows("disk_read", "read", |sums| sums.disk_read),
            grows("disk_written", "written", |sums| sums.disk_written),
        ],
    },
    Chart {
        title: "Datagrams",
        unit: "count",
        lines: &[
            grows("resent", "retransmitted", |sums| sums.lanes.data_resent),
            grows("dropped", "dropped", |sums| sums.lanes.kernel_drops),
        ],
    },
    Chart {
        title: "Cache",
        unit: "count",
        lines: &[
            grows("hits", "hits", |sums| sums.caches.hits),
            grows("misses", "misses", |sums| sums.caches.misses),
        ],
    },
];

/// Number of lines in all charts.
const LINES: usize = 12;

/// A heat map: a distribution over time.
struct Heat {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    read: fn(&Sums) -> &Histogram,
}

const HEATS: [Heat; 3] = [
    Heat {
        name: "run",
        title: "How long calls are served",
        about: "from the start in a worker to the reply, including waits for disks, locks and clients",
        read: |sums| &sums.calls.run,
    },
    Heat {
        name: "wait",
        title: "How long calls wait for a worker",
        about: "without calls that the receiving thread answers itself",
        read: |sums| &sums.calls.wait,
    },
    Heat {
        name: "disk",
        title: "How long disks take",
        about: "reads, writes and syncs of segments of file data",
        read: |sums| &sums.disk,
    },
];

/// All sampled figures, summed up.
#[derive(Clone, Default)]
struct Sums {
    calls: CallFigures,
    workers: WorkerFigures,
    lanes: LaneFigures,
    caches: CacheCounts,
    disk: Histogram,
    disk_read: u64,
    disk_written: u64,
}

impl Sums {
    fn of(observed: &dyn Observed) -> Sums {
        let disks = observed.disks();
        let moved = |access: &str| {
            let rows = disks.rows.iter().filter(|row| row.labels.get(1).is_some_and(|label| label == access));
            rows.map(|row| row.figures.moved).sum()
        };
        let all: DiskFigures = total(&disks);
        Sums {
            calls: total(&observed.calls()),
            workers: total(&observed.workers()),
            lanes: total(&observed.lanes()),
            caches: total(&observed.caches()),
            disk_read: moved("read"),
            disk_written: moved("write"),
            disk: all.time,
        }
    }
}

fn total<F: Declared + Figures>(sheet: &Sheet<F>) -> F {
    let mut sum = F::default();
    sheet.rows.iter().for_each(|row| sum.add(&row.figures));
    sum
}

/// Figures of one period.
#[derive(Clone)]
struct Sample {
    number: u64,
    /// End of the period, since 1970.
    at: Duration,
    span: Duration,
    lines: [u64; LINES],
    heats: [[u32; HEAT_ROWS]; HEATS.len()],
}

/// The most recent samples.
#[derive(Default)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    last: Option<(Sums, Duration)>,
    count: u64,
}

impl History {
    /// Takes a sample at this time since 1970.
    pub(crate) fn look(&mut self, observed: &dyn Observed, at: Duration) {
        let now = Sums::of(observed);
        if let Some((before, since)) = &self.last {
            self.count += 1;
            let span = at.saturating_sub(*since).max(Duration::from_millis(1));
            let (lines, heats) = (lines(&now, before), heats(&now, before));
            if self.samples.len() >= SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back(Sample { number: self.count, at, span, lines, heats });
        }
        self.last = Some((now, at));
    }

    /// Describes the charts and heat maps, for the code that draws them.
    pub(crate) fn describe() -> Value {
        let line = |line: &Line| json!({ "name": line.name, "title": line.title, "rate": line.grows });
        let chart = |chart: &Chart| {
            let lines: Vec<Value> = chart.lines.iter().map(line).collect();
            json!({ "title": chart.title, "unit": chart.unit, "lines": lines })
        };
        let heat = |heat: &Heat| json!({ "name": heat.name, "title": heat.title, "about": heat.about });
        json!({
            "period_ms": PERIOD.as_millis() as u64,
            "samples_max": SAMPLES_MAX,
            "charts": CHARTS.iter().map(chart).collect::<Vec<_>>(),
            "heats": HEATS.iter().map(heat).collect::<Vec<_>>(),
            "heat_bounds_ns": (0..HEAT_ROWS).map(upper_ns).collect::<Vec<_>>(),
        })
    }

    /// Returns the samples after a number: number, time, span in milliseconds, lines, and for each heat map
    /// pairs of row and count.
    pub(crate) fn after(&self, number: u64) -> Value {
        let heat = |rows: &[u32; HEAT_ROWS]| {
            let pairs = rows.iter().enumerate().filter(|(_, count)| **count > 0);
            pairs.flat_map(|(row, count)| [row as u32, *count]).collect::<Vec<_>>()
        };
        let news = self.samples.iter().filter(|sample| sample.number > number);
        let reported = news.map(|sample| {
            let heats: Vec<Vec<u32>> = sample.heats.iter().map(heat).collect();
            let (at, span) = (sample.at.as_millis() as u64, sample.span.as_millis() as u64);
            json!([sample.number, at, span, sample.lines, heats])
        });
        reported.collect()
    }
}

fn lines(now: &Sums, before: &Sums) -> [u64; LINES] {
    let all = CHARTS.iter().flat_map(|chart| chart.lines);
    let mut numbers = [0; LINES];
    for (number, line) in numbers.iter_mut().zip(all) {
        let value = (line.read)(now);
        *number = if line.grows { value.saturating_sub((line.read)(before)) } else { value };
    }
    numbers
}

fn heats(now: &Sums, before: &Sums) -> [[u32; HEAT_ROWS]; HEATS.len()] {
    let mut all = [[0_u32; HEAT_ROWS]; HEATS.len()];
    for (rows, heat) in all.iter_mut().zip(&HEATS) {
        for (index, count) in (heat.read)(now).since((heat.read)(before)).buckets() {
            let row = &mut rows[row_of(events::upper_bound(index))];
            *row = row.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }
    all
}

/// Returns the row of a duration.
fn row_of(ns: u64) -> usize {
    let power = ns.max(1).ilog2();
    if power < LOWEST_POWER {
        return 0;
    }
    let upper_half = (ns >> (power - 1)) & 1;
    (1 + 2 * (power - LOWEST_POWER) as usize + upper_half as usize).min(HEAT_ROWS - 1)
}

/// Returns the lower bound of the next row; 0 for the last row, which is unbounded.
fn upper_ns(row: usize) -> u64 {
    if row + 1 == HEAT_ROWS {
        return 0;
    }
    let (power, upper_half) = (LOWEST_POWER + row as u32 / 2, row % 2);
    (1 << power) + upper_half as u64 * (1 << (power - 1))
}

#[cfg(test)]
mod tests;
