//! How many packets of a call may be under way: slow start, additive increase, one decrease per
//! round trip with loss (RFC 5681 in packets; OpenAFS and Linux rxrpc do the same).

use base::Monotonic;

use crate::limits::ACKS_MAX;

/// Packets before anything is known about the path (RFC 6928).
const INITIAL: u32 = 10;

/// A remembered window is believed for this many nanoseconds.
const MEMORY_NS: u64 = 10_000_000_000;

/// The window of one call.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    credit: u32,
    /// Losses of packets sent before this transmission belong to a decrease already made.
    recovery: u64,
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
            None => (INITIAL, ACKS_MAX as u32),
        };
        Congestion { window, threshold, credit: 0, recovery: 0 }
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
    pub(crate) fn on_acked(&mut self, count: u32, limited: bool) {
        if !limited || count == 0 {
            return;
        }
        if self.window < self.threshold {
            self.window = (self.window + count).min(ACKS_MAX as u32);
            return;
        }
        self.credit += count;
        if self.credit >= self.window {
            self.credit -= self.window;
            self.window = (self.window + 1).min(ACKS_MAX as u32);
        }
    }

    /// A packet of transmission number `order` was lost; `next` is the next transmission's number.
    pub(crate) fn on_lost(&mut self, order: u64, next: u64) {
        if order < self.recovery {
            return;
        }
        self.recovery = next;
        self.threshold = (self.window * 7 / 10).max(2);
        self.window = self.threshold;
        self.credit = 0;
    }

    /// Nothing came back for a whole timeout.
    pub(crate) fn on_timeout(&mut self, in_flight: u32, next: u64) {
        self.threshold = (in_flight.min(self.window) / 2).max(2);
        self.window = 2;
        self.credit = 0;
        self.recovery = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_per_round_trip_until_the_threshold_then_adds_one() {
        let mut congestion = Congestion::new(None, Monotonic(0));
        congestion.on_acked(10, true);
        assert_eq!(congestion.window(), 20);
        congestion.on_lost(0, 30);
        assert_eq!(congestion.window(), 14);
        congestion.on_lost(29, 31);
        assert_eq!(congestion.window(), 14, "the same round trip");
        congestion.on_acked(14, true);
        assert_eq!(congestion.window(), 15);
        congestion.on_lost(30, 40);
        assert_eq!(congestion.window(), 10);
    }

    #[test]
    fn does_not_grow_unused() {
        let mut congestion = Congestion::new(None, Monotonic(0));
        congestion.on_acked(200, false);
        assert_eq!(congestion.window(), INITIAL);
    }

    #[test]
    fn starts_small_after_a_timeout_and_remembers() {
        let mut congestion = Congestion::new(None, Monotonic(0));
        congestion.on_acked(90, true);
        congestion.on_timeout(100, 9);
        assert_eq!((congestion.window(), congestion.threshold), (2, 50));
        let learnt = congestion.learnt(Monotonic(5));
        assert_eq!(Congestion::new(Some(learnt), Monotonic(6)).window(), 2);
        assert_eq!(Congestion::new(Some(learnt), Monotonic(6 + MEMORY_NS)).window(), INITIAL);
    }
}
