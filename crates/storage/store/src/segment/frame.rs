//! A record assembled in memory, so that it can be written with direct I/O.

use super::pool::Buffer;
use super::record::{RECORD_BYTES, Record, crc32c};
use crate::ChunkOwner;
use base::RecvBuffer;
use disk::DIRECT_ALIGNMENT;

const ALIGNMENT: u64 = DIRECT_ALIGNMENT as u64;

/// Maximum size of a filler: a gap smaller than a header cannot hold one, so it is extended by a block.
const FILLER_BYTES_MAX: usize = DIRECT_ALIGNMENT + RECORD_BYTES;

/// Returns the gap after a record of `record_bytes` bytes, header included, up to where the next record can
/// start at a multiple of [`DIRECT_ALIGNMENT`], if this one does.
pub(super) fn filler_bytes(record_bytes: u32) -> u32 {
    let gap = u64::from(record_bytes).next_multiple_of(ALIGNMENT) - u64::from(record_bytes);
    let gap = if gap == 0 || gap >= RECORD_BYTES as u64 { gap } else { gap + ALIGNMENT };
    gap as u32
}

/// Fills the gap between two records with a record that no metadata references.
pub(super) fn fill(room: &mut [u8], segment: u64, offset: u64) {
    let Some((header, rest)) = room.split_first_chunk_mut::<RECORD_BYTES>() else { return };
    rest.fill(0);
    let (bytes, owner) = (rest.len() as u32, ChunkOwner::NOBODY);
    let filler = Record {
        raw_bytes: bytes,
        stored_bytes: bytes,
        stored_crc: crc32c(rest),
        owner,
        ..Record::default()
    };
    *header = filler.build(segment, offset);
}

/// The stored bytes of a chunk, with space for its header before them and for a filler after them.
pub(super) struct Frame {
    buffer: Buffer,
    stored_bytes: usize,
    /// Length of the finished record, filler included.
    whole_bytes: usize,
}

impl Frame {
    /// Creates a frame for `stored_bytes` bytes, with arbitrary initial contents.
    pub(super) fn of(stored_bytes: usize) -> Frame {
        Frame {
            buffer: Buffer::of(RECORD_BYTES + stored_bytes + FILLER_BYTES_MAX),
            stored_bytes,
            whole_bytes: 0,
        }
    }

    /// Returns a buffer for `stored_bytes` bytes; [`Frame::landed`] turns it into a frame.
    pub(super) fn room(stored_bytes: usize) -> RecvBuffer {
        let (memory, start) = Frame::of(stored_bytes).buffer.into_memory();
        RecvBuffer::new(memory, start + RECORD_BYTES..start + RECORD_BYTES + stored_bytes)
    }

    /// Creates a frame from a filled buffer. One that [`Frame::room`] did not create is copied.
    pub(super) fn from_filled(room: RecvBuffer) -> Frame {
        let (memory, filled) = room.into_parts();
        let (stored_bytes, whole_bytes) = (filled.len(), 0);
        let buffer = Buffer::whole(memory);
        if buffer.place_in_memory() + RECORD_BYTES == filled.start
            && buffer.len() >= RECORD_BYTES + stored_bytes + FILLER_BYTES_MAX
        {
            return Frame { buffer, stored_bytes, whole_bytes };
        }
        let (memory, _) = buffer.into_memory();
        Frame::joining(&[&memory[filled]], stored_bytes)
    }

    /// Creates a frame with the concatenation of these pieces.
    pub(super) fn joining<T: AsRef<[u8]>>(pieces: &[T], stored_bytes: usize) -> Frame {
        let mut frame = Frame::of(stored_bytes);
        let mut rest = frame.stored_mut();
        for piece in pieces {
            let piece = piece.as_ref();
            let (here, behind) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = behind;
        }
        frame
    }

    pub(super) fn stored(&self) -> &[u8] {
        &self.buffer[RECORD_BYTES..][..self.stored_bytes]
    }

    pub(super) fn stored_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[RECORD_BYTES..][..self.stored_bytes]
    }

    /// Truncates the stored bytes.
    pub(super) fn shorten(&mut self, stored_bytes: usize) {
        self.stored_bytes = self.stored_bytes.min(stored_bytes);
    }

    /// Writes the header for this position and a filler of `filler_bytes` bytes.
    pub(super) fn finish(&mut self, record: &Record, segment: u64, offset: u64, filler_bytes: u32) {
        self.buffer[..RECORD_BYTES].copy_from_slice(&record.build(segment, offset));
        let end = RECORD_BYTES + self.stored_bytes;
        let filler = &mut self.buffer[end..][..filler_bytes as usize];
        fill(filler, segment, offset + end as u64);
        self.whole_bytes = end + filler_bytes as usize;
    }

    /// Returns header, stored bytes and filler. Call [`Frame::finish`] first.
    pub(super) fn whole(&self) -> &[u8] {
        &self.buffer[..self.whole_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_frame_the_next_can_begin() {
        for stored_bytes in [0, 1, 3900, 3967, 3968, 4031, 4032, 4033, 100_000] {
            let bytes = vec![7; stored_bytes];
            let mut frame =
                Frame::joining(&[&bytes[..stored_bytes / 3], &bytes[stored_bytes / 3..]], stored_bytes);
            let record_bytes = (RECORD_BYTES + stored_bytes) as u32;
            let filler_bytes = filler_bytes(record_bytes);
            let length = stored_bytes as u32;
            let record = Record {
                raw_bytes: length,
                stored_bytes: length,
                owner: ChunkOwner([5; 24]),
                ..Record::default()
            };
            frame.finish(&record, 9, 8192, filler_bytes);
            let whole = frame.whole();
            assert!(
                whole.len().is_multiple_of(DIRECT_ALIGNMENT)
                    && whole.as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT)
            );
            assert_eq!(Record::parse(whole, 9, 8192), Ok(record));
            assert_eq!(whole[RECORD_BYTES..][..stored_bytes], bytes);
            let behind = &whole[record_bytes as usize..];
            if behind.is_empty() {
                continue;
            }
            let filler = Record::parse(behind, 9, 8192 + u64::from(record_bytes)).unwrap();
            assert_eq!(
                (filler.owner, filler.stored_bytes as usize),
                (ChunkOwner::NOBODY, behind.len() - RECORD_BYTES)
            );
            assert_eq!(filler.stored_crc, crc32c(&behind[RECORD_BYTES..]));
        }
    }

    #[test]
    fn shortened_frames_end_at_the_new_length() {
        let mut frame = Frame::joining(&[[3; 9000]], 9000);
        frame.shorten(5);
        frame.shorten(10);
        assert_eq!(frame.stored(), [3; 5]);
        let record = Record { raw_bytes: 5, stored_bytes: 5, ..Record::default() };
        frame.finish(&record, 1, 0, 0);
        assert_eq!(frame.whole().len(), RECORD_BYTES + 5);
    }
}
