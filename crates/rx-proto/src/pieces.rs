//! The body of a packet as a gather list.

use bytes::Bytes;

/// How many pieces fit without an allocation: security prefix, end of one buffer, beginning of the
/// next, padding.
const INLINE: usize = 4;

/// A packet body in pieces that are shared, never copied. Nearly always a few: then there is no
/// allocation.
#[derive(Clone, Debug)]
pub struct Pieces(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Inline { count: u8, slots: [Bytes; INLINE] },
    Spilled(Vec<Bytes>),
}

impl Pieces {
    /// No pieces.
    pub const fn new() -> Pieces {
        const EMPTY: Bytes = Bytes::new();
        Pieces(Repr::Inline { count: 0, slots: [EMPTY; INLINE] })
    }

    /// Adds a piece at the end; an empty one is left out.
    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        match &mut self.0 {
            Repr::Inline { count, slots } if usize::from(*count) < INLINE => {
                slots[usize::from(*count)] = piece;
                *count += 1;
            }
            Repr::Inline { slots, .. } => {
                let mut all: Vec<Bytes> = slots.iter_mut().map(std::mem::take).collect();
                all.push(piece);
                self.0 = Repr::Spilled(all);
            }
            Repr::Spilled(all) => all.push(piece),
        }
    }

    /// The pieces in order.
    pub fn as_slice(&self) -> &[Bytes] {
        match &self.0 {
            Repr::Inline { count, slots } => &slots[..usize::from(*count)],
            Repr::Spilled(all) => all,
        }
    }

    /// Bytes in all pieces together.
    pub fn len_bytes(&self) -> usize {
        self.as_slice().iter().map(Bytes::len).sum()
    }

    /// Whether there is not a single byte.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces::new()
    }
}

impl From<Bytes> for Pieces {
    fn from(piece: Bytes) -> Pieces {
        let mut pieces = Pieces::new();
        pieces.push(piece);
        pieces
    }
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<I: IntoIterator<Item = Bytes>>(all: I) -> Pieces {
        let mut pieces = Pieces::new();
        all.into_iter().for_each(|piece| pieces.push(piece));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spills_in_order() {
        for count in 0..9u8 {
            let pieces: Pieces = (0..count).map(|n| Bytes::from(vec![n; 3])).collect();
            let flat: Vec<u8> = pieces.as_slice().concat();
            let expected: Vec<u8> = (0..count).flat_map(|n| [n; 3]).collect();
            assert_eq!(flat, expected);
            assert_eq!(pieces.len_bytes(), usize::from(count) * 3);
        }
    }

    #[test]
    fn leaves_empty_pieces_out() {
        let pieces: Pieces = (0..9).map(|_| Bytes::new()).collect();
        assert!(pieces.is_empty());
    }
}
