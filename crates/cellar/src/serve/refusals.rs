//! Which refusals are said in the log: the first of each peer and reason, and not so many that the log is
//! of no use.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a peer's refusal for one reason is not said again.
const QUIET: Duration = Duration::from_secs(600);

/// Peers and reasons that are remembered; while there are as many, no others are said. Addresses can be
/// forged, so that this also bounds the lines.
const REMEMBERED_MAX: usize = 256;

/// The refusals of a server.
#[derive(Default)]
pub(super) struct Refusals {
    said: Mutex<HashMap<(IpAddr, &'static str), Instant>>,
}

impl Refusals {
    /// Whether a refusal is to be said. Counts as said if so.
    pub(super) fn is_news(&self, peer: IpAddr, reason: &'static str) -> bool {
        self.is_news_at(peer, reason, Instant::now())
    }

    fn is_news_at(&self, peer: IpAddr, reason: &'static str, now: Instant) -> bool {
        let is_quiet = |said: &Instant| now.duration_since(*said) < QUIET;
        let mut said = self.said.lock();
        if said.get(&(peer, reason)).is_some_and(is_quiet) {
            return false;
        }
        if said.len() >= REMEMBERED_MAX {
            said.retain(|_, said| is_quiet(said));
        }
        let has_room = said.len() < REMEMBERED_MAX;
        if has_room {
            said.insert((peer, reason), now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_by_peer_reason_and_number() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let peer = |number: u32| IpAddr::from(number.to_be_bytes());
        assert!(refusals.is_news_at(peer(1), "level", now));
        assert!(!refusals.is_news_at(peer(1), "level", now + QUIET / 2));
        assert!(refusals.is_news_at(peer(1), "ticket", now));
        let said = (2..1000).filter(|&number| refusals.is_news_at(peer(number), "level", now)).count();
        assert_eq!(said, REMEMBERED_MAX - 2);
        assert!(refusals.is_news_at(peer(1), "level", now + QUIET));
        assert!(refusals.is_news_at(peer(999), "level", now + QUIET));
    }
}
