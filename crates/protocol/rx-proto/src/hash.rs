//! A seeded hasher: fast, and unpredictable for peers that choose connection ids.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// A map whose order and collisions depend on the endpoint's seed.
pub(crate) type SeededMap<K, V> = HashMap<K, V, SeededState>;

/// The secret of a hasher, two words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeededState {
    start: u64,
    factor: u64,
}

impl SeededState {
    pub(crate) fn new(start: u64, factor: u64) -> SeededState {
        SeededState { start, factor: factor | 1 }
    }
}

impl BuildHasher for SeededState {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher { state: self.start, factor: self.factor }
    }
}

/// A hasher that multiplies word by word to 128 bits and folds the product.
#[derive(Debug)]
pub(crate) struct SeededHasher {
    state: u64,
    factor: u64,
}

impl Hasher for SeededHasher {
    fn finish(&self) -> u64 {
        self.state.rotate_left(23) ^ self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(self.state ^ value ^ 0x9e37_79b9_7f4a_7c15) * u128::from(self.factor);
        self.state = (wide as u64) ^ ((wide >> 64) as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}
