//! The index of all volumes, and of those in memory.
//!
//! Every volume has an entry here, 20 bytes with its partition and group; the volumes of a group form a ring.
//! The rest of a volume is loaded when it is first used, together with its whole group, because a writer must
//! know the epochs of all volumes in its group. Groups are also unloaded as a whole, see `unloading.rs`.

mod members;
mod places;

use crate::core::group::Group;
use crate::core::volume::Volume;
use ahash::RandomState;
use base::{PartitionId, VolumeId};
use members::Members;
use places::{Place, Places, each_place};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use volume_records::is_parked;

/// Returns a lookup of a volume's group, for [`Members`].
fn key_of(places: &Places) -> impl Fn(VolumeId) -> Option<GroupKey> {
    move |id| places.get(id).map(|place| place.key())
}

/// Counts the volumes found.
fn count(found: &[(PartitionId, Vec<Found>)]) -> usize {
    found.iter().map(|(_, found)| found.len()).sum()
}

fn members_of(found: &[(PartitionId, Vec<Found>)]) -> Members {
    let groups = || {
        found.iter().flat_map(|(partition, found)| {
            found.chunk_by(|a, b| a.group == b.group).map(|group| (*partition, group[0]))
        })
    };
    let mut members = Members::with_room(groups().count());
    for (partition, first) in groups() {
        members.insert((partition, first.group), first.id);
    }
    members
}

/// Information on a volume gathered at server start.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) group: u64,
    pub(crate) id: VolumeId,
    /// Whether its header marks it for destruction.
    pub(crate) is_marked: bool,
}

/// A volume to load with its whole group.
pub(crate) struct ToLoad {
    pub(crate) partition: PartitionId,
    pub(crate) group: u64,
    pub(crate) members: Vec<VolumeId>,
}

/// Identifies a group by partition and id.
pub(crate) type GroupKey = (PartitionId, u64);

#[derive(Default)]
pub(crate) struct Index {
    places: Places,
    /// One volume of each group.
    members: Members,
    loaded: HashMap<VolumeId, Arc<Volume>, RandomState>,
    /// One volume of each group in memory.
    groups: HashMap<GroupKey, VolumeId, RandomState>,
    /// Loaded groups, in the order in which they are checked for unloading.
    queue: VecDeque<GroupKey>,
    /// Volumes that were marked for destruction at server start.
    marked: Vec<VolumeId>,
    /// Parked volumes, see `parked.rs`.
    parked: BTreeSet<VolumeId>,
}

impl Index {
    /// Builds the index of all partitions' volumes, each sorted by group. None of them is in memory.
    pub(crate) fn of_found(found: &[(PartitionId, Vec<Found>)]) -> Index {
        let marked = found.iter().flat_map(|(_, found)| found).filter(|found| found.is_marked);
        let index = Index::of_distinct(found).unwrap_or_else(|| Index::one_by_one(found));
        let parked =
            found.iter().flat_map(|(_, found)| found).map(|found| found.id).filter(|&id| is_parked(id));
        Index { marked: marked.map(|found| found.id).collect(), parked: parked.collect(), ..index }
    }

    /// Builds the index in parallel; `None` if a volume is on two partitions.
    fn of_distinct(found: &[(PartitionId, Vec<Found>)]) -> Option<Index> {
        std::thread::scope(|scope| {
            let members = scope.spawn(|| members_of(found));
            let places = Places::of_distinct(found);
            let members = members.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Some(Index { places: places?, members, ..Index::default() })
        })
    }

    /// Builds the index one by one; of a volume on two partitions, the later one is used.
    fn one_by_one(found: &[(PartitionId, Vec<Found>)]) -> Index {
        let mut index = Index { places: Places::with_room(count(found)), ..Index::default() };
        for (partition, found) in found {
            each_place(*partition, found, |id, place| {
                if let Some(other) = index.places.insert(id, place) {
                    index.hide(id, other, place);
                    tracing::error!(volume = %id, hidden_on = %other.partition, used_on = %partition,
                        "a volume is on two partitions");
                }
            });
            for group in found.chunk_by(|a, b| a.group == b.group) {
                index.members.put((*partition, group[0].group), group[0].id, key_of(&index.places));
            }
        }
        index
    }

