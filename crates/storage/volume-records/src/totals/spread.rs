//! Adds the sums of directories to all their ancestors.

use super::Totals;
use base::VnodeId;
use std::collections::{HashMap, HashSet};

/// Returns, for every directory in `own` and all its ancestors, the sum of `own` over it and everything
/// below. `parent_of` returns the parent of a directory, `None` for the topmost; it is called once for each
/// directory.
#[allow(clippy::implicit_hasher, reason = "the callers collect into the map")]
pub fn spread<E>(
    own: HashMap<VnodeId, Totals>,
    mut parent_of: impl FnMut(VnodeId) -> Result<Option<VnodeId>, E>,
) -> Result<HashMap<VnodeId, Totals>, E> {
    let mut seen = HashSet::with_capacity(own.len());
    // Each path ends where it meets an earlier one. So a directory's subdirectories come before it on its own
    // path or are on later paths, and processing the paths in reverse visits them first.
    let mut ways = Vec::new();
    // Sorted, so that the result for a cycle in a damaged volume is deterministic.
    let mut begins: Vec<VnodeId> = own.keys().copied().collect();
    begins.sort_unstable();
    for begin in begins {
        let mut way = Vec::new();
        let mut next = Some(begin);
        while let Some(at) = next.filter(|&at| seen.insert(at)) {
            next = parent_of(at)?;
            way.push((at, next));
        }
        ways.push(way);
    }
    let mut sums = own;
    for (at, parent) in ways.into_iter().rev().flatten() {
        let sum = sums.get(&at).copied().unwrap_or_default();
        if let Some(parent) = parent {
            let above = sums.entry(parent).or_default();
            *above = above.plus(sum);
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn parent(parents: &[u32], at: VnodeId) -> Option<VnodeId> {
        parents.get(at.0 as usize).filter(|_| at.0 > 0).map(|&above| VnodeId(above % at.0))
    }

    proptest! {
        #[test]
        fn each_directory_gets_the_totals_below(
            parents in proptest::collection::vec(any::<u32>(), 1..40),
            own in proptest::collection::vec((any::<u32>(), 0u64..9), 0..40),
        ) {
            let count = parents.len() as u32;
            let totals = |kib| Totals { kib, ..Totals::default() };
            let own: HashMap<_, _> =
                own.into_iter().map(|(at, kib)| (VnodeId(at % count), totals(kib))).collect();
            let mut expected: HashMap<VnodeId, Totals> = HashMap::new();
            for (&begin, &sum) in &own {
                let mut next = Some(begin);
                while let Some(at) = next {
                    let above = expected.entry(at).or_default();
                    *above = above.plus(sum);
                    next = parent(&parents, at);
                }
            }
            let got = spread(own, |at| Ok::<_, Infallible>(parent(&parents, at)));
            prop_assert_eq!(got.unwrap_or_default(), expected);
        }
    }

    #[test]
    fn a_ring_ends() {
        let own = HashMap::from([(VnodeId(1), Totals::default()), (VnodeId(3), Totals::default())]);
        let got = spread(own, |at| Ok::<_, Infallible>(Some(VnodeId(4 - at.0))));
        assert_eq!(got.map(|sums| sums.len()), Ok(2));
    }
}
