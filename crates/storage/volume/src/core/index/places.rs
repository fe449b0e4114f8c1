//! The location of each volume, in maps that several threads fill at startup.

use super::{Found, GroupKey};
use ahash::RandomState;
use base::{PartitionId, VolumeId};
use std::collections::{BTreeSet, HashMap};

/// Number of maps, selected by the low bits of a volume's id.
const SHARDS: usize = 4;

/// Location of a volume. The group id is in halves to keep the alignment at four bytes.
#[derive(Clone, Copy)]
pub(super) struct Place {
    group: [u32; 2],
    pub(super) next: VolumeId,
    pub(super) partition: PartitionId,
}

impl Place {
    pub(super) fn alone(id: VolumeId, partition: PartitionId, group: u64) -> Place {
        Place { group: [(group >> 32) as u32, group as u32], next: id, partition }
    }

    pub(super) fn group(self) -> u64 {
        u64::from(self.group[0]) << 32 | u64::from(self.group[1])
    }

    pub(super) fn key(self) -> GroupKey {
        (self.partition, self.group())
    }
}

/// Uses a fast hash that is still safe, because startup inserts all volumes.
type Shard = HashMap<VolumeId, Place, RandomState>;

/// The location of each volume.
#[derive(Default)]
pub(super) struct Places([Shard; SHARDS]);

impl Places {
    /// Creates maps with capacity for `volumes`.
    pub(super) fn with_room(volumes: usize) -> Places {
        Places(std::array::from_fn(|_| new_shard(volumes)))
    }

    /// Indexes the volumes of all partitions, each sorted by group; `None` if a volume appears twice.
    pub(super) fn of_distinct(found: &[(PartitionId, Vec<Found>)]) -> Option<Places> {
        let count = super::count(found);
        let shards = std::thread::scope(|scope| {
            let fill = |number| scope.spawn(move || shard_of(found, number, count));
            let threads: [_; SHARDS] = std::array::from_fn(fill);
            threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        (shards.iter().map(HashMap::len).sum::<usize>() == count).then_some(Places(shards))
    }

    pub(super) fn get(&self, id: VolumeId) -> Option<&Place> {
        self.0[shard(id)].get(&id)
    }

    pub(super) fn get_mut(&mut self, id: VolumeId) -> Option<&mut Place> {
        self.0[shard(id)].get_mut(&id)
    }

    pub(super) fn contains(&self, id: VolumeId) -> bool {
        self.get(id).is_some()
    }

    /// Inserts a location and returns the previous one.
    pub(super) fn insert(&mut self, id: VolumeId, place: Place) -> Option<Place> {
        self.0[shard(id)].insert(id, place)
    }

    /// Returns the volumes on a partition.
    pub(super) fn of_partition(&self, partition: PartitionId) -> BTreeSet<VolumeId> {
        let all = self.0.iter().flatten();
        all.filter(|(_, place)| place.partition == partition).map(|(&id, _)| id).collect()
    }

    pub(super) fn remove(&mut self, id: VolumeId) {
        self.0[shard(id)].remove(&id);
    }
}

fn shard(id: VolumeId) -> usize {
    id.0 as usize % SHARDS
}

fn new_shard(volumes: usize) -> Shard {
    // Allows for an uneven distribution of ids.
    Shard::with_capacity_and_hasher(volumes / SHARDS + volumes / (8 * SHARDS), RandomState::default())
}

fn shard_of(found: &[(PartitionId, Vec<Found>)], number: usize, count: usize) -> Shard {
    let mut filled = new_shard(count);
    for (partition, found) in found {
        each_place(*partition, found, |id, place| {
            if shard(id) == number {
                filled.insert(id, place);
            }
        });
    }
    filled
}

/// Calls `take` with the volumes of a partition, which are sorted by group; each group becomes a ring.
pub(super) fn each_place(partition: PartitionId, found: &[Found], mut take: impl FnMut(VolumeId, Place)) {
    for group in found.chunk_by(|a, b| a.group == b.group) {
        let next = group.iter().cycle().skip(1);
        for (found, next) in group.iter().zip(next) {
            take(found.id, Place { next: next.id, ..Place::alone(found.id, partition, found.group) });
        }
    }
}
