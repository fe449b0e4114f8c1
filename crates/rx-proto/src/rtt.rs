//! How long a packet and its acknowledgement take (RFC 6298, with Rx's delays added).

use std::time::Duration;

/// Before anything is known.
const INITIAL: Duration = Duration::from_secs(1);

/// Least slack over the smoothed time: receivers may sit on an acknowledgement for 100 ms.
const SLACK_MIN: Duration = Duration::from_millis(200);

/// The most that doubling leads to.
const TIMEOUT_MAX: Duration = Duration::from_secs(15);

/// Estimate for one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    least: Option<Duration>,
}

impl Rtt {
    /// Takes a measurement in.
    pub(crate) fn sample(&mut self, sample: Duration) {
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// The smoothed round trip time.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// How far measurements lie from it.
    pub(crate) fn variation(&self) -> Duration {
        self.variation
    }

    /// The shortest time seen; zero if none.
    pub(crate) fn least(&self) -> Duration {
        self.least.unwrap_or_default()
    }

    /// Time to wait for an acknowledgement after `backoff` timeouts in a row.
    pub(crate) fn timeout(&self, backoff: u32) -> Duration {
        let once = self.smoothed.map_or(INITIAL, |smoothed| smoothed + (self.variation * 4).max(SLACK_MIN));
        (once * (1 << backoff.min(6))).min(TIMEOUT_MAX)
    }

    /// Time after which a packet overtaken by others counts as lost (RFC 9002, 6.1.2).
    pub(crate) fn loss_delay(&self) -> Duration {
        self.smoothed
            .map_or(INITIAL, |smoothed| smoothed * 9 / 8 + self.variation)
            .max(Duration::from_millis(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn settles_on_a_steady_path() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(0), INITIAL);
        (0..60).for_each(|_| rtt.sample(20 * MS));
        assert_eq!(rtt.smoothed(), Some(20 * MS));
        assert_eq!(rtt.timeout(0), 220 * MS);
        assert_eq!(rtt.timeout(1), 440 * MS);
        assert_eq!(rtt.timeout(40), 14080 * MS);
        assert!(rtt.loss_delay() < 24 * MS);
    }

    #[test]
    fn widens_on_an_unsteady_path() {
        let mut rtt = Rtt::default();
        (0..60).for_each(|n| rtt.sample(if n % 2 == 0 { 10 * MS } else { 500 * MS }));
        assert!(rtt.timeout(0) > 700 * MS, "{:?}", rtt.timeout(0));
        assert_eq!(rtt.least(), 10 * MS);
    }
}
