//! Bytes to send, held by reference: from the first that may have to be retransmitted to the last written.
//!
//! A packet is a position in the rope and a length. A batch of packets refers to each of the rope's chunks
//! once, rather than once per packet: chunks are shared with caches and other calls, and each reference taken
//! or dropped writes to memory that other processors have cached.

use std::collections::VecDeque;

use bytes::Bytes;

/// A sequence of byte chunks from which packets are cut.
#[derive(Debug, Default)]
pub(crate) struct Rope {
    chunks: VecDeque<Bytes>,
    /// Number of the first chunk, counted from the beginning of the call.
    first: u32,
    /// Position of the first byte that is not in a packet yet.
    cut: Place,
    uncut_bytes: usize,
}

/// The position of a byte: the number of its chunk and the offset in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    chunk: u32,
    offset: u32,
}

impl Rope {
    /// Prefetches the rope: see [`Call::look`](super::Call::look).
    pub(crate) fn look(&self) -> u64 {
        // Freeing the chunk writes its first byte, and its reference count is in a separate allocation.
        let chunk = self
            .chunks
            .front()
            .map_or(0, |chunk| u64::from(chunk.is_unique()) ^ chunk.first().copied().map_or(0, u64::from));
        chunk ^ self.uncut_bytes as u64
    }

    /// Creates an empty rope that reuses an allocation.
    pub(crate) fn reusing(chunks: VecDeque<Bytes>) -> Rope {
        Rope { chunks, ..Rope::default() }
    }

    /// Takes the allocation of a cleared rope.
    pub(crate) fn take_memory(&mut self) -> VecDeque<Bytes> {
        std::mem::take(&mut self.chunks)
    }

    /// Returns the capacity in chunks.
    pub(crate) fn room(&self) -> usize {
        self.chunks.capacity()
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.uncut_bytes += piece.len();
        if !piece.is_empty() {
            self.chunks.push_back(piece);
        }
    }

    /// Returns the only chunk that was ever appended, if all of it is in packets.
    pub(crate) fn only_chunk(&self) -> Option<&Bytes> {
        self.chunks.front().filter(|_| self.chunks.len() == 1 && self.first == 0 && self.uncut_bytes == 0)
    }

    /// Returns the number of bytes that are not in a packet yet.
    pub(crate) fn uncut_bytes(&self) -> usize {
        self.uncut_bytes
    }

    /// Makes a packet of the next `bytes` bytes, which must be present. Returns its start.
    pub(crate) fn cut(&mut self, bytes: usize) -> Place {
        let start = self.cut;
        self.uncut_bytes -= bytes;
        let mut left = bytes;
        while left > 0 {
            let here = self.chunk(self.cut.chunk).len() - self.cut.offset as usize;
            if left < here {
                self.cut.offset += left as u32;
                break;
            }
            left -= here;
            self.cut = Place { chunk: self.cut.chunk.wrapping_add(1), offset: 0 };
        }
        start
    }

    /// Drops all chunks before the one at this position; `None` stands for the first byte that is not in a
    /// packet.
    pub(crate) fn forget_before(&mut self, place: Option<Place>) {
        let keep = place.unwrap_or(self.cut).chunk;
        while self.first != keep {
            self.chunks.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Drops all chunks, including bytes that are not in a packet.
    pub(crate) fn clear(&mut self) {
        self.first = self.first.wrapping_add(self.chunks.len() as u32);
        self.chunks.clear();
        self.cut = Place { chunk: self.first, offset: 0 };
        self.uncut_bytes = 0;
    }

    /// Returns slices that contain the `bytes` bytes from `start` on.
    pub(crate) fn slices(&self, start: Place, bytes: usize) -> Vec<Bytes> {
        let mut gathered = Gathered::default();
        gathered.add(self, start, bytes);
        gathered.close(self);
        gathered.slices
    }

    fn chunk(&self, number: u32) -> &Bytes {
        &self.chunks[number.wrapping_sub(self.first) as usize]
    }
}

/// The concatenated bytes of packets.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) slices: Vec<Bytes>,
    /// The unfinished last slice: chunk, start and end.
    open: Option<(u32, u32, u32)>,
}

impl Gathered {
    /// Creates an empty sequence that reuses an allocation.
    pub(crate) fn reusing(slices: Vec<Bytes>) -> Gathered {
        Gathered { slices, open: None }
    }

    /// Appends bytes of a rope. The rope must be the same until [`Gathered::close`].
    pub(crate) fn add(&mut self, rope: &Rope, start: Place, bytes: usize) {
        let (mut at, mut left) = (start, bytes as u32);
        while left > 0 {
            let take = left.min(rope.chunk(at.chunk).len() as u32 - at.offset);
            match &mut self.open {
                Some((chunk, _, end)) if *chunk == at.chunk && *end == at.offset => *end += take,
                _ => {
                    self.close(rope);
                    self.open = Some((at.chunk, at.offset, at.offset + take));
                }
            }
            left -= take;
            at = Place { chunk: at.chunk.wrapping_add(1), offset: 0 };
        }
    }

    /// Appends bytes that are not in a rope.
    pub(crate) fn add_slices(&mut self, rope: &Rope, slices: &[Bytes]) {
        self.close(rope);
        self.slices.extend_from_slice(slices);
    }

    /// Completes the last slice.
    pub(crate) fn close(&mut self, rope: &Rope) {
        if let Some((chunk, begin, end)) = self.open.take() {
            self.slices.push(rope.chunk(chunk).slice(begin as usize..end as usize));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packets_contain_the_written_data(
            chunks in prop::collection::vec(0usize..50, 0..20),
            lengths in prop::collection::vec(0usize..40, 0..40),
            forget in 0usize..40,
        ) {
            let (mut rope, mut written) = (Rope::default(), Vec::new());
            for (number, length) in chunks.into_iter().enumerate() {
                let piece: Vec<u8> = (0..length).map(|at| (number * 50 + at) as u8).collect();
                written.extend_from_slice(&piece);
                rope.push(piece.into());
            }
            let mut packets = Vec::new();
            for length in lengths {
                let length = length.min(rope.uncut_bytes());
                let begin = written.len() - rope.uncut_bytes();
                packets.push((rope.cut(length), begin..begin + length));
            }
            let kept = packets.split_off(forget.min(packets.len()));
            rope.forget_before(kept.first().map(|(place, _)| *place));
            let mut all = Gathered::default();
            for (place, range) in &kept {
                prop_assert_eq!(rope.slices(*place, range.len()).concat(), &written[range.clone()]);
                all.add(&rope, *place, range.len());
            }
            all.close(&rope);
            let expected: Vec<u8> = kept.iter().flat_map(|(_, range)| written[range.clone()].to_vec()).collect();
            prop_assert_eq!(all.slices.concat(), expected);
            prop_assert!(all.slices.len() <= rope.chunks.len());
        }
    }

    #[test]
    fn goes_on_after_it_was_cleared() {
        let mut rope = Rope::default();
        rope.push(Bytes::from_static(b"abc"));
        rope.cut(1);
        rope.clear();
        assert_eq!(rope.uncut_bytes(), 0);
        rope.push(Bytes::from_static(b"def"));
        let place = rope.cut(3);
        assert_eq!(rope.slices(place, 3), [Bytes::from_static(b"def")]);
        rope.forget_before(None);
        assert!(rope.chunks.is_empty());
    }
}
