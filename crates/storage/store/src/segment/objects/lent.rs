//! Objects that other partitions in the bucket use.
//!
//! A transfer to another partition names chunks, and the other one borrows the objects that contain them
//! ([`borrowed`](super::borrowed)). Before the transfer ends, this partition records which objects it has lent: in an object of the
//! bucket, and then in a row of its metadata, which shows that the metadata is still this process's. The next owner
//! finds the row, and also an object without one, since its metadata may have been restored from a copy. A lent object is not removed. The
//! lender's server asks the borrower's whether objects are in use, and ends the loan of those that are not.

use super::super::accounts::Accounts;
use super::super::record::crc32c;
use super::ObjectChunks;
use super::bucket::{Bucket, BucketError};
use super::import::Loan;
use super::name::{LOANS, loan_name, parse_loan_name};
use crate::{Batch, Family, KeyRange, MetaStore, StoreError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;

/// Prefix of the keys of rows in the family System; the number of the loan follows.
const KEY_PREFIX: &[u8] = b"objects/lent/";
/// Greater than all keys with that prefix.
const BEHIND_KEYS: &[u8] = b"objects/lent0";

const MAGIC: &[u8; 8] = b"CELLLOAN";
const VERSION: u32 = 1;
/// Length of the record of a loan without its objects and the checksum.
const HEAD_BYTES: usize = 60;

/// Maximum number of objects of one loan: 8 TiB of data.
pub const LOAN_OBJECTS_MAX: usize = 1 << 20;

/// Maximum number of objects whose accounts are looked up under one lock.
const LOCKED_MAX: usize = 1000;

/// Maximum length of the record of a loan.
const BYTES_MAX: u64 = (HEAD_BYTES + 8 * LOAN_OBJECTS_MAX + 4) as u64;

fn key(loan: u64) -> Vec<u8> {
    [KEY_PREFIX, &loan.to_be_bytes()].concat()
}

/// A partition that uses objects of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Borrower {
    /// UUID of the partition.
    pub partition: [u8; 16],
    /// Number of the partition, 0 for `/vicepa`.
    pub index: u32,
}

/// Objects that were lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentObjects {
    /// UUID of the partition that has lent them.
    pub lender: [u8; 16],
    /// Number of the loan.
    pub loan: u64,
    /// Who uses them.
    pub borrower: Borrower,
    /// Their ids in the lender's partition.
    pub objects: Vec<u64>,
}

/// What a loan consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoanRecord {
    pub(super) lender: [u8; 16],
    pub(super) loan: u64,
    pub(super) borrower: Borrower,
    pub(super) objects: BTreeSet<u64>,
}

impl LoanRecord {
    fn contents(&self) -> Bytes {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.loan.to_be_bytes());
        out.extend_from_slice(&self.lender);
        out.extend_from_slice(&self.borrower.partition);
        out.extend_from_slice(&self.borrower.index.to_be_bytes());
        out.extend_from_slice(&(self.objects.len() as u32).to_be_bytes());
        self.objects.iter().for_each(|id| out.extend_from_slice(&id.to_be_bytes()));
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out.into()
    }

    fn parse(contents: &[u8]) -> Option<LoanRecord> {
        let (body, crc) = contents.split_last_chunk::<4>()?;
        let word = |at: usize| Some(u32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let (head, ids) = body.split_at_checked(HEAD_BYTES)?;
        let is_sound = u32::from_be_bytes(*crc) == crc32c(body) && head.starts_with(MAGIC);
        let ids: Vec<u64> =
            ids.chunks_exact(8).filter_map(|id| id.try_into().ok().map(u64::from_be_bytes)).collect();
        let is_whole = contents.len() == HEAD_BYTES + 8 * ids.len() + 4;
        if !is_sound || !is_whole || word(8)? != VERSION || word(56)? as usize != ids.len() {
            return None;
        }
        Some(LoanRecord {
            lender: head[20..36].try_into().ok()?,
            loan: u64::from_be_bytes(head[12..20].try_into().ok()?),
            borrower: Borrower { partition: head[36..52].try_into().ok()?, index: word(52)? },
            objects: ids.into_iter().collect(),
        })
    }
}

/// The loans of a partition.
#[derive(Default)]
pub(super) struct Loans(Mutex<State>);

#[derive(Default)]
struct State {
    /// By their numbers.
    loans: BTreeMap<u64, LoanRecord>,
    /// In how many loans each object is.
    counts: BTreeMap<u64, u32>,
    /// Whether the record of a loan is damaged: any object may be in it.
    keeps_all: bool,
}

