//! Pacing of packets on long paths. When a gap is filled, the window opens by thousands of packets, more than
//! a bottleneck on the path can buffer.

use std::time::Duration;

use base::Monotonic;

use crate::rtt::Rtt;

/// Number of windows that may be sent per round trip: enough to double the packets in flight, as slow start
/// does.
const WINDOWS: u32 = 2;

/// Fraction of a window that may be sent in one burst: one part in `BURST`.
const BURST: u32 = 16;

/// Minimum size of a burst, in packets.
const BURST_MIN: u32 = 32;

/// Minimum time between bursts.
const INTERVAL: Duration = Duration::from_millis(1);

/// The pacing state of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    packets: u32,
    /// Time of the last refill.
    at: Monotonic,
    /// Time after which one more packet may be sent; zero where packets are not paced.
    each: Duration,
    /// Whether pacing has held packets back since [`Pace::take_held`] was last called.
    has_held: bool,
}

impl Pace {
    /// Creates a state that does not limit packets, for use until the path has been measured.
    pub(crate) fn new() -> Pace {
        Pace { packets: u32::MAX, at: Monotonic(0), each: Duration::ZERO, has_held: false }
    }

    /// Whether exactly one packet has been sent and the path has not been measured yet.
    pub(crate) fn is_of_first(self) -> bool {
        self.packets == u32::MAX - 1 && self.each == Duration::ZERO && !self.has_held
    }

    /// Returns the number of packets that may be sent now.
    pub(crate) fn packets(self) -> u32 {
        self.packets
    }

    pub(crate) fn on_sent(&mut self) {
        self.packets = self.packets.saturating_sub(1);
    }

    /// Adds the packets gained since the last refill.
    pub(crate) fn refill(&mut self, now: Monotonic, window: u32, rtt: &Rtt) {
        let Some(smoothed) = rtt.smoothed().filter(|_| rtt.is_long()) else {
            *self = Pace::new();
            return;
        };
        self.has_held |= self.packets == 0;
        let most = (window / BURST).max(BURST_MIN);
        self.each = (smoothed / (WINDOWS * window.max(1))).max(Duration::from_nanos(1));
        let gained = now.since(self.at).as_nanos() / self.each.as_nanos();
        let missing = most.saturating_sub(self.packets);
        if gained >= u128::from(missing) {
            (self.packets, self.at) = (most, now);
        } else {
            self.packets += gained as u32;
            self.at = self.at + self.each * gained as u32;
        }
    }

    /// Returns whether pacing has held packets back since the previous call.
    pub(crate) fn take_held(&mut self) -> bool {
        std::mem::take(&mut self.has_held)
    }

    /// Returns the time at which more packets may be sent, if none may be sent now.
    pub(crate) fn next(self) -> Option<Monotonic> {
        (self.packets == 0).then(|| self.at + self.each.max(INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Monotonic {
        Monotonic(1_000_000_000 + count * 1_000_000)
    }

    fn path(round_trip: Duration) -> Rtt {
        let mut rtt = Rtt::default();
        rtt.sample(ms(0), round_trip);
        rtt
    }

    #[test]
    fn two_windows_are_sent_per_round_trip() {
        let far = path(Duration::from_millis(100));
        let mut pace = Pace::new();
        pace.refill(ms(0), 1600, &far);
        let mut sent = 0;
        let mut now = ms(0);
        while now <= ms(100) {
            assert!(pace.packets() <= 100, "{} at once", pace.packets());
            while pace.packets() > 0 {
                pace.on_sent();
                sent += 1;
            }
            let next = pace.next().unwrap();
            assert!(next > now, "the clock stands still");
            now = next;
            pace.refill(now, 1600, &far);
            assert!(pace.packets() > 0);
        }
        assert!((3200..=3300).contains(&sent), "{sent}");
        assert_eq!((pace.take_held(), pace.take_held()), (true, false));
    }

    #[test]
    fn unused_credit_expires() {
        let far = path(Duration::from_millis(100));
        let mut pace = Pace::new();
        for at in [0, 5000] {
            pace.refill(ms(at), 1600, &far);
            assert_eq!((pace.packets(), pace.next()), (100, None));
        }
        pace.refill(ms(5000), 10, &far);
        assert_eq!(pace.packets(), BURST_MIN);
    }

    #[test]
    fn time_too_short_for_a_packet_is_not_forgotten() {
        let far = path(Duration::from_millis(100));
        let mut pace = Pace::new();
        pace.refill(ms(0), 10, &far);
        (0..BURST_MIN).for_each(|_| pace.on_sent());
        // One packet is gained per 5 ms.
        (1..5).for_each(|at| {
            pace.refill(ms(at), 10, &far);
            assert_eq!((pace.packets(), pace.next()), (0, Some(ms(5))));
        });
        pace.refill(ms(6), 10, &far);
        assert_eq!(pace.packets(), 1);
        pace.refill(ms(10), 10, &far);
        assert_eq!(pace.packets(), 2);
    }

    #[test]
    fn nothing_is_paced_on_short_paths() {
        let mut pace = Pace::new();
        pace.refill(ms(0), 1600, &path(Duration::from_millis(100)));
        pace.refill(ms(1), 1600, &path(Duration::from_micros(200)));
        assert_eq!((pace.packets(), pace.next()), (u32::MAX, None));
    }
}
