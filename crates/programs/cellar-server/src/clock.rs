//! Detects steps of the machine's clock.

use base::{Monotonic, UnixTime};
use jiff::Timestamp;
use std::time::Duration;

/// Maximum difference between the time of day and the monotonic clock, from one reading to the next, that
/// does not count as a step. Time daemons slew by at most half a millisecond per second.
const TOLERANCE: Duration = Duration::from_secs(2);

/// A step of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockStep {
    /// The time without the step.
    pub(super) expected: UnixTime,
    /// The time after the step.
    pub(super) found: UnixTime,
}

/// Compares successive readings of two clocks; [`ClockWatch::observe`] is to be called every half minute.
#[derive(Default)]
pub(super) struct ClockWatch {
    last: Option<(Monotonic, Duration)>,
}

impl ClockWatch {
    /// Takes readings of the monotonic clock and the time of day. Returns a step since the previous readings,
    /// only once.
    pub(super) fn observe(&mut self, monotonic: Monotonic, wall: Duration) -> Option<ClockStep> {
        let (before, wall_before) = self.last.replace((monotonic, wall))?;
        let expected = wall_before + monotonic.since(before);
        let unix = |wall: Duration| UnixTime(u32::try_from(wall.as_secs()).unwrap_or(u32::MAX));
        (expected.abs_diff(wall) > TOLERANCE)
            .then(|| ClockStep { expected: unix(expected), found: unix(wall) })
    }
}

/// Logs the step with both times.
pub(super) fn log(step: ClockStep) {
    let seconds = i64::from(step.found.0) - i64::from(step.expected.0);
    let (expected, found) = (shown(step.expected), shown(step.found));
    if seconds < 0 {
        tracing::warn!(
            expected,
            found,
            seconds,
            "the clock was set back; volumes with later dates keep them until the clock has caught up"
        );
    } else {
        tracing::warn!(expected, found, seconds, "the clock was set ahead, or the machine was suspended");
    }
}

/// Formats a time in UTC.
fn shown(time: UnixTime) -> String {
    Timestamp::from_second(time.0.into()).map_or_else(|_| time.0.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_clock_is_reported_once() {
        let mut watch = ClockWatch::default();
        let mut observe = |monotonic: u64, wall: u64| {
            let step = watch
                .observe(Monotonic::default() + Duration::from_secs(monotonic), Duration::from_secs(wall));
            step.map(|ClockStep { expected, found }| (expected.0, found.0))
        };
        assert_eq!(observe(5, 90_000), None, "there is nothing to compare it with");
        assert_eq!(observe(35, 90_031), None, "slewed");
        assert_eq!(observe(65, 3661), Some((90_061, 3661)), "set back");
        assert_eq!(observe(95, 3691), None);
        assert_eq!(observe(125, 90_000), Some((3721, 90_000)), "set ahead");
        assert_eq!(observe(155, 90_030), None);
    }
}
