//! Latencies and incidents of a history.

use crate::Outcome;
use serde::Serialize;
use std::collections::BTreeMap;

/// Latencies and incidents of all volumes.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// One row per volume, in the order of names.
    pub volumes: Vec<VolumeRow>,
    /// Incidents of all volumes, in the order of their starts.
    pub incidents: Vec<Incident>,
    /// Lines of the history that could not be read.
    pub damaged_lines: usize,
}

/// One volume. Times are those of successful probes.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct VolumeRow {
    /// The volume's name.
    pub volume: String,
    /// Last known server.
    pub server: Option<String>,
    /// Number of probes.
    pub probes: usize,
    /// Number of probes that failed.
    pub failures: usize,
    /// Times to write the file.
    pub write: Times,
    /// Times to read it back.
    pub read: Times,
    /// Whole probe, from locating the volume to comparing the data.
    pub total: Times,
}

/// A distribution of times; empty without successful probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_field_names, reason = "units come last")]
pub struct Times {
    /// Median, in microseconds.
    pub median_us: Option<u64>,
    /// 99th percentile.
    pub p99_us: Option<u64>,
    /// Maximum.
    pub max_us: Option<u64>,
}

/// Consecutive failed probes of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Incident {
    /// The volume's name.
    pub volume: String,
    /// Its server when the first probe failed.
    pub server: Option<String>,
    /// Start of the first failed probe, in milliseconds since 1970.
    pub start_ms: u64,
    /// Start of the next successful probe; `None` while the incident lasts.
    pub end_ms: Option<u64>,
    /// Number of probes that failed.
    pub failures: usize,
    /// The step that failed first.
    pub step: String,
    /// The error of the first failure.
    pub error: String,
}

/// Summarises the outcomes since `since_ms` (milliseconds since 1970).
pub fn summarise(outcomes: &[Outcome], since_ms: u64, damaged_lines: usize) -> Summary {
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
        let reported: Vec<_> = summary
            .incidents
            .iter()
            .map(|it| (it.volume.as_str(), it.start_ms, it.end_ms, it.failures, it.error.as_str()))
            .collect();
        assert_eq!(
            reported,
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
    }
}
