//! A chunk in the form in which it will be stored, independent of any store.

use super::codec::{self, Encoded};
use super::frame::Frame;
use super::record::RECORD_BYTES;
use crate::{ChunkOwner, Codec, StoreError};
use base::RecvBuffer;
use bytes::Bytes;

/// A chunk that is joined, compressed and checksummed, ideally as soon as its last byte has arrived and while
/// all of it is in the processor's caches. [`ChunkStore::append_all`](crate::ChunkStore::append_all) stores
/// it.
pub struct EncodedChunk(pub(super) Encoded);

/// The contents of a chunk in a buffer they can be written from if they do not shrink.
pub struct RawChunk(Frame);

impl RawChunk {
    /// Returns a buffer to fill with a chunk of `bytes` bytes.
    pub fn room(bytes: usize) -> RecvBuffer {
        Frame::room(bytes)
    }

    /// Takes the chunk from a filled buffer.
    pub fn from_filled(room: RecvBuffer) -> RawChunk {
        RawChunk(Frame::from_filled(room))
    }

    /// Encodes the chunk; `owner` is the key that will reference it.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn encode(self, owner: ChunkOwner, codec: Codec) -> Result<EncodedChunk, StoreError> {
        codec::encode_framed(self.0, codec).map(|encoded| EncodedChunk::of(owner, encoded))
    }
}

impl AsRef<[u8]> for RawChunk {
    fn as_ref(&self) -> &[u8] {
        self.0.stored()
    }
}

impl EncodedChunk {
    /// Encodes contents given in pieces, at most 1 MiB in total; `owner` is the key that will reference them.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn new(owner: ChunkOwner, pieces: &[Bytes], codec: Codec) -> Result<EncodedChunk, StoreError> {
        codec::encode(pieces, codec).map(|encoded| EncodedChunk::of(owner, encoded))
    }

    fn of(owner: ChunkOwner, mut encoded: Encoded) -> EncodedChunk {
        encoded.record.owner = owner;
        EncodedChunk(encoded)
    }

    /// Returns the owner.
    pub fn owner(&self) -> ChunkOwner {
        self.0.record.owner
    }

    /// Returns the length of its contents.
    pub fn raw_bytes(&self) -> usize {
        self.0.record.raw_bytes as usize
    }

    /// Returns the bytes it takes in a segment, header included.
    pub fn disk_bytes(&self) -> u64 {
        RECORD_BYTES as u64 + u64::from(self.0.record.stored_bytes)
    }

    /// Decodes the chunk.
    ///
    /// # Errors
    /// A description of what is wrong with it; impossible unless memory or a compressor fails.
    pub fn decode(&self) -> Result<Bytes, String> {
        codec::decode(&self.0.record, self.0.stored.bytes(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_chunk_knows_its_size_and_kind() {
        let chunk = Bytes::from(vec![7; 100_000]);
        let (owner, pieces) = (ChunkOwner([3; 24]), [chunk.slice(..9000), chunk.slice(9000..)]);
        for (codec, most) in [(Codec::Raw, 100_064), (Codec::Lz4, 2000), (Codec::Zstd(3), 200)] {
            let encoded = EncodedChunk::new(owner, &pieces, codec).unwrap();
            assert_eq!((encoded.owner(), encoded.raw_bytes()), (owner, 100_000));
            assert!(encoded.disk_bytes() <= most, "{codec}: {}", encoded.disk_bytes());
            assert_eq!(encoded.decode().unwrap(), chunk);
        }
    }

    #[test]
    fn a_filled_buffer_is_a_chunk() {
        let contents: Vec<u8> = (0..9000u32).map(|n| ((n * n) >> 7) as u8).collect();
        let strange = [RecvBuffer::new(vec![0; 9000], 0..9000), RecvBuffer::new(vec![0; 20_000], 600..9600)];
        for room in strange.into_iter().chain([0, 4032, 8192, 8999, 9000].map(RawChunk::room)) {
            let mut room = room;
            let length = room.left();
            assert_eq!(room.put(&contents), length);
            let raw = RawChunk::from_filled(room);
            assert_eq!(raw.as_ref(), &contents[..length]);
            let encoded = raw.encode(ChunkOwner([3; 24]), Codec::Raw).unwrap();
            assert_eq!((encoded.owner(), encoded.raw_bytes()), (ChunkOwner([3; 24]), length));
            assert_eq!(encoded.decode().unwrap(), contents[..length]);
        }
        let mut half = RawChunk::room(9000);
        half.put(&contents[..10]);
        assert_eq!(RawChunk::from_filled(half).as_ref(), &contents[..10]);
        let mut long = RawChunk::room((1 << 20) + 1);
        long.put(&vec![0; (1 << 20) + 1]);
        assert!(RawChunk::from_filled(long).encode(ChunkOwner::default(), Codec::Raw).is_err());
    }
}
