//! The clock that leases are measured with.

use base::Monotonic;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Returns the time since the machine was started, including the time that it slept: `CLOCK_MONOTONIC`, and so
/// [`Instant`], stands still while a machine is suspended, and a lease would outlive its end.
pub fn now() -> Monotonic {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Monotonic(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
}

/// Returns the instant at which [`now`] will be `time`, unless the machine sleeps.
pub(crate) fn instant(time: Monotonic) -> Instant {
    Instant::now() + time.since(now())
}

/// Returns how long it is until `time`.
pub(crate) fn until(time: Monotonic) -> Duration {
    time.since(now())
}
