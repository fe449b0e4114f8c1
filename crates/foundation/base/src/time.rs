//! Times as values: pure crates never read a clock.

use std::time::Duration;

/// Seconds since 1970 as carried by AFS: 32 bits, here unsigned, so that it overflows in 2106.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(pub u32);

/// A monotonic instant in nanoseconds since an arbitrary start. Simulators generate their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// Returns the time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Monotonic) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Monotonic {
    type Output = Monotonic;

    fn add(self, span: Duration) -> Monotonic {
        Monotonic(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}