    /// Adds the volumes of a partition, sorted by group, none of them in memory. Leaves out a group with a volume that
    /// is on another partition: each volume of a group must be known before one of them is written.
    pub(crate) fn add_found(&mut self, partition: PartitionId, found: &[Found]) {
        for group in found.chunk_by(|a, b| a.group == b.group) {
            if let Some((id, other)) = group.iter().find_map(|one| Some((one.id, *self.places.get(one.id)?)))
            {
                tracing::error!(volume = %id, used_on = %other.partition, hidden_on = %partition,
                    volumes = group.len(), "a volume is on two partitions; its group is left out");
                continue;
            }
            each_place(partition, group, |id, place| _ = self.places.insert(id, place));
            self.members.put((partition, group[0].group), group[0].id, key_of(&self.places));
            self.marked.extend(group.iter().filter(|found| found.is_marked).map(|found| found.id));
            self.parked.extend(group.iter().map(|found| found.id).filter(|&id| is_parked(id)));
        }
    }

    /// Removes all volumes of a partition; returns their ids.
    pub(crate) fn remove_partition(&mut self, partition: PartitionId) -> Vec<VolumeId> {
        let gone = self.places.of_partition(partition);
        self.marked.retain(|id| !gone.contains(id));
        for &id in &gone {
            self.remove(id);
        }
        self.queue.retain(|(place, _)| *place != partition);
        gone.into_iter().collect()
    }

    /// Removes a volume's old entry in favour of another.
    fn hide(&mut self, id: VolumeId, from: Place, to: Place) {
        self.places.insert(id, from);
        self.remove(id);
        self.places.insert(id, to);
    }

    /// Links the volume before `id` in its ring to `next`, which followed it.
    fn close_gap(&mut self, id: VolumeId, next: VolumeId) {
        let mut at = next;
        while at != id {
            let Some(place) = self.places.get_mut(at) else { return };
            if place.next == id {
                place.next = next;
                return;
            }
            at = place.next;
        }
    }

    /// Returns the partition of a volume.
    pub(crate) fn partition_of(&self, id: VolumeId) -> Option<PartitionId> {
        self.places.get(id).map(|place| place.partition)
    }

    /// Returns a volume in memory and marks its group as used.
    pub(crate) fn loaded(&self, id: VolumeId) -> Option<&Arc<Volume>> {
        let found = self.loaded.get(&id)?;
        found.group.set_used();
        Some(found)
    }

    /// Returns a volume in memory without marking its group as used.
    pub(crate) fn find_loaded(&self, id: VolumeId) -> Option<&Arc<Volume>> {
        self.loaded.get(&id)
    }

    /// Returns the number of volumes in memory.
    pub(crate) fn loaded_count(&self) -> usize {
        self.loaded.len()
    }

    /// Returns the number of groups in memory.
    pub(crate) fn loaded_groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns all volumes in memory.
    pub(crate) fn all_loaded(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.loaded.values()
    }

    /// Returns the group to load for a volume.
    pub(crate) fn to_load(&self, id: VolumeId) -> Option<ToLoad> {
        let place = self.places.get(id)?;
        let mut members = vec![id];
        let mut at = place.next;
        while at != id {
            members.push(at);
            at = self.places.get(at)?.next;
        }
        Some(ToLoad { partition: place.partition, group: place.group(), members })
    }

    /// Adds a volume to memory, new or replacing one with the same id.
    pub(crate) fn put(&mut self, volume: Arc<Volume>) {
        let (id, partition, group) = (volume.id(), volume.partition(), volume.group.id);
        let is_known =
            self.places.get(id).is_some_and(|place| place.partition == partition && place.group() == group);
        if !is_known {
            self.remove(id);
            self.add(id, partition, group);
        }
        if let Entry::Vacant(vacant) = self.groups.entry((partition, group)) {
            vacant.insert(id);
            self.queue.push_back((partition, group));
        }
        self.loaded.insert(id, volume);
    }

    fn add(&mut self, id: VolumeId, partition: PartitionId, group: u64) {
        let mut place = Place::alone(id, partition, group);
        let other = self.find_member(partition, group);
        if let Some(other) = other.and_then(|other| self.places.get_mut(other)) {
            place.next = std::mem::replace(&mut other.next, id);
        }
        self.places.insert(id, place);
        self.members.put(place.key(), id, key_of(&self.places));
        if is_parked(id) {
            self.parked.insert(id);
        }
    }

