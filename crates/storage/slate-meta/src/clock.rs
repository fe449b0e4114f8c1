//! The clock of a database. SlateDB stamps each write with the time and closes a database whose newest stamp is
//! ahead of the clock by more than ten seconds. So an owner's clock must not be behind the one before it, on
//! whatever machine that was: it is set forward at the open.

use chrono::{DateTime, Utc};
use slatedb_common::clock::{DefaultSystemClock, SystemClock, SystemClockTicker};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The system's clock, set forward by some time.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    system: DefaultSystemClock,
    ahead_ms: AtomicU64,
}

impl Clock {
    /// Sets the clock forward to `tick`, in milliseconds since 1970, if it is behind; returns by how much.
    pub(crate) fn reach(&self, tick: i64) -> Duration {
        let behind = u64::try_from(tick.saturating_sub(self.now().timestamp_millis())).unwrap_or(0);
        self.ahead_ms.fetch_add(behind, Relaxed);
        Duration::from_millis(behind)
    }
}

impl SystemClock for Clock {
    fn now(&self) -> DateTime<Utc> {
        self.system.now() + Duration::from_millis(self.ahead_ms.load(Relaxed))
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
