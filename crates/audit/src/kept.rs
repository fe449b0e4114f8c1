//! Pieces of lines that many lines have in common: what is said of a caller, of a procedure. They are made once and
//! copied.

/// Pieces that are kept of each kind; the next one with the same place takes the place of the last.
const PLACES: usize = 256;

/// Pieces by what they were made of.
#[derive(Debug)]
pub(crate) struct Kept<K> {
    places: Vec<Option<(K, Vec<u8>)>>,
}

impl<K> Default for Kept<K> {
    fn default() -> Kept<K> {
        Kept { places: (0..PLACES).map(|_| None).collect() }
    }
}

impl<K> Kept<K> {
    /// The piece whose key `is_it` knows, or what `make` makes. `hint` is any number that is the same for equal keys.
    pub(crate) fn of(
        &mut self,
        hint: u64,
        is_it: impl FnOnce(&K) -> bool,
        make: impl FnOnce(&mut Vec<u8>) -> K,
    ) -> &[u8] {
        // Fibonacci hashing: the highest bits of the product depend on all of the number's.
        let place = (hint.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % PLACES;
        let kept = &mut self.places[place];
        if !kept.as_ref().is_some_and(|(key, _)| is_it(key)) {
            let mut piece = kept.take().map_or_else(Vec::new, |(_, piece)| piece);
            piece.clear();
            let key = make(&mut piece);
            *kept = Some((key, piece));
        }
        kept.as_ref().map_or(&[], |(_, piece)| piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever came before, and also if all keys have the same place.
        #[test]
        fn a_piece_is_that_of_its_key(keys in prop::collection::vec(0_u64..600, 0..200), shift in 0_u32..64) {
            let mut kept = Kept::default();
            for key in keys {
                let make = |piece: &mut Vec<u8>| {
                    piece.extend_from_slice(key.to_string().as_bytes());
                    key
                };
                let piece = kept.of(key >> shift, |of: &u64| *of == key, make);
                prop_assert_eq!(piece, format!("{key}").as_bytes().to_vec());
            }
        }
    }
}
