//! A caller's buffer for incoming bytes.

use std::ops::Range;

/// A part of a buffer, filled from its start by the code that receives the bytes, so that they are copied
/// only once: from where they arrive to where they are needed. Only this part is ever written. Dropping it
/// frees the buffer.
#[derive(Debug, Default)]
pub struct RecvBuffer {
    memory: Vec<u8>,
    part: Range<usize>,
    filled: usize,
}

impl RecvBuffer {
    /// Creates a buffer from this part of `memory`, in bytes, limited to the length of `memory`.
    pub fn new(memory: Vec<u8>, part: Range<usize>) -> RecvBuffer {
        let end = part.end.min(memory.len());
        RecvBuffer { part: part.start.min(end)..end, memory, filled: 0 }
    }

    /// Returns the number of bytes still missing.
    pub fn left(&self) -> usize {
        self.part.len() - self.filled
    }

    /// Copies as many of these bytes as fit, and returns their number.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.left());
        self.memory[self.part.start + self.filled..][..count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        count
    }

    /// Returns the bytes copied so far.
    pub fn filled(&self) -> &[u8] {
        &self.memory[self.part.start..][..self.filled]
    }

    /// Returns the memory and the range that was filled.
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
        let mut room = RecvBuffer::new(vec![0; 10], 2..7);
        assert_eq!((room.left(), room.put(b"abc"), room.left()), (5, 3, 2));
        assert_eq!((room.put(b"defg"), room.put(b"h"), room.left()), (2, 0, 0));
        assert_eq!(room.filled(), b"abcde");
        assert_eq!(room.into_parts(), (b"\0\0abcde\0\0\0".to_vec(), 2..7));
    }

    #[test]
    fn a_part_ends_where_the_memory_does() {
        for (part, left) in [(2..70, 2), (4..4, 0), (5..9, 0), (0..4, 4)] {
            assert_eq!(RecvBuffer::new(vec![0; 4], part.clone()).left(), left, "{part:?}");
        }
        assert_eq!(RecvBuffer::default().put(b"a"), 0);
    }
}
