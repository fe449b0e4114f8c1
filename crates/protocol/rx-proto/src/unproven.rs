//! Connections whose peers have proved nothing yet: their limits and the order in which they are evicted.
//!
//! Any host can start a connection with one small packet under any source address. These connections
//! therefore have a limit of their own, and once it is reached an old one is dropped for each new one. The
//! number per host is limited too: a host at its limit replaces its own oldest connection. A client whose
//! connection was dropped too early can still connect, because its proof can be verified without the
//! connection (see [`crate::cookie`]).

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::hash::{SeededMap, SeededState};
use crate::limits::{UNPROVEN_PER_HOST_CROWDED, UNPROVEN_PER_HOST_MAX};
use crate::slab::Key;

/// The unit that counts as a host: an IPv4 address, or an IPv6 network of 64 bits, all of which may belong to
/// one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    V4(u32),
    V6(u64),
}

impl Host {
    pub(crate) fn of(address: IpAddr) -> Host {
        match address.to_canonical() {
            IpAddr::V4(address) => Host::V4(address.to_bits()),
            IpAddr::V6(address) => Host::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// The connections that have proved nothing, by host and age.
#[derive(Debug)]
pub(crate) struct Unproven {
    members: SeededMap<Key, Host>,
    hosts: SeededMap<Host, Holdings>,
    /// All connections, oldest first.
    order: Order,
    max: usize,
}

/// The connections of a host.
#[derive(Debug, Default)]
struct Holdings {
    order: Order,
    members: usize,
}

/// Connections in the order of their arrival. Removed ones are skipped later, and are purged when they
/// outnumber the remaining ones.
#[derive(Debug, Default)]
struct Order(VecDeque<Key>);

impl Order {
    fn push(&mut self, key: Key, members: &SeededMap<Key, Host>, members_here: usize) {
        if self.0.len() > 2 * members_here + 8 {
            self.0.retain(|key| members.contains_key(key));
        }
        self.0.push_back(key);
    }

    fn oldest(&mut self, members: &SeededMap<Key, Host>) -> Option<Key> {
        while self.0.front().is_some_and(|key| !members.contains_key(key)) {
            self.0.pop_front();
        }
        self.0.front().copied()
    }
}

impl Unproven {
    /// Creates a pool for `max` connections.
    pub(crate) fn new(max: usize, state: SeededState) -> Unproven {
        Unproven {
            members: SeededMap::with_hasher(state),
            hosts: SeededMap::with_hasher(state),
            order: Order::default(),
            max: max.max(1),
        }
    }

    /// Returns the connection to evict before another one of this host is inserted, if any.
    pub(crate) fn victim(&mut self, host: Host) -> Option<Key> {
        let crowded = self.members.len() >= self.max / 2;
        let share = if crowded { UNPROVEN_PER_HOST_CROWDED } else { UNPROVEN_PER_HOST_MAX };
        let own = self.hosts.get_mut(&host).filter(|holdings| holdings.members >= share);
        match own {
            Some(holdings) => holdings.order.oldest(&self.members),
            None if self.members.len() >= self.max => self.oldest(),
            None => None,
        }
    }

    /// Returns the oldest connection.
    pub(crate) fn oldest(&mut self) -> Option<Key> {
        self.order.oldest(&self.members)
    }

    pub(crate) fn insert(&mut self, key: Key, host: Host) {
        self.order.push(key, &self.members, self.members.len());
        let holdings = self.hosts.entry(host).or_default();
        holdings.order.push(key, &self.members, holdings.members);
        holdings.members += 1;
        self.members.insert(key, host);
    }

    /// Removes a connection that is proved or closed. Has no effect if it is not in the pool.
    pub(crate) fn remove(&mut self, key: Key) {
        let Some(host) = self.members.remove(&key) else { return };
        let Some(holdings) = self.hosts.get_mut(&host) else { return };
        holdings.members -= 1;
        if holdings.members == 0 {
            self.hosts.remove(&host);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.members.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    fn pool(max: usize) -> (Unproven, Slab<()>) {
        (Unproven::new(max, SeededState::new(1, 2)), Slab::new())
    }

    fn fill(pool: &mut Unproven, slab: &mut Slab<()>, host: Host) -> (Key, Option<Key>) {
        let victim = pool.victim(host);
        if let Some(victim) = victim {
            pool.remove(victim);
        }
        let key = slab.insert_with(|_| ());
        pool.insert(key, host);
        (key, victim)
    }

    #[test]
    fn the_oldest_goes_when_the_pool_is_full() {
        let (mut pool, mut slab) = pool(4);
        let keys: Vec<Key> = (0..4).map(|n| fill(&mut pool, &mut slab, Host::V4(n)).0).collect();
        pool.remove(keys[0]);
        assert_eq!(fill(&mut pool, &mut slab, Host::V4(9)).1, None);
        assert_eq!(fill(&mut pool, &mut slab, Host::V4(10)).1, Some(keys[1]));
        assert_eq!(pool.len(), 4);
    }

    #[test]
    fn a_greedy_host_replaces_its_own() {
        let (mut pool, mut slab) = pool(64);
        let (honest, _) = fill(&mut pool, &mut slab, Host::V4(1));
        for _ in 0..10_000 {
            fill(&mut pool, &mut slab, Host::V4(2));
        }
        assert!(pool.len() <= 64 / 2 + 1, "{}", pool.len());
        assert_eq!(pool.oldest(), Some(honest));
    }

    #[test]
    fn memory_is_bounded_whatever_leaves() {
        let (mut pool, mut slab) = pool(16);
        for n in 0..100_000 {
            let (key, _) = fill(&mut pool, &mut slab, Host::V4(n % 7));
            if n % 3 > 0 {
                pool.remove(key);
            }
        }
        let kept = pool.order.0.len() + pool.hosts.values().map(|it| it.order.0.len()).sum::<usize>();
        assert!(kept < 200, "{kept}");
    }

    #[test]
    fn one_ipv6_network_is_one_host() {
        let of = |text: &str| Host::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
