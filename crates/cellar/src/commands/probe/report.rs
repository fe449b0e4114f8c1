//! Latencies and incidents of a history.

use super::history::Outcome;
use crate::output::{Format, Row, line};
use anyhow::Result;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything that a report shows.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    volumes: Vec<VolumeRow>,
    incidents: Vec<Incident>,
    /// Lines of the history that could not be read.
    damaged_lines: usize,
}

/// One volume. Times are those of successful probes.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct VolumeRow {
    volume: String,
    /// Last known server.
    server: Option<String>,
    probes: usize,
    failures: usize,
    write: Times,
    read: Times,
    /// Whole probe, from locating the volume to comparing the data.
    total: Times,
}

/// A distribution of times; empty without successful probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_field_names, reason = "units come last")]
struct Times {
    median_us: Option<u64>,
    p99_us: Option<u64>,
    max_us: Option<u64>,
}

/// Consecutive failed probes of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Incident {
    volume: String,
    server: Option<String>,
    /// Start of the first failed probe, in milliseconds since 1970.
    start_ms: u64,
    /// Start of the next successful probe; `None` while the incident lasts.
    end_ms: Option<u64>,
    failures: usize,
    /// The step that failed first.
    step: String,
    error: String,
}

/// Prints the outcomes since a time.
pub(super) fn show(format: Format, outcomes: &[Outcome], since_ms: u64, damaged_lines: usize) -> Result<()> {
    let summary = summarise(outcomes, since_ms, damaged_lines);
    if format == Format::Json {
        return format.done(&summary, "");
    }
    format.rows(&summary.volumes)?;
    line("\nINCIDENTS")?;
    if summary.incidents.is_empty() {
        line("none")?;
    } else {
        format.rows(&summary.incidents)?;
    }
    if damaged_lines > 0 {
        line(format!("\n{damaged_lines} lines of the history could not be read"))?;
    }
    Ok(())
}

pub(super) fn summarise(outcomes: &[Outcome], since_ms: u64, damaged_lines: usize) -> Summary {
    let mut by_volume: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.time_ms >= since_ms) {
        by_volume.entry(&outcome.volume).or_default().push(outcome);
    }
    let volumes = by_volume.iter().map(|(volume, outcomes)| VolumeRow::new(volume, outcomes)).collect();
    let mut incidents: Vec<Incident> = by_volume.values().flat_map(|outcomes| incidents(outcomes)).collect();
    incidents.sort_by_key(|incident| incident.start_ms);
    Summary { volumes, incidents, damaged_lines }
}

impl VolumeRow {
    fn new(volume: &str, outcomes: &[&Outcome]) -> VolumeRow {
        let good: Vec<&&Outcome> = outcomes.iter().filter(|outcome| outcome.error.is_none()).collect();
        VolumeRow {
            volume: volume.to_owned(),
            server: outcomes.iter().rev().find_map(|outcome| outcome.server.clone()),
            probes: outcomes.len(),
            failures: outcomes.len() - good.len(),
            write: Times::of(good.iter().filter_map(|outcome| outcome.write_us)),
            read: Times::of(good.iter().filter_map(|outcome| outcome.read_us)),
            total: Times::of(good.iter().map(|outcome| outcome.total_us)),
        }
    }
}

impl Times {
    /// Percentiles by the nearest-rank method.
    fn of(values: impl Iterator<Item = u64>) -> Times {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100).max(1) - 1;
            values.get(rank).copied()
        };
        Times { median_us: at(50), p99_us: at(99), max_us: at(100) }
    }
}

fn incidents(outcomes: &[&Outcome]) -> Vec<Incident> {
    let mut all = Vec::new();
    let mut current: Option<Incident> = None;
    for outcome in outcomes {
        match (&outcome.error, &mut current) {
            (Some(_), Some(incident)) => incident.failures += 1,
            (Some(error), None) => current = Some(Incident::new(outcome, error)),
            (None, Some(_)) => {
                let ended = current.take();
                all.extend(ended.map(|incident| Incident { end_ms: Some(outcome.time_ms), ..incident }));
            }
            (None, None) => {}
        }
    }
    all.extend(current);
    all
}

