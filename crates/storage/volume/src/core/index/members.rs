//! Finds one volume of each group by the group: a hash table that holds only volume ids.
//!
//! A volume's entry in the index has its group, so the table need not. An id is in the slot of its group's
//! hash, or in the next free one after it. With the free slots that keep probes short, a group costs some 5
//! to 9 bytes.

use super::GroupKey;
use base::VolumeId;

/// Marks a free slot; no volume has this id.
const FREE: VolumeId = VolumeId(0);
/// Maximum load, three quarters; a fuller table grows by half.
const FULL: (usize, usize) = (3, 4);
const SLOTS_MIN: usize = 16;

/// Returns the group of a volume in the table.
pub(super) trait KeyOf: Fn(VolumeId) -> Option<GroupKey> {}

impl<F: Fn(VolumeId) -> Option<GroupKey>> KeyOf for F {}

/// One volume of each group. Volumes must have an index entry as long as they are here.
#[derive(Default)]
pub(super) struct Members {
    slots: Vec<VolumeId>,
    len: usize,
}

impl Members {
    /// Creates an empty table with capacity for `groups`.
    pub(super) fn with_room(groups: usize) -> Members {
        let slots = groups.saturating_mul(FULL.1) / FULL.0 + 1;
        Members { slots: vec![FREE; slots.max(SLOTS_MIN)], len: 0 }
    }

    /// Returns the volume of a group.
    pub(super) fn find(&self, key: GroupKey, key_of: impl KeyOf) -> Option<VolumeId> {
        self.slot(key, key_of).map(|slot| self.slots[slot])
    }

    /// Sets the volume that represents its group.
    pub(super) fn put(&mut self, key: GroupKey, id: VolumeId, key_of: impl KeyOf) {
        if id == FREE {
            return;
        }
        if let Some(slot) = self.slot(key, &key_of) {
            self.slots[slot] = id;
            return;
        }
        if (self.len + 1).saturating_mul(FULL.1) > self.slots.len().saturating_mul(FULL.0) {
            self.resize((self.slots.len() + self.slots.len() / 2).max(SLOTS_MIN), key_of);
        }
        self.insert(key, id);
    }

    /// Removes a group.
    pub(super) fn remove(&mut self, key: GroupKey, key_of: impl KeyOf) {
        let Some(mut free) = self.slot(key, &key_of) else { return };
        self.slots[free] = FREE;
        self.len -= 1;
        // Moves later entries forward if their probe sequence includes the free slot.
        let mut at = self.behind(free);
        while self.slots[at] != FREE {
            let way = key_of(self.slots[at]).map_or(0, |key| self.distance(self.first(key), at));
            if way >= self.distance(free, at) {
                self.slots.swap(free, at);
                free = at;
            }
            at = self.behind(at);
        }
    }

    fn slot(&self, key: GroupKey, key_of: impl KeyOf) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.first(key);
        while self.slots[at] != FREE {
            if key_of(self.slots[at]) == Some(key) {
                return Some(at);
            }
            at = self.behind(at);
        }
        None
    }

    /// Inserts the volume of a group that is not in the table. The caller ensures both that and the capacity.
    pub(super) fn insert(&mut self, key: GroupKey, id: VolumeId) {
        if id == FREE {
            return;
        }
        let mut at = self.first(key);
        while self.slots[at] != FREE {
            at = self.behind(at);
        }
        self.slots[at] = id;
        self.len += 1;
    }

    fn resize(&mut self, slots: usize, key_of: impl KeyOf) {
        let old = std::mem::replace(&mut self.slots, vec![FREE; slots]);
        self.len = 0;
        for id in old.into_iter().filter(|id| *id != FREE) {
            if let Some(key) = key_of(id) {
                self.insert(key, id);
            }
        }
    }

    fn first(&self, (partition, group): GroupKey) -> usize {
        // Group ids are sequential; the product spreads them.
        let hash = (group ^ u64::from(partition.index()) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    fn behind(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PartitionId;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};

    fn key(group: u64) -> GroupKey {
        (PartitionId::from_index((group % 3) as u32).unwrap(), group / 3)
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_map(
            steps in proptest::collection::vec((0u64..60, any::<u8>()), 0..300),
            room in 0usize..50,
        ) {
            let (mut members, mut plain) = (Members::with_room(room), BTreeMap::new());
            let mut places: HashMap<VolumeId, GroupKey> = HashMap::new();
            for (next, (group, what)) in (1..).zip(steps) {
                let (key, id) = (key(group), VolumeId(next));
                if what % 3 == 0 {
                    members.remove(key, |id| places.get(&id).copied());
                    plain.remove(&key);
                } else {
                    places.insert(id, key);
                    members.put(key, id, |id| places.get(&id).copied());
                    plain.insert(key, id);
                }
                prop_assert_eq!(members.len, plain.len());
            }
            for group in 0..60 {
                let found = members.find(self::key(group), |id| places.get(&id).copied());
                prop_assert_eq!(found, plain.get(&self::key(group)).copied());
            }
        }
    }

    #[test]
    fn a_group_takes_few_bytes() {
        let key_of = |id: VolumeId| Some(key(id.0.into()));
        let mut members = Members::with_room(100_000);
        (1..=100_000).for_each(|id| members.put(key(id.into()), VolumeId(id), key_of));
        assert!(members.slots.len() * size_of::<VolumeId>() < 100_000 * 6);
        (100_001..=200_000).for_each(|id| members.put(key(id.into()), VolumeId(id), key_of));
        assert!(members.slots.len() * size_of::<VolumeId>() < 200_000 * 9);
        members.put(key(7), VolumeId(0), key_of);
        assert_eq!(members.find(key(7), key_of), Some(VolumeId(7)));
        assert_eq!(members.find(key(200_001), key_of), None);
    }
}
