//! Interfaces of clients whose host has lost promises while it was down, and that have received messages in its place.
//!
//! They must be reset before the next change is acknowledged: a client that is reached there does not notice that its host
//! is down. They are few, since a change waits for all, and those of one address do not displace those of others.

use crate::host::HostId;
use crate::origins::origin;
use base::HostUuid;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of interfaces; beyond it the oldest at the address with most of them is dropped.
const STRAYS_MAX: usize = 64;

/// What an interface must be reset for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stray {
    /// The host that has lost promises.
    pub(crate) host: HostId,
    /// The UUID of its client.
    pub(crate) uuid: HostUuid,
    /// Sequence number of the loss.
    pub(crate) since: u64,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Strays(BTreeMap<SocketAddr, Stray>);

impl Strays {
    pub(crate) fn add(&mut self, address: SocketAddr, stray: Stray) {
        if self.0.len() >= STRAYS_MAX && !self.0.contains_key(&address) {
            let order = |(address, stray): &(&SocketAddr, &Stray)| {
                (self.count_at(address.ip()), Reverse(stray.since))
            };
            let first = self.0.iter().max_by_key(order).map(|(address, _)| *address);
            first.map(|first| self.0.remove(&first));
        }
        self.0.insert(address, stray);
    }

    fn count_at(&self, ip: IpAddr) -> usize {
        self.0.keys().filter(|address| origin(address.ip()) == origin(ip)).count()
    }

    /// Removes an interface that a reset was sent to, unless it must be reset for something later than `sequence`.
    pub(crate) fn remove(&mut self, address: SocketAddr, sequence: u64) {
        if self.0.get(&address).is_some_and(|stray| stray.since <= sequence) {
            self.0.remove(&address);
        }
    }

    /// Returns all interfaces that must be reset.
    pub(crate) fn all(&self) -> impl Iterator<Item = (SocketAddr, Stray)> + '_ {
        self.0.iter().map(|(address, stray)| (*address, *stray))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_interfaces_are_kept_and_the_oldest_goes_first() {
        let address = |number: u16| SocketAddr::from(([10, 0, 0, 1], number));
        let stray = |since: u64| Stray { host: HostId(1), uuid: HostUuid([1; 16]), since };
        let mut strays = Strays::default();
        for number in 0..STRAYS_MAX as u16 + 5 {
            strays.add(address(number), stray(u64::from(number)));
        }
        assert_eq!(strays.all().count(), STRAYS_MAX);
        assert_eq!(strays.all().next().map(|(address, _)| address), Some(address(5)));
        strays.remove(address(7), 6);
        assert_eq!(strays.all().count(), STRAYS_MAX, "a reset sent before the loss");
        strays.remove(address(7), 7);
        assert_eq!(strays.all().count(), STRAYS_MAX - 1);
    }

    #[test]
    fn many_interfaces_of_one_address_displace_no_others() {
        let address = |ip: u8, port: u16| SocketAddr::from(([10, 0, 0, ip], port));
        let stray = |since: u64| Stray { host: HostId(1), uuid: HostUuid([1; 16]), since };
        let mut strays = Strays::default();
        strays.add(address(2, 7001), stray(0));
        for port in 0..10 * STRAYS_MAX as u16 {
            strays.add(address(1, port), stray(u64::from(port) + 1));
        }
        let others: Vec<_> = strays.all().filter(|(stray, _)| stray.ip() != address(1, 0).ip()).collect();
        assert_eq!((others[0].0, strays.all().count()), (address(2, 7001), STRAYS_MAX));
    }
}
