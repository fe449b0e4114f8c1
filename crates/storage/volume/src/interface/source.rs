//! Sources of file contents.

use crate::VolumeError;
use base::{AbortCode, RecvBuffer};
use bytes::Bytes;
use std::collections::VecDeque;
use store::{ChunkPlace, RawChunk};

/// Number of bytes that are skipped at once.
const SKIPPED_AT_ONCE: usize = 64 * 1024;

/// Sequential data. A closure implements this through [`DataSource::next`].
pub trait DataSource {
    /// Returns between 1 and `bytes_max` bytes; none at the end of the data.
    ///
    /// # Errors
    /// The reason why no more data will arrive.
    fn next(&mut self, bytes_max: usize) -> Result<Bytes, AbortCode>;

    /// If the next `length` bytes, a whole chunk, are in the partition that chunks are taken over from, or in an object that another
    /// process has created for this one, skips them and returns the chunk's place there. They are given as bytes otherwise.
    ///
    /// # Errors
    /// The reason why no more data will arrive.
    fn stored(&mut self, _length: usize) -> Result<Option<ChunkPlace>, AbortCode> {
        Ok(None)
    }

    /// Reads the next `left` bytes, all that there are, without using them. A source whose rest need not be read may leave it.
    ///
    /// # Errors
    /// The reason why no more data will arrive; RXGEN_SS_UNMARSHAL if it has ended early.
    fn skip(&mut self, mut left: u64) -> Result<(), AbortCode> {
        while left > 0 {
            let piece = self.next(usize::try_from(left).unwrap_or(usize::MAX).min(SKIPPED_AT_ONCE))?;
            let bytes = Some(piece.len() as u64).filter(|bytes| (1..=left).contains(bytes));
            left -= bytes.ok_or(AbortCode::RXGEN_SS_UNMARSHAL)?;
        }
        Ok(())
    }

    /// Fills the first buffer of `rooms` and returns it; if it is not full, the data has ended. The source
    /// may take further buffers from the list and fill them meanwhile. Later calls return these in order;
    /// until they are all returned, [`DataSource::next`] is not called.
    ///
    /// # Errors
    /// The reason why no more data will arrive.
    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        let mut room = rooms.pop_front().unwrap_or_default();
        while room.left() > 0 {
            let piece = self.next(room.left())?;
            if piece.is_empty() || room.put(&piece) < piece.len() {
                break;
            }
        }
        Ok(room)
    }
}

impl<F: FnMut(usize) -> Result<Bytes, AbortCode>> DataSource for F {
    fn next(&mut self, bytes_max: usize) -> Result<Bytes, AbortCode> {
        self(bytes_max)
    }
}

/// Error for a source that ends too early.
const ENDED: VolumeError = VolumeError::Transfer(AbortCode::RXGEN_SS_UNMARSHAL);

