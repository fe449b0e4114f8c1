//! Memory that somebody lends for bytes that are to come.

use std::ops::Range;

/// A part of some memory, to be filled from its beginning on by whoever has the bytes: so that they are copied once, where
/// they arrive, to where they are wanted. Dropped, the memory is gone; nothing but the part is ever written.
#[derive(Debug, Default)]
pub struct Room {
    memory: Vec<u8>,
    part: Range<usize>,
    filled: usize,
}

impl Room {
    /// This part of `memory`, in bytes; as much of it as there is.
    pub fn new(memory: Vec<u8>, part: Range<usize>) -> Room {
        let end = part.end.min(memory.len());
        Room { part: part.start.min(end)..end, memory, filled: 0 }
    }

    /// How many bytes are still to come.
    pub fn left(&self) -> usize {
        self.part.len() - self.filled
    }

    /// Puts the first of these bytes, as many as there is room for, and tells how many.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.left());
        self.memory[self.part.start + self.filled..][..count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        count
    }

    /// What has been put.
    pub fn filled(&self) -> &[u8] {
        &self.memory[self.part.start..][..self.filled]
    }

    /// The memory again, and which part of it was filled.
    pub fn into_parts(self) -> (Vec<u8>, Range<usize>) {
        let begin = self.part.start;
        (self.memory, begin..begin + self.filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_part_is_filled_and_once() {
        let mut room = Room::new(vec![0; 10], 2..7);
        assert_eq!((room.left(), room.put(b"abc"), room.left()), (5, 3, 2));
        assert_eq!((room.put(b"defg"), room.put(b"h"), room.left()), (2, 0, 0));
        assert_eq!(room.filled(), b"abcde");
        assert_eq!(room.into_parts(), (b"\0\0abcde\0\0\0".to_vec(), 2..7));
    }

    #[test]
    fn a_part_ends_where_the_memory_does() {
        for (part, left) in [(2..70, 2), (4..4, 0), (5..9, 0), (0..4, 4)] {
            assert_eq!(Room::new(vec![0; 4], part.clone()).left(), left, "{part:?}");
        }
        assert_eq!(Room::default().put(b"a"), 0);
    }
}
