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
    /// Those beyond the limit of their address. No change waits for them.
    beyond: BTreeMap<HostId, IpAddr>,
}

impl Owing {
    /// Adds the host `id` at `ip`. Changes wait for at most `max` hosts of an address at a time. A host beyond the limit stays so
    /// until [`fill`](Self::fill): otherwise each change would wait for others of a crowd that does not answer.
    pub(crate) fn add(&mut self, ip: IpAddr, id: HostId, max: usize) {
        if self.contains(id) || self.is_beyond(id) {
            return;
        }
        if self.origins.count(ip) >= max {
            self.beyond.insert(id, ip);
            return;
        }
        self.hosts.insert(id, ip);
        self.origins.add(ip);
    }

    /// Lets changes wait for hosts that were beyond the limit, if there is room.
    pub(crate) fn fill(&mut self, max: usize) {
        for (id, ip) in std::mem::take(&mut self.beyond) {
            self.add(ip, id, max);
        }
    }

    pub(crate) fn remove(&mut self, id: HostId) {
        self.beyond.remove(&id);
        if let Some(ip) = self.hosts.remove(&id) {
            self.origins.remove(ip);
        }
    }

    /// Whether changes wait for this host.
    pub(crate) fn contains(&self, id: HostId) -> bool {
        self.hosts.contains_key(&id)
    }

    /// Whether a host must be reset that no change waits for.
    pub(crate) fn is_beyond(&self, id: HostId) -> bool {
        self.beyond.contains_key(&id)
    }

    /// Returns the hosts that changes wait for.
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
        let all = |owing: &Owing| owing.all().map(|id| id.0).collect::<Vec<_>>();
        for (last, id) in [(1, 1), (1, 2), (1, 3), (1, 4), (1, 1), (2, 5)] {
            owing.add(ip(last), HostId(id), 2);
        }
        assert_eq!(all(&owing), [1, 2, 5]);
        owing.remove(HostId(1));
        owing.add(ip(1), HostId(3), 2);
        assert_eq!(all(&owing), [2, 5], "it was beyond the limit");
        owing.remove(HostId(3));
        owing.fill(2);
        assert_eq!(all(&owing), [2, 4, 5]);
        owing.remove(HostId(2));
        owing.add(ip(1), HostId(3), 2);
        assert_eq!((all(&owing), owing.beyond.len()), (vec![3, 4, 5], 0));
    }
}
