//! A hash table keyed by users' numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Users' numbers are already keyed hashes, which outsiders cannot choose; see [`Work::user`](crate::Work).
pub(crate) type ByUser<T> = HashMap<u64, T, BuildHasherDefault<Itself>>;

/// A hasher that is almost the identity.
#[derive(Default)]
pub(crate) struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        // The table uses the upper bits, and tests use small numbers.
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte));
    }
}