impl State {
    /// Adds the loans that have an object in the bucket, but no row.
    fn add_without_rows(&mut self, bucket: &dyn Bucket) -> Result<(), BucketError> {
        let mut found = Vec::new();
        bucket.list(LOANS, &mut |name, bytes| {
            let id = parse_loan_name(name).filter(|id| !self.loans.contains_key(id));
            found.extend(id.map(|id| (id, bytes)));
            ControlFlow::Continue(())
        })?;
        for (id, bytes) in found {
            let name = loan_name(id);
            let contents = match bucket.read(&name, 0..bytes.clamp(1, BYTES_MAX)) {
                Err(BucketError::Missing { .. }) => continue,
                Err(error @ BucketError::Unavailable(_)) => return Err(error),
                // An empty object has no such range.
                read => read.map(|read| read.bytes).unwrap_or_default(),
            };
            if let Some(loan) = LoanRecord::parse(&contents).filter(|loan| loan.loan == id) {
                self.insert(loan);
            } else {
                let place = bucket.place();
                tracing::error!(place, name, "the record of a loan is damaged: no object is removed");
                self.keeps_all = true;
            }
        }
        Ok(())
    }

    fn insert(&mut self, loan: LoanRecord) {
        loan.objects.iter().for_each(|id| *self.counts.entry(*id).or_default() += 1);
        self.loans.insert(loan.loan, loan);
    }
}

impl Loans {
    /// Loads the loans of a partition.
    ///
    /// # Errors
    /// `Unavailable`; errors of the metadata.
    pub(super) fn load(bucket: &dyn Bucket, meta: &dyn MetaStore) -> Result<Loans, StoreError> {
        let mut state = State::default();
        let range = KeyRange::ascending(KEY_PREFIX, BEHIND_KEYS);
        meta.scan(Family::SYSTEM, range, &mut |key, row| {
            let loan = LoanRecord::parse(row).filter(|loan| key.ends_with(&loan.loan.to_be_bytes()));
            if let Some(loan) = loan {
                state.insert(loan);
            } else {
                tracing::warn!(key = %key.escape_ascii(), "ignoring a damaged row of a loan");
            }
            ControlFlow::Continue(())
        })?;
        state
            .add_without_rows(bucket)
            .map_err(|error| StoreError::Unavailable { place: bucket.place(), what: error.to_string() })?;
        Ok(Loans(Mutex::new(state)))
    }

    /// Whether this is the number of a loan that has not ended.
    pub(super) fn is_known(&self, loan: u64) -> bool {
        let state = self.0.lock();
        state.keeps_all || state.loans.contains_key(&loan)
    }

    /// Whether the object is lent.
    pub(super) fn has(&self, id: u64) -> bool {
        let state = self.0.lock();
        state.keeps_all || state.counts.contains_key(&id)
    }

    fn insert(&self, loan: LoanRecord) {
        self.0.lock().insert(loan);
    }

    fn list(&self) -> Vec<LentObjects> {
        let of = |record: &LoanRecord| {
            let LoanRecord { lender, loan, borrower, ref objects } = *record;
            LentObjects { lender, loan, borrower, objects: objects.iter().copied().collect() }
        };
        self.0.lock().loans.values().map(of).collect()
    }

    /// Takes objects from a loan; returns whether none is left in it.
    fn end(&self, loan: u64, objects: &[u64]) -> bool {
        let state = &mut *self.0.lock();
        let Some(record) = state.loans.get_mut(&loan) else { return false };
        for id in objects.iter().filter(|id| record.objects.remove(id)) {
            if let Some(count) = state.counts.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    state.counts.remove(id);
                }
            }
        }
        record.objects.is_empty()
    }

    /// Returns the number of objects that are lent.
    pub(super) fn count(&self) -> u64 {
        self.0.lock().counts.len() as u64
    }

    fn forget(&self, loan: u64) {
        self.0.lock().loans.remove(&loan);
    }
}

impl ObjectChunks {
    /// See [`ChunkStore::keep_lent`](crate::ChunkStore::keep_lent).
    pub(super) fn record_loan(
        &self,
        loan: &Loan,
        borrower: Borrower,
        objects: &[u64],
    ) -> Result<(), StoreError> {
        self.may_write()?;
        if objects.len() > LOAN_OBJECTS_MAX {
            let what =
                format!("{} objects are lent at once; at most {LOAN_OBJECTS_MAX} can be", objects.len());
            return Err(StoreError::Meta(what));
        }
        let (lender, id) = (loan.partition, loan.id);
        let record = LoanRecord { lender, loan: id, borrower, objects: objects.iter().copied().collect() };
        let (name, contents) = (loan_name(id), record.contents());
        // From before it exists: what becomes of the request is not always known.
        self.lent.insert(record);
        self.bucket.begin(&name, &contents);
        self.bucket.finish(std::slice::from_ref(&name)).map_err(|error| self.not_created(&error))?;
        // It fails if another process has opened the metadata, and may have read the loans.
        let mut batch = Batch::new();
        batch.put(Family::SYSTEM, key(id), &contents[..]);
        self.put_epoch(&mut batch);
        self.meta.sync(self.meta.commit(batch)?)
    }

