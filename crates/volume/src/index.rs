//! Which volumes there are, and which of them are in memory.
//!
//! Every volume has a place here, 20 bytes that say on which partition and in which group it is; the
//! volumes of a group form a ring. The rest of a volume is read when it is first asked for, with all
//! of its group at once: who writes in a group must know the epochs of all its volumes.

use crate::group::Group;
use crate::volume::Volume;
use base::{PartitionId, VolumeId};
use std::collections::HashMap;
use std::sync::Arc;

/// Where a volume is. The group's id in halves, so that the whole needs no more alignment than them.
#[derive(Clone, Copy)]
struct Place {
    group: [u32; 2],
    next: VolumeId,
    partition: PartitionId,
}

impl Place {
    fn alone(id: VolumeId, partition: PartitionId, group: u64) -> Place {
        Place { group: [(group >> 32) as u32, group as u32], next: id, partition }
    }

    fn group(self) -> u64 {
        u64::from(self.group[0]) << 32 | u64::from(self.group[1])
    }
}

/// What starting a server learns of a volume.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) group: u64,
    pub(crate) id: VolumeId,
    /// Its header says that it is to be destroyed.
    pub(crate) is_marked: bool,
}

/// A volume that is to be loaded with its whole group.
pub(crate) struct ToLoad {
    pub(crate) partition: PartitionId,
    pub(crate) group: u64,
    pub(crate) members: Vec<VolumeId>,
}

#[derive(Default)]
pub(crate) struct Index {
    places: HashMap<VolumeId, Place>,
    loaded: HashMap<VolumeId, Arc<Volume>>,
    /// Of each group that is in memory, one of its volumes.
    groups: HashMap<(PartitionId, u64), VolumeId>,
    /// Volumes that were marked when the server started.
    marked: Vec<VolumeId>,
}

impl Index {
    /// Without volumes, with room for so many.
    pub(crate) fn with_room(volumes: usize) -> Index {
        Index { places: HashMap::with_capacity(volumes), ..Index::default() }
    }

    /// Takes the volumes of a partition, sorted by their groups. None of them is in memory.
    pub(crate) fn add_found(&mut self, partition: PartitionId, found: &[Found]) {
        for group in found.chunk_by(|a, b| a.group == b.group) {
            let next = group.iter().cycle().skip(1);
            for (found, next) in group.iter().zip(next) {
                let place = Place { next: next.id, ..Place::alone(found.id, partition, found.group) };
                if let Some(other) = self.places.insert(found.id, place) {
                    self.close_gap(found.id, other.next);
                    tracing::error!(volume = %found.id, hidden_on = %other.partition, used_on = %partition,
                        "a volume is on two partitions");
                }
            }
        }
        self.marked.extend(found.iter().filter(|found| found.is_marked).map(|found| found.id));
    }

    /// The volume before `id` in its ring leads to `next` from now on, which was behind it.
    fn close_gap(&mut self, id: VolumeId, next: VolumeId) {
        let mut at = next;
        while at != id {
            let Some(place) = self.places.get_mut(&at) else { return };
            if place.next == id {
                place.next = next;
                return;
            }
            at = place.next;
        }
    }

    /// A volume that is in memory.
    pub(crate) fn loaded(&self, id: VolumeId) -> Option<&Arc<Volume>> {
        self.loaded.get(&id)
    }

    /// All of them.
    pub(crate) fn all_loaded(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.loaded.values()
    }

    /// What to load for a volume that is not in memory.
    pub(crate) fn to_load(&self, id: VolumeId) -> Option<ToLoad> {
        let place = self.places.get(&id)?;
        let mut members = vec![id];
        let mut at = place.next;
        while at != id {
            members.push(at);
            at = self.places.get(&at)?.next;
        }
        Some(ToLoad { partition: place.partition, group: place.group(), members })
    }

    /// Takes a volume, known or new, into memory. It replaces one with the same id.
    pub(crate) fn put(&mut self, volume: Arc<Volume>) {
        let (id, partition, group) = (volume.id(), volume.partition(), volume.group.id);
        let is_known =
            self.places.get(&id).is_some_and(|place| place.partition == partition && place.group() == group);
        if !is_known {
            self.remove(id);
            self.add(id, partition, group);
        }
        self.groups.entry((partition, group)).or_insert(id);
        self.loaded.insert(id, volume);
    }

    fn add(&mut self, id: VolumeId, partition: PartitionId, group: u64) {
        let mut place = Place::alone(id, partition, group);
        let other = self.groups.get(&(partition, group));
        if let Some(other) = other.and_then(|other| self.places.get_mut(other)) {
            place.next = std::mem::replace(&mut other.next, id);
        }
        self.places.insert(id, place);
    }

    /// Forgets a volume.
    pub(crate) fn remove(&mut self, id: VolumeId) {
        self.loaded.remove(&id);
        let Some(place) = self.places.remove(&id) else { return };
        self.close_gap(id, place.next);
        let key = (place.partition, place.group());
        if self.groups.get(&key) == Some(&id) {
            if place.next == id {
                self.groups.remove(&key);
            } else {
                self.groups.insert(key, place.next);
            }
        }
    }

    /// The group of this id, if it is in memory.
    pub(crate) fn group(&self, partition: PartitionId, group: u64) -> Option<&Arc<Group>> {
        let member = self.groups.get(&(partition, group))?;
        self.loaded.get(member).map(|volume| &volume.group)
    }

    /// Any volume of a group. Looks at every volume.
    pub(crate) fn find_member(&self, partition: PartitionId, group: u64) -> Option<VolumeId> {
        let is_member = |place: &Place| place.partition == partition && place.group() == group;
        self.places.iter().find(|(_, place)| is_member(place)).map(|(id, _)| *id)
    }

    /// Whether there is such a volume.
    pub(crate) fn contains(&self, id: VolumeId) -> bool {
        self.places.contains_key(&id)
    }

    /// The volumes of a partition, ascending.
    pub(crate) fn of_partition(&self, partition: PartitionId) -> Vec<VolumeId> {
        let here = self.places.iter().filter(|(_, place)| place.partition == partition);
        let mut ids: Vec<VolumeId> = here.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Volumes that were marked when the server started and are still there.
    pub(crate) fn marked(&self) -> impl Iterator<Item = VolumeId> {
        self.marked.iter().copied().filter(|id| self.contains(*id))
    }
}
