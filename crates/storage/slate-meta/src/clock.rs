//! The clock of a database. SlateDB stamps each write with the time and closes a database whose newest stamp is
//! ahead of the clock by more than ten seconds. So an owner's clock must not be behind the one before it, on
//! whatever machine that was: it is set forward at the open.

use chrono::{DateTime, TimeDelta, Utc};
use slatedb_common::clock::{DefaultSystemClock, SystemClock, SystemClockTicker};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// First time of the clock of a test, so that a seed replays exactly: 2100-01-01. The buckets of tests date objects by the
/// system's clock. They are always old then, as for an owner whose clock is far ahead, and garbage is removed at once.
const TEST_START_S: i64 = 4_102_444_800;

/// The system's clock, set forward by some time.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    system: DefaultSystemClock,
    /// Difference between the first time of a test and that of the system.
    shift: TimeDelta,
    ahead_ms: AtomicU64,
}

impl Clock {
    /// Returns a clock that begins at the same time in each run of a test.
    pub(crate) fn for_tests() -> Clock {
        let system = DefaultSystemClock::default();
        let shift = DateTime::from_timestamp(TEST_START_S, 0).map(|start| start - system.now());
        Clock { system, shift: shift.unwrap_or_default(), ahead_ms: AtomicU64::new(0) }
    }

    /// Sets the clock forward to `tick`, in milliseconds since 1970, if it is behind; returns by how much.
    pub(crate) fn reach(&self, tick: i64) -> Duration {
        let behind = u64::try_from(tick.saturating_sub(self.now().timestamp_millis())).unwrap_or(0);
        self.ahead_ms.fetch_add(behind, Relaxed);
        Duration::from_millis(behind)
    }
}

impl SystemClock for Clock {
    fn now(&self) -> DateTime<Utc> {
        self.system.now() + self.shift + Duration::from_millis(self.ahead_ms.load(Relaxed))
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.system.sleep(duration)
    }

    fn ticker(&self, duration: Duration) -> SystemClockTicker<'_> {
        SystemClockTicker::new(self, duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_tests_begin_alike() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = Clock::for_tests();
            assert_eq!(clock.now().timestamp_micros(), TEST_START_S * 1_000_000);
            clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(Clock::for_tests().now().timestamp(), TEST_START_S);
            assert_eq!(clock.now().timestamp(), TEST_START_S + 1);
        });
    }

    #[test]
    fn it_reaches_a_later_time_and_never_goes_back() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = Clock::default();
            let now = clock.now().timestamp_millis();
            assert_eq!(clock.reach(now - 5000), Duration::ZERO);
            assert_eq!(clock.reach(i64::MIN), Duration::ZERO);
            assert_eq!(clock.reach(now + 3_600_000), Duration::from_secs(3600));
            assert_eq!(clock.now().timestamp_millis(), now + 3_600_000);
            clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(clock.now().timestamp_millis(), now + 3_601_000);
        });
    }
}
