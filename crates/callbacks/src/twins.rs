//! Hosts with the same UUID, and UUIDs that two clients use at the same time.

use crate::host::HostId;
use base::{HostUuid, Monotonic};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Most shared UUIDs that are remembered; the oldest is forgotten.
const SHARED_MAX: usize = 64;

/// A UUID that clients at two addresses answered to at the same time, though neither named the other's address as one of
/// its own: cloned machines, or an impostor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedUuid {
    /// The UUID.
    pub uuid: HostUuid,
    /// The address that used it first, and the other one.
    pub addresses: [SocketAddr; 2],
    /// When both were last seen.
    pub seen: Monotonic,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    by_uuid: BTreeMap<HostUuid, BTreeSet<HostId>>,
    shared: BTreeMap<HostUuid, SharedUuid>,
}

impl Twins {
    pub(crate) fn add(&mut self, uuid: Option<HostUuid>, id: HostId) {
        if let Some(uuid) = uuid {
            self.by_uuid.entry(uuid).or_default().insert(id);
        }
    }

    pub(crate) fn remove(&mut self, uuid: Option<HostUuid>, id: HostId) {
        let Some(uuid) = uuid else { return };
        if let Some(hosts) = self.by_uuid.get_mut(&uuid) {
            hosts.remove(&id);
            if hosts.is_empty() {
                self.by_uuid.remove(&uuid);
            }
        }
    }

    /// All hosts with this UUID.
    pub(crate) fn of(&self, uuid: Option<HostUuid>) -> impl Iterator<Item = HostId> + '_ {
        uuid.and_then(|uuid| self.by_uuid.get(&uuid)).into_iter().flatten().copied()
    }

    pub(crate) fn count(&self, uuid: Option<HostUuid>) -> usize {
        uuid.and_then(|uuid| self.by_uuid.get(&uuid)).map_or(0, BTreeSet::len)
    }

    /// Returns whether the UUID was not yet known to be shared.
    pub(crate) fn note_shared(&mut self, shared: SharedUuid) -> bool {
        if self.shared.len() >= SHARED_MAX && !self.shared.contains_key(&shared.uuid) {
            let oldest = self.shared.values().min_by_key(|shared| shared.seen).map(|shared| shared.uuid);
            oldest.map(|uuid| self.shared.remove(&uuid));
        }
        self.shared.insert(shared.uuid, shared).is_none()
    }

    pub(crate) fn forget_shared_before(&mut self, since: Monotonic) {
        self.shared.retain(|_, shared| shared.seen >= since);
    }

    pub(crate) fn shared(&self) -> Vec<SharedUuid> {
        self.shared.values().cloned().collect()
    }
}
