//! Prints latencies and incidents of a history.

use crate::output::{Format, Row, line};
use anyhow::Result;
use jiff::Timestamp;
use probe_history::Outcome;
use probe_history::summary::{Incident, VolumeRow, summarise};

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

    #[test]
    fn times_without_a_success_are_dashes() {
        let failed = Outcome { error: Some("gone".to_owned()), ..Outcome::new("a", 1) };
        let row = &summarise(&[failed], 0, 0).volumes[0];
        assert_eq!(row.cells()[3..], ["1", "-", "-", "-", "-", "-", "-", "-", "-", "-"]);
    }
}
