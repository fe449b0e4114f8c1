//! The interface for file data: immutable, checksummed, compressed chunks.

use crate::digest::{Digest, digest};
use crate::{
    Borrower, CacheStatistics, DiskCacheStatistics, EncodedChunk, Import, LentObjects, Loan, MetaStore,
    ObjectTerms, SegmentAudit, StoreError,
};
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Encoding of a chunk's bytes on disk. A chunk that compression does not shrink is stored raw in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Not compressed.
    Raw,
    /// LZ4 block format.
    #[default]
    Lz4,
    /// Zstandard at this level.
    Zstd(i8),
}

/// Zstandard levels that can be selected by name.
pub const ZSTD_LEVELS: std::ops::RangeInclusive<i8> = 1..=19;

/// The text is not the name of a codec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a compression; valid are `raw`, `lz4` and `zstd:1` to `zstd:19`")]
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

/// Location of a chunk. Stored in 20 bytes: segment u64, offset u64, stored length u32, all big-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkAddress {
    /// Segment id; never reused.
    pub segment: u64,
    /// Offset of the chunk's header in bytes.
    pub offset: u64,
    /// Length of header and stored bytes together.
    pub stored_bytes: u32,
}

/// How a chunk of one partition is known to another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkPlace {
    /// The chunk's address in its partition.
    pub address: ChunkAddress,
    /// The segment id in the chunk's record: that of the address, or another one if the segment is a copy of another
    /// partition's.
    pub origin: u64,
}

impl ChunkAddress {
    /// Encodes the stored form.
    pub fn to_bytes(self) -> [u8; 20] {
        let mut out = [0; 20];
        out[..8].copy_from_slice(&self.segment.to_be_bytes());
        out[8..16].copy_from_slice(&self.offset.to_be_bytes());
        out[16..].copy_from_slice(&self.stored_bytes.to_be_bytes());
        out
    }

    /// Decodes the stored form; `None` unless it has exactly 20 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<ChunkAddress> {
        let bytes: &[u8; 20] = bytes.try_into().ok()?;
        Some(ChunkAddress {
            segment: u64::from_be_bytes(bytes[..8].try_into().ok()?),
            offset: u64::from_be_bytes(bytes[8..16].try_into().ok()?),
            stored_bytes: u32::from_be_bytes(bytes[16..].try_into().ok()?),
        })
    }
}

/// The key, without its version part, under which metadata was to reference a chunk when the chunk was
/// appended. It is opaque here and stored next to the chunk. It leads to the record that references a chunk
/// without a search; whether that record still does has to be checked. All zeros: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkOwner(pub [u8; 24]);

impl ChunkOwner {
    /// The owner of a filler between two chunks. No record has this key or ever will.
    pub const NOBODY: ChunkOwner = ChunkOwner([0xff; 24]);

    /// Returns the owner of another chunk of the same file, given that of its first one: keys of a file's chunks end with the number
    /// of the chunk.
    #[must_use]
    pub fn at(mut self, number: u64) -> ChunkOwner {
        self.0[16..].copy_from_slice(&number.to_be_bytes());
        self
    }

    /// Whether the owner is known.
    pub fn is_known(self) -> bool {
        self != ChunkOwner::default()
    }
}

/// How much of a segment is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Segment id.
    pub segment: u64,
    /// Bytes of all its records.
    pub bytes: u64,
    /// Bytes of these that are known to be dead.
    pub dead: u64,
}

impl SegmentUse {
    /// Returns the bytes that may be live.
    pub fn live(&self) -> u64 {
        self.bytes.saturating_sub(self.dead)
    }
}

/// One page of a segment's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentRecords {
    /// Chunks with their owners. The owner of a chunk that several records may reference is unknown.
    pub found: Vec<(ChunkAddress, ChunkOwner)>,
    /// Offset to continue from; `None` at the end.
    pub next: Option<u64>,
    /// Whether the listing ended at an unreadable position, so that records may follow it.
    pub is_cut: bool,
}

/// Maximum size of a chunk in bytes before encoding.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// An append-only store of chunks.
pub trait ChunkStore: Send + Sync {
    /// Appends all chunks or none, with as few writes as possible, which costs less than separate appends.
    /// Returns their addresses in the order given. The chunks are readable immediately and durable after
    /// [`ChunkStore::sync`].
    fn append_all(&self, chunks: Vec<EncodedChunk>) -> Result<Vec<ChunkAddress>, StoreError>;

