//! Congestion control: the number of packets that a call may have in flight.
//!
//! Up to 255 packets, and on short paths: slow start, additive increase, one decrease per round trip with
//! loss (RFC 5681 in packets; OpenAFS and Linux rxrpc do the same). On long paths, a window also
//!
//! - grows beyond 255 packets, by a 64th per round trip, as long as no packets queue on the path (round trips take as long
//!   as the shortest did). Otherwise it shrinks by the same amount, so that existing transfers make room for new ones;
//! - ends its slow start when packets begin to queue, rather than only with the first loss (RFC 9406);
//! - treats a few losses per round trip as the normal loss of a long path, if no packets queue: each costs one packet rather
//!   than three tenths of the window. If packets queue, the first loss costs as many packets as queue. If more than a 50th
//!   is lost, the path is full.

use base::Monotonic;

use crate::limits::{ACKS_MAX, WINDOW_MAX};
use crate::rtt::Rtt;

/// Initial window in packets, before the path has been measured (RFC 6928).
const INITIAL: u32 = 10;

/// Time for which a remembered window is used, in nanoseconds.
const MEMORY_NS: u64 = 10_000_000_000;

/// Maximum window on short paths and on paths not measured yet.
const SHORT_MAX: u32 = ACKS_MAX as u32;

/// Fraction by which windows on long paths grow and shrink per round trip: one part in `STEP`.
const STEP: u32 = 64;

/// Number of round trips without a decrease after which a window grows twice as fast; after twice as many it
/// grows three times as fast, and so on, up to an eighth of the window per round trip.
const FASTER: u32 = 8;

/// Fraction of a window, one part in `LOSS`, that may be lost per round trip on a far path that is not full.
const LOSS: u32 = 50;

/// Number of losses accepted in addition, since in a round trip of few packets chance losses may exceed that
/// fraction.
const LOSSES_MIN: u32 = 3;

/// The congestion window of a call.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    credit: u32,
    /// Transmission number: losses of packets sent before it belong to a decrease already made.
    recovery: u64,
    /// Transmission number: round trips of packets sent before it may still reflect the time before the
    /// decrease.
    settled: u64,
    /// Transmission number at which the current round trip ends; losses of packets sent before it count for
    /// this round trip.
    round: u64,
    /// Number of packets lost in the current round trip.
    lost: u32,
    /// Number of round trips in which the window has grown since its last decrease.
    grown: u32,
}

/// The final state of a peer's last call, from which its next call starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learnt {
    pub(crate) window: u32,
    pub(crate) threshold: u32,
    pub(crate) at: Monotonic,
}

impl Congestion {
    /// Creates the window of a new call. It starts where the peer's last call ended, unless that was long
    /// ago.
    pub(crate) fn new(learnt: Option<Learnt>, now: Monotonic) -> Congestion {
        let (window, threshold) = match learnt {
            Some(learnt) if now.0.saturating_sub(learnt.at.0) < MEMORY_NS => {
                (learnt.window.max(2), learnt.threshold)
            }
            Some(learnt) => (INITIAL, learnt.threshold.max(INITIAL)),
            None => (INITIAL, WINDOW_MAX as u32),
        };
        Congestion { window, threshold, credit: 0, recovery: 0, settled: 0, round: 0, lost: 0, grown: 0 }
    }

    /// Returns the number of packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Returns the state for the peer's next call.
    pub(crate) fn learnt(&self, now: Monotonic) -> Learnt {
        Learnt { window: self.window, threshold: self.threshold, at: now }
    }

    /// Processes the arrival of `count` packets. `limited` states that the window was the reason for not
    /// sending more.
    pub(crate) fn on_acked(&mut self, count: u32, limited: bool, rtt: &Rtt) {
        if !limited || count == 0 {
            return;
        }
        let is_full = self.window >= SHORT_MAX && rtt.is_queueing();
        let most = if rtt.is_long() { WINDOW_MAX as u32 } else { SHORT_MAX };
        if self.window < self.threshold && !is_full {
            self.window = (self.window + count).min(most.max(self.window));
            return;
        }
        self.threshold = self.threshold.min(self.window);
        self.credit += count;
        if self.credit < self.window {
            return;
        }
        self.credit -= self.window;
        if is_full {
            self.shrink((self.window - self.window / STEP).max(SHORT_MAX));
            self.grown = 0;
            return;
        }
        let faster = (1 + self.grown / FASTER).min(STEP / 8);
        let step = if rtt.is_long() { (faster * self.window / STEP).max(1) } else { 1 };
        self.window = (self.window + step).min(most.max(self.window));
        self.grown += 1;
    }

    /// Reduces the window slightly, without restarting a completed slow start.
    fn shrink(&mut self, window: u32) {
        if self.window >= self.threshold {
            self.threshold = window;
        }
        self.window = window;
    }

