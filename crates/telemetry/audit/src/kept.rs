//! A cache of text that many lines have in common: the parts about a procedure and a caller. It is formatted
//! once and then copied.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Number of slots; a new entry replaces the one in its slot.
const PLACES: usize = 1024;

/// Two pieces of text in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    text: Vec<u8>,
    /// Offset of the second piece.
    second: usize,
}

/// Pieces by the key that they were made from.
#[derive(Debug)]
pub(crate) struct Kept {
    places: Vec<(Box<[u64]>, Pieces)>,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { places: (0..PLACES).map(|_| Default::default()).collect() }
    }
}

impl Pieces {
    /// Returns the buffer to append text to: to the first piece until [`Pieces::end_first`], then to the
    /// second.
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    pub(crate) fn end_first(&mut self) {
        self.second = self.text.len();
    }

    pub(crate) fn both(&self) -> (&[u8], &[u8]) {
        self.text.split_at(self.second.min(self.text.len()))
    }
}

impl Kept {
    /// Returns the pieces for this key, made with `make` if they are not cached. `hint` is any number that is
    /// equal for equal keys; no key is empty.
    pub(crate) fn of(&mut self, hint: u64, key: &[AtomicU64], make: impl FnOnce(&mut Pieces)) -> &Pieces {
        // Fibonacci hashing: the highest bits of the product depend on all bits of the number.
        let place = (hint.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % PLACES;
        let (known, pieces) = &mut self.places[place];
        let is_it = known.len() == key.len()
            && known.iter().zip(key).all(|(known, word)| *known == word.load(Relaxed));
        if !is_it {
            *known = key.iter().map(|word| word.load(Relaxed)).collect();
            pieces.text.clear();
            pieces.second = 0;
            make(pieces);
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Holds after any sequence of keys, even if all keys share a slot.
        #[test]
        fn a_piece_is_that_of_its_key(keys in prop::collection::vec((0_u64..600, 1_usize..4), 0..200), shift in 0_u32..64) {
            let mut kept = Kept::default();
            for (key, words) in keys {
                let make = |pieces: &mut Pieces| {
                    pieces.text().extend_from_slice(key.to_string().as_bytes());
                    pieces.end_first();
                    pieces.text().extend_from_slice(words.to_string().as_bytes());
                };
                let words_of_key: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(key)).collect();
                let (first, second) = kept.of(key >> shift, &words_of_key, make).both();
                prop_assert_eq!(first, key.to_string().into_bytes());
                prop_assert_eq!(second, words.to_string().into_bytes());
            }
        }
    }
}
