//! Chooses the records to write when too many directories have unfolded changes.

use super::Totals;
use base::VnodeId;
use std::collections::{BTreeMap, HashMap};

/// Moves the changes of directories up to where they meet those of others, shortest way first, until half of
/// `most` are left. Returns the changes to apply to records. The changes of siblings meet in their parent, so
/// that seldom more records are written than there are directories, however deep they are. `parent_of`
/// returns the parent of a directory, `None` for the topmost; it is called once for each directory.
pub fn fold<E>(
    parts: &mut BTreeMap<VnodeId, Totals>,
    most: usize,
    parent_of: impl FnMut(VnodeId) -> Result<Option<VnodeId>, E>,
) -> Result<BTreeMap<VnodeId, Totals>, E> {
    let mut forest = Forest::of(parts.keys().copied(), parent_of)?;
    let mut records: BTreeMap<VnodeId, Totals> = BTreeMap::new();
    while parts.len() > most / 2 {
        let Some((way, joint)) = forest.shortest_way(parts) else { break };
        let Some(part) = parts.remove(&way[0]) else { break };
        forest.leave(&way);
        for at in way {
            let record = records.entry(at).or_default();
            *record = record.plus(part);
        }
        let Some(joint) = joint else { continue };
        if let Some(there) = parts.get_mut(&joint) {
            *there = there.plus(part);
            forest.merged(joint);
        } else {
            parts.insert(joint, part);
        }
    }
    Ok(records)
}

/// Consecutive directories, and the ancestor above them where other changes meet.
type Way = (Vec<VnodeId>, Option<VnodeId>);

/// Directories with unfolded changes, and all their ancestors.
struct Forest {
    parents: HashMap<VnodeId, Option<VnodeId>>,
    /// Number of directories with unfolded changes in and below each.
    counts: HashMap<VnodeId, usize>,
}

impl Forest {
    fn of<E>(
        parked: impl Iterator<Item = VnodeId>,
        mut parent_of: impl FnMut(VnodeId) -> Result<Option<VnodeId>, E>,
    ) -> Result<Forest, E> {
        let mut parents = HashMap::new();
        let mut counts: HashMap<VnodeId, usize> = HashMap::new();
        // Each path ends where it meets an earlier one; see `spread` for the order.
        let mut ways = Vec::new();
        for begin in parked {
            let mut way = Vec::new();
            let mut next = Some(begin);
            while let Some(at) = next.filter(|at| !parents.contains_key(at)) {
                next = parent_of(at)?;
                parents.insert(at, next);
                way.push((at, next));
            }
            ways.push(way);
            *counts.entry(begin).or_default() += 1;
        }
        for (at, parent) in ways.into_iter().rev().flatten() {
            let count = counts.get(&at).copied().unwrap_or(0);
            if let Some(parent) = parent {
                *counts.entry(parent).or_default() += count;
            }
        }
        Ok(Forest { parents, counts })
    }

    fn count(&self, at: VnodeId) -> usize {
        self.counts.get(&at).copied().unwrap_or(0)
    }

    fn parent(&self, at: VnodeId) -> Option<VnodeId> {
        self.parents.get(&at).copied().flatten()
    }

    /// Returns the shortest way of all.
    fn shortest_way(&self, parts: &BTreeMap<VnodeId, Totals>) -> Option<Way> {
        let mut best: Option<Way> = None;
        for &begin in parts.keys() {
            let most = best.as_ref().map_or(self.parents.len(), |(way, _)| way.len() - 1);
            best = self.way(parts, begin, most).or(best);
        }
        best
    }

    /// Returns the way from a directory up to where other changes meet, if it is no longer than `most`. If
    /// there are other changes below the directory, the way leads to the next ancestor that has changes.
    fn way(&self, parts: &BTreeMap<VnodeId, Totals>, begin: VnodeId, most: usize) -> Option<Way> {
        let is_lowest = self.count(begin) == 1;
        let is_joint = |at: VnodeId| if is_lowest { self.count(at) > 1 } else { parts.contains_key(&at) };
        let mut way = Vec::new();
        let mut next = Some(begin);
        while let Some(at) = next.filter(|&at| at == begin && way.is_empty() || !is_joint(at)) {
            if way.len() >= most {
                return None;
            }
            way.push(at);
            next = self.parent(at);
        }
        Some((way, next))
    }

    /// Decrements the counts along a way.
    fn leave(&mut self, way: &[VnodeId]) {
        for at in way {
            if let Some(count) = self.counts.get_mut(at) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// Accounts for the merge of two changes at `joint`.
    fn merged(&mut self, joint: VnodeId) {
        let mut next = Some(joint);
        for _ in 0..self.parents.len() {
            let Some(at) = next else { return };
            self.leave(&[at]);
            next = self.parent(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spread;
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn parent(parents: &[u32], at: VnodeId) -> Option<VnodeId> {
        parents.get(at.0 as usize).filter(|_| at.0 > 0).map(|&above| VnodeId(above % at.0))
    }

    fn kib(kib: u64) -> Totals {
        Totals { kib, ..Totals::default() }
    }

    proptest! {
        #[test]
        fn folded_records_and_remainder_equal_the_input(
            parents in proptest::collection::vec(any::<u32>(), 1..40),
            parts in proptest::collection::vec((any::<u32>(), 1u64..9), 0..30),
            most in 0usize..20,
        ) {
            let above = |at| Ok::<_, Infallible>(parent(&parents, at));
            let count = parents.len() as u32;
            let mut parts: BTreeMap<_, _> =
                parts.into_iter().map(|(at, more)| (VnodeId(at % count), kib(more))).collect();
            let expected = spread(parts.clone().into_iter().collect(), above).unwrap_or_default();
            let records = fold(&mut parts, most, above).unwrap_or_default();
            prop_assert!(parts.len() <= most);
            let mut got = spread(parts.into_iter().collect(), above).unwrap_or_default();
            for (at, more) in records {
                let sum = got.entry(at).or_default();
                *sum = sum.plus(more);
            }
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn siblings_meet_in_their_parent() {
        // A chain 0 - 1 - 2 - ... - 99, with a hundred more directories below 99.
        let above =
            |at: VnodeId| Ok::<_, Infallible>(at.0.checked_sub(1).map(|above| VnodeId(above.min(99))));
        let shallow = (0..8).map(|at| (VnodeId(at), kib(1)));
        let mut parts: BTreeMap<_, _> = (150..159).map(|at| (VnodeId(at), kib(1))).chain(shallow).collect();
        let records = fold(&mut parts, 16, above).unwrap_or_default();
        assert!(records.len() < 12, "{records:?}");
        assert!(parts.len() == 8 && parts.contains_key(&VnodeId(99)), "{parts:?}");
    }

    #[test]
    fn a_ring_ends() {
        let above = |at: VnodeId| Ok::<_, Infallible>(Some(VnodeId(4 - at.0)));
        let mut parts = BTreeMap::from([(VnodeId(1), kib(1)), (VnodeId(3), kib(1))]);
        assert!(fold(&mut parts, 0, above).is_ok());
    }
}
