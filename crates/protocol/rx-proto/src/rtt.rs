//! Round-trip time estimation (RFC 6298, with Rx's delays added).

use std::time::Duration;

use base::Monotonic;

/// Initial timeout, before the first measurement.
const INITIAL: Duration = Duration::from_secs(1);

/// Minimum slack beyond the smoothed time, because receivers may delay an acknowledgement by 100 ms.
const SLACK_MIN: Duration = Duration::from_millis(200);

/// Maximum timeout after doubling.
const TIMEOUT_MAX: Duration = Duration::from_secs(15);

/// Length of a span: the shortest time is taken over the current and the previous span, because paths change.
const LEAST_SPAN: Duration = Duration::from_secs(30);

/// Round-trip time from which a path counts as long.
const LONG_PATH: Duration = Duration::from_millis(1);

/// Round-trip time from which losses on a path need not indicate congestion.
const FAR: Duration = Duration::from_millis(4);

/// Minimum difference between measurements that indicates queueing: smaller ones may be due to the receiver's
/// reading time.
const QUEUE_MIN: Duration = Duration::from_millis(3);

/// The estimate for a peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    latest: Duration,
    variation: Duration,
    least: Option<Duration>,
    /// Start of the current span and the shortest time in it, which is used when the next span begins.
    least_since: Option<(Monotonic, Duration)>,
}

impl Rtt {
    /// Adds a measurement.
    pub(crate) fn sample(&mut self, now: Monotonic, sample: Duration) {
        self.latest = sample;
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        self.least_since = match self.least_since {
            Some((since, least)) if now.since(since) < LEAST_SPAN => Some((since, least.min(sample))),
            span => {
                self.least = span.map(|(_, least)| least.min(sample)).or(self.least);
                Some((now, sample))
            }
        };
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

    /// Returns the smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Returns the mean deviation of the measurements.
    pub(crate) fn variation(&self) -> Duration {
        self.variation
    }

    /// Returns the shortest round-trip time, or zero before the first measurement.
    pub(crate) fn least(&self) -> Duration {
        self.least.unwrap_or_default()
    }

    /// Whether the path is longer than one within a local network, so that larger windows are useful.
    pub(crate) fn is_long(&self) -> bool {
        self.least() >= LONG_PATH
    }

    /// Whether the path is so long that packets may be lost on it without congestion.
    pub(crate) fn is_far(&self) -> bool {
        self.least() >= FAR
    }

    /// Whether packets queue on the path: the latest round trip took an eighth longer than the shortest.
    pub(crate) fn is_queueing(&self) -> bool {
        self.latest > self.least() + (self.least() / 8).max(QUEUE_MIN)
    }

    /// Returns the part of a window that would be in flight if no packets queued.
    pub(crate) fn unqueued(&self, window: u32) -> u32 {
        let latest = self.latest.as_micros().max(1);
        (u128::from(window) * self.least().as_micros() / latest) as u32
    }

    /// Returns the time to wait for an acknowledgement after `backoff` consecutive timeouts.
    pub(crate) fn timeout(&self, backoff: u32) -> Duration {
        let once = self.smoothed.map_or(INITIAL, |smoothed| smoothed + (self.variation * 4).max(SLACK_MIN));
        (once * (1 << backoff.min(6))).min(TIMEOUT_MAX)
    }

    /// Returns the time after which a packet overtaken by others counts as lost (RFC 9002, 6.1.2).
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
        (0..60).for_each(|_| rtt.sample(Monotonic(1), 20 * MS));
        assert_eq!(rtt.smoothed(), Some(20 * MS));
        assert_eq!(rtt.timeout(0), 220 * MS);
        assert_eq!(rtt.timeout(1), 440 * MS);
        assert_eq!(rtt.timeout(40), 14080 * MS);
        assert!(rtt.loss_delay() < 24 * MS);
    }

    #[test]
    fn the_shortest_time_is_forgotten_when_the_path_gets_longer() {
        let mut rtt = Rtt::default();
        let second = |count: u64| Monotonic(1 + count * 1_000_000_000);
        rtt.sample(second(0), 10 * MS);
        (1..60).for_each(|count| rtt.sample(second(count), 50 * MS));
        assert!(rtt.least() == 10 * MS && rtt.is_queueing(), "of the last span, still");
        rtt.sample(second(61), 50 * MS);
        assert!(rtt.least() == 50 * MS && !rtt.is_queueing() && rtt.is_far());
        rtt.sample(second(62), 54 * MS);
        assert!(!rtt.is_queueing(), "no more than an eighth");
        rtt.sample(second(62), MS / 2);
        assert!(!rtt.is_long());
    }

    #[test]
    fn widens_on_an_unsteady_path() {
        let mut rtt = Rtt::default();
        (0..60).for_each(|n| rtt.sample(Monotonic(1), if n % 2 == 0 { 10 * MS } else { 500 * MS }));
        assert!(rtt.timeout(0) > 700 * MS, "{:?}", rtt.timeout(0));
        assert_eq!(rtt.least(), 10 * MS);
    }
}
