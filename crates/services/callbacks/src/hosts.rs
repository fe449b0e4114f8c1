//! All hosts, indexed by number, so that a lookup takes constant time.

use crate::host::{Host, HostId};
use std::ops::Index;

/// A slot table of hosts; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    /// Number of previous hosts in this slot.
    generation: u32,
    host: Option<Host>,
}

/// Builds a host's number from its slot, counted from 1, and the slot's generation in the upper half, so that
/// no number is reused.
fn id_of(place: u32, generation: u32) -> HostId {
    HostId((u64::from(generation) << 32) | (u64::from(place) + 1))
}

fn place_of(id: HostId) -> (usize, u32) {
    ((id.0 as u32).wrapping_sub(1) as usize, (id.0 >> 32) as u32)
}

impl Hosts {
    /// Returns the number of hosts.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a host and returns its number.
    pub(crate) fn add(&mut self, host: Host) -> HostId {
        if let Some(place) = self.free.pop() {
            let slot = &mut self.slots[place as usize];
            slot.host = Some(host);
            return id_of(place, slot.generation);
        }
        self.slots.push(Slot { generation: 0, host: Some(host) });
        id_of(self.slots.len() as u32 - 1, 0)
    }

    pub(crate) fn get(&self, id: HostId) -> Option<&Host> {
        let (place, generation) = place_of(id);
        let slot = self.slots.get(place)?;
        if slot.generation == generation { slot.host.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: HostId) -> Option<&mut Host> {
        let (place, generation) = place_of(id);
        let slot = self.slots.get_mut(place)?;
        if slot.generation == generation { slot.host.as_mut() } else { None }
    }

    pub(crate) fn contains(&self, id: HostId) -> bool {
        self.get(id).is_some()
    }

    pub(crate) fn remove(&mut self, id: HostId) -> Option<Host> {
        let (place, generation) = place_of(id);
        let slot = self.slots.get_mut(place).filter(|slot| slot.generation == generation)?;
        let host = slot.host.take()?;
        slot.generation = generation.wrapping_add(1);
        self.free.push(place as u32);
        Some(host)
    }

    /// Returns all hosts, in an arbitrary order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (HostId, &Host)> {
        let places = (0..).zip(&self.slots);
        places.filter_map(|(place, slot)| Some((id_of(place, slot.generation), slot.host.as_ref()?)))
    }
}

impl Index<HostId> for Hosts {
    type Output = Host;

    fn index(&self, id: HostId) -> &Host {
        self.get(id).expect("the host exists")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Monotonic;

    #[test]
    fn numbers_are_not_given_twice() {
        let mut hosts = Hosts::default();
        let host = |port: u16| Host::new(Monotonic(0), ([127, 0, 0, 1], port).into(), None, 0);
        let (one, two) = (hosts.add(host(1)), hosts.add(host(2)));
        assert_eq!((one, two), (HostId(1), HostId(2)));
        assert_eq!(hosts.remove(one).map(|host| host.address.port()), Some(1));
        assert!(!hosts.contains(one) && hosts.remove(one).is_none() && hosts.get_mut(one).is_none());
        let three = hosts.add(host(3));
        assert!(three != one && hosts.get(one).is_none());
        assert_eq!((hosts[three].address.port(), hosts.len()), (3, 2));
        assert_eq!(hosts.iter().map(|(id, _)| id).collect::<Vec<_>>(), [three, two]);
        assert!(hosts.get(HostId(0)).is_none() && hosts.get(HostId(99)).is_none());
    }
}
