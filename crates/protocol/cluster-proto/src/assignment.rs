//! Which node should have which service address or partition.

use crate::names::NodeName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// A move of something from its owner to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer<K> {
    /// What moves.
    pub what: K,
    /// Its owner.
    pub from: NodeName,
    /// The node that is to have it.
    pub to: NodeName,
}

/// Returns which candidate takes each thing that no candidate owns: always the one that has the fewest then, and of several the first
/// by name. What a candidate owns stays. Without candidates, nothing is taken.
///
/// Nodes that know the same owners and candidates come to the same result.
pub fn share_out<K: Ord + Clone>(
    owners: &BTreeMap<K, Option<NodeName>>,
    candidates: &BTreeSet<NodeName>,
) -> BTreeMap<K, NodeName> {
    let mut counts: BTreeMap<&NodeName, usize> = candidates.iter().map(|node| (node, 0)).collect();
    let mut vacant = Vec::new();
    for (what, owner) in owners {
        match owner.as_ref().and_then(|owner| counts.get_mut(owner)) {
            Some(count) => *count += 1,
            None => vacant.push(what),
        }
    }
    let next = |what: &K| {
        let (node, count) = counts.iter_mut().min_by_key(|(_, count)| **count)?;
        *count += 1;
        Some((what.clone(), (*node).clone()))
    };
    vacant.into_iter().map_while(next).collect()
}

