//! A chunk as it is going to be stored, apart from any store.

use super::codec::{self, Encoded};
use super::record::RECORD_BYTES;
use crate::{ChunkOwner, Codec, StoreError};
use bytes::Bytes;

/// A chunk that is joined, compressed and checksummed: best as soon as its last byte is there, while all of them are in
/// the processor's caches. [`ChunkStore::append_all`](crate::ChunkStore::append_all) stores it.
pub struct EncodedChunk(pub(super) Encoded);

impl EncodedChunk {
    /// Of contents in pieces; at most 1 MiB in all. `owner` is who will name it.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn new(owner: ChunkOwner, pieces: &[Bytes], codec: Codec) -> Result<EncodedChunk, StoreError> {
        let mut encoded = codec::encode(pieces, codec)?;
        encoded.record.owner = owner;
        Ok(EncodedChunk(encoded))
    }

    /// Who will name it.
    pub fn owner(&self) -> ChunkOwner {
        self.0.record.owner
    }

    /// Length of its contents.
    pub fn raw_bytes(&self) -> usize {
        self.0.record.raw_bytes as usize
    }

    /// What it would take in a segment, with its header.
    pub fn disk_bytes(&self) -> u64 {
        RECORD_BYTES as u64 + u64::from(self.0.record.stored_bytes)
    }

    /// The chunk again.
    ///
    /// # Errors
    /// What is wrong with it; impossible unless memory or a compressor fails.
    pub fn decode(&self) -> Result<Bytes, String> {
        codec::decode(&self.0.record, self.0.stored.bytes(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_chunk_tells_what_it_takes_and_what_it_is() {
        let chunk = Bytes::from(vec![7; 100_000]);
        let (owner, pieces) = (ChunkOwner([3; 24]), [chunk.slice(..9000), chunk.slice(9000..)]);
        for (codec, most) in [(Codec::Raw, 100_064), (Codec::Lz4, 2000), (Codec::Zstd(3), 200)] {
            let encoded = EncodedChunk::new(owner, &pieces, codec).unwrap();
            assert_eq!((encoded.owner(), encoded.raw_bytes()), (owner, 100_000));
            assert!(encoded.disk_bytes() <= most, "{codec}: {}", encoded.disk_bytes());
            assert_eq!(encoded.decode().unwrap(), chunk);
        }
    }
}
