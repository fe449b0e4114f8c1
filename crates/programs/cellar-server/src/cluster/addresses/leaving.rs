//! The order in which a service address goes to another node while this one runs: new calls are held, those that run end, and
//! the address is removed. A client whose change was made would otherwise repeat it at the next node.

use crate::running::DRAIN_MAX;
use std::time::Instant;

/// What is to be done with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Stay,
    /// Drop packets that would begin calls there.
    Hold,
    /// Accept calls again: the address is not to go after all.
    Accept,
    /// Remove it. This many calls have not ended in time.
    Go { calls: usize },
}

/// An address at this node, which may be about to go.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Since when new calls are held.
    since: Option<Instant>,
}

impl Leaving {
    /// Whether the address is about to go.
    pub(super) fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    /// Returns what is to be done now. `calls` is the number of calls at the address that have not ended, and is asked for
    /// only while it matters.
    pub(super) fn step(&mut self, is_wanted: bool, now: Instant, calls: impl FnOnce() -> usize) -> Step {
        match (is_wanted, self.since) {
            (true, None) => Step::Stay,
            (true, Some(_)) => {
                self.since = None;
                Step::Accept
            }
            (false, None) => {
                self.since = Some(now);
                Step::Hold
            }
            (false, Some(since)) => match calls() {
                calls if calls == 0 || now.saturating_duration_since(since) >= DRAIN_MAX => {
                    Step::Go { calls }
                }
                _ => Step::Stay,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unasked() -> usize {
        unreachable!("nothing depends on the calls")
    }

    #[test]
    fn an_address_goes_after_its_last_call() {
        let (mut leaving, start) = (Leaving::default(), Instant::now());
        assert_eq!(leaving.step(true, start, unasked), Step::Stay);
        assert_eq!(leaving.step(false, start, unasked), Step::Hold);
        assert!(leaving.has_begun());
        let later = start + DRAIN_MAX / 2;
        assert_eq!(leaving.step(false, later, || 1), Step::Stay);
        assert_eq!(leaving.step(false, later, || 0), Step::Go { calls: 0 });
    }

    #[test]
    fn an_address_does_not_wait_forever() {
        let (mut leaving, start) = (Leaving::default(), Instant::now());
        assert_eq!(leaving.step(false, start, unasked), Step::Hold);
        assert_eq!(leaving.step(false, start + DRAIN_MAX, || 3), Step::Go { calls: 3 });
    }

    #[test]
    fn an_address_that_is_wanted_again_stays() {
        let (mut leaving, start) = (Leaving::default(), Instant::now());
        assert_eq!(leaving.step(false, start, unasked), Step::Hold);
        assert_eq!(leaving.step(true, start, unasked), Step::Accept);
        assert!(!leaving.has_begun());
        assert_eq!(leaving.step(true, start, unasked), Step::Stay);
        // The time counts from anew.
        let again = start + DRAIN_MAX;
        assert_eq!(leaving.step(false, again, unasked), Step::Hold);
        assert_eq!(leaving.step(false, again, || 1), Step::Stay);
    }
}
