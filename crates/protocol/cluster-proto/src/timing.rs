//! The times of the protocol.

use std::time::Duration;
use thiserror::Error;

/// Greatest deviation of a node's clock rate that the protocol survives, in percent, in both directions.
pub const CLOCK_RATE_PERCENT: u32 = 10;

/// Shortest and longest lifetime of a lease.
pub const TTL_MIN: Duration = Duration::from_millis(50);
/// See [`TTL_MIN`].
pub const TTL_MAX: Duration = Duration::from_secs(600);

/// A lifetime that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a lease cannot live for {0:?}; valid are 50 ms to 10 minutes")]
pub struct TimingError(pub Duration);

/// The times of one node. All follow from the lifetime of its lease. Nodes may have different ones: the lease
/// contains its lifetime, and others wait for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    ttl: Duration,
    trust: Duration,
    waits: bool,
}

impl Default for Timing {
    /// Leases of 6 s, renewed every second.
    fn default() -> Timing {
        Timing::of(Duration::from_secs(6))
    }
}

impl Timing {
    /// Returns the times for leases that live for `ttl`.
    ///
    /// # Errors
    /// If `ttl` is out of bounds.
    pub fn new(ttl: Duration) -> Result<Timing, TimingError> {
        if ttl < TTL_MIN || ttl > TTL_MAX { Err(TimingError(ttl)) } else { Ok(Timing::of(ttl)) }
    }

    fn of(ttl: Duration) -> Timing {
        // A slow clock measures `trust` in trust / 0.9, a fast one `ttl` in ttl / 1.1.
        let trust = ttl * (100 - CLOCK_RATE_PERCENT) / (100 + CLOCK_RATE_PERCENT);
        Timing { ttl, trust, waits: true }
    }

    /// For how long the others wait, by their own clocks, after they saw the lease change last.
    pub fn ttl(self) -> Duration {
        self.ttl
    }

    /// For how long the node itself relies on its lease, by its own clock, after it sent the renewal. It is shorter
    /// than the TTL, so that it ends first however the rates of the two clocks deviate within
    /// [`CLOCK_RATE_PERCENT`].
    pub fn trust(self) -> Duration {
        self.trust
    }

    /// Time between renewals, and between reads of other nodes' objects.
    pub fn renewal(self) -> Duration {
        renewal(self.ttl)
    }

    /// For how long a request may take before its outcome counts as unknown.
    pub fn request_limit(self) -> Duration {
        self.ttl / 4
    }

    /// First pause after a request that failed; it doubles up to the time between renewals.
    pub fn retry(self) -> Duration {
        self.ttl / 60
    }

    /// For how long a lease is not seen to change before calls to its node are held instead of forwarded.
    pub fn doubt(self) -> Duration {
        self.ttl / 2
    }

    /// For how long a call is held before it is refused.
    pub fn hold_limit(self) -> Duration {
        self.ttl * 10 / 3
    }

    /// For how long this node waits before it evicts another, whose lease lives for `ttl`.
    pub(crate) fn wait(self, ttl: Duration) -> Duration {
        if self.waits { ttl } else { Duration::ZERO }
    }

    /// A planted fault, to prove that a simulation finds it: others' leases are not waited for.
    #[doc(hidden)]
    #[must_use]
    pub fn without_wait(self) -> Timing {
        Timing { waits: false, ..self }
    }

    /// A planted fault, to prove that a simulation finds it: no margin for the rates of clocks.
    #[doc(hidden)]
    #[must_use]
    pub fn without_margin(self) -> Timing {
        Timing { trust: self.ttl, ..self }
    }
}

/// Returns the time between renewals of a lease that lives for `ttl`.
pub(crate) fn renewal(ttl: Duration) -> Duration {
    ttl / 6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_for_its_node_before_it_ends_for_others() {
        for ttl_ms in [50, 51, 6000, 6001, 600_000] {
            let timing = Timing::new(Duration::from_millis(ttl_ms)).unwrap();
            let own_latest = timing.trust().as_secs_f64() / 0.9;
            let others_earliest = timing.ttl().as_secs_f64() / 1.1;
            assert!(own_latest <= others_earliest + 1e-9, "{timing:?}");
            // A renewal and the read that settles it may both hang: the next renewal is still in time.
            assert!(timing.renewal() + timing.request_limit() * 2 <= timing.trust());
        }
        assert!(Timing::new(Duration::from_millis(49)).is_err());
        assert!(Timing::new(Duration::from_secs(601)).unwrap_err().to_string().contains("601s"));
    }

    #[test]
    fn the_default_renews_every_second() {
        let timing = Timing::default();
        assert_eq!((timing.ttl(), timing.renewal()), (Duration::from_secs(6), Duration::from_secs(1)));
        assert_eq!(timing.hold_limit(), Duration::from_secs(20));
        assert!(timing.trust() > Duration::from_millis(4900));
    }
}
