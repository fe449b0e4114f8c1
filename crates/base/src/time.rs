//! Times as values: the crates below the shell never ask a clock.

use std::time::Duration;

/// Seconds since 1970 as AFS carries them: 32 bits, unsigned here, so that it ends in 2106.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(pub u32);

/// A monotonic instant in nanoseconds since an arbitrary start. Simulators make their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// The time since `earlier`; zero if `earlier` is later.
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
