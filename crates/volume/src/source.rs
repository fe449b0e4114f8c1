//! Where the contents of files come from.

use crate::VolumeError;
use base::{AbortCode, Room};
use bytes::Bytes;
use std::collections::VecDeque;
use store::RawChunk;

/// Data that come from somewhere, in order. A closure is one by [`DataSource::next`].
pub trait DataSource {
    /// At least one byte and at most so many; none if there are no more.
    ///
    /// # Errors
    /// Why no more will come.
    fn next(&mut self, bytes_max: usize) -> Result<Bytes, AbortCode>;

    /// Fills the first of these rooms and gives it; one that is not full says that there is no more. What comes behind it may be
    /// put into the others meanwhile: those that are taken from the list come back later, in their order, and until they have, nothing
    /// is asked for by [`DataSource::next`].
    ///
    /// # Errors
    /// Why no more will come.
    fn fill(&mut self, rooms: &mut VecDeque<Room>) -> Result<Room, AbortCode> {
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

/// What a source owes who wants so many bytes and does not get them.
const ENDED: VolumeError = VolumeError::Transfer(AbortCode::RXGEN_SS_UNMARSHAL);

/// Exactly `length` bytes from the source.
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

/// Rooms that a source may have at a time: one that is waited for, and one for what comes while that is encoded and written.
const ROOMS_MAX: u64 = 2;

/// Chunks of one length that come one after the other.
pub(crate) struct Landing {
    chunk_bytes: usize,
    /// Rooms that the source has not taken.
    rooms: VecDeque<Room>,
    /// Rooms that were made and have not come back full.
    open: u64,
}

impl Landing {
    pub(crate) fn new(chunk_bytes: usize) -> Landing {
        Landing { chunk_bytes, rooms: VecDeque::new(), open: 0 }
    }

    /// The next chunk, of `left` that are still to come.
    pub(crate) fn next(&mut self, left: u64, source: &mut dyn DataSource) -> Result<RawChunk, VolumeError> {
        while self.open < ROOMS_MAX.min(left) {
            self.rooms.push_back(RawChunk::room(self.chunk_bytes));
            self.open += 1;
        }
        let room = source.fill(&mut self.rooms).map_err(VolumeError::Transfer)?;
        self.open -= 1;
        let chunk = RawChunk::landed(room);
        if chunk.as_ref().len() == self.chunk_bytes { Ok(chunk) } else { Err(ENDED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_BYTES: usize = 1000;

    /// Takes all rooms that it is lent and fills them in turn, from bytes that count up.
    struct Lane {
        left: usize,
        at: usize,
        taken: VecDeque<Room>,
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

        fn fill(&mut self, rooms: &mut VecDeque<Room>) -> Result<Room, AbortCode> {
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

    /// What lands of so many chunks that are wanted of a source.
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
    fn chunks_land_in_order_with_two_rooms_at_a_time_and_none_too_many() {
        for chunks in 1..5 {
            let bytes = chunks as usize * CHUNK_BYTES;
            let counting: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
            let mut lane = Lane::of(bytes + 10);
            assert_eq!(land(&mut lane, chunks), Ok(counting.clone()));
            assert_eq!(lane.rooms_max as u64, chunks.min(ROOMS_MAX));
            assert_eq!(receive(10, &mut lane), Ok(10));
            // A source that knows nothing of rooms.
            let mut rest = Bytes::from(counting.clone());
            let mut pieces = |most: usize| Ok(rest.split_to(most.min(rest.len()).min(300)));
            assert_eq!(land(&mut pieces, chunks), Ok(counting));
        }
    }

    #[test]
    fn a_source_that_ends_or_fails_early_is_told_so() {
        /// Gives what nobody lent it.
        struct Liar;

        impl DataSource for Liar {
            fn next(&mut self, _: usize) -> Result<Bytes, AbortCode> {
                unreachable!()
            }

            fn fill(&mut self, _: &mut VecDeque<Room>) -> Result<Room, AbortCode> {
                Ok(Room::default())
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
