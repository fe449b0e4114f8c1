//! The interface through which file data is stored: immutable, checksummed, compressed chunks.

use crate::digest::{Digest, digest};
use crate::{CacheStatistics, EncodedChunk, MetaStore, SegmentAudit, StoreError};
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How a chunk's bytes are encoded on disk. A chunk that does not shrink is stored raw whatever was
/// asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// As they are.
    Raw,
    /// LZ4 block format.
    #[default]
    Lz4,
    /// Zstandard at this level.
    Zstd(i8),
}

/// The levels of Zstandard that can be asked for by name.
pub const ZSTD_LEVELS: std::ops::RangeInclusive<i8> = 1..=19;

/// What is not the name of a codec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no compression; valid are `raw`, `lz4` and `zstd:1` to `zstd:19`")]
pub struct CodecError(String);

impl fmt::Display for Codec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Raw => out.pad("raw"),
            Codec::Lz4 => out.pad("lz4"),
            Codec::Zstd(level) => out.pad(&format!("zstd:{level}")),
        }
    }
}

impl FromStr for Codec {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<Codec, CodecError> {
        let level = |digits: &str| digits.parse().ok().filter(|level| ZSTD_LEVELS.contains(level));
        match text.split_once(':') {
            None if text == "raw" => Ok(Codec::Raw),
            None if text == "lz4" => Ok(Codec::Lz4),
            Some(("zstd", digits)) => {
                level(digits).map(Codec::Zstd).ok_or_else(|| CodecError(text.to_owned()))
            }
            _ => Err(CodecError(text.to_owned())),
        }
    }
}

/// Where a chunk lies. 20 bytes when stored: segment u64, offset u64, stored length u32, all
/// big-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkAddress {
    /// Segment file; never reused.
    pub segment: u64,
    /// Offset of the chunk's header in bytes.
    pub offset: u64,
    /// Length of header and stored bytes together.
    pub stored_bytes: u32,
}

impl ChunkAddress {
    /// The stored form.
    pub fn to_bytes(self) -> [u8; 20] {
        let mut out = [0; 20];
        out[..8].copy_from_slice(&self.segment.to_be_bytes());
        out[8..16].copy_from_slice(&self.offset.to_be_bytes());
        out[16..].copy_from_slice(&self.stored_bytes.to_be_bytes());
        out
    }

    /// From the stored form; `None` unless exactly 20 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<ChunkAddress> {
        let bytes: &[u8; 20] = bytes.try_into().ok()?;
        Some(ChunkAddress {
            segment: u64::from_be_bytes(bytes[..8].try_into().ok()?),
            offset: u64::from_be_bytes(bytes[8..16].try_into().ok()?),
            stored_bytes: u32::from_be_bytes(bytes[16..].try_into().ok()?),
        })
    }
}

/// Under which key metadata was to name a chunk when it was appended, without what tells versions
/// apart: opaque here, stored beside the chunk. It finds the record that names a chunk without a
/// search; whether that record still does is another question. All zeros: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkOwner(pub [u8; 24]);

impl ChunkOwner {
    /// No record has this key, and none will: the owner of what fills the room between two chunks.
    pub const NOBODY: ChunkOwner = ChunkOwner([0xff; 24]);

    /// Whether it says anything.
    pub fn is_known(self) -> bool {
        self != ChunkOwner::default()
    }
}

/// How much of a segment is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// The segment.
    pub segment: u64,
    /// Bytes of all its records.
    pub bytes: u64,
    /// Of these, bytes that are known to be dead.
    pub dead: u64,
}

impl SegmentUse {
    /// Bytes that may be live.
    pub fn live(&self) -> u64 {
        self.bytes.saturating_sub(self.dead)
    }
}

/// A part of the records of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentRecords {
    /// Chunks with their owners. The owner of a chunk that several records may name is left unknown.
    pub found: Vec<(ChunkAddress, ChunkOwner)>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
    /// The end is a place that cannot be read, and records may lie behind it.
    pub is_cut: bool,
}

/// Largest chunk in bytes before encoding.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// An append-only store of chunks.
pub trait ChunkStore: Send + Sync {
    /// Appends chunks in one write as far as it can, which costs less than as many writes: all of them, or none.
    /// Answers their places in the order given. Readable at once, durable after [`ChunkStore::sync`].
    fn append_all(&self, chunks: Vec<EncodedChunk>) -> Result<Vec<ChunkAddress>, StoreError>;

    /// Appends one chunk, given in pieces; at most 1 MiB in all.
    fn append_for(
        &self,
        owner: ChunkOwner,
        pieces: &[Bytes],
        codec: Codec,
    ) -> Result<ChunkAddress, StoreError> {
        self.append_one(EncodedChunk::new(owner, pieces, codec)?)
    }

