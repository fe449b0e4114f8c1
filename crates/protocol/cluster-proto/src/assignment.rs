//! Which node should have which service address.

use crate::names::NodeName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Returns the node that each address should have, from the present owners. No node has two more than another, and as few
/// addresses move as that allows: those of owners that are no candidates, and those beyond an owner's share. Without
/// candidates, no address has a node.
///
/// Nodes that know the same owners and candidates come to the same result. If they do not, nothing breaks: an address has
/// one owner whatever is returned here.
pub fn assign(
    owners: &BTreeMap<Ipv4Addr, Option<NodeName>>,
    candidates: &BTreeSet<NodeName>,
) -> BTreeMap<Ipv4Addr, NodeName> {
    let mut shares: Vec<Share<'_>> =
        candidates.iter().map(|node| Share { node, has: 0, may_have: 0 }).collect();
    if shares.is_empty() {
        return BTreeMap::new();
    }
    for owner in owners.values().flatten() {
        shares.iter_mut().filter(|share| share.node == owner).for_each(|share| share.has += 1);
    }
    // Those that have the most keep one more if the addresses cannot be divided equally. The sort keeps the names in order.
    shares.sort_by_key(|share| std::cmp::Reverse(share.has));
    let (least, rest) = (owners.len() / shares.len(), owners.len() % shares.len());
    for (at, share) in shares.iter_mut().enumerate() {
        (share.has, share.may_have) = (0, least + usize::from(at < rest));
    }
    let mut assigned = BTreeMap::new();
    for (address, owner) in owners {
        let share = shares.iter_mut().find(|share| Some(share.node) == owner.as_ref());
        assigned.extend(share.and_then(Share::take).map(|node| (*address, node)));
    }
    for address in owners.keys() {
        if !assigned.contains_key(address) {
            let fewest =
                shares.iter_mut().filter(|share| share.has < share.may_have).min_by_key(|share| share.has);
            assigned.extend(fewest.and_then(Share::take).map(|node| (*address, node)));
        }
    }
    assigned
}

/// What one node is to have.
struct Share<'a> {
    node: &'a NodeName,
    has: usize,
    may_have: usize,
}

impl Share<'_> {
    /// Adds an address, if there is room for it.
    fn take(&mut self) -> Option<NodeName> {
        (self.has < self.may_have).then(|| {
            self.has += 1;
            self.node.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    fn nodes(names: &str) -> BTreeSet<NodeName> {
        names.split_whitespace().map(node).collect()
    }

    /// Owners as text: a name for each address, or `-`.
    fn owners(names: &str) -> BTreeMap<Ipv4Addr, Option<NodeName>> {
        let of = |name: &str| (name != "-").then(|| node(name));
        (1..)
            .zip(names.split_whitespace())
            .map(|(at, name)| (Ipv4Addr::new(192, 0, 2, at), of(name)))
            .collect()
    }

    fn assigned(present: &str, candidates: &str) -> String {
        let all = assign(&owners(present), &nodes(candidates));
        all.values().map(NodeName::as_str).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn addresses_are_divided_and_stay() {
        for (present, candidates, expected) in [
            ("- - -", "a b c", "a b c"),
            ("a b c", "a b c", "a b c"),
            ("a b c", "a c", "a a c"),
            ("a a c", "a b c", "a b c"),
            ("c c c", "a b c", "c a b"),
            ("a b", "a b c", "a b"),
            ("a a b", "a b", "a a b"),
            ("a b b", "a b", "a b b"),
            ("a b c d", "b d", "b b d d"),
            ("a b c", "", ""),
            ("", "a", ""),
        ] {
            assert_eq!(assigned(present, candidates), expected, "{present} among {candidates}");
        }
    }

    proptest! {
        #[test]
        fn shares_differ_by_one_and_few_move(
            present in proptest::collection::vec(proptest::option::of(0_u8..8), 0..16),
            candidates in proptest::collection::btree_set(0_u8..8, 1..8),
        ) {
            let name = |number: u8| node(&format!("n{number}"));
            let owners: BTreeMap<_, _> =
                (1..).zip(&present).map(|(at, owner)| (Ipv4Addr::new(10, 0, 0, at), owner.map(name))).collect();
            let candidates: BTreeSet<_> = candidates.into_iter().map(name).collect();
            let assigned = assign(&owners, &candidates);
            prop_assert!(assigned.keys().eq(owners.keys()));
            let count = |node: &NodeName| assigned.values().filter(|owner| *owner == node).count();
            let counts: Vec<usize> = candidates.iter().map(count).collect();
            prop_assert_eq!(counts.iter().sum::<usize>(), owners.len());
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= 1);
            // An owner keeps all that its share has room for, and there are as many greater shares as there can be.
            let had = |node: &NodeName| owners.values().flatten().filter(|owner| *owner == node).count();
            let stays = owners.iter().filter(|(at, owner)| owner.as_ref() == assigned.get(*at)).count();
            let (share, greater) = (owners.len() / candidates.len(), owners.len() % candidates.len());
            let above = candidates.iter().filter(|node| had(node) > share).count();
            let kept: usize = candidates.iter().map(|node| had(node).min(share)).sum();
            prop_assert_eq!(stays, kept + above.min(greater));
            // It is the result of itself.
            let after = assigned.iter().map(|(at, node)| (*at, Some(node.clone()))).collect();
            prop_assert_eq!(assign(&after, &candidates), assigned);
        }
    }
}
