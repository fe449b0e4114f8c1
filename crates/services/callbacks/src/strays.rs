//! Interfaces of clients whose host has lost promises while it was down, and that have received messages in its place.
//!
//! They must be reset before the next change is acknowledged: a client that is reached there does not notice that its host
//! is down. They are few, since a change waits for all.

use crate::host::HostId;
use base::HostUuid;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Maximum number of interfaces; beyond it the oldest is dropped.
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
            let oldest = self.0.iter().min_by_key(|(_, stray)| stray.since).map(|(address, _)| *address);
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(address, stray);
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
}