    /// Appends one chunk.
    fn append_one(&self, chunk: EncodedChunk) -> Result<ChunkAddress, StoreError> {
        let addresses = self.append_all(vec![chunk])?;
        // As many as chunks.
        addresses.first().copied().ok_or(StoreError::Full)
    }

    /// [`ChunkStore::append_for`] for a chunk of which nobody knows yet who will name it.
    fn append(&self, pieces: &[Bytes], codec: Codec) -> Result<ChunkAddress, StoreError> {
        self.append_for(ChunkOwner::default(), pieces, codec)
    }

    /// What tells a chunk with these contents from all others of this store.
    fn digest(&self, pieces: &[&[u8]]) -> Digest {
        digest(None, pieces)
    }

    /// Notes durably that metadata is about to have records that programs of before chunks were shared
    /// cannot read. Call it before the first of them is committed; costs nothing from then on.
    ///
    /// # Errors
    /// `Io`; nothing of that kind must be committed then.
    fn begin_sharing(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The chunk's bytes, decoded and verified; shared with the cache, so cheap to slice.
    fn read(&self, address: ChunkAddress) -> Result<Bytes, StoreError>;

    /// The same, remembering for whom: [`ChunkStore::forget_owner`] throws out what was read for one.
    fn read_for(&self, _owner: u64, address: ChunkAddress) -> Result<Bytes, StoreError> {
        self.read(address)
    }

    /// Whether reading this chunk costs neither a read of the medium nor decoding.
    fn is_at_hand(&self, _address: ChunkAddress) -> bool {
        true
    }

    /// Throws chunks out of memory that were read for this owner, and tells how many. Costs no more
    /// than these.
    fn forget_owner(&self, _owner: u64) -> usize {
        0
    }

    /// What the chunks in memory are and did.
    fn cache_statistics(&self) -> CacheStatistics {
        CacheStatistics::default()
    }

    /// The segments as they lie on the disk now, with their accounts as they are in `state`, a snapshot
    /// taken before; `None` if there are no files. For checks while chunks are written and given
    /// back.
    ///
    /// # Errors
    /// What the disk or the metadata says.
    fn audit(&self, _state: &dyn MetaStore) -> Result<Option<SegmentAudit>, StoreError> {
        Ok(None)
    }

    /// Waits until everything appended before the call is durable. Concurrent callers share one
    /// sync.
    fn sync(&self) -> Result<(), StoreError>;

    /// Encrypts contents that lie in metadata and not in a chunk; `None` where nothing is encrypted.
    /// `context` is what they are bound to.
    ///
    /// # Errors
    /// `Key`.
    fn seal(&self, _context: &[u8], _contents: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    /// The opposite of [`ChunkStore::seal`], with the same context.
    ///
    /// # Errors
    /// What is wrong with them.
    fn unseal(&self, _context: &[u8], _sealed: &[u8]) -> Result<Bytes, String> {
        Err("encrypted, and no key is given".into())
    }

    /// Reads a chunk from the medium, past the cache, and verifies it.
    ///
    /// # Errors
    /// `Damaged` saying where and what; `Io`.
    fn verify(&self, address: ChunkAddress) -> Result<(), StoreError>;

    /// Appends a copy of a chunk as it is stored, whatever its codec, once its checksum was found
    /// right. `owner` is noted where the chunk itself does not tell one. May use room that is kept
    /// from new data, since a copy is made to get room back.
    ///
    /// # Errors
    /// `Damaged`; `Full`, `Io`, `ReadOnly`.
    fn copy(&self, address: ChunkAddress, owner: ChunkOwner) -> Result<ChunkAddress, StoreError>;

    /// Segments of which nothing more is written and at least `dead_percent` of a hundred parts is
    /// dead, but not all: the deadest first.
    fn sparse_segments(&self, dead_percent: u8) -> Vec<SegmentUse>;

    /// Bytes of segments of which all is dead: they are about to be given back.
    fn doomed_bytes(&self) -> u64;

    /// The next at most `most` records of a segment, dead or not. Begin with `from` 0.
    ///
    /// # Errors
    /// `Io`; `Damaged` if there is no such segment.
    fn records(&self, segment: u64, from: u64, most: usize) -> Result<SegmentRecords, StoreError>;

    /// Tells that no metadata names this chunk any more, so that its space can be reclaimed. Call
    /// it only after the commit that removed the last reference is durable.
    fn release(&self, address: ChunkAddress);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_known_by_name() {
        for codec in [Codec::Raw, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(19)] {
            assert_eq!(codec.to_string().parse(), Ok(codec));
        }
        for text in ["", "gzip", "LZ4", "raw:1", "zstd", "zstd:", "zstd:0", "zstd:20", "zstd:-1", "zstd:999"]
        {
            assert!(text.parse::<Codec>().unwrap_err().to_string().contains("zstd:19"), "{text}");
        }
    }
}
