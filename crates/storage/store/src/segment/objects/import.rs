//! Taking over chunks of another partition in the same bucket, without reading or copying them.
//!
//! The objects that contain them are borrowed ([`borrowed`](super::borrowed)): they get an id and an account of this partition. Their
//! records keep the id of the object that they were written to, the *origin*, which the account contains.
//!
//! Chunks that another process has written to an object of this partition ([`reserve`](super::reserve)) are taken in the same way,
//! without a copy.
//!
//! Everything in an object that is taken over counts as live until the import ends; then what was not taken of it counts as dead.

use super::super::header::{self, HEADER_BYTES};
use super::super::reading;
use super::ObjectChunks;
use super::borrowed::BorrowedObject;
use super::bucket::BucketError;
use super::name::object_name;
use crate::home::BucketVersion;
use crate::{ChunkAddress, ChunkPlace, StoreError};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Longest object that is taken over. A record is shorter than that, and an object with several has at most its configured size.
const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// How other partitions in the bucket know a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedAs {
    /// UUID of the partition.
    pub(super) partition: [u8; 16],
    /// Folder of the objects below the prefix of each partition.
    pub(super) folder: &'static str,
}

/// Keeps the objects of a partition for another one to borrow, until it is dropped: chunks to which metadata refers while it
/// exists stay where they are, even if they are released. What the other partition has borrowed by then is to be recorded with
/// [`ChunkStore::keep_lent`](crate::ChunkStore::keep_lent).
#[derive(Debug)]
pub struct Loan {
    /// UUID of the partition.
    pub partition: [u8; 16],
    /// Number of the loan, unique in the partition.
    pub id: u64,
    _held: Arc<()>,
}

impl Loan {
    /// Begins the loan `id` of the partition with this UUID, whose objects are kept while there are several references to
    /// `held`.
    pub fn new(partition: [u8; 16], id: u64, held: Arc<()>) -> Loan {
        Loan { partition, id, _held: held }
    }
}

/// Chunks that are being taken over. Return it to [`ChunkStore::end_import`](crate::ChunkStore::end_import).
#[derive(Debug, Default)]
pub struct Import {
    /// The partition that lends the objects; `None` for objects of this partition that another process has created.
    lender: Option<Lender>,
    /// Objects of this partition by the ids by which the chunks are named.
    objects: BTreeMap<u64, TakenOver>,
}

/// Another partition, which lends objects.
#[derive(Debug)]
struct Lender {
    partition: [u8; 16],
    loan: u64,
    /// Full name, in the bucket, of the folder of its objects.
    folder: Arc<str>,
    /// Until it is dropped, the lender is answered that all objects of the loan are in use.
    _open: Arc<()>,
}

/// An object of this partition that was not made of appended chunks.
#[derive(Debug)]
pub(super) struct TakenOver {
    pub(super) id: u64,
    pub(super) end: u64,
    /// The id in its records.
    pub(super) origin: u64,
    /// Offsets and lengths of the records that were taken, in ascending order.
    pub(super) taken: Vec<(u32, u32)>,
}

