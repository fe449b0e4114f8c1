//! Callers rejected before their call is processed, counted by reason and logged once per peer and reason.

use base::{Monotonic, Novelty, Repeats};
use events::Refusal;
use events::catalogue::RefusalFigures;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Time for which a peer's refusal for the same reason is not logged again.
const QUIET: Duration = Duration::from_secs(600);

/// Maximum number of remembered pairs of peer and reason. Addresses can be forged, so this limits memory and
/// log lines.
const REMEMBERED_MAX: usize = 256;

/// Subject of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Topic {
    Refused(Refusal),
    ClockAhead,
}

/// Refusals of a server.
pub(super) struct Refusals {
    /// Counters, indexed like [`Refusal::ALL`].
    counts: [AtomicU64; Refusal::ALL.len()],
    logged: Mutex<Repeats<(IpAddr, Topic)>>,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals { counts: Default::default(), logged: Mutex::new(Repeats::new(QUIET, REMEMBERED_MAX)) }
    }
}

impl Refusals {
    /// Counts a refusal. Returns whether to log it, and marks it as logged.
    pub(super) fn refuse(&self, peer: IpAddr, refusal: Refusal, now: Monotonic) -> bool {
        self.counts[refusal as usize].fetch_add(1, Relaxed);
        refusal.remedy().is_some() && self.is_news(peer, Topic::Refused(refusal), now)
    }

    /// Returns whether to log that a peer's ticket starts in the future, and marks it as logged.
    pub(super) fn is_clock_news(&self, peer: IpAddr, now: Monotonic) -> bool {
        self.is_news(peer, Topic::ClockAhead, now)
    }

    fn is_news(&self, peer: IpAddr, topic: Topic, now: Monotonic) -> bool {
        let novelty = self.logged.lock().check((peer, topic), now);
        if novelty == Novelty::Overflow {
            tracing::warn!(
                hosts = REMEMBERED_MAX,
                "too many refused hosts to log each one; `cellar stat refusals` counts all of them"
            );
        }
        novelty == Novelty::New
    }

    /// Returns the counts of all reasons that occurred.
    pub(super) fn figures(&self, now: Monotonic) -> Vec<(Refusal, RefusalFigures)> {
        let logged = self.logged.lock();
        let row = |refusal: Refusal| {
            let topic = Topic::Refused(refusal);
            let hosts = logged.recent(now).filter(|(_, of)| *of == topic).count() as u64;
            let refused = self.counts[refusal as usize].load(Relaxed);
            (refused > 0).then_some((refusal, RefusalFigures { refused, hosts }))
        };
        Refusal::ALL.into_iter().filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> IpAddr {
        number.to_be_bytes().into()
    }

    #[test]
    fn refusals_are_logged_once_for_each_peer_and_reason() {
        let (refusals, now) = (Refusals::default(), Monotonic(1));
        let refuse = |number, refusal, now| refusals.refuse(peer(number), refusal, now);
        assert!(refuse(1, Refusal::Expired, now));
        assert!(!refuse(1, Refusal::Expired, now + QUIET / 2));
        assert!(refuse(1, Refusal::UnknownKey, now));
        assert!(refuse(2, Refusal::Expired, now));
        assert!(refuse(1, Refusal::Expired, now + QUIET));
        // Forged packets have no remedy and are not logged.
        assert!(!refuse(1, Refusal::Malformed, now));
        assert!(refusals.is_clock_news(peer(1), now) && !refusals.is_clock_news(peer(1), now));
    }

    #[test]
    fn lines_are_bounded_and_counts_are_not() {
        let (refusals, now) = (Refusals::default(), Monotonic(1));
        let logged = (0..1000).filter(|number| refusals.refuse(peer(*number), Refusal::Expired, now)).count();
        assert_eq!(logged, REMEMBERED_MAX);
        let figures = RefusalFigures { refused: 1000, hosts: REMEMBERED_MAX as u64 };
        assert_eq!(refusals.figures(now), [(Refusal::Expired, figures)]);
        let figures = RefusalFigures { refused: 1000, hosts: 0 };
        assert_eq!(refusals.figures(now + QUIET), [(Refusal::Expired, figures)]);
    }
}