    /// Processes the loss of transmission number `order`; `next` is the number of the next transmission.
    pub(crate) fn on_lost(&mut self, order: u64, next: u64, rtt: &Rtt) {
        if order < self.recovery {
            return;
        }
        if order >= self.round {
            (self.round, self.lost) = (next, 0);
        }
        self.lost += 1;
        let is_little = rtt.is_far() && self.lost <= self.window / LOSS + LOSSES_MIN;
        if is_little && (!rtt.is_queueing() || order < self.settled) {
            self.shrink((self.window - 1).max(2));
            return;
        }
        self.recovery = next;
        let least = self.window * 7 / 10;
        let unqueued = if is_little { rtt.unqueued(self.window) } else { 0 };
        self.threshold = least.max(unqueued).max(2);
        self.settled = next + u64::from(self.threshold);
        self.window = self.threshold;
        (self.credit, self.grown) = (0, 0);
    }

    /// Processes a timeout: the peer has acknowledged nothing for its whole duration.
    pub(crate) fn on_timeout(&mut self, in_flight: u32, next: u64) {
        self.threshold = (in_flight.min(self.window) / 2).max(2);
        self.window = 2;
        (self.credit, self.grown) = (0, 0);
        self.recovery = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn doubles_per_round_trip_until_the_threshold_then_adds_one() {
        let mut congestion = Congestion::new(None, Monotonic(0));
        congestion.on_acked(10, true, &Rtt::default());
        assert_eq!(congestion.window(), 20);
        congestion.on_lost(0, 30, &Rtt::default());
        assert_eq!(congestion.window(), 14);
        congestion.on_lost(29, 31, &Rtt::default());
        assert_eq!(congestion.window(), 14, "the same round trip");
        congestion.on_acked(14, true, &Rtt::default());
        assert_eq!(congestion.window(), 15);
        congestion.on_lost(30, 40, &Rtt::default());
        assert_eq!(congestion.window(), 10);
    }

    /// Returns the state of a path whose shortest round trip is 20 ms and whose latest is `latest_ms`.
    fn far(latest_ms: u64) -> Rtt {
        let mut rtt = Rtt::default();
        for ms in [20, latest_ms] {
            rtt.sample(Monotonic(1), Duration::from_millis(ms));
        }
        rtt
    }

    #[test]
    fn the_window_grows_while_nothing_queues() {
        let mut congestion = Congestion::new(None, Monotonic(0));
        congestion.on_acked(990, true, &Rtt::default());
        assert_eq!(congestion.window(), 255, "nothing is known of the path");
        congestion.on_acked(745, true, &far(21));
        assert_eq!(congestion.window(), 1000);
        congestion.on_acked(100, true, &far(24));
        assert_eq!((congestion.window(), congestion.threshold), (1000, 1000), "the slow start is over");
        congestion.on_acked(900, true, &far(24));
        assert_eq!(congestion.window(), 985, "a 64th less");
        congestion.on_acked(985, true, &far(20));
        assert_eq!(congestion.window(), 1000, "a 64th more");
        (0..40).for_each(|_| congestion.on_acked(congestion.window(), true, &far(20)));
        assert_eq!(congestion.window(), 4096, "faster and faster, and not beyond");
        (0..500).for_each(|_| congestion.on_acked(congestion.window(), true, &far(40)));
        assert_eq!(congestion.window(), 255, "what others have is left to it");
    }

    #[test]
    fn few_losses_on_a_long_path_cost_little_without_queueing() {
        let begin = || {
            let mut congestion = Congestion::new(None, Monotonic(0));
            congestion.on_acked(490, true, &far(20));
            congestion
        };
        let lose = |congestion: &mut Congestion, count, rtt: &Rtt| {
            (0..count).for_each(|order| congestion.on_lost(order, 500, rtt));
        };
        let mut congestion = begin();
        lose(&mut congestion, 8, &far(20));
        assert_eq!(congestion.window(), 492);
        // More than a 50th plus three packets lost in one round trip causes a decrease, once.
        lose(&mut congestion, 4, &far(20));
        assert_eq!(congestion.window(), 488);
        lose(&mut congestion, 8, &far(20));
        assert_eq!(congestion.window(), 341);
        congestion.on_lost(501, 900, &far(20));
        assert_eq!(congestion.window(), 340, "the next round trip");
        for (rtt, left) in [(far(30), 350), (Rtt::default(), 350), (far(25), 400)] {
            let mut congestion = begin();
            congestion.on_lost(1, 500, &rtt);
            assert_eq!(congestion.window(), left);
            // The current measurement may concern packets sent before the decrease.
            congestion.on_lost(501, 900, &far(25));
            assert_eq!(congestion.window(), left - 1);
        }
    }

    #[test]
    fn does_not_grow_unused() {
        let mut congestion = Congestion::new(None, Monotonic(0));
        congestion.on_acked(200, false, &Rtt::default());
        assert_eq!(congestion.window(), INITIAL);
    }

    #[test]
    fn starts_small_after_a_timeout_and_remembers() {
        let mut congestion = Congestion::new(None, Monotonic(0));
        congestion.on_acked(90, true, &Rtt::default());
        congestion.on_timeout(100, 9);
        assert_eq!((congestion.window(), congestion.threshold), (2, 50));
        let learnt = congestion.learnt(Monotonic(5));
        assert_eq!(Congestion::new(Some(learnt), Monotonic(6)).window(), 2);
        assert_eq!(Congestion::new(Some(learnt), Monotonic(6 + MEMORY_NS)).window(), INITIAL);
    }
}