/// Reads exactly `length` bytes from the source.
pub(crate) fn receive_pieces(length: usize, source: &mut dyn DataSource) -> Result<Vec<Bytes>, VolumeError> {
    let mut pieces = Vec::new();
    let mut left = length;
    while left > 0 {
        let piece = source.next(left).map_err(VolumeError::Transfer)?;
        if piece.is_empty() || piece.len() > left {
            return Err(ENDED);
        }
        left -= piece.len();
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Maximum number of buffers a source may have: the one being waited for, and one for data that arrives while
/// that is encoded and written.
const ROOMS_MAX: u64 = 2;

/// Receives consecutive chunks of equal length.
pub(crate) struct Landing {
    chunk_bytes: usize,
    /// Buffers that the source has not taken.
    rooms: VecDeque<RecvBuffer>,
    /// Buffers created and not yet returned full.
    open: u64,
}

impl Landing {
    pub(crate) fn new(chunk_bytes: usize) -> Landing {
        Landing { chunk_bytes, rooms: VecDeque::new(), open: 0 }
    }

    /// Receives the next chunk, of `left` that remain.
    pub(crate) fn next(&mut self, left: u64, source: &mut dyn DataSource) -> Result<RawChunk, VolumeError> {
        while self.open < ROOMS_MAX.min(left) {
            self.rooms.push_back(RawChunk::room(self.chunk_bytes));
            self.open += 1;
        }
        let room = source.fill(&mut self.rooms).map_err(VolumeError::Transfer)?;
        self.open -= 1;
        let chunk = RawChunk::from_filled(room);
        if chunk.as_ref().len() == self.chunk_bytes { Ok(chunk) } else { Err(ENDED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_BYTES: usize = 1000;

    /// Takes all buffers that it is offered and fills them in order with counting bytes.
    struct Lane {
        left: usize,
        at: usize,
        taken: VecDeque<RecvBuffer>,
        rooms_max: usize,
    }

    impl Lane {
        fn of(bytes: usize) -> Lane {
            Lane { left: bytes, at: 0, taken: VecDeque::new(), rooms_max: 0 }
        }
    }

    impl DataSource for Lane {
        fn next(&mut self, bytes_max: usize) -> Result<Bytes, AbortCode> {
            assert!(self.taken.is_empty(), "rooms are filled first");
            let count = bytes_max.min(self.left);
            (self.left, self.at) = (self.left - count, self.at + count);
            Ok((self.at - count..self.at).map(|n| n as u8).collect())
        }

        fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
            self.taken.append(rooms);
            self.rooms_max = self.rooms_max.max(self.taken.len());
            let mut first = self.taken.pop_front().unwrap();
            let others = std::mem::take(&mut self.taken);
            let data = self.next(first.left())?;
            first.put(&data);
            self.taken = others;
            Ok(first)
        }
    }

    fn said(error: VolumeError) -> AbortCode {
        match error {
            VolumeError::Transfer(code) => code,
            other => panic!("{other}"),
        }
    }

    /// Receives this many chunks from a source and returns their bytes.
    fn land(source: &mut dyn DataSource, chunks: u64) -> Result<Vec<u8>, AbortCode> {
        let mut landing = Landing::new(CHUNK_BYTES);
        let mut all = Vec::new();
        for left in (1..=chunks).rev() {
            all.extend_from_slice(landing.next(left, source).map_err(said)?.as_ref());
        }
        Ok(all)
    }

    fn receive(bytes: usize, source: &mut dyn DataSource) -> Result<usize, AbortCode> {
        receive_pieces(bytes, source).map(|pieces| pieces.concat().len()).map_err(said)
    }

    #[test]
    fn chunks_arrive_in_order_with_two_buffers_at_a_time() {
        for chunks in 1..5 {
            let bytes = chunks as usize * CHUNK_BYTES;
            let counting: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
            let mut lane = Lane::of(bytes + 10);
            assert_eq!(land(&mut lane, chunks), Ok(counting.clone()));
            assert_eq!(lane.rooms_max as u64, chunks.min(ROOMS_MAX));
            assert_eq!(receive(10, &mut lane), Ok(10));
            // A source without its own `fill`.
            let mut rest = Bytes::from(counting.clone());
            let mut pieces = |most: usize| Ok(rest.split_to(most.min(rest.len()).min(300)));
            assert_eq!(land(&mut pieces, chunks), Ok(counting));
        }
    }

    #[test]
    fn early_ends_of_a_source_are_reported() {
        /// Returns a buffer that it was not given.
        struct Liar;

        impl DataSource for Liar {
            fn next(&mut self, _: usize) -> Result<Bytes, AbortCode> {
                unreachable!()
            }

            fn fill(&mut self, _: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
                Ok(RecvBuffer::default())
            }
        }

        assert_eq!(land(&mut Liar, 1), Err(AbortCode::RXGEN_SS_UNMARSHAL));
        assert_eq!(land(&mut Lane::of(2 * CHUNK_BYTES - 1), 2), Err(AbortCode::RXGEN_SS_UNMARSHAL));
        assert_eq!(land(&mut |_: usize| Ok(Bytes::new()), 1), Err(AbortCode::RXGEN_SS_UNMARSHAL));
        let too_much = |most: usize| Ok(Bytes::from(vec![0; most + 1]));
        assert_eq!(receive(5, &mut { too_much }), Err(AbortCode::RXGEN_SS_UNMARSHAL));
        let mut fails = |_: usize| Err(AbortCode::RX_CALL_DEAD);
        assert_eq!(land(&mut fails, 1), Err(AbortCode::RX_CALL_DEAD));
    }
}