    /// Removes a volume.
    pub(crate) fn remove(&mut self, id: VolumeId) {
        self.loaded.remove(&id);
        self.parked.remove(&id);
        let Some(place) = self.places.get(id).copied() else { return };
        let key = place.key();
        if place.next == id {
            self.members.remove(key, key_of(&self.places));
        } else if self.find_member(place.partition, place.group()) == Some(id) {
            self.members.put(key, place.next, key_of(&self.places));
        }
        self.places.remove(id);
        self.close_gap(id, place.next);
        if self.groups.get(&key) == Some(&id) {
            if place.next == id {
                self.groups.remove(&key);
            } else {
                self.groups.insert(key, place.next);
            }
        }
    }

    /// Returns the group with this id, if it is in memory.
    pub(crate) fn group(&self, partition: PartitionId, group: u64) -> Option<&Arc<Group>> {
        let member = self.groups.get(&(partition, group))?;
        self.loaded.get(member).map(|volume| &volume.group)
    }

    /// Returns any volume of a group, in memory or not.
    pub(crate) fn find_member(&self, partition: PartitionId, group: u64) -> Option<VolumeId> {
        self.members.find((partition, group), key_of(&self.places))
    }

    /// Returns whether the volume exists.
    pub(crate) fn contains(&self, id: VolumeId) -> bool {
        self.places.contains(id)
    }

    /// Returns whether the volume exists on this partition.
    pub(crate) fn is_on(&self, id: VolumeId, partition: PartitionId) -> bool {
        self.places.get(id).is_some_and(|place| place.partition == partition)
    }

    /// Takes those of the next `looks` groups from the queue that are not referenced and have not been used
    /// since the last check, and returns them with their volumes. They stay in memory: the caller passes each
    /// to [`Index::unload`] or [`Index::keep`].
    pub(crate) fn idle_groups(&mut self, looks: usize) -> Vec<(GroupKey, Vec<Arc<Volume>>)> {
        let mut found = Vec::new();
        for _ in 0..looks.min(self.queue.len()) {
            let Some(key) = self.queue.pop_front() else { break };
            // Deleted groups leave the queue.
            let Some(volumes) = self.members(key) else { continue };
            if !volumes[0].group.take_used() && is_idle(&volumes, 1) {
                found.push((key, volumes));
            } else {
                self.queue.push_back(key);
            }
        }
        found
    }

    /// Puts a group back into the queue.
    pub(crate) fn keep(&mut self, key: GroupKey) {
        self.queue.push_back(key);
    }

    /// Returns the volumes of a group in memory.
    fn members(&self, key: GroupKey) -> Option<Vec<Arc<Volume>>> {
        let to_load = self.to_load(*self.groups.get(&key)?)?;
        to_load.members.iter().map(|id| self.loaded.get(id).cloned()).collect()
    }

    /// Unloads a group if it is still unreferenced; returns the number of volumes unloaded.
    pub(crate) fn unload(&mut self, key: GroupKey) -> usize {
        let Some(volumes) = self.members(key).filter(|volumes| is_idle(volumes, 1)) else {
            self.keep(key);
            return 0;
        };
        for volume in &volumes {
            self.loaded.remove(&volume.id());
        }
        self.groups.remove(&key);
        volumes.len()
    }

    /// Returns the parked volumes.
    pub(crate) fn parked(&self) -> impl Iterator<Item = VolumeId> {
        self.parked.iter().copied()
    }

    /// Returns the volumes marked for destruction at server start that still exist.
    pub(crate) fn marked(&self) -> impl Iterator<Item = VolumeId> {
        self.marked.iter().copied().filter(|id| self.contains(*id))
    }
}

/// Returns whether these volumes of a group have no references but the index's and `hands` others each, and
/// can be unloaded without loss.
fn is_idle(volumes: &[Arc<Volume>], hands: usize) -> bool {
    let is_free = |volume: &Arc<Volume>| Arc::strong_count(volume) == 1 + hands && volume.may_be_unloaded();
    // Readers, the purger and commits that wait for durability hold references to the group.
    volumes.iter().all(is_free)
        && volumes.first().is_some_and(|first| Arc::strong_count(&first.group) == volumes.len())
}

#[cfg(test)]
mod tests;
