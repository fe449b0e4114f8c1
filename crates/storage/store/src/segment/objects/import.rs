//! Taking over chunks of another partition in the same bucket, without reading them.
//!
//! The bucket copies the objects that contain them. A copy has a name and an account of this partition, so nothing of it
//! depends on the other one from then on. Its records keep the id of the object that they were written to, its *origin*,
//! which the account contains. Everything in a copy counts as live until the import ends; then what was not taken of it
//! counts as dead.

use super::super::accounts::Accounts;
use super::super::header::{self, HEADER_BYTES};
use super::super::reading;
use super::ObjectChunks;
use super::bucket::BucketError;
use super::name::{object_name, version_name};
use crate::home::BucketVersion;
use crate::{ChunkAddress, ChunkPlace, StoreError};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Longest object that is copied. A record is shorter than that, and an object with several has at most its configured size.
const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// How other partitions in the bucket know a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedAs {
    /// UUID of the partition.
    pub(super) partition: [u8; 16],
    /// Folder of the objects below the prefix of each partition.
    pub(super) folder: &'static str,
}

/// Keeps the objects of a partition for others to copy, until it is dropped: chunks to which metadata refers while it
/// exists stay where they are, even if they are released.
#[derive(Debug)]
pub struct Loan {
    /// UUID of the partition.
    pub partition: [u8; 16],
    _held: Arc<()>,
}

impl Loan {
    /// Lends objects of the partition with this UUID, which are kept while there are several references to `held`.
    pub fn new(partition: [u8; 16], held: Arc<()>) -> Loan {
        Loan { partition, _held: held }
    }
}

/// Chunks that are being taken over from another partition. Return it to [`ChunkStore::end_import`](crate::ChunkStore::end_import).
#[derive(Debug, Default)]
pub struct Import {
    /// Full name, in the bucket, of what the names of the other partition's objects begin with.
    folder: String,
    /// Copies by the ids of the objects that they were made of.
    copies: BTreeMap<u64, Copied>,
}

/// A copy of an object.
#[derive(Debug)]
struct Copied {
    id: u64,
    end: u64,
    /// The id in its records.
    origin: u64,
    /// Offsets and lengths of the records that were taken, in ascending order.
    taken: Vec<(u32, u32)>,
}

impl Copied {
    /// Takes the record at this place; each once.
    fn take(&mut self, ChunkPlace { address: chunk, origin }: ChunkPlace) -> Result<ChunkAddress, String> {
        if origin != self.origin {
            return Err(format!("its records are those of {}", object_name(self.origin)));
        }
        let length = reading::record_length(chunk)? as u64;
        let end = chunk.offset.checked_add(length).filter(|end| *end <= self.end);
        let Some((end, offset)) = end.zip(u32::try_from(chunk.offset).ok()) else {
            return Err(format!("the object ends before its {length} bytes"));
        };
        let place = self.taken.partition_point(|(taken, _)| *taken < offset);
        let ends_before =
            |(taken, length): &(u32, u32)| u64::from(*taken) + u64::from(*length) <= chunk.offset;
        let begins_after = |(taken, _): &(u32, u32)| u64::from(*taken) >= end;
        let before = place.checked_sub(1).and_then(|before| self.taken.get(before));
        if !before.is_none_or(ends_before) || !self.taken.get(place).is_none_or(begins_after) {
            return Err("a part of it was taken already".into());
        }
        self.taken.insert(place, (offset, chunk.stored_bytes));
        Ok(ChunkAddress { segment: self.id, ..chunk })
    }

    fn taken_bytes(&self) -> u64 {
        self.taken.iter().map(|(_, length)| u64::from(*length)).sum()
    }
}

impl ObjectChunks {
    /// See [`ChunkStore::lend`](crate::ChunkStore::lend). Objects that are encrypted are of no use to another partition.
    pub(super) fn begin_loan(&self) -> Option<Loan> {
        let own = self.shared_as.as_ref().filter(|_| self.keys.is_none())?;
        Some(Loan::new(own.partition, Arc::clone(&self.loans)))
    }

    /// Whether objects are kept for others.
    pub(super) fn is_lent(&self) -> bool {
        Arc::strong_count(&self.loans) > 1
    }

    /// See [`ChunkStore::import`](crate::ChunkStore::import). A copy of the other partition's version shows that its place
    /// is right, and that the bucket makes copies.
    pub(super) fn begin_import(&self, prefix: &str, partition: [u8; 16]) -> Result<Import, StoreError> {
        self.may_write()?;
        let refused = |what: String| StoreError::Damaged { place: prefix.to_owned(), what };
        let folder = match &self.shared_as {
            Some(own) if self.keys.is_none() => own.folder,
            _ => return Err(refused("this partition takes over no objects".into())),
        };
        let number = self.unsaved.lock().take_id()?;
        let name = version_name(number);
        let from = format!("{prefix}/{}", BucketVersion::NAME);
        let copied = self.bucket.copy(&from, &name);
        let read = copied.and_then(|_| self.bucket.read(&name, 0..BucketVersion::BYTES_MAX as u64));
        // Whether or not the copy was made.
        let removed = self.bucket.remove(&[name]);
        let read = read.map_err(|error| refused(error.to_string()))?.bytes;
        removed.map_err(|error| refused(error.to_string()))?;
        let version = BucketVersion::parse(&read, Path::new(&from))?;
        if *version.uuid.as_bytes() != partition {
            return Err(refused(format!("it is the partition {}, which is another one", version.uuid)));
        }
        Ok(Import { folder: format!("{prefix}/{folder}"), copies: BTreeMap::new() })
    }

