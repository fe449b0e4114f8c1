use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};

/// Number of kinds, and of chains per kind.
const KINDS: usize = 2;
const CHAINS: usize = 3;

/// Reference model: queues that are searched linearly.
#[derive(Default)]
struct Plain {
    values: BTreeMap<u32, u64>,
    chains: [[VecDeque<u32>; CHAINS]; KINDS],
}

impl Plain {
    /// Returns the index of the chain of a kind that a place is in.
    fn chain_of(&self, by: usize, place: u32) -> Option<usize> {
        self.chains[by].iter().position(|chain| chain.contains(&place))
    }
}

fn agree(places: &Places<u64, KINDS>, chains: &[[Chain; CHAINS]; KINDS], plain: &Plain) {
    assert_eq!((places.len(), places.is_empty()), (plain.values.len(), plain.values.is_empty()));
    for (place, value) in &plain.values {
        assert_eq!((places.get(*place), places[*place]), (Some(value), *value));
    }
    for (by, (chains, expected)) in chains.iter().zip(&plain.chains).enumerate() {
        for (chain, expected) in chains.iter().zip(expected) {
            assert_eq!((chain.len(), chain.is_empty()), (expected.len(), expected.is_empty()));
            assert_eq!(chain.first(), expected.front().copied());
            assert_eq!(places.chained(by, chain).collect::<VecDeque<_>>(), *expected);
        }
    }
}

#[test]
fn random_histories_agree_with_queues() {
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut places, mut plain) = (Places::<u64, KINDS>::default(), Plain::default());
        let mut chains = [[Chain::default(); CHAINS]; KINDS];
        for step in 0..300u64 {
            let chosen = plain.values.keys().copied().nth(rng.random_range(0..12));
            let (by, at) = (rng.random_range(0..KINDS), rng.random_range(0..CHAINS));
            match (rng.random_range(0..8), chosen) {
                // Add to a chain, or move to another one.
                (0..=3, Some(place)) => {
                    if let Some(old) = plain.chain_of(by, place) {
                        places.unlink(by, &mut chains[by][old], place);
                        plain.chains[by][old].retain(|other| *other != place);
                    }
                    places.push(by, &mut chains[by][at], place);
                    plain.chains[by][at].push_back(place);
                }
                (4, Some(place)) => {
                    places[place] = step;
                    plain.values.insert(place, step);
                }
                (5 | 6, Some(place)) => {
                    for (by, chains) in chains.iter_mut().enumerate() {
                        if let Some(old) = plain.chain_of(by, place) {
                            places.unlink(by, &mut chains[old], place);
                            plain.chains[by][old].retain(|other| *other != place);
                        }
                    }
                    places.give_back(place);
                    plain.values.remove(&place);
                }
                _ => {
                    let place = places.add(step);
                    assert!(plain.values.insert(place, step).is_none(), "seed {seed}: {place} given twice");
                }
            }
            agree(&places, &chains, &plain);
        }
    }
}

#[test]
fn places_are_given_again() {
    let mut places = Places::<u64, 1>::default();
    let first: Vec<u32> = (0..1000).map(|value| places.add(value)).collect();
    first[..999].iter().for_each(|place| places.give_back(*place));
    (0..999).for_each(|value| _ = places.add(value));
    assert_eq!((places.len(), places.slots.len()), (1000, 1000));
}