/// Returns the fewest moves after which the numbers of things that the candidates have differ by one at most, in their order. What no
/// candidate owns does not move. `fixed` is how many more things each node has that cannot move; if one has too many of them, the
/// others get equal shares.
pub fn balance<K: Ord + Clone>(
    owners: &BTreeMap<K, Option<NodeName>>,
    fixed: &BTreeMap<NodeName, usize>,
    candidates: &BTreeSet<NodeName>,
) -> Vec<Transfer<K>> {
    let fixed_of = |node: &NodeName| fixed.get(node).copied().unwrap_or_default();
    let mut shares: BTreeMap<&NodeName, (usize, Vec<&K>)> =
        candidates.iter().map(|node| (node, (fixed_of(node), Vec::new()))).collect();
    for (what, owner) in owners {
        if let Some((count, movable)) = owner.as_ref().and_then(|owner| shares.get_mut(owner)) {
            *count += 1;
            movable.push(what);
        }
    }
    let mut moves = Vec::new();
    loop {
        // Of several, the last by name gives, and the first one gets.
        let most =
            shares.iter().filter(|(_, (_, movable))| !movable.is_empty()).max_by_key(|(_, share)| share.0);
        let least = shares.iter().min_by_key(|(_, share)| share.0);
        let (Some((&from, &(most, _))), Some((&to, &(least, _)))) = (most, least) else { break };
        if most < least + 2 {
            break;
        }
        let what = shares.get_mut(from).and_then(|(count, movable)| {
            *count -= 1;
            movable.pop()
        });
        moves.extend(what.map(|what| Transfer { what: what.clone(), from: from.clone(), to: to.clone() }));
        // What has moved once does not move again: the node that got it had the fewest.
        shares.entry(to).and_modify(|(count, _)| *count += 1);
    }
    moves
}

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

    fn parts(names: &str) -> BTreeMap<usize, Option<NodeName>> {
        let of = |name: &str| (name != "-").then(|| node(name));
        names.split_whitespace().map(of).enumerate().collect()
    }

    fn shared_out(present: &str, candidates: &str) -> String {
        let all = share_out(&parts(present), &nodes(candidates));
        all.iter().map(|(part, node)| format!("{part}{node}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn partitions_of_a_dead_node_are_shared_out() {
        for (present, candidates, expected) in [
            ("a a a b c", "b c", "0b 1c 2b"),
            ("a a b b c", "b c", "0c 1b"),
            ("a a b", "b", "0b 1b"),
            ("a a b", "a b", ""),
            ("- - - -", "a b c", "0a 1b 2c 3a"),
            ("b b b a a -", "b c", "3c 4c 5c"),
            ("a b", "", ""),
            ("", "a", ""),
        ] {
            assert_eq!(shared_out(present, candidates), expected, "{present} among {candidates}");
        }
    }

    fn balanced(present: &str, fixed: &str, candidates: &str) -> String {
        let mut counts = BTreeMap::new();
        fixed.split_whitespace().for_each(|name| *counts.entry(node(name)).or_default() += 1);
        let moves = balance(&parts(present), &counts, &nodes(candidates));
        moves.iter().map(|one| format!("{}{}{}", one.what, one.from, one.to)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn few_partitions_move_to_balance_them() {
        for (present, fixed, candidates, expected) in [
            ("a a a a", "", "a b", "3ab 2ab"),
            ("a a a", "", "a b", "2ab"),
            ("a a a", "a", "a b", "2ab 1ab"),
            ("a a b b", "", "a b c", "3bc"),
            ("a b", "", "a b c", ""),
            ("a a - d d", "", "a b", "1ab"),
            ("a b", "a a a", "a b", "0ab"),
            ("b b", "a a a", "a b c", "1bc"),
            ("a a", "", "", ""),
            ("", "a a", "a b", ""),
        ] {
            assert_eq!(balanced(present, fixed, candidates), expected, "{present} among {candidates}");
        }
    }

    proptest! {
        #[test]
        fn nothing_owned_moves_at_a_takeover(
            present in proptest::collection::vec(proptest::option::of(0_u8..8), 0..16),
            candidates in proptest::collection::btree_set(0_u8..8, 1..8),
        ) {
            let name = |number: u8| node(&format!("n{number}"));
            let owners: BTreeMap<_, _> = present.iter().map(|owner| owner.map(name)).enumerate().collect();
            let candidates: BTreeSet<_> = candidates.into_iter().map(name).collect();
            let taken = share_out(&owners, &candidates);
            let is_owned = |owner: &Option<NodeName>| owner.as_ref().is_some_and(|node| candidates.contains(node));
            for (what, owner) in &owners {
                prop_assert_eq!(taken.contains_key(what), !is_owned(owner));
            }
            let owned = |node: &NodeName| owners.values().flatten().filter(|owner| *owner == node).count();
            let got = |node: &NodeName| taken.values().filter(|taker| *taker == node).count();
            // No other node could have been given one of a node's more fairly.
            let fewest = candidates.iter().map(|node| owned(node) + got(node)).min().unwrap();
            for node in candidates.iter().filter(|node| got(node) > 0) {
                prop_assert!(owned(node) + got(node) <= fewest + 1);
            }
            // The rest is shared out in the same way after some were taken.
            let mut after = owners.clone();
            for (what, node) in taken.iter().take(taken.len() / 2) {
                after.insert(*what, Some(node.clone()));
            }
            let rest: BTreeMap<_, _> =
                taken.iter().skip(taken.len() / 2).map(|(what, node)| (*what, node.clone())).collect();
            prop_assert_eq!(share_out(&after, &candidates), rest);
        }

        #[test]
        fn a_balance_needs_the_fewest_moves(
            present in proptest::collection::vec(0_u8..8, 0..24),
            fixed in proptest::collection::vec(0_u8..8, 0..4),
            candidates in proptest::collection::btree_set(0_u8..8, 1..8),
        ) {
            let name = |number: u8| node(&format!("n{number}"));
            let owners: BTreeMap<_, _> = present.iter().map(|owner| Some(name(*owner))).enumerate().collect();
            let candidates: BTreeSet<_> = candidates.into_iter().map(name).collect();
            let mut counts = BTreeMap::<NodeName, usize>::new();
            for owner in &fixed {
                *counts.entry(name(*owner)).or_default() += 1;
            }
            let moves = balance(&owners, &counts, &candidates);
            let mut after = owners.clone();
            for Transfer { what, from, to } in &moves {
                prop_assert!(candidates.contains(from) && candidates.contains(to) && from != to);
                prop_assert_eq!(after.insert(*what, Some(to.clone())), Some(Some(from.clone())), "it moves once");
            }
            let count = |owners: &BTreeMap<usize, Option<NodeName>>, node: &NodeName| {
                let fixed = counts.get(node).copied().unwrap_or_default();
                fixed + owners.values().flatten().filter(|owner| *owner == node).count()
            };
            let least = candidates.iter().map(|node| count(&after, node)).min().unwrap();
            for node in &candidates {
                let movable = after.values().flatten().any(|owner| owner == node);
                prop_assert!(!movable || count(&after, node) <= least + 1);
            }
            prop_assert!(balance(&after, &counts, &candidates).is_empty());
            if fixed.is_empty() {
                // As few as with the rule of the service addresses.
                let only = |owners: &BTreeMap<usize, Option<NodeName>>| {
                    let of = |owner: &NodeName| candidates.contains(owner);
                    let all = owners.values().flatten().filter(|owner| of(owner)).cloned();
                    all.enumerate().map(|(at, owner)| (Ipv4Addr::from(at as u32), Some(owner))).collect()
                };
                let before: BTreeMap<Ipv4Addr, Option<NodeName>> = only(&owners);
                let stay = assign(&before, &candidates);
                let moved = before.iter().filter(|(at, owner)| owner.as_ref() != stay.get(*at)).count();
                prop_assert_eq!(moves.len(), moved);
            }
        }

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