impl TakenOver {
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
        let id = self.unsaved.lock().take_id().ok()?;
        Some(Loan::new(own.partition, id, Arc::clone(&self.loans)))
    }

    /// Whether objects are kept for others.
    pub(super) fn is_lent(&self) -> bool {
        Arc::strong_count(&self.loans) > 1
    }

    /// See [`ChunkStore::import`](crate::ChunkStore::import). The other partition's version shows that its place is right.
    pub(super) fn begin_import(
        &self,
        prefix: &str,
        partition: [u8; 16],
        loan: u64,
    ) -> Result<Import, StoreError> {
        self.may_write()?;
        let refused = |what: String| StoreError::Damaged { place: prefix.to_owned(), what };
        let folder = match &self.shared_as {
            Some(own) if self.keys.is_none() => own.folder,
            _ => return Err(refused("this partition takes over no objects".into())),
        };
        let from = format!("{prefix}/{}", BucketVersion::NAME);
        let read = self.bucket.read_other(&from, 0..BucketVersion::BYTES_MAX as u64);
        let read = read.map_err(|error| refused(error.to_string()))?.bytes;
        let version = BucketVersion::parse(&read, Path::new(&from))?;
        if *version.uuid.as_bytes() != partition {
            return Err(refused(format!("it is the partition {}, which is another one", version.uuid)));
        }
        let folder = format!("{prefix}/{folder}").into();
        let lender = Lender { partition, loan, folder, _open: self.borrowed.begin_transfer(partition, loan) };
        Ok(Import { lender: Some(lender), objects: BTreeMap::new() })
    }

    /// See [`ChunkStore::check_import`](crate::ChunkStore::check_import).
    pub(super) fn check_borrowed(&self, import: &Import) -> Result<(), StoreError> {
        match &import.lender {
            Some(Lender { partition, loan, folder, .. }) if !import.objects.is_empty() => {
                self.check_loan(folder, (*partition, *loan), import.objects.keys().copied())
            }
            _ => Ok(()),
        }
    }

    /// See [`ChunkStore::take_chunk`](crate::ChunkStore::take_chunk).
    pub(super) fn take(&self, import: &mut Import, chunk: ChunkPlace) -> Result<ChunkAddress, StoreError> {
        self.may_write()?;
        let Import { lender, objects } = import;
        let ChunkAddress { segment, offset, .. } = chunk.address;
        let from = || match &lender {
            Some(lender) => format!("{}/{}", lender.folder, object_name(segment)),
            None => self.place_of(&object_name(segment)),
        };
        let object = match objects.entry(segment) {
            Entry::Occupied(object) => object.into_mut(),
            Entry::Vacant(none) => none.insert(match &lender {
                Some(lender) => self.borrow(lender, segment, chunk.origin)?,
                None => self.accept_object(segment)?,
            }),
        };
        object
            .take(chunk)
            .map_err(|what| StoreError::Damaged { place: format!("{} at offset {offset}", from()), what })
    }

    /// Borrows an object with this id in its records, and commits its account.
    fn borrow(&self, lender: &Lender, object: u64, origin: u64) -> Result<TakenOver, StoreError> {
        let id = {
            let mut unsaved = self.unsaved.lock();
            // An id that is the origin's would hide that the owners in the records are another partition's.
            let id = unsaved.take_id()?;
            if id == origin { unsaved.take_id()? } else { id }
        };
        let Lender { partition, loan, ref folder, .. } = *lender;
        let (folder, end) = (Arc::clone(folder), HEADER_BYTES);
        let place = BorrowedObject { lender: partition, loan, object, end, origin, folder };
        let from = place.full_name();
        self.accounts.lock().begin(id, HEADER_BYTES);
        self.borrowed.insert(id, place);
        let taken = self.take_over((&from, id), origin);
        if taken.is_err() {
            // The next maintenance gives it back.
            self.accounts.lock().abandon_all(id);
        }
        taken
    }

    /// Commits the account of an object that was not made of appended chunks, and has `origin` in its records.
    pub(super) fn take_over(&self, (from, id): (&str, u64), origin: u64) -> Result<TakenOver, StoreError> {
        let head = self.bucket.read(&object_name(id), 0..HEADER_BYTES);
        let head = head.map_err(|error| self.not_taken(from, &error))?;
        let damaged = |what: &str| StoreError::Damaged { place: from.to_owned(), what: what.to_owned() };
        // Records are checked against the id, so data of another object is never read for that of this one.
        if header::id_of(&head.bytes) != Some(origin) {
            return Err(damaged("it does not begin as the object that is meant"));
        }
        let end = head.object_bytes;
        if !(HEADER_BYTES..=OBJECT_BYTES_MAX).contains(&end) {
            return Err(damaged("no object has this length"));
        }
        if !self.fits(end - HEADER_BYTES) {
            return Err(StoreError::Full);
        }
        let _one = self.writing.lock();
        let mut batch = {
            let mut accounts = self.accounts.lock();
            accounts.complete(id, end, (origin != id).then_some(origin));
            accounts.row_of(id)
        };
        if self.borrowed.get(id).is_some() {
            self.borrowed.complete(id, end, origin);
            self.borrowed.put_row(id, &mut batch);
            self.put_epoch(&mut batch);
        }
        self.meta.commit(batch)?;
        Ok(TakenOver { id, end, origin, taken: Vec::new() })
    }

    pub(super) fn not_taken(&self, from: &str, error: &BucketError) -> StoreError {
        match error {
            BucketError::Missing { .. } => {
                StoreError::Damaged { place: from.to_owned(), what: "there is no such object".into() }
            }
            other => self.unanswered(other),
        }
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
        for object in import.objects.values() {
            let bytes = object.end - HEADER_BYTES;
            accounts.abandon(object.id, bytes.saturating_sub(object.taken_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u64, stored_bytes: u32) -> ChunkPlace {
        ChunkPlace { address: ChunkAddress { segment: 7, offset, stored_bytes }, origin: 5 }
    }

    #[test]
    fn each_record_is_taken_once_and_within_its_object() {
        let mut copied = TakenOver { id: 9, end: 1032, origin: 5, taken: Vec::new() };
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
