//! The shell asks the clocks, the endpoint is told.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Monotonic, UnixTime};

use crate::sys;

/// The start of this process's monotonic time, as the system counts it.
static START_NS: LazyLock<u64> = LazyLock::new(sys::monotonic_ns);

/// Now, since the process first asked. Half as dear as the standard library's `Instant`, which calls ask often.
pub fn now() -> Monotonic {
    let start_ns = *START_NS;
    Monotonic(sys::monotonic_ns().saturating_sub(start_ns))
}

/// Now by the calendar.
pub(crate) fn wall() -> UnixTime {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    UnixTime(u32::try_from(seconds).unwrap_or(u32::MAX))
}
