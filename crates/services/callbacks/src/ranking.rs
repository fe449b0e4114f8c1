//! The order in which hosts are evicted, overall and for each origin, kept sorted so that finding the next
//! one needs no search.

use crate::host::HostId;
use crate::origins::origin;
use base::Monotonic;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Activity is counted in steps of this many seconds, so that a call rarely moves its host.
const STEP_S: u64 = 64;

/// The cost of evicting a host, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The host holds nothing and has no undelivered messages.
    Empty,
    /// The host holds promises but is down, so there is nothing to send.
    Down,
    /// The host holds promises and must be reset first.
    Holding,
}

/// A host's position in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) class: Class,
    step: u32,
}

impl Rank {
    /// Creates the rank of a host that was last active at `active`.
    pub(crate) fn new(class: Class, active: Monotonic) -> Rank {
        let step = active.0 / 1_000_000_000 / STEP_S;
        Rank { class, step: u32::try_from(step).unwrap_or(u32::MAX) }
    }
}

/// All hosts in their order of eviction; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    order: BTreeSet<(Rank, HostId)>,
    by_origin: BTreeMap<IpAddr, BTreeSet<(Rank, HostId)>>,
}

impl Ranking {
    pub(crate) fn insert(&mut self, ip: IpAddr, rank: Rank, id: HostId) {
        self.order.insert((rank, id));
        self.by_origin.entry(origin(ip)).or_default().insert((rank, id));
    }

    pub(crate) fn remove(&mut self, ip: IpAddr, rank: Rank, id: HostId) {
        self.order.remove(&(rank, id));
        if let Some(hosts) = self.by_origin.get_mut(&origin(ip)) {
            hosts.remove(&(rank, id));
            if hosts.is_empty() {
                self.by_origin.remove(&origin(ip));
            }
        }
    }

    /// Returns the number of hosts at an address.
    pub(crate) fn count_at(&self, ip: IpAddr) -> usize {
        self.by_origin.get(&origin(ip)).map_or(0, BTreeSet::len)
    }

    /// Returns all hosts in the order of eviction.
    pub(crate) fn all(&self) -> impl Iterator<Item = HostId> + '_ {
        self.order.iter().map(|(_, id)| *id)
    }

    /// Returns the hosts at one address in the order of eviction.
    pub(crate) fn all_at(&self, ip: IpAddr) -> impl Iterator<Item = HostId> + '_ {
        self.by_origin.get(&origin(ip)).into_iter().flatten().map(|(_, id)| *id)
    }

    /// Returns the hosts that hold something, in the order in which they lose it.
    pub(crate) fn holding(&self) -> impl Iterator<Item = HostId> + '_ {
        let least = Rank { class: Class::Down, step: 0 };
        self.order.range((least, HostId(0))..).map(|(_, id)| *id)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.order.len(), self.by_origin.values().map(BTreeSet::len).sum::<usize>());
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_hosts_come_first_then_the_longest_idle() {
        let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        let mut ranking = Ranking::default();
        ranking.insert(ip(1), Rank::new(Class::Holding, at(0)), HostId(1));
        ranking.insert(ip(1), Rank::new(Class::Down, at(6_400)), HostId(2));
        ranking.insert(ip(2), Rank::new(Class::Empty, at(64_000)), HostId(3));
        ranking.insert(ip(2), Rank::new(Class::Empty, at(640)), HostId(4));
        assert_eq!(ranking.all().collect::<Vec<_>>(), [4, 3, 2, 1].map(HostId));
        assert_eq!(ranking.all_at(ip(1)).collect::<Vec<_>>(), [2, 1].map(HostId));
        assert_eq!(ranking.holding().collect::<Vec<_>>(), [2, 1].map(HostId));
        ranking.remove(ip(2), Rank::new(Class::Empty, at(640)), HostId(4));
        assert_eq!((ranking.count_at(ip(2)), ranking.count_at(ip(3)), ranking.len()), (1, 0, 3));
    }
}
