//! The hosts that hold promises on a partition.
//!
//! The list is durable in the partition; promises are not. A host is in it before its first promise is answered, and a
//! new owner resets every listed host before it answers a change. So no client keeps a cached value over a change that
//! an owner has acknowledged without knowing of the promise.

use base::HostUuid;
use std::collections::{BTreeMap, BTreeSet};

/// Greatest number of hosts that hold promises on one partition. Further hosts get no promises.
pub const HOSTS_MAX: usize = 65_536;

/// Greatest number of hosts that are being reset at once.
const RESETS_AT_ONCE: usize = 32;

/// Whether a reply to a host may contain a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It may.
    Allowed,
    /// The host has to be put into the durable list first; then call [`recorded`](crate::Member::recorded), and ask again.
    RecordFirst,
    /// The host is being recorded or reset; ask again after that.
    Wait,
    /// The list is full: reply without a promise.
    Never,
}

/// The outcome of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The host has dropped everything.
    Acknowledged,
    /// The host does not answer. It is reset before its next call is executed.
    Unreachable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is being put into the list.
    Recording,
    /// It is in the list.
    Recorded,
    /// It is in the list, and must be reset.
    Owed,
    /// It is being reset.
    Resetting,
    /// It did not answer, and is reset before its next call.
    Unreachable,
    /// It holds no promise, and is being removed from the list.
    Removing,
}

/// The list of one partition, at its owner.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    all: BTreeMap<HostUuid, State>,
    owed: BTreeSet<HostUuid>,
    resetting: usize,
}

impl Hosts {
    /// Begins an ownership with the list of the owners before.
    pub(crate) fn owing(listed: impl IntoIterator<Item = HostUuid>) -> Hosts {
        let owed: BTreeSet<HostUuid> = listed.into_iter().collect();
        let all = owed.iter().map(|host| (*host, State::Owed)).collect();
        Hosts { all, owed, resetting: 0 }
    }

    /// Whether resets are owed that have not been tried.
    pub(crate) fn is_resetting(&self) -> bool {
        self.resetting > 0 || !self.owed.is_empty()
    }

    /// Returns the next host to reset.
    pub(crate) fn next_reset(&mut self) -> Option<HostUuid> {
        if self.resetting == RESETS_AT_ONCE {
            return None;
        }
        let host = self.owed.pop_first()?;
        self.all.insert(host, State::Resetting);
        self.resetting += 1;
        Some(host)
    }

    /// Takes the outcome of a reset, also of one whose turn had not come.
    pub(crate) fn reset_done(&mut self, host: HostUuid, outcome: Reset) {
        let Some(state @ (State::Resetting | State::Owed)) = self.all.get_mut(&host) else { return };
        if *state == State::Resetting {
            self.resetting -= 1;
        } else {
            self.owed.remove(&host);
        }
        *state = match outcome {
            Reset::Acknowledged => State::Recorded,
            Reset::Unreachable => State::Unreachable,
        };
    }

    /// A listed host did not answer.
    pub(crate) fn unreachable(&mut self, host: HostUuid) {
        if let Some(state @ (State::Recorded | State::Removing)) = self.all.get_mut(&host) {
            *state = State::Unreachable;
        }
    }

    /// Whether a call of this host may be executed. If the host did not answer a reset, it is reset again.
    pub(crate) fn admit(&mut self, host: HostUuid) -> bool {
        match self.all.get_mut(&host) {
            Some(State::Owed | State::Resetting) => false,
            Some(state @ State::Unreachable) => {
                *state = State::Owed;
                self.owed.insert(host);
                false
            }
            _ => true,
        }
    }

    pub(crate) fn promise(&mut self, host: HostUuid) -> Promise {
        let count = self.all.len();
        match self.all.get(&host) {
            Some(State::Recorded) => Promise::Allowed,
            Some(State::Recording | State::Owed | State::Resetting | State::Unreachable) => Promise::Wait,
            None if count >= HOSTS_MAX => Promise::Never,
            None | Some(State::Removing) => {
                self.all.insert(host, State::Recording);
                Promise::RecordFirst
            }
        }
    }

