//! How users and volumes share the workers.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use base::{Caller, Identity};
use fair_queue::{Kind, Limits, WEIGHT_MAX, WEIGHT_ORDINARY};

/// How the workers are shared between users and volumes when there are too few of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fairness {
    /// Maximum percentage of the workers that one user holds while others wait.
    pub user_share_percent: u8,
    /// Maximum percentage of the workers that calls for one volume hold while others wait.
    pub volume_share_percent: u8,
    /// Percentage of the workers that only serve small calls.
    pub small_calls_percent: u8,
    /// Percentage of the workers that only serve verified callers.
    pub verified_calls_percent: u8,
    /// Percentage of the workers that only serve anonymous callers. All others serve verified callers first.
    pub anonymous_calls_percent: u8,
    /// Maximum number of stalled calls for which others are served. A call stalls when its client neither
    /// takes nor sends data for a while, or while it waits for callback breaks.
    pub stalled_max: usize,
    /// Maximum number of calls served at a time, in addition to all others, of clients not identified yet:
    /// each must first answer a query and may fail to.
    pub strangers_max: usize,
    /// Maximum number of waiting calls of each kind (verified and anonymous), and also of each kind's
    /// unidentified clients.
    pub waiting_max: usize,
    /// Maximum number of waiting calls of one user.
    pub waiting_of_user_max: usize,
    /// Weights of users and hosts in percent of an ordinary one, by name (`user`, `user.instance`,
    /// `user@REALM`) or address. Users without a token are identified by their host.
    pub weights: HashMap<String, u32>,
}

impl Default for Fairness {
    fn default() -> Fairness {
        Fairness {
            user_share_percent: 25,
            volume_share_percent: 50,
            small_calls_percent: 12,
            verified_calls_percent: 12,
            anonymous_calls_percent: 12,
            stalled_max: 192,
            strangers_max: 128,
            waiting_max: 10_000,
            waiting_of_user_max: 5_000,
            weights: HashMap::new(),
        }
    }
}

impl Fairness {
    /// Returns the maximum number of threads for this number of workers.
    pub(crate) fn threads_max(&self, workers: usize) -> usize {
        workers + self.stalled_max + self.strangers_max
    }

    /// Returns the queue limits for this number of workers.
    pub(crate) fn limits(&self, workers: usize) -> Limits {
        let waiting_max = self.waiting_max.max(1);
        let mut workers_kept = [0; Kind::COUNT];
        let part = |percent: u8| workers * usize::from(percent) / 100;
        workers_kept[Kind::Verified.index()] = part(self.verified_calls_percent);
        workers_kept[Kind::Reachable.index()] = part(self.anonymous_calls_percent);
        Limits {
            waiting_max,
            waiting_of_user_max: self.waiting_of_user_max.min(waiting_max.div_ceil(2)),
            workers,
            workers_for_small: part(self.small_calls_percent),
            workers_kept,
            served_max: workers + self.stalled_max,
            strangers_max: self.strangers_max,
            user_share: part(self.user_share_percent),
            volume_share: part(self.volume_share_percent),
        }
    }
}

/// Identifies callers by name, or by host if they have none.
pub(crate) struct Users {
    /// Makes the numbers that represent users unpredictable.
    hasher: RandomState,
    weights: HashMap<String, u32>,
}

impl Users {
    pub(crate) fn new(fairness: &Fairness) -> Users {
        Users { hasher: RandomState::new(), weights: fairness.weights.clone() }
    }

    /// Returns the caller's number and weight.
    pub(crate) fn of(&self, caller: &Caller) -> (u64, u32) {
        let number = match &caller.identity {
            Identity::Anonymous => self.hasher.hash_one(caller.peer.ip()),
            Identity::Known(principal) => self.hasher.hash_one(principal),
        };
        (number, self.weight(caller))
    }

    /// Returns the caller's kind. It depends only on what the caller's number is computed from, so that each
    /// number has one kind.
    pub(crate) fn kind(caller: &Caller) -> Kind {
        match &caller.identity {
            // Calls from unproven addresses do not get this far.
            Identity::Anonymous => Kind::Reachable,
            Identity::Known(_) => Kind::Verified,
        }
    }

    fn weight(&self, caller: &Caller) -> u32 {
        if self.weights.is_empty() {
            return WEIGHT_ORDINARY;
        }
        let name = match &caller.identity {
            Identity::Anonymous => caller.peer.ip().to_string(),
            Identity::Known(principal) => principal.to_string(),
        };
        self.weights.get(&name).map_or(WEIGHT_ORDINARY, |weight| (*weight).clamp(1, WEIGHT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Principal, SecurityLevel};

    fn caller(name: Option<&str>, peer: &str) -> Caller {
        let identity = name.map_or(Identity::Anonymous, |name| {
            Identity::Known(Principal { name: name.into(), instance: String::new(), realm: String::new() })
        });
        let peer = peer.parse().unwrap();
        Caller {
            identity,
            level: SecurityLevel::Clear,
            peer,
            local: [127, 0, 0, 1].into(),
            connection: base::Connection::new(),
        }
    }

    #[test]
    fn users_are_one_across_hosts_and_hosts_differ_by_address() {
        let users = Users::new(&Fairness::default());
        let number = |name, peer| users.of(&caller(name, peer)).0;
        assert_eq!(number(Some("ann"), "10.0.0.1:7001"), number(Some("ann"), "10.0.0.2:7001"));
        assert_ne!(number(Some("ann"), "10.0.0.1:7001"), number(Some("bob"), "10.0.0.1:7001"));
        assert_eq!(number(None, "10.0.0.1:7001"), number(None, "10.0.0.1:40000"));
        assert_ne!(number(None, "10.0.0.1:7001"), number(None, "10.0.0.2:7001"));
        assert_ne!(number(None, "10.0.0.1:7001"), number(Some("ann"), "10.0.0.1:7001"));
    }

    #[test]
    fn weights_are_found_by_name_and_by_address() {
        let weights = [("batch", 20), ("10.0.0.9", 400), ("zero", 0)];
        let weights = weights.into_iter().map(|(name, weight)| (name.to_owned(), weight)).collect();
        let users = Users::new(&Fairness { weights, ..Fairness::default() });
        for (name, peer, expected) in [
            (Some("batch"), "10.0.0.1:7001", 20),
            (Some("zero"), "10.0.0.1:7001", 1),
            (Some("ann"), "10.0.0.9:7001", 100),
            (None, "10.0.0.9:7001", 400),
            (None, "10.0.0.1:7001", 100),
        ] {
            assert_eq!(users.of(&caller(name, peer)).1, expected, "{name:?} {peer}");
        }
    }

    #[test]
    fn one_worker_is_enough_for_everything() {
        let limits = Fairness { waiting_max: 4, ..Fairness::default() }.limits(1);
        assert_eq!((limits.workers, limits.workers_for_small, limits.waiting_of_user_max), (1, 0, 2));
        let limits = Fairness::default().limits(64);
        assert_eq!((limits.workers_for_small, limits.user_share, limits.volume_share), (7, 16, 32));
        assert_eq!(limits.workers_kept, [7, 7]);
    }
}
