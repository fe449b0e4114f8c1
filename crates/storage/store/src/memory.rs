//! File data in memory, for tests and simulators.

use crate::digest::{Digest, digest};
use crate::{
    ChunkAddress, ChunkOwner, ChunkStore, EncodedChunk, KeyRing, SegmentRecords, SegmentUse, StoreError,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Number of chunks per segment of [`MemoryChunks`].
const SEGMENT_CHUNKS: u64 = 6;

/// A [`ChunkStore`] in memory. A segment is full after six chunks. Every third chunk has an unknown owner, as
/// in segments of version 1.
#[derive(Default)]
pub struct MemoryChunks {
    state: Mutex<ChunkState>,
    keys: Option<KeyRing>,
    has_colliding_digests: bool,
}

#[derive(Default)]
struct ChunkState {
    appended: u64,
    next_offset: u64,
    chunks: BTreeMap<ChunkAddress, (ChunkOwner, Bytes)>,
    /// For each segment, bytes appended and bytes released.
    segments: BTreeMap<u64, (u64, u64)>,
    damaged: BTreeSet<ChunkAddress>,
}

impl ChunkState {
    fn segment(&self) -> u64 {
        1 + self.appended / SEGMENT_CHUNKS
    }

    fn append(&mut self, owner: ChunkOwner, data: Bytes) -> ChunkAddress {
        // One more than the data, so that no two chunks have the same address.
        let stored_bytes = data.len() as u32 + 1;
        let address = ChunkAddress { segment: self.segment(), offset: self.next_offset, stored_bytes };
        self.next_offset += u64::from(stored_bytes);
        self.segments.entry(address.segment).or_default().0 += u64::from(stored_bytes);
        let owner = if self.appended.is_multiple_of(3) { ChunkOwner::default() } else { owner };
        self.appended += 1;
        self.chunks.insert(address, (owner, data));
        address
    }

    fn get(&self, address: ChunkAddress) -> Result<&(ChunkOwner, Bytes), StoreError> {
        let found = self.chunks.get(&address).filter(|_| !self.damaged.contains(&address));
        found.ok_or_else(|| StoreError::Damaged {
            place: format!("segment {} offset {}", address.segment, address.offset),
            what: "no chunk there".into(),
        })
    }
}

impl MemoryChunks {
    /// Creates an empty store.
    pub fn new() -> MemoryChunks {
        MemoryChunks::default()
    }

    /// Creates an empty store on an encrypted partition. Only contents in metadata are encrypted; chunks are
    /// kept in memory unencrypted.
    pub fn encrypted() -> MemoryChunks {
        MemoryChunks { keys: Some(KeyRing::random()), ..MemoryChunks::default() }
    }

    /// Makes digests collide: their first half takes only four values.
    #[must_use]
    pub fn with_colliding_digests(self) -> MemoryChunks {
        MemoryChunks { has_colliding_digests: true, ..self }
    }

    /// Returns the number of chunks appended and not released.
    pub fn live_chunks(&self) -> usize {
        self.state.lock().chunks.len()
    }

    /// Marks this chunk as damaged.
    pub fn damage(&self, address: ChunkAddress) {
        self.state.lock().damaged.insert(address);
    }
}

impl ChunkStore for MemoryChunks {
    fn append_all(&self, chunks: Vec<EncodedChunk>) -> Result<Vec<ChunkAddress>, StoreError> {
        let decode = |chunk: &EncodedChunk| {
            let damaged = |what| StoreError::Damaged { place: "a new chunk".into(), what };
            Ok((chunk.owner(), chunk.decode().map_err(damaged)?))
        };
        let decoded: Vec<_> = chunks.iter().map(decode).collect::<Result<_, StoreError>>()?;
        let mut state = self.state.lock();
        Ok(decoded.into_iter().map(|(owner, data)| state.append(owner, data)).collect())
    }

    fn digest(&self, pieces: &[&[u8]]) -> Digest {
        let mut digest = digest(self.keys.as_ref().map(KeyRing::digest_key), pieces);
        if self.has_colliding_digests {
            digest[1..16].fill(0);
            digest[0] %= 4;
        }
        digest
    }

    fn read(&self, address: ChunkAddress) -> Result<Bytes, StoreError> {
        self.state.lock().get(address).map(|(_, data)| data.clone())
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn seal(&self, context: &[u8], contents: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.keys.as_ref().map(|keys| keys.seal_value(context, contents)).transpose()
    }

    fn unseal(&self, context: &[u8], sealed: &[u8]) -> Result<Bytes, String> {
        self.keys.as_ref().ok_or("no key")?.unseal_value(context, sealed)
    }

    fn verify(&self, address: ChunkAddress) -> Result<(), StoreError> {
        self.read(address).map(|_| ())
    }

    fn copy(&self, address: ChunkAddress, owner: ChunkOwner) -> Result<ChunkAddress, StoreError> {
        let mut state = self.state.lock();
        let data = state.get(address)?.1.clone();
        Ok(state.append(owner, data))
    }

    fn sparse_segments(&self, dead_percent: u8) -> Vec<SegmentUse> {
        let state = self.state.lock();
        let sealed = state.segments.range(..state.segment());
        let uses = sealed.map(|(&segment, &(bytes, dead))| SegmentUse { segment, bytes, dead });
        uses.filter(|used| used.live() > 0 && used.dead * 100 >= used.bytes * u64::from(dead_percent))
            .collect()
    }

    fn doomed_bytes(&self) -> u64 {
        0
    }

    fn records(&self, segment: u64, from: u64, most: usize) -> Result<SegmentRecords, StoreError> {
        let state = self.state.lock();
        let from = ChunkAddress { segment, offset: from, stored_bytes: 0 };
        let to = ChunkAddress { segment: segment + 1, ..ChunkAddress::default() };
        let mut chunks = state.chunks.range(from..to).map(|(address, (owner, _))| (*address, *owner));
        let found: Vec<_> = chunks.by_ref().take(most).collect();
        let next = chunks.next().map(|(address, _)| address.offset);
        Ok(SegmentRecords { found, next, is_cut: false })
    }

    fn release(&self, address: ChunkAddress) {
        let mut state = self.state.lock();
        if state.chunks.remove(&address).is_some() {
            state.segments.entry(address.segment).or_default().1 += u64::from(address.stored_bytes);
        }
    }
}
