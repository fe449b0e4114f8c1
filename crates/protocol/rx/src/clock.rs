//! Reads the system's clocks; endpoints receive the time as an argument.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Monotonic, UnixTime};

use crate::sys;

/// Origin of this process's monotonic time on the system's clock.
static START_NS: LazyLock<u64> = LazyLock::new(sys::monotonic_ns);

/// Returns the time since the process first read the clock. Half the cost of the standard library's
/// `Instant`, which matters because every call reads the clock several times.
pub fn now() -> Monotonic {
    let start_ns = *START_NS;
    Monotonic(sys::monotonic_ns().saturating_sub(start_ns))
}

/// Returns the wall-clock time.
pub(crate) fn wall() -> UnixTime {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    UnixTime(u32::try_from(seconds).unwrap_or(u32::MAX))
}