    /// The host is in the durable list, or could not be put into it.
    pub(crate) fn recorded(&mut self, host: HostUuid, is_durable: bool) {
        if self.all.get(&host) != Some(&State::Recording) {
            return;
        }
        if is_durable {
            self.all.insert(host, State::Recorded);
        } else {
            self.all.remove(&host);
        }
    }

    /// Begins to remove a host that holds no promise. Returns whether it is to be removed from the durable list.
    pub(crate) fn forget(&mut self, host: HostUuid) -> bool {
        match self.all.get_mut(&host) {
            Some(state @ State::Recorded) => {
                *state = State::Removing;
                true
            }
            _ => false,
        }
    }

    /// The removal is durable.
    pub(crate) fn forgotten(&mut self, host: HostUuid) {
        if self.all.get(&host) == Some(&State::Removing) {
            self.all.remove(&host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> HostUuid {
        HostUuid([number; 16])
    }

    #[test]
    fn a_promise_follows_the_durable_record() {
        let mut hosts = Hosts::default();
        assert_eq!(hosts.promise(host(1)), Promise::RecordFirst);
        assert_eq!(hosts.promise(host(1)), Promise::Wait);
        hosts.recorded(host(1), false);
        assert_eq!(hosts.promise(host(1)), Promise::RecordFirst);
        hosts.recorded(host(1), true);
        assert_eq!(hosts.promise(host(1)), Promise::Allowed);
        // A host that is being removed is recorded again, and the removal that was begun does not count.
        assert!(hosts.forget(host(1)) && !hosts.forget(host(1)) && !hosts.forget(host(2)));
        assert_eq!(hosts.promise(host(1)), Promise::RecordFirst);
        hosts.forgotten(host(1));
        assert_eq!(hosts.promise(host(1)), Promise::Wait);
        hosts.recorded(host(1), true);
        assert!(hosts.forget(host(1)));
        hosts.forgotten(host(1));
        assert_eq!(hosts.promise(host(1)), Promise::RecordFirst);
    }

    #[test]
    fn listed_hosts_are_reset_some_at_a_time() {
        let mut hosts = Hosts::owing((0..100).map(host));
        let first: Vec<HostUuid> = std::iter::from_fn(|| hosts.next_reset()).collect();
        assert_eq!(first.len(), RESETS_AT_ONCE);
        for host in first {
            assert!(hosts.is_resetting());
            hosts.reset_done(host, Reset::Acknowledged);
            hosts.reset_done(host, Reset::Acknowledged);
        }
        let rest: Vec<HostUuid> = std::iter::from_fn(|| {
            let host = hosts.next_reset()?;
            hosts.reset_done(host, Reset::Acknowledged);
            Some(host)
        })
        .collect();
        assert_eq!(rest.len(), 100 - RESETS_AT_ONCE);
        assert!(!hosts.is_resetting());
    }

    #[test]
    fn an_unreachable_host_is_reset_before_its_next_call() {
        let mut hosts = Hosts::owing([host(1)]);
        assert!(!hosts.admit(host(1)) && hosts.admit(host(2)));
        assert_eq!(hosts.next_reset(), Some(host(1)));
        hosts.reset_done(host(1), Reset::Unreachable);
        assert!(!hosts.is_resetting());
        assert_eq!(hosts.promise(host(1)), Promise::Wait);
        assert!(!hosts.admit(host(1)) && hosts.is_resetting());
        assert_eq!(hosts.next_reset(), Some(host(1)));
        hosts.reset_done(host(1), Reset::Acknowledged);
        assert!(hosts.admit(host(1)));
        assert_eq!(hosts.promise(host(1)), Promise::Allowed);
        // The same after a break that it did not answer.
        hosts.unreachable(host(1));
        hosts.unreachable(host(2));
        assert!(!hosts.admit(host(1)) && hosts.admit(host(2)));
    }

    #[test]
    fn the_list_is_bounded() {
        let number = |n: usize| HostUuid(u128::try_from(n).unwrap().to_be_bytes());
        let mut hosts = Hosts::owing((0..HOSTS_MAX).map(number));
        assert_eq!(hosts.promise(number(HOSTS_MAX)), Promise::Never);
        assert_eq!(hosts.promise(number(0)), Promise::Wait);
    }
}
