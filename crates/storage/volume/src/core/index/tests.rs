use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn partition(number: usize) -> PartitionId {
    PartitionId::from_index(number as u32).unwrap()
}

/// Builds the input of a server start: each volume in a group of its partition, sorted by group.
fn found(volumes: &[BTreeMap<u32, u64>]) -> Vec<(PartitionId, Vec<Found>)> {
    let of = |(number, volumes): (usize, &BTreeMap<u32, u64>)| {
        let found =
            |(id, group): (&u32, &u64)| Found { group: *group, id: VolumeId(*id), is_marked: id % 5 == 0 };
        let mut found: Vec<Found> = volumes.iter().map(found).collect();
        found.sort_by_key(|found| (found.group, found.id));
        (partition(number), found)
    };
    volumes.iter().enumerate().map(of).collect()
}

/// Checks that every volume is on the last partition that has it, in a group with the others there, and that
/// no group without volumes is found.
fn check(index: &Index, volumes: &[BTreeMap<u32, u64>]) {
    let mut groups: BTreeMap<GroupKey, Vec<VolumeId>> = BTreeMap::new();
    for (number, of) in volumes.iter().enumerate() {
        for (id, group) in of {
            let is_hidden = volumes[number + 1..].iter().any(|later| later.contains_key(id));
            let members = groups.entry((partition(number), *group)).or_default();
            members.extend((!is_hidden).then_some(VolumeId(*id)));
        }
    }
    for ((partition, group), members) in groups {
        for id in &members {
            let to_load = index.to_load(*id).unwrap();
            assert_eq!((to_load.partition, to_load.group), (partition, group));
            let mut ring = to_load.members;
            ring.sort_unstable();
            assert_eq!(ring, members);
        }
        let found = index.find_member(partition, group);
        assert_eq!(found.is_some(), !members.is_empty());
        assert!(found.is_none_or(|found| members.contains(&found)));
    }
}

proptest! {
    #[test]
    fn a_start_finds_every_volume_once(
        volumes in prop::collection::vec(prop::collection::btree_map(1u32..200, 1u64..40, 0..60), 1..4),
    ) {
        let found = found(&volumes);
        let ids: Vec<u32> = volumes.iter().flat_map(BTreeMap::keys).copied().collect();
        let distinct: std::collections::BTreeSet<u32> = ids.iter().copied().collect();
        let at_once = Index::of_distinct(&found);
        prop_assert_eq!(at_once.is_some(), distinct.len() == ids.len());
        for index in at_once.into_iter().chain([Index::one_by_one(&found), Index::of_found(&found)]) {
            check(&index, &volumes);
        }
        let marked: std::collections::BTreeSet<VolumeId> = Index::of_found(&found).marked().collect();
        prop_assert!(marked.iter().all(|id| id.0 % 5 == 0));
        prop_assert_eq!(marked.len(), distinct.iter().filter(|id| **id % 5 == 0).count());
    }
}
