//! Hosts that are up and must be reset, but have not received the message yet.
//!
//! Each change waits until all of them have been sent it, also a change that does not concern them. So their number is
//! limited for each address, and none displaces another.

use crate::host::HostId;
use crate::origins::Origins;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Owing {
    hosts: BTreeMap<HostId, IpAddr>,
    origins: Origins,
}

impl Owing {
    /// Adds the host `id` at `ip`. Returns false if there are `max` others at its address.
    #[must_use]
    pub(crate) fn add(&mut self, ip: IpAddr, id: HostId, max: usize) -> bool {
        if self.contains(id) {
            return true;
        }
        if self.origins.count(ip) >= max {
            return false;
        }
        self.hosts.insert(id, ip);
        self.origins.add(ip);
        true
    }

    pub(crate) fn remove(&mut self, id: HostId) {
        if let Some(ip) = self.hosts.remove(&id) {
            self.origins.remove(ip);
        }
    }

    pub(crate) fn contains(&self, id: HostId) -> bool {
        self.hosts.contains_key(&id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = HostId> + '_ {
        self.hosts.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_takes_no_more_than_its_share() {
        let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut owing = Owing::default();
        let added: Vec<bool> = (1..=4).map(|id| owing.add(ip(1), HostId(id), 2)).collect();
        assert_eq!(added, [true, true, false, false]);
        assert!(owing.add(ip(1), HostId(1), 2), "it is there already");
        assert!(owing.add(ip(2), HostId(5), 2), "another address");
        assert_eq!(owing.all().collect::<Vec<_>>(), [1, 2, 5].map(HostId));
        owing.remove(HostId(4));
        owing.remove(HostId(1));
        assert!(owing.add(ip(1), HostId(3), 2) && !owing.add(ip(1), HostId(4), 2));
    }
}
