//! How many packets of a call may be under way.
//!
//! Up to 255 packets, and on short paths: slow start, additive increase, one decrease per round trip with loss (RFC 5681 in
//! packets; OpenAFS and Linux rxrpc do the same). On long paths, a window also
//!
//! - grows beyond 255 packets, by a 64th in a round trip, as long as nothing queues on the path (round trips take as long
//!   as the shortest did); else it shrinks by as much: so what is there first makes room for what comes later;
//! - ends its slow start when packets begin to queue, and not only with the first loss (RFC 9406);
//! - takes a few losses in a round trip for what far networks lose anyway, if nothing queues: each costs one packet and not
//!   three tenths of the window. If something queues, the first costs what queues. With more than a 50th lost, the path is
//!   full.

use base::Monotonic;

use crate::limits::{ACKS_MAX, WINDOW_MAX};
use crate::rtt::Rtt;

/// Packets before anything is known about the path (RFC 6928).
const INITIAL: u32 = 10;

/// A remembered window is believed for this many nanoseconds.
const MEMORY_NS: u64 = 10_000_000_000;

/// The largest window on short paths, and where nothing is known of the path.
const SHORT_MAX: u32 = ACKS_MAX as u32;

/// On long paths, windows grow and shrink by this part of themselves in a round trip.
const STEP: u32 = 64;

/// After so many round trips without a decrease it grows by twice as much, after twice as many by three times, up to an
/// eighth of itself.
const FASTER: u32 = 8;

/// The part of a window that may get lost in a round trip on a far path that is not full.
const LOSS: u32 = 50;

/// So many may besides: in a round trip of few packets, chance loses more than its share.
const LOSSES_MIN: u32 = 3;

/// The window of one call.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    credit: u32,
    /// Losses of packets sent before this transmission belong to a decrease already made.
    recovery: u64,
    /// Round trips of packets sent before this transmission may still tell of the time before the decrease.
    settled: u64,
    /// Losses of packets sent before this transmission, and not before the last such one, are of one round trip.
    round: u64,
    /// So many.
    lost: u32,
    /// Round trips in which the window grew, since it last became smaller.
    grown: u32,
}

/// What a peer's last call learnt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learnt {
    pub(crate) window: u32,
    pub(crate) threshold: u32,
    pub(crate) at: Monotonic,
}

impl Congestion {
    /// Starts where the peer's last call ended, unless that is long ago.
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

    /// Packets that may be under way.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// For the peer's next call.
    pub(crate) fn learnt(&self, now: Monotonic) -> Learnt {
        Learnt { window: self.window, threshold: self.threshold, at: now }
    }

    /// `count` packets have arrived. `limited`: the window was what kept more from being sent.
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

    /// A little smaller: where the slow start is over it does not begin again.
    fn shrink(&mut self, window: u32) {
        if self.window >= self.threshold {
            self.threshold = window;
        }
        self.window = window;
    }

    /// A packet of transmission number `order` was lost; `next` is the next transmission's number.
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

    /// Nothing came back for a whole timeout.
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

    /// Of a path that takes 20 ms, and took so many just now.
    fn far(latest_ms: u64) -> Rtt {
        let mut rtt = Rtt::default();
        for ms in [20, latest_ms] {
            rtt.sample(Monotonic(1), Duration::from_millis(ms));
        }
        rtt
    }

    #[test]
    fn grows_beyond_what_others_have_while_nothing_queues() {
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
    fn a_few_losses_of_a_far_path_cost_little_unless_something_queues() {
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
        // More than a 50th and three within one round trip is too much, once.
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
            // What is measured now may be of packets that were sent before that.
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
