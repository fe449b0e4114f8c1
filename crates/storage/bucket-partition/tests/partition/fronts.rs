//! Stores whose whole chunks another process writes to the bucket.

use crate::support::{PLACE, PREFIX, runtime};
use crate::writers::{NOTHING, actor};
use base::{AbortCode, Fid};
use bucket_partition::{BucketConfig, Foreign};
use bytes::Bytes;
use object_store::ObjectStore;
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::{ChunkPlace, EncodedChunk, NewObject, ObjectBuilder};
use volume::{DataSource, StoreRequest, StoreTerms, Volume, VolumeError};

/// A part of the data, as its owner gets it.
enum Part {
    Bytes(Bytes),
    Chunk(ChunkPlace),
}

struct Parts(VecDeque<Part>);

impl DataSource for Parts {
    fn next(&mut self, bytes_max: usize) -> Result<Bytes, AbortCode> {
        match self.0.front_mut() {
            Some(Part::Bytes(bytes)) => {
                let piece = bytes.split_to(bytes.len().min(bytes_max));
                if bytes.is_empty() {
                    self.0.pop_front();
                }
                Ok(piece)
            }
            Some(Part::Chunk(_)) | None => Err(AbortCode::RXGEN_SS_UNMARSHAL),
        }
    }

    fn stored(&mut self, _: usize) -> Result<Option<ChunkPlace>, AbortCode> {
        if let Some(&Part::Chunk(place)) = self.0.front() {
            self.0.pop_front();
            return Ok(Some(place));
        }
        Ok(None)
    }
}

/// A process that writes to the partition of another one, which reserves objects for it.
pub(crate) struct Front {
    foreign: Foreign,
    /// Objects of the present store that it has begun to create.
    begun: Vec<u64>,
    /// Number of chunks in objects that it created.
    pub(crate) chunks: u64,
    /// Number of objects that may not exist.
    pub(crate) failed: u64,
    /// Number of objects that it created and never named.
    pub(crate) forgotten: u64,
}

impl Front {
    pub(crate) fn new(bucket: &Arc<dyn ObjectStore>) -> Front {
        let options = BucketConfig {
            patience: Duration::from_secs(3),
            request_limit: Duration::from_millis(1500),
            ..BucketConfig::default()
        };
        let keys = Box::new(|| Ok(None));
        let foreign = Foreign::new(&runtime(), bucket, (PREFIX, PLACE), &options, (keys, 1 << 20));
        Front { foreign, begun: Vec::new(), chunks: 0, failed: 0, forgotten: 0 }
    }

    /// Calls StoreData for this process.
    pub(crate) fn store(
        &mut self,
        (rng, volume): (&mut SmallRng, &Arc<Volume>),
        fid: Fid,
        cut: u64,
        (offset, data): (usize, &[u8]),
    ) -> Result<(), VolumeError> {
        let (offset, length) = (offset as u64, data.len() as u64);
        let request = StoreRequest { offset, length, file_length: cut, set: NOTHING };
        let mut parts = Parts(VecDeque::from([Part::Bytes(Bytes::copy_from_slice(data))]));
        let mut claimed = None;
        if let Some(terms) = volume.store_terms(fid, &request)? {
            let ids = volume.reserve_objects(6)?;
            // Some ids are never claimed.
            if rng.random_ratio(9, 10) {
                claimed = volume.claim_objects(&ids);
                assert!(claimed.is_some() && volume.claim_objects(&ids[..1]).is_none() != ids.is_empty());
                self.begun.clear();
                parts = self.parts(rng, &terms, &ids, (offset, data));
            }
        }
        let stored = volume.store(&actor(), fid, &request, &mut parts);
        if let Some(claimed) = &mut claimed {
            // The owner does not always hear of the last one.
            claimed.begun = self.begun
                [..self.begun.len() - usize::from(rng.random_ratio(1, 4)).min(self.begun.len())]
                .to_vec();
        }
        stored.map(drop)
    }

    fn parts(
        &mut self,
        rng: &mut SmallRng,
        terms: &StoreTerms,
        ids: &[u64],
        (offset, data): (u64, &[u8]),
    ) -> Parts {
        let chunk_bytes = 1 << terms.chunk_shift;
        let (mut parts, mut ids, mut at) = (VecDeque::new(), ids.iter(), 0);
        while at < data.len() {
            let position = offset + at as u64;
            let length = (chunk_bytes - position % chunk_bytes).min((data.len() - at) as u64) as usize;
            let whole = (data.len() - at) as u64 / chunk_bytes;
            let count = rng.random_range(1..4).min(whole) as usize;
            let id = if length as u64 == chunk_bytes && rng.random_ratio(9, 10) { ids.next() } else { None };
            let Some(id) = id else {
                parts.push_back(Part::Bytes(Bytes::copy_from_slice(&data[at..at + length])));
                at += length;
                continue;
            };
            let all = &data[at..at + count * length];
            let encode = |(number, chunk): (usize, &[u8])| {
                let owner = terms.owner.at(position / chunk_bytes + number as u64);
                EncodedChunk::new(owner, &[Bytes::copy_from_slice(chunk)], terms.codec).unwrap()
            };
            let mut object = ObjectBuilder::new(*id);
            all.chunks(length).enumerate().map(encode).for_each(|chunk| object.add(&chunk));
            let object = object.build();
            at += all.len();
            if self.create(rng, terms, &object) {
                self.chunks += object.chunks.len() as u64;
                let place = |address| Part::Chunk(ChunkPlace { address, origin: *id });
                parts.extend(object.chunks.iter().copied().map(place));
            } else {
                let chunk = |number| Part::Bytes(object.chunk(number).unwrap());
                parts.extend((0..object.chunks.len()).map(chunk));
            }
        }
        Parts(parts)
    }

    /// Creates an object. Returns whether it exists and is to be named.
    fn create(&mut self, rng: &mut SmallRng, terms: &StoreTerms, object: &NewObject) -> bool {
        self.begun.push(object.id);
        if self.foreign.begin(terms.objects.partition, object).is_err() {
            return false;
        }
        if rng.random_ratio(1, 6) {
            self.foreign.cancel(object);
            self.failed += 1;
            return false;
        }
        if self.foreign.finish(object).is_err() {
            self.failed += 1;
            return false;
        }
        let is_named = rng.random_ratio(5, 6);
        self.forgotten += u64::from(!is_named);
        is_named
    }
}
