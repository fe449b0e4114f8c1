//! What a chunk would take, without storing it.

use super::codec::{self, Encoded};
use super::record::RECORD_BYTES;
use crate::Codec;
use bytes::Bytes;

/// A chunk encoded as the store would.
pub struct EncodedChunk(Encoded);

impl EncodedChunk {
    /// `None` if it is longer than a chunk may be.
    pub fn new(chunk: &Bytes, codec: Codec) -> Option<EncodedChunk> {
        codec::encode(std::slice::from_ref(chunk), codec).map(EncodedChunk)
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
        match self.0.stored.slices().as_slice() {
            [one] => codec::decode(&self.0.record, one, None),
            many => codec::decode(&self.0.record, &many.concat(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_tells_what_the_record_takes() {
        let chunk = Bytes::from(vec![7; 100_000]);
        for (codec, most) in [(Codec::Raw, 100_064), (Codec::Lz4, 2000), (Codec::Zstd(3), 200)] {
            let encoded = EncodedChunk::new(&chunk, codec).unwrap();
            assert!(encoded.disk_bytes() <= most, "{codec}: {}", encoded.disk_bytes());
            assert_eq!(encoded.decode().unwrap(), chunk);
        }
    }
}
