//! Ids of outgoing connections: unpredictable, and none twice before all have been used.
//!
//! A server remembers an idle connection for many minutes. If its client used the id again, the server would take the
//! first calls for old ones and ignore them. Random ids would repeat by chance among tens of thousands of connections,
//! and consecutive ones could be guessed, also by a server that knows ids of connections to itself. A counter is
//! therefore permuted by a Feistel network whose round function is a keyed hash.

use rand::Rng;

use crate::limits::CHANNEL_MASK;

/// Bits of one half of a number. The two lowest bits of an id are the channel.
const HALF_BITS: u32 = 15;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;
const ROUNDS: u8 = 4;

/// The source of ids.
pub(crate) struct ConnectionIds {
    secret: [u8; 32],
    next: u32,
}

impl ConnectionIds {
    pub(crate) fn new(random: &mut impl Rng) -> ConnectionIds {
        ConnectionIds { secret: random.random(), next: random.random() }
    }

    /// Returns the next id, which is not zero and has a zero channel.
    pub(crate) fn next(&mut self) -> u32 {
        loop {
            let id = self.permute(self.next) * (CHANNEL_MASK + 1);
            self.next = self.next.wrapping_add(1);
            if id != 0 {
                return id;
            }
        }
    }

    /// Maps numbers of 30 bits to numbers of 30 bits, one to one. Higher bits are ignored.
    fn permute(&self, number: u32) -> u32 {
        let halves = (number >> HALF_BITS & HALF_MASK, number & HALF_MASK);
        let (left, right) = (0..ROUNDS).fold(halves, |(left, right), round| {
            let [high, low] = (right as u16).to_be_bytes();
            let hash = blake3::keyed_hash(&self.secret, &[round, high, low]);
            let [high, low, ..] = *hash.as_bytes();
            (right, left ^ u32::from(u16::from_be_bytes([high, low])) & HALF_MASK)
        });
        left << HALF_BITS | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;
    use std::collections::HashSet;

    #[test]
    fn ids_do_not_repeat() {
        for seed in 0..2 {
            let mut ids = ConnectionIds::new(&mut ChaCha12Rng::seed_from_u64(seed));
            let mut seen = HashSet::new();
            for _ in 0..200_000 {
                let id = ids.next();
                assert!(id != 0 && id & CHANNEL_MASK == 0);
                assert!(seen.insert(id), "seed {seed}: {id:#x} again");
            }
        }
    }

    #[test]
    fn neighbours_and_seeds_have_unrelated_ids() {
        let [mut one, mut other] =
            [1, 2].map(|seed| ConnectionIds::new(&mut ChaCha12Rng::seed_from_u64(seed)));
        let ids: Vec<u32> = (0..1000).map(|_| one.next()).collect();
        let steps: HashSet<u32> = ids.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > 900, "{} different steps", steps.len());
        let shared = (0..1000).filter(|_| ids.contains(&other.next())).count();
        assert!(shared < 3, "{shared} ids are the same");
    }
}