    /// See [`ChunkStore::take_chunk`](crate::ChunkStore::take_chunk).
    pub(super) fn take(&self, import: &mut Import, chunk: ChunkPlace) -> Result<ChunkAddress, StoreError> {
        self.may_write()?;
        let Import { folder, copies } = import;
        let ChunkAddress { segment, offset, .. } = chunk.address;
        let from = format!("{folder}/{}", object_name(segment));
        let copied = match copies.entry(segment) {
            Entry::Occupied(copied) => copied.into_mut(),
            Entry::Vacant(none) => none.insert(self.copy_object(&from, chunk.origin)?),
        };
        copied
            .take(chunk)
            .map_err(|what| StoreError::Damaged { place: format!("{from} at offset {offset}"), what })
    }

    /// Copies an object with this id in its records, and commits the account of the copy.
    fn copy_object(&self, from: &str, origin: u64) -> Result<Copied, StoreError> {
        let id = self.unsaved.lock().take_id()?;
        // An object of this epoch without an account would be removed.
        self.accounts.lock().begin(id, HEADER_BYTES);
        let copied = self.copy_as(from, id, origin);
        if copied.is_err() {
            // The next maintenance removes what may be there.
            self.accounts.lock().abandon_all(id);
        }
        copied
    }

    fn copy_as(&self, from: &str, id: u64, origin: u64) -> Result<Copied, StoreError> {
        let name = object_name(id);
        let failed = |error: BucketError| match error {
            BucketError::Missing { .. } => missing(from),
            other => self.unanswered(&other),
        };
        let end = self.bucket.copy(from, &name).map_err(failed)?;
        let head = self.bucket.read(&name, 0..HEADER_BYTES).map_err(failed)?.bytes;
        let damaged = |what: &str| StoreError::Damaged { place: from.to_owned(), what: what.to_owned() };
        // Records are checked against the id, so data of another object is never read for that of this one.
        if header::id_of(&head) != Some(origin) {
            return Err(damaged("it does not begin as the object that is meant"));
        }
        if !(HEADER_BYTES..=OBJECT_BYTES_MAX).contains(&end) {
            return Err(damaged("no object has this length"));
        }
        if !self.fits(end - HEADER_BYTES) {
            return Err(StoreError::Full);
        }
        let _one = self.writing.lock();
        let row = {
            let mut accounts = self.accounts.lock();
            accounts.copied(id, end, origin);
            accounts.row_of(id)
        };
        self.meta.commit(row)?;
        Ok(Copied { id, end, origin, taken: Vec::new() })
    }

    /// Returns the origin of a copy whose account was damaged and not made anew yet: an object begins with the id that is in
    /// its records. An object that has an account is not asked, so that it cannot pass for another one.
    pub(super) fn find_origin(&self, id: u64) -> Option<u64> {
        if !self.adopts.load(Relaxed) || self.accounts.lock().has(id) {
            return None;
        }
        let head = self.bucket.read(&object_name(id), 0..HEADER_BYTES).ok()?.bytes;
        header::id_of(&head).filter(|origin| *origin != id)
    }

    /// See [`ChunkStore::end_import`](crate::ChunkStore::end_import).
    pub(super) fn finish_import(&self, import: &Import) {
        let mut accounts = self.accounts.lock();
        for copied in import.copies.values() {
            end_copy(&mut accounts, copied);
        }
    }
}

fn end_copy(accounts: &mut Accounts, copied: &Copied) {
    accounts.abandon(copied.id, (copied.end - HEADER_BYTES).saturating_sub(copied.taken_bytes()));
}

fn missing(from: &str) -> StoreError {
    StoreError::Damaged { place: from.to_owned(), what: "there is no such object".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u64, stored_bytes: u32) -> ChunkPlace {
        ChunkPlace { address: ChunkAddress { segment: 7, offset, stored_bytes }, origin: 5 }
    }

    #[test]
    fn each_record_is_taken_once_and_within_its_object() {
        let mut copied = Copied { id: 9, end: 1032, origin: 5, taken: Vec::new() };
        assert_eq!(
            copied.take(record(232, 100)),
            Ok(ChunkAddress { segment: 9, ..record(232, 100).address })
        );
        copied.take(ChunkPlace { origin: 7, ..record(332, 100) }).unwrap_err();
        for (offset, length) in [(232, 100), (231, 100), (331, 100), (133, 100), (240, 64), (200, 300)] {
            copied.take(record(offset, length)).unwrap_err();
        }
        for (offset, length) in [(1000, 100), (u64::MAX, 100), (31, 100), (32, 3), (32, u32::MAX)] {
            copied.take(record(offset, length)).unwrap_err();
        }
        for (offset, length) in [(332, 100), (132, 100), (932, 100)] {
            copied.take(record(offset, length)).unwrap();
        }
        assert_eq!((copied.taken_bytes(), copied.taken.len()), (400, 4));
    }
}