    /// Appends one chunk given in pieces, at most 1 MiB in total.
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
        // There is one address per chunk.
        addresses.first().copied().ok_or(StoreError::Full)
    }

    /// [`ChunkStore::append_for`] for a chunk whose owner is not known yet.
    fn append(&self, pieces: &[Bytes], codec: Codec) -> Result<ChunkAddress, StoreError> {
        self.append_for(ChunkOwner::default(), pieces, codec)
    }

    /// Returns a digest that distinguishes these contents from all others in this store.
    fn digest(&self, pieces: &[&[u8]]) -> Digest {
        digest(None, pieces)
    }

    /// Durably records that metadata is about to have records that programs without support for shared chunks
    /// cannot read. Call it before the first of them is committed; later calls cost nothing.
    ///
    /// # Errors
    /// `Io`; no such record may be committed then.
    fn begin_sharing(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the chunk's bytes, decoded and verified. They are shared with the cache, so slicing is cheap.
    fn read(&self, address: ChunkAddress) -> Result<Bytes, StoreError>;

    /// [`ChunkStore::read`] on behalf of an owner, so that [`ChunkStore::forget_owner`] can evict the chunk.
    fn read_for(&self, _owner: u64, address: ChunkAddress) -> Result<Bytes, StoreError> {
        self.read(address)
    }

    /// Whether reading this chunk requires neither a disk read nor decoding.
    fn is_at_hand(&self, _address: ChunkAddress) -> bool {
        true
    }

    /// Returns where other processes can read this chunk in the bucket, if they can: the identity of the partition whose object
    /// contains it, and its place there.
    fn shared_at(&self, _address: ChunkAddress) -> Option<([u8; 16], ChunkPlace)> {
        None
    }

    /// Evicts the chunks in memory that were read for this owner and returns their number. The cost is
    /// proportional to that number.
    fn forget_owner(&self, _owner: u64) -> usize {
        0
    }

    /// Returns the statistics of the chunks in memory.
    fn cache_statistics(&self) -> CacheStatistics {
        CacheStatistics::default()
    }

    /// Returns the segments as they are on disk now, with their accounts as of `state`, a snapshot taken
    /// earlier; `None` if there are no files. For checks while chunks are written and released.
    ///
    /// # Errors
    /// Errors of the disk or the metadata.
    fn audit(&self, _state: &dyn MetaStore) -> Result<Option<SegmentAudit>, StoreError> {
        Ok(None)
    }

    /// Waits until everything appended before the call is durable. Concurrent callers share one sync.
    fn sync(&self) -> Result<(), StoreError>;

    /// Encrypts contents that are stored in metadata instead of a chunk; `None` if the partition is not
    /// encrypted. `context` is authenticated with them.
    ///
    /// # Errors
    /// `Key`.
    fn seal(&self, _context: &[u8], _contents: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    /// Reverses [`ChunkStore::seal`], given the same context.
    ///
    /// # Errors
    /// A description of what is wrong with the sealed contents.
    fn unseal(&self, _context: &[u8], _sealed: &[u8]) -> Result<Bytes, String> {
        Err("encrypted, but no key is given".into())
    }

    /// Reads a chunk from the disk, bypassing the cache, and verifies it.
    ///
    /// # Errors
    /// `Damaged` with the location and the failed check; `Io`.
    fn verify(&self, address: ChunkAddress) -> Result<(), StoreError>;

    /// Verifies a chunk's checksum and appends a copy of it as it is stored, whatever its codec. `owner` is
    /// recorded if the chunk itself has none. May use space reserved from new data, since copies are made to
    /// reclaim space.
    ///
    /// # Errors
    /// `Damaged`; `Full`, `Io`, `ReadOnly`.
    fn copy(&self, address: ChunkAddress, owner: ChunkOwner) -> Result<ChunkAddress, StoreError>;

    /// Returns sealed segments of which at least `dead_percent` percent is dead, but not all: those with the
    /// largest dead share first.
    fn sparse_segments(&self, dead_percent: u8) -> Vec<SegmentUse>;

    /// Returns sealed segments that are so small that one segment should have the live chunks of all of them; none if
    /// there are too few. Only stores whose segments cannot grow have such.
    fn small_segments(&self) -> Vec<SegmentUse> {
        Vec::new()
    }

    /// Returns the bytes of entirely dead segments, which are about to be freed.
    fn doomed_bytes(&self) -> u64;

    /// Returns at most `most` records of a segment, dead or not, starting at `from`. Start with 0.
    ///
    /// # Errors
    /// `Io`; `Damaged` if there is no such segment.
    fn records(&self, segment: u64, from: u64, most: usize) -> Result<SegmentRecords, StoreError>;

    /// Returns the identity of the partition if it is in a bucket where others can know it.
    fn identity(&self) -> Option<[u8; 16]> {
        None
    }

    /// Keeps the objects that contain chunks for another partition in the same bucket to borrow, until the result is dropped;
    /// `None` if there is no bucket, or the chunks are encrypted. Chunks that metadata references after this call may be
    /// taken over by [`ChunkStore::take_chunk`] of the other partition's store, until the result is dropped or, if
    /// [`ChunkStore::keep_lent`] has succeeded, [`ChunkStore::end_loan`] is called.
    fn lend(&self) -> Option<Loan> {
        None
    }

    /// Returns the place of a chunk for another partition that borrows its object. An object that is itself borrowed becomes this
    /// partition's own before.
    ///
    /// # Errors
    /// `Unavailable`, `Damaged`; errors of the metadata.
    fn lendable(&self, address: ChunkAddress) -> Result<ChunkPlace, StoreError> {
        Ok(ChunkPlace { address, origin: address.segment })
    }

    /// Records durably that these objects are lent: they are kept until [`ChunkStore::end_loan`] is called. The other
    /// partition may use them once this has returned.
    ///
    /// # Errors
    /// `Unavailable`, `Fenced`; errors of the metadata. The objects may be kept or not.
    fn keep_lent(&self, _loan: &Loan, _borrower: Borrower, _objects: &[u64]) -> Result<(), StoreError> {
        Err(StoreError::Meta("this partition is not in a bucket".into()))
    }

    /// Returns the objects that are lent, or only those that this partition keeps for nothing but their loan. Ask the borrower's
    /// [`ChunkStore::used_of_loan`] about them.
    fn lent(&self, _is_unneeded: bool) -> Vec<LentObjects> {
        Vec::new()
    }

    /// Returns the statistics of the copies of chunks on the local disk, if there are any.
    fn disk_cache_statistics(&self) -> Option<DiskCacheStatistics> {
        None
    }

    /// Returns the number of objects that are lent, and of those that are borrowed.
    fn loans(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Records that the borrower does not use these objects any more, and never will under this loan.
    ///
    /// # Errors
    /// `Unavailable`; errors of the metadata. They are returned by [`ChunkStore::lent`] again then.
    fn end_loan(&self, _loan: u64, _objects: &[u64]) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns those of these objects that this partition uses or may still take under a loan, which is named by the UUID of the lender
    /// and its number. The others are never used again under this loan. With `brings_home`, maintenance makes those in use this
    /// partition's own.
    ///
    /// # Errors
    /// `Unavailable`, `Fenced`; errors of the metadata. All of them may be in use.
    fn used_of_loan(
        &self,
        _of: ([u8; 16], u64),
        _objects: &[u64],
        _brings_home: bool,
    ) -> Result<Vec<u64>, StoreError> {
        Err(StoreError::Meta("this partition is not in a bucket".into()))
    }

    /// Starts to take over chunks of the partition with this UUID, whose objects in the same bucket have names that begin
    /// with `prefix`, under a loan of it.
    ///
    /// # Errors
    /// Why that is impossible: the partition is another one, a partition is encrypted or in no bucket. Chunks then have to be
    /// read and appended.
    fn import(&self, _prefix: &str, _partition: [u8; 16], _loan: u64) -> Result<Import, StoreError> {
        Err(StoreError::Meta("this partition is not in a bucket".into()))
    }

    /// Checks that the other partition has recorded that it keeps what was taken over. Call it before a commit takes metadata that
    /// refers to it into use.
    ///
    /// # Errors
    /// `Damaged` if it has not; `Unavailable`.
    fn check_import(&self, _import: &Import) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns how another process may create objects of this partition in the bucket; `None` if it may not: there is no bucket,
    /// or the chunks are encrypted.
    fn object_terms(&self) -> Option<ObjectTerms> {
        None
    }

    /// Reserves ids of objects that another process may create ([`NewObject`](crate::NewObject)) for a store that begins within ten
    /// minutes; none if that is impossible, or too many are reserved. Once such an object exists, its chunks can be taken
    /// ([`ChunkStore::take_chunk`]) with an [`Import::default`].
    ///
    /// # Errors
    /// `ReadOnly`; errors of the metadata.
    fn reserve_objects(&self, _count: usize) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    /// Keeps reserved ids for a store until they are [given up](ChunkStore::give_up_objects). Returns false, and does nothing, if
    /// one of them is not reserved, or is claimed.
    fn claim_objects(&self, ids: &[u64]) -> bool {
        ids.is_empty()
    }

    /// Releases claimed ids, except those from whose objects a chunk was taken. Objects of ids in `begun` may exist, and are removed.
    fn give_up_objects(&self, _ids: &[u64], _begun: &[u64]) {}

    /// Takes over a chunk by its place in the other partition, or in a reserved object, without reading it; returns its address here. The chunk is
    /// durable then, and its contents are checked only when it is read. Each can be taken once. [`ChunkStore::release`] it
    /// like one that was appended.
    ///
    /// # Errors
    /// `Damaged` if there cannot be such a chunk, `Full`, `Unavailable`; errors of the metadata.
    fn take_chunk(&self, _import: &mut Import, _chunk: ChunkPlace) -> Result<ChunkAddress, StoreError> {
        Err(StoreError::Meta("this partition is not in a bucket".into()))
    }

    /// Ends an import: what was not taken of the objects can be reclaimed.
    fn end_import(&self, _import: Import) {}

    /// Reports that no metadata references this chunk any more, so that its space can be reclaimed. Call it
    /// only after the commit that removed the last reference is durable.
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