    /// See [`ChunkStore::lent`](crate::ChunkStore::lent).
    pub(super) fn list_lent(&self, is_unneeded: bool) -> Vec<LentObjects> {
        let mut all = self.lent.list();
        if is_unneeded {
            // The record of an empty loan could not be removed.
            all.retain_mut(|lent| lent.objects.is_empty() || self.retain_unneeded(&mut lent.objects));
        }
        all
    }

    /// Keeps the objects that this partition does not use; returns whether there are any. One whose account may have been damaged
    /// is in use.
    fn retain_unneeded(&self, objects: &mut Vec<u64>) -> bool {
        let adopts = self.adopts.load(Relaxed);
        let is_unneeded = |accounts: &Accounts, id| {
            if accounts.has(id) { accounts.is_used_up(id) } else { !adopts }
        };
        let mut unneeded = Vec::new();
        for some in objects.chunks(LOCKED_MAX) {
            let accounts = self.accounts.lock();
            unneeded.extend(some.iter().copied().filter(|id| is_unneeded(&accounts, *id)));
        }
        *objects = unneeded;
        !objects.is_empty()
    }

    /// See [`ChunkStore::end_loan`](crate::ChunkStore::end_loan).
    pub(super) fn end_loan_of(&self, loan: u64, objects: &[u64]) -> Result<(), StoreError> {
        self.may_write()?;
        if self.lent.end(loan, objects) {
            self.bucket.remove(&[loan_name(loan)]).map_err(|error| self.unanswered(&error))?;
            let mut batch = Batch::new();
            batch.delete(Family::SYSTEM, key(loan));
            self.meta.commit(batch)?;
            self.lent.forget(loan);
        }
        Ok(())
    }

    /// Checks that another partition keeps the objects that are borrowed from it.
    pub(super) fn check_loan(
        &self,
        folder: &str,
        (lender, loan): ([u8; 16], u64),
        mut objects: impl Iterator<Item = u64>,
    ) -> Result<(), StoreError> {
        let from = format!("{folder}/{}", loan_name(loan));
        let damaged = |what: String| StoreError::Damaged { place: from.clone(), what };
        let read =
            self.bucket.read_other(&from, 0..BYTES_MAX).map_err(|error| self.not_taken(&from, &error))?;
        let found = LoanRecord::parse(&read.bytes);
        let found = found.filter(|found| (found.lender, found.loan) == (lender, loan));
        let found = found.ok_or_else(|| damaged("it is not the record of this loan".into()))?;
        if Some(found.borrower.partition) != self.shared_as.map(|own| own.partition) {
            return Err(damaged("the objects are lent to another partition".into()));
        }
        match objects.find(|id| !found.objects.contains(id)) {
            Some(id) => Err(damaged(format!("the object {id:#x} is not lent"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(objects: &[u64]) -> LoanRecord {
        let borrower = Borrower { partition: [2; 16], index: 3 };
        LoanRecord { lender: [1; 16], loan: 7, borrower, objects: objects.iter().copied().collect() }
    }

    #[test]
    fn records_are_parsed_back_and_damaged_ones_are_not() {
        for objects in [&[][..], &[5], &[1, 2, u64::MAX]] {
            let contents = record(objects).contents();
            assert_eq!(LoanRecord::parse(&contents), Some(record(objects)));
            for length in 0..contents.len() {
                assert_eq!(LoanRecord::parse(&contents[..length]), None);
            }
            for at in 0..contents.len() {
                let mut damaged = contents.to_vec();
                damaged[at] ^= 1;
                assert_eq!(LoanRecord::parse(&damaged), None, "byte {at}");
            }
        }
    }

    #[test]
    fn an_object_is_lent_until_its_last_loan_ends() {
        let lent = Loans::default();
        lent.insert(record(&[1, 2]));
        lent.insert(LoanRecord { loan: 8, ..record(&[2, 3]) });
        assert_eq!(lent.list().iter().map(|lent| lent.loan).collect::<Vec<_>>(), [7, 8]);
        assert!(!lent.end(7, &[2, 9]) && lent.has(2) && lent.has(1));
        assert!(lent.end(7, &[1]) && !lent.has(1));
        lent.forget(7);
        assert!(!lent.end(8, &[2]) && !lent.has(2) && lent.has(3));
        assert!(lent.end(8, &[3]) && !lent.has(3));
    }
}
