//! The shell asks the clocks, the endpoint is told.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base::{Monotonic, UnixTime};

/// The start of this process's monotonic time.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Now, since the process first asked.
pub(crate) fn now() -> Monotonic {
    Monotonic(u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Now by the calendar.
pub(crate) fn wall() -> UnixTime {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    UnixTime(u32::try_from(seconds).unwrap_or(u32::MAX))
}