impl Incident {
    fn new(outcome: &Outcome, error: &str) -> Incident {
        Incident {
            volume: outcome.volume.clone(),
            server: outcome.server.clone(),
            start_ms: outcome.time_ms,
            end_ms: None,
            failures: 1,
            step: outcome.step.clone().unwrap_or_default(),
            error: error.to_owned(),
        }
    }
}

/// Formats microseconds as milliseconds.
pub(super) fn ms(us: u64) -> String {
    format!("{}.{:02}", us / 1000, us % 1000 / 10)
}

fn date(time_ms: u64) -> String {
    let time = i64::try_from(time_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| time_ms.to_string(), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

impl Row for VolumeRow {
    const COLUMNS: &'static [&'static str] = &[
        "VOLUME",
        "SERVER",
        "PROBES",
        "FAILED",
        "WRITE ms p50",
        "p99",
        "max",
        "READ ms p50",
        "p99",
        "max",
        "ALL ms p50",
        "p99",
        "max",
    ];

    fn cells(&self) -> Vec<String> {
        let server = self.server.clone().unwrap_or_else(|| "?".to_owned());
        let mut cells = vec![self.volume.clone(), server, self.probes.to_string(), self.failures.to_string()];
        let text = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), ms);
        for times in [self.write, self.read, self.total] {
            cells.extend([times.median_us, times.p99_us, times.max_us].map(text));
        }
        cells
    }
}

impl Row for Incident {
    const COLUMNS: &'static [&'static str] =
        &["START (UTC)", "END (UTC)", "VOLUME", "SERVER", "FAILED", "STEP", "ERROR"];

    fn cells(&self) -> Vec<String> {
        vec![
            date(self.start_ms),
            self.end_ms.map_or_else(|| "lasts".to_owned(), date),
            self.volume.clone(),
            self.server.clone().unwrap_or_else(|| "?".to_owned()),
            self.failures.to_string(),
            self.step.clone(),
            self.error.clone(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(volume: &str, time_ms: u64) -> Outcome {
        let (write_us, read_us) = (Some(time_ms * 10), Some(time_ms));
        Outcome { write_us, read_us, total_us: time_ms * 20, ..Outcome::new(volume, time_ms) }
    }

    fn bad(volume: &str, time_ms: u64, error: &str) -> Outcome {
        let (step, error) = (Some("write".to_owned()), Some(error.to_owned()));
        Outcome { step, error, ..Outcome::new(volume, time_ms) }
    }

    #[test]
    fn incidents_begin_and_end() {
        let outcomes = [
            good("a", 1),
            bad("b", 1, "late"),
            bad("a", 2, "gone"),
            bad("a", 3, "still gone"),
            good("a", 4),
            good("b", 4),
            bad("a", 5, "again"),
        ];
        let summary = summarise(&outcomes, 0, 0);
        let told: Vec<_> = summary
            .incidents
            .iter()
            .map(|it| (it.volume.as_str(), it.start_ms, it.end_ms, it.failures, it.error.as_str()))
            .collect();
        assert_eq!(
            told,
            [("b", 1, Some(4), 1, "late"), ("a", 2, Some(4), 2, "gone"), ("a", 5, None, 1, "again")]
        );
        assert_eq!((summary.volumes[0].probes, summary.volumes[0].failures), (5, 3));
        assert_eq!(summarise(&outcomes, 4, 0).incidents.len(), 1);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let outcomes: Vec<Outcome> = (1..=200).map(|time| good("a", time)).collect();
        let row = &summarise(&outcomes, 0, 0).volumes[0];
        assert_eq!(row.read, Times { median_us: Some(100), p99_us: Some(198), max_us: Some(200) });
        assert_eq!(row.total.max_us, Some(4000));
        assert_eq!(Times::of([].into_iter()), Times::default());
        assert_eq!(
            Times::of([7].into_iter()),
            Times { median_us: Some(7), p99_us: Some(7), max_us: Some(7) }
        );
        let row = &summarise(&[bad("a", 1, "gone")], 0, 0).volumes[0];
        assert_eq!(
            row.cells()[3..],
            ["1", "-", "-", "-", "-", "-", "-", "-", "-", "-"],
            "times of nothing are none"
        );
    }
}
