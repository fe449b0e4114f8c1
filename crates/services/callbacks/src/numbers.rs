//! Hash tables keyed by numbers that this server allocated. Nobody else can choose them to collide, so a
//! multiplication is a sufficient hash, and the iteration order is deterministic.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table keyed by such a number.
pub(crate) type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Hashes a number by multiplication; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct NumberHasher(u64);

/// 2^64 divided by the golden ratio, which spreads consecutive numbers.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let wide = u128::from(self.0 ^ number) * u128::from(FACTOR);
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::hash::Hash;

    #[test]
    fn numbers_in_a_row_and_far_apart_are_spread() {
        for step in [1u64, 4, 1 << 32, (1 << 32) + 1, 1 << 40] {
            let hash = |number: u64| {
                let mut hasher = NumberHasher::default();
                number.wrapping_mul(step).hash(&mut hasher);
                hasher.finish()
            };
            let places: BTreeSet<u64> = (0..1000).map(|number| hash(number) & 0xfff).collect();
            assert!(places.len() > 700, "{} places for steps of {step}", places.len());
        }
    }
}
