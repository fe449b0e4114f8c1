//! Which volumes there are, and which of them are in memory.
//!
//! Every volume has a place here, 20 bytes that say on which partition and in which group it is; the
//! volumes of a group form a ring. The rest of a volume is read when it is first asked for, with all
//! of its group at once: who writes in a group must know the epochs of all its volumes. It goes with
//! all of its group too, see `unloading.rs`.

mod members;
mod places;

use crate::apart::is_apart;
use crate::group::Group;
use crate::volume::Volume;
use ahash::RandomState;
use base::{PartitionId, VolumeId};
use members::Members;
use places::{Place, Places, each_place};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Which group a volume is in, for [`Members`].
fn key_of(places: &Places) -> impl Fn(VolumeId) -> Option<GroupKey> {
    move |id| places.get(id).map(|place| place.key())
}

/// So many volumes were found.
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

/// A group is known by its partition and its id.
pub(crate) type GroupKey = (PartitionId, u64);

#[derive(Default)]
pub(crate) struct Index {
    places: Places,
    /// Of each group, one of its volumes.
    members: Members,
    loaded: HashMap<VolumeId, Arc<Volume>, RandomState>,
    /// Of each group that is in memory, one of its volumes.
    groups: HashMap<GroupKey, VolumeId, RandomState>,
    /// Groups that were loaded, in the order in which they are looked at for unloading.
    queue: VecDeque<GroupKey>,
    /// Volumes that were marked when the server started.
    marked: Vec<VolumeId>,
    /// Volumes that are held apart, see `apart.rs`.
    apart: BTreeSet<VolumeId>,
}

impl Index {
    /// The volumes of all partitions, each sorted by its groups. None of them is in memory.
    pub(crate) fn of_found(found: &[(PartitionId, Vec<Found>)]) -> Index {
        let marked = found.iter().flat_map(|(_, found)| found).filter(|found| found.is_marked);
        let index = Index::of_distinct(found).unwrap_or_else(|| Index::one_by_one(found));
        let apart =
            found.iter().flat_map(|(_, found)| found).map(|found| found.id).filter(|&id| is_apart(id));
        Index { marked: marked.map(|found| found.id).collect(), apart: apart.collect(), ..index }
    }

    /// On all processors; `None` if a volume is on two partitions.
    fn of_distinct(found: &[(PartitionId, Vec<Found>)]) -> Option<Index> {
        std::thread::scope(|scope| {
            let members = scope.spawn(|| members_of(found));
            let places = Places::of_distinct(found);
            let members = members.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Some(Index { places: places?, members, ..Index::default() })
        })
    }

    /// Of a volume on two partitions the later one is used.
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

    /// A volume leaves the place where it was for another.
    fn hide(&mut self, id: VolumeId, from: Place, to: Place) {
        self.places.insert(id, from);
        self.remove(id);
        self.places.insert(id, to);
    }

    /// The volume before `id` in its ring leads to `next` from now on, which was behind it.
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

    /// A volume that is in memory, for somebody who uses it.
    pub(crate) fn loaded(&self, id: VolumeId) -> Option<&Arc<Volume>> {
        let found = self.loaded.get(&id)?;
        found.group.set_used();
        Some(found)
    }

    /// A volume that is in memory, for somebody who only looks at it.
    pub(crate) fn find_loaded(&self, id: VolumeId) -> Option<&Arc<Volume>> {
        self.loaded.get(&id)
    }

    /// Volumes in memory.
    pub(crate) fn loaded_count(&self) -> usize {
        self.loaded.len()
    }

    /// Groups in memory.
    pub(crate) fn loaded_groups(&self) -> usize {
        self.groups.len()
    }

    /// All of them.
    pub(crate) fn all_loaded(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.loaded.values()
    }

    /// What to load for a volume that is not in memory.
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

    /// Takes a volume, known or new, into memory. It replaces one with the same id.
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
        if is_apart(id) {
            self.apart.insert(id);
        }
    }

    /// Forgets a volume.
    pub(crate) fn remove(&mut self, id: VolumeId) {
        self.loaded.remove(&id);
        self.apart.remove(&id);
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

    /// The group of this id, if it is in memory.
    pub(crate) fn group(&self, partition: PartitionId, group: u64) -> Option<&Arc<Group>> {
        let member = self.groups.get(&(partition, group))?;
        self.loaded.get(member).map(|volume| &volume.group)
    }

    /// Any volume of a group, in memory or not.
    pub(crate) fn find_member(&self, partition: PartitionId, group: u64) -> Option<VolumeId> {
        self.members.find((partition, group), key_of(&self.places))
    }

    /// Whether there is such a volume.
    pub(crate) fn contains(&self, id: VolumeId) -> bool {
        self.places.contains(id)
    }

    /// Whether there is such a volume on this partition.
    pub(crate) fn is_on(&self, id: VolumeId, partition: PartitionId) -> bool {
        self.places.get(id).is_some_and(|place| place.partition == partition)
    }

    /// Of the next `looks` groups in the queue, those with their volumes that nobody has in hand or used
    /// since the last look. They are still in memory and not in the queue: [`Index::unload`] takes them
    /// out, or [`Index::keep`] back.
    pub(crate) fn idle_groups(&mut self, looks: usize) -> Vec<(GroupKey, Vec<Arc<Volume>>)> {
        let mut found = Vec::new();
        for _ in 0..looks.min(self.queue.len()) {
            let Some(key) = self.queue.pop_front() else { break };
            // What was deleted meanwhile leaves the queue.
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

    /// The volumes of a group in memory.
    fn members(&self, key: GroupKey) -> Option<Vec<Arc<Volume>>> {
        let to_load = self.to_load(*self.groups.get(&key)?)?;
        to_load.members.iter().map(|id| self.loaded.get(id).cloned()).collect()
    }

    /// Takes a group out of memory if still nobody has any of it in hand; answers how many volumes went.
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

    /// Volumes that are held apart.
    pub(crate) fn apart(&self) -> impl Iterator<Item = VolumeId> {
        self.apart.iter().copied()
    }

    /// Volumes that were marked when the server started and are still there.
    pub(crate) fn marked(&self) -> impl Iterator<Item = VolumeId> {
        self.marked.iter().copied().filter(|id| self.contains(*id))
    }
}

/// Whether only the index has these volumes of a group, `hands` times besides, and nothing would be lost
/// with them.
fn is_idle(volumes: &[Arc<Volume>], hands: usize) -> bool {
    let is_free = |volume: &Arc<Volume>| Arc::strong_count(volume) == 1 + hands && volume.may_be_unloaded();
    // Readers, the purger and commits that wait for durability have the group in hand.
    volumes.iter().all(is_free)
        && volumes.first().is_some_and(|first| Arc::strong_count(&first.group) == volumes.len())
}

#[cfg(test)]
mod tests;
