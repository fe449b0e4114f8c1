//! Objects that another process creates for this partition.
//!
//! The id is one of this partition's own. It is *reserved*: there is an account of it, so that a sweep leaves the object alone. A store
//! *claims* the ids that were reserved for it. The account is committed when the first chunk of the object is taken. When the store
//! has ended, or has not begun within [`UNCLAIMED_MAX`], ids from whose objects no chunk was taken are released. The next maintenance
//! removes the objects whose creation was announced. Others that exist, because they were created later or because a process has
//! ended, have no account, and a sweep removes them.

use super::super::header;
use super::super::reading;
use super::ObjectChunks;
use super::import::TakenOver;
use super::loading;
use super::name::object_name;
use crate::{ChunkAddress, EncodedChunk, StoreError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long an id is reserved without being claimed. The store may wait for a worker, and the other process does not wait for it.
const UNCLAIMED_MAX: Duration = Duration::from_secs(600);

/// Maximum number of reserved ids.
const RESERVED_IDS_MAX: usize = 16_384;

/// How another process may create objects of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectTerms {
    /// UUID of the partition.
    pub partition: [u8; 16],
    /// Size in bytes at which the next object should be begun.
    pub object_bytes_max: u32,
}

/// An object that is created for a partition that another process has open, and that has reserved the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewObject {
    /// The reserved id.
    pub id: u64,
    /// Name of the object, next to those of the partition.
    pub name: String,
    /// Contents of the object.
    pub contents: Bytes,
    /// Addresses of the chunks in their order.
    pub chunks: Vec<ChunkAddress>,
}

/// Builds a [`NewObject`] of chunks that are not encrypted.
#[derive(Debug)]
pub struct ObjectBuilder {
    id: u64,
    contents: Vec<u8>,
    chunks: Vec<ChunkAddress>,
}

impl ObjectBuilder {
    /// Begins the object with this id.
    pub fn new(id: u64) -> ObjectBuilder {
        ObjectBuilder { id, contents: header::build(id).to_vec(), chunks: Vec::new() }
    }

    /// Appends a chunk.
    pub fn add(&mut self, chunk: &EncodedChunk) {
        let (encoded, offset) = (&chunk.0, self.contents.len() as u64);
        let address = ChunkAddress { segment: self.id, offset, stored_bytes: encoded.record_bytes() };
        self.contents.extend_from_slice(&encoded.record.build(self.id, offset));
        self.contents.extend_from_slice(encoded.stored.bytes());
        self.chunks.push(address);
    }

    /// Returns the size of the object so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.contents.len() as u64
    }

    /// Returns the number of chunks.
    pub fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Ends the object.
    pub fn build(self) -> NewObject {
        let ObjectBuilder { id, contents, chunks } = self;
        NewObject { id, name: object_name(id), contents: contents.into(), chunks }
    }
}

impl NewObject {
    /// Returns the contents of a chunk by its number.
    ///
    /// # Errors
    /// What is wrong with it; impossible unless memory or a decoder fails.
    pub fn chunk(&self, number: usize) -> Result<Bytes, String> {
        let address = *self.chunks.get(number).ok_or("there is no such chunk")?;
        let range = loading::range(address)?;
        let record = self.contents.slice(range.start as usize..range.end as usize);
        reading::decode(&record, address, None).map(|(chunk, _)| chunk)
    }
}

/// Reserved ids, with the time of each that is not claimed.
#[derive(Default)]
pub(super) struct Reservations(Mutex<BTreeMap<u64, Option<Instant>>>);

impl ObjectChunks {
    /// See [`ChunkStore::object_terms`](crate::ChunkStore::object_terms). A partition that is encrypted creates its objects itself:
    /// another process could use a key that is being replaced.
    pub(super) fn terms(&self) -> Option<ObjectTerms> {
        let own = self.shared_as.as_ref().filter(|_| self.keys.is_none())?;
        Some(ObjectTerms { partition: own.partition, object_bytes_max: self.config.object_bytes_max })
    }

    /// See [`ChunkStore::reserve_objects`](crate::ChunkStore::reserve_objects).
    pub(super) fn reserve(&self, count: usize) -> Result<Vec<u64>, StoreError> {
        self.may_write()?;
        let mut reserved = self.reserved.0.lock();
        if self.terms().is_none() || reserved.len() + count > RESERVED_IDS_MAX {
            return Ok(Vec::new());
        }
        let mut unsaved = self.unsaved.lock();
        let mut accounts = self.accounts.lock();
        let reserve = |_| {
            let id = unsaved.take_id()?;
            accounts.reserve(id);
            reserved.insert(id, Some(Instant::now()));
            Ok(id)
        };
        (0..count).map(reserve).collect()
    }

    /// See [`ChunkStore::claim_objects`](crate::ChunkStore::claim_objects).
    pub(super) fn claim(&self, ids: &[u64]) -> bool {
        let mut reserved = self.reserved.0.lock();
        if !ids.iter().all(|id| matches!(reserved.get(id), Some(Some(_)))) {
            return false;
        }
        for id in ids {
            reserved.insert(*id, None);
        }
        true
    }

    /// See [`ChunkStore::give_up_objects`](crate::ChunkStore::give_up_objects).
    pub(super) fn give_up(&self, ids: &[u64], begun: &[u64]) {
        let mut reserved = self.reserved.0.lock();
        let mut accounts = self.accounts.lock();
        for id in ids.iter().filter(|id| reserved.remove(id).is_some()) {
            if begun.contains(id) {
                accounts.abandon_all(*id);
            } else {
                accounts.forget(*id);
            }
        }
    }

    /// Commits the account of an object that exists and whose id is reserved.
    pub(super) fn accept_object(&self, id: u64) -> Result<TakenOver, StoreError> {
        let from = self.place_of(&object_name(id));
        if self.reserved.0.lock().remove(&id).is_none() {
            let what = "this object is not reserved, or not any more".into();
            return Err(StoreError::Damaged { place: from, what });
        }
        let accepted = self.take_over((&from, id), id);
        if accepted.is_err() {
            self.accounts.lock().abandon_all(id);
        }
        accepted
    }

    /// Gives up the ids that were reserved at least this long ago and are not claimed.
    pub(super) fn end_reservations(&self, age: Duration) {
        let mut reserved = self.reserved.0.lock();
        let mut accounts = self.accounts.lock();
        reserved.retain(|id, at| {
            let is_over = at.is_some_and(|at| at.elapsed() >= age);
            if is_over {
                accounts.forget(*id);
            }
            !is_over
        });
    }

    /// Gives up the ids whose store has not begun in time.
    pub(super) fn end_old_reservations(&self) {
        self.end_reservations(UNCLAIMED_MAX);
    }
}
