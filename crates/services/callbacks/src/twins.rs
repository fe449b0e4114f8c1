//! Hosts with the same UUID, and UUIDs that two clients use at the same time.

use crate::host::HostId;
use base::{HostUuid, Monotonic};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Maximum number of remembered shared UUIDs; beyond it the oldest is dropped.
const SHARED_MAX: usize = 64;

/// A UUID used at the same time by clients at two addresses. Neither client reported the other's address as
/// its own: they are cloned machines, or one is an impostor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedUuid {
    /// The UUID.
    pub uuid: HostUuid,
    /// The first address that used the UUID, and the other one.
    pub addresses: [SocketAddr; 2],
    /// Last time that both were seen.
    pub seen: Monotonic,
}

/// Index of hosts by UUID, and the shared UUIDs.
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

    /// Returns all hosts with this UUID.
    pub(crate) fn of(&self, uuid: Option<HostUuid>) -> impl Iterator<Item = HostId> + '_ {
        uuid.and_then(|uuid| self.by_uuid.get(&uuid)).into_iter().flatten().copied()
    }

    pub(crate) fn count(&self, uuid: Option<HostUuid>) -> usize {
        uuid.and_then(|uuid| self.by_uuid.get(&uuid)).map_or(0, BTreeSet::len)
    }

    /// Records a shared UUID. Returns whether it is new.
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
