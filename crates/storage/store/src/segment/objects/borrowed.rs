//! Objects of other partitions in the bucket that contain chunks of this one.
//!
//! Such an object is *borrowed*. It has an id and an account of this partition, like any other, and a row that says where it
//! is. The other partition keeps it for as long as this one uses it ([`lent`](super::lent)). Once that has no other use for it, the
//! object is brought home: the bucket copies it to this partition under the id that it has here already.

use super::super::accounts::{Account, Accounts, Rows};
use super::super::header::HEADER_BYTES;
use super::ObjectChunks;
use super::bucket::{Bucket, BucketError, ObjectPart, VisitObject};
use super::name::{object_name, parse_name};
use crate::home::BucketVersion;
use crate::{Batch, Family, KeyRange, MetaStore, StoreError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Prefix of the keys of rows in the family System; the id of the object follows.
const KEY_PREFIX: &[u8] = b"objects/borrowed/";
/// Greater than all keys with that prefix.
const BEHIND_KEYS: &[u8] = b"objects/borrowed0";

const ROW_VERSION: u8 = 1;
/// Length of a row without the folder's name.
const ROW_BYTES: usize = 49;

/// How long the identity of a lender counts as known.
const VERIFIED_FOR: Duration = Duration::from_secs(30);

/// Maximum number of objects that one round of maintenance brings home.
const HOME_MAX: usize = 64;

/// Where a borrowed object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BorrowedObject {
    /// UUID of the partition whose object it is.
    pub(super) lender: [u8; 16],
    /// The loan under which that partition keeps it.
    pub(super) loan: u64,
    /// The object's id there.
    pub(super) object: u64,
    /// Its length.
    pub(super) end: u64,
    /// The id in its records.
    pub(super) origin: u64,
    /// Full name, in the bucket, of the folder that contains it.
    pub(super) folder: Arc<str>,
}

/// Lender, loan, and ids of an object there and here.
type BorrowedPlace = ([u8; 16], u64, u64, u64);

impl BorrowedObject {
    fn place(&self, id: u64) -> BorrowedPlace {
        (self.lender, self.loan, self.object, id)
    }

    /// Returns the full name of the version of the partition that contains it.
    fn version_name(&self) -> String {
        let prefix = self.folder.rsplit_once('/').map_or("", |(prefix, _)| prefix);
        format!("{prefix}/{}", BucketVersion::NAME)
    }

    /// Whether the partition where it should be is still the lender. Another one that was created there may have an object of that
    /// name, with records of the same ids.
    fn is_at_lender(&self, bucket: &dyn Bucket) -> Result<bool, BucketError> {
        let from = self.version_name();
        let read = match bucket.read_other(&from, 0..BucketVersion::BYTES_MAX as u64) {
            Err(BucketError::Missing { .. }) => None,
            read => BucketVersion::parse(&read?.bytes, Path::new(&from)).ok(),
        };
        let is_there = read.is_some_and(|version| *version.uuid.as_bytes() == self.lender);
        if !is_there {
            tracing::error!(from, "the partition that has lent objects is not there any more");
        }
        Ok(is_there)
    }

    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.folder, object_name(self.object))
    }

    fn to_row(&self) -> Vec<u8> {
        let mut row = vec![ROW_VERSION];
        row.extend_from_slice(&self.lender);
        let numbers = [self.loan, self.object, self.end, self.origin];
        row.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        row.extend_from_slice(self.folder.as_bytes());
        row
    }

    fn from_row(row: &[u8]) -> Option<BorrowedObject> {
        let (head, folder) = row.split_at_checked(ROW_BYTES)?;
        let long = |at: usize| Some(u64::from_be_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let lender = head[1..17].try_into().ok()?;
        let folder = std::str::from_utf8(folder).ok().filter(|folder| !folder.is_empty())?;
        let (loan, object, end, origin) = (long(17)?, long(25)?, long(33)?, long(41)?);
        let read = BorrowedObject { lender, loan, object, end, origin, folder: folder.into() };
        (head[0] == ROW_VERSION && end >= HEADER_BYTES).then_some(read)
    }
}

fn key(id: u64) -> Vec<u8> {
    [KEY_PREFIX, &id.to_be_bytes()].concat()
}

impl State {
    fn insert(&mut self, id: u64, object: BorrowedObject) {
        self.ids.insert(object.place(id));
        self.objects.insert(id, object);
    }

    fn remove(&mut self, id: u64) {
        self.wanted.remove(&id);
        self.returned.remove(&id);
        if let Some(object) = self.objects.remove(&id) {
            self.ids.remove(&object.place(id));
        }
    }

    /// Returns the ids here of an object that was borrowed under a loan.
    fn ids_of(&self, (lender, loan): ([u8; 16], u64), object: u64) -> impl Iterator<Item = u64> {
        let range = (lender, loan, object, 0)..=(lender, loan, object, u64::MAX);
        self.ids.range(range).map(|(.., id)| *id)
    }
}

/// The borrowed objects of a partition.
#[derive(Default)]
pub(super) struct Borrowed(Mutex<State>);

#[derive(Default)]
struct State {
    /// By their ids here.
    objects: BTreeMap<u64, BorrowedObject>,
    ids: BTreeSet<BorrowedPlace>,
    /// Those that are to be brought home.
    wanted: BTreeSet<u64>,
    /// Those without an account, whose rows are still there.
    returned: BTreeSet<u64>,
    /// When the lender's identity was last compared, by folder.
    verified: BTreeMap<Arc<str>, Instant>,
    /// Lenders and loans of the transfers in progress, which may take more objects.
    transfers: Vec<([u8; 16], u64, Weak<()>)>,
    /// Whether a row is damaged: any object may be in use.
    is_damaged: bool,
}

impl Borrowed {
    /// Loads the rows in the database.
    pub(super) fn load(meta: &dyn MetaStore) -> Result<Borrowed, StoreError> {
        let mut state = State::default();
        meta.scan(Family::SYSTEM, KeyRange::ascending(KEY_PREFIX, BEHIND_KEYS), &mut |key, row| {
            let id = key[KEY_PREFIX.len()..].try_into().map(u64::from_be_bytes).ok();
            if let Some((id, object)) = id.zip(BorrowedObject::from_row(row)) {
                state.insert(id, object);
            } else {
                tracing::error!(key = %key.escape_ascii(), "the row of a borrowed object is damaged: no borrowed object is given back");
                state.is_damaged = true;
            }
            ControlFlow::Continue(())
        })?;
        Ok(Borrowed(Mutex::new(state)))
    }

    /// Returns the objects without an account.
    fn without_account(&self, accounts: &Accounts) -> Vec<(u64, BorrowedObject)> {
        let state = self.0.lock();
        let gone = state.objects.iter().filter(|(id, _)| !accounts.has(**id));
        gone.map(|(id, object)| (*id, object.clone())).collect()
    }

    /// Records that objects have no account any more.
    pub(super) fn set_returned(&self, ids: &[u64]) {
        let state = &mut *self.0.lock();
        state.returned.extend(ids.iter().copied().filter(|id| state.objects.contains_key(id)));
    }

    /// Returns the objects whose rows are to be removed.
    pub(super) fn returned(&self) -> Vec<u64> {
        self.0.lock().returned.iter().copied().collect()
    }

    /// Records what an object is.
    pub(super) fn complete(&self, id: u64, end: u64, origin: u64) {
        if let Some(object) = self.0.lock().objects.get_mut(&id) {
            (object.end, object.origin) = (end, origin);
        }
    }

    pub(super) fn get(&self, id: u64) -> Option<BorrowedObject> {
        self.0.lock().objects.get(&id).cloned()
    }

    pub(super) fn insert(&self, id: u64, object: BorrowedObject) {
        self.0.lock().insert(id, object);
    }

    /// Returns the number of objects.
    pub(super) fn count(&self) -> u64 {
        self.0.lock().objects.len() as u64
    }

    /// Forgets an object that is here now, or has no account any more.
    pub(super) fn forget(&self, id: u64) {
        self.0.lock().remove(id);
    }

    /// Appends the row of an object if it is borrowed.
    pub(super) fn put_row(&self, id: u64, batch: &mut Batch) {
        if let Some(object) = self.get(id) {
            batch.put(Family::SYSTEM, key(id), object.to_row());
        }
    }

    /// Removes the row of an object if it is borrowed.
    pub(super) fn delete_row(&self, id: u64, batch: &mut Batch) {
        if self.0.lock().objects.contains_key(&id) {
            batch.delete(Family::SYSTEM, key(id));
        }
    }

    /// Records that objects of a loan may be taken until the result is dropped.
    pub(super) fn begin_transfer(&self, lender: [u8; 16], loan: u64) -> Arc<()> {
        let held = Arc::default();
        let mut state = self.0.lock();
        state.transfers.retain(|(.., held)| held.strong_count() > 0);
        state.transfers.push((lender, loan, Arc::downgrade(&held)));
        held
    }

    /// Returns those of a lender's objects that are in use here under a loan. With `brings_home`, these are wanted from now on.
    fn used(&self, (lender, loan): ([u8; 16], u64), objects: &[u64], brings_home: bool) -> Vec<u64> {
        let state = &mut *self.0.lock();
        let goes_on = |(of, begun, held): &([u8; 16], u64, Weak<()>)| {
            (*of, *begun) == (lender, loan) && held.strong_count() > 0
        };
        if state.is_damaged || state.transfers.iter().any(goes_on) {
            return objects.to_vec();
        }
        let used = |object: &u64| state.ids_of((lender, loan), *object).next().is_some();
        let found: Vec<u64> = objects.iter().copied().filter(used).collect();
        if brings_home {
            let ids: Vec<u64> =
                found.iter().flat_map(|object| state.ids_of((lender, loan), *object)).collect();
            state.wanted.extend(ids);
        }
        found
    }

    fn is_verified(&self, folder: &str) -> bool {
        self.0.lock().verified.get(folder).is_some_and(|at| at.elapsed() < VERIFIED_FOR)
    }

    /// Leaves an object where it is, until it is wanted again.
    fn stay(&self, id: u64) {
        self.0.lock().wanted.remove(&id);
    }

    fn wanted(&self) -> Vec<u64> {
        self.0.lock().wanted.iter().copied().take(HOME_MAX).collect()
    }
}

/// The objects of a partition, wherever they are.
pub(super) struct Located {
    pub(super) bucket: Arc<dyn Bucket>,
    pub(super) borrowed: Arc<Borrowed>,
}

impl Located {
    fn of(&self, name: &str) -> Option<BorrowedObject> {
        parse_name(name).and_then(|id| self.borrowed.get(id))
    }
}

impl Bucket for Located {
    fn begin(&self, name: &str, contents: &Bytes) {
        self.bucket.begin(name, contents);
    }

    fn finish(&self, names: &[String]) -> Result<(), BucketError> {
        self.bucket.finish(names)
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        let Some(object) = self.of(name) else { return self.bucket.read(name, range) };
        if !self.borrowed.is_verified(&object.folder) {
            if !object.is_at_lender(&*self.bucket)? {
                return self.bucket.read(name, range);
            }
            self.borrowed.0.lock().verified.insert(Arc::clone(&object.folder), Instant::now());
        }
        match self.bucket.read_other(&object.full_name(), range.clone()) {
            // It may have been brought home meanwhile, or before the metadata was restored from a copy.
            Err(BucketError::Missing { .. }) => self.bucket.read(name, range),
            read => read,
        }
    }

    fn read_other(&self, from: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.bucket.read_other(from, range)
    }

    fn copy(&self, from: &str, name: &str) -> Result<u64, BucketError> {
        self.bucket.copy(from, name)
    }

    /// Removes objects of this partition only.
    fn remove(&self, names: &[String]) -> Result<(), BucketError> {
        self.bucket.remove(names)
    }

    fn list(&self, after: &str, visit: VisitObject<'_>) -> Result<(), BucketError> {
        self.bucket.list(after, visit)
    }

    fn place(&self) -> String {
        self.bucket.place()
    }
}

/// Returns the objects of a partition with this metadata, the borrowed ones included, and the ids of these.
pub(in super::super) fn located(
    bucket: Arc<dyn Bucket>,
    meta: &dyn MetaStore,
    (rows, damaged): &Rows,
) -> Result<(Arc<dyn Bucket>, Vec<u64>), StoreError> {
    let borrowed = Borrowed::load(meta)?;
    let mut state = borrowed.0.lock();
    if damaged.is_empty() {
        state.objects.retain(|id, _| rows.contains_key(id));
    }
    let ids = state.objects.keys().copied().collect();
    drop(state);
    Ok((Arc::new(Located { bucket, borrowed: Arc::new(borrowed) }), ids))
}

impl ObjectChunks {
    /// See [`ChunkStore::used_of_loan`](crate::ChunkStore::used_of_loan).
    pub(super) fn used_under(
        &self,
        of: ([u8; 16], u64),
        objects: &[u64],
        brings_home: bool,
    ) -> Result<Vec<u64>, StoreError> {
        self.may_write()?;
        let used = self.borrowed.used(of, objects, brings_home);
        // What is not used any more must not be used again by the next owner. A commit shows that there is none yet.
        self.meta.sync(self.write_accounts_with(|batch| self.put_epoch(batch))?)?;
        Ok(used)
    }

    /// Brings home objects that their partitions have no other use for, as far as the bucket does that now.
    pub(super) fn bring_wanted_home(&self, rest: &mut dyn FnMut() -> bool) -> Result<(), StoreError> {
        let _one = self.homing.lock();
        let mut copied = Vec::new();
        for id in self.borrowed.wanted() {
            if !rest() {
                break;
            }
            match self.copy_home(id) {
                Ok(true) => copied.push(id),
                Ok(false) => self.borrowed.stay(id),
                Err(BucketError::Unavailable(why)) => {
                    tracing::debug!(why, "the bucket does not copy objects now");
                    break;
                }
                Err(error) => {
                    tracing::error!(object = object_name(id), %error, "cannot bring an object home");
                    self.borrowed.stay(id);
                }
            }
        }
        self.own(&copied)
    }

    /// Makes a borrowed object one of this partition's own.
    pub(super) fn bring_home(&self, id: u64) -> Result<(), StoreError> {
        let _one = self.homing.lock();
        let place = || self.place_of(&object_name(id));
        let is_copied = self.copy_home(id).map_err(|error| match error {
            BucketError::Unavailable(what) => StoreError::Unavailable { place: place(), what },
            other => StoreError::Damaged { place: place(), what: other.to_string() },
        })?;
        if is_copied { self.own(&[id]) } else { Ok(()) }
    }

    /// Copies a borrowed object to this partition. Returns false if it is not borrowed, or dead: it is given back soon then.
    fn copy_home(&self, id: u64) -> Result<bool, BucketError> {
        let Some(object) = self.borrowed.get(id) else { return Ok(false) };
        let is_dead = {
            let accounts = self.accounts.lock();
            !accounts.has(id) || accounts.is_used_up(id)
        };
        if is_dead {
            return Ok(false);
        }
        let (from, name) = (object.full_name(), object_name(id));
        // What is made this partition's own is compared with nothing later.
        if !object.is_at_lender(&*self.bucket)? {
            return Err(BucketError::Missing { name: from });
        }
        let bytes = match self.bucket.copy(&from, &name) {
            Err(BucketError::Refused(why)) => {
                tracing::debug!(from, why, "the bucket does not copy an object");
                let read = self.bucket.read_other(&from, 0..object.end)?;
                self.bucket.begin(&name, &read.bytes);
                self.bucket.finish(std::slice::from_ref(&name))?;
                read.object_bytes
            }
            copied => copied?,
        };
        if bytes == object.end {
            return Ok(true);
        }
        Err(BucketError::Refused(format!("{from} has {bytes} bytes instead of {}", object.end)))
    }

    /// Commits that these objects are in this partition's folder now.
    fn own(&self, copied: &[u64]) -> Result<(), StoreError> {
        if copied.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        for id in copied {
            self.borrowed.delete_row(*id, &mut batch);
        }
        self.meta.sync(self.meta.commit(batch)?)?;
        for id in copied {
            self.borrowed.forget(*id);
        }
        tracing::info!(place = self.bucket.place(), count = copied.len(), "objects were brought home");
        Ok(())
    }
}

/// Returns the borrowed objects. One without an account was given back, and its row is removed; but if accounts are damaged, it gets a
/// new one. Returns whether there is such an object.
pub(super) fn load(
    meta: &dyn MetaStore,
    accounts: &mut Accounts,
    adopts: bool,
) -> Result<(Arc<Borrowed>, bool), StoreError> {
    let borrowed = Borrowed::load(meta)?;
    let gone = borrowed.without_account(accounts);
    let (mut batch, is_adopted) = (Batch::new(), adopts && !gone.is_empty());
    for (id, object) in gone {
        if adopts {
            accounts.take_over(id, Account::adopted(id, object.end, Some(object.origin)));
        } else {
            borrowed.delete_row(id, &mut batch);
            borrowed.forget(id);
        }
    }
    if !batch.is_empty() {
        meta.commit(batch)?;
    }
    Ok((Arc::new(borrowed), is_adopted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_parsed_back_and_damaged_ones_are_not() {
        let (lender, loan, object, end, origin) = ([7; 16], 9, 1 << 36 | 5, 4096, 3);
        let object = BorrowedObject { lender, loan, object, end, origin, folder: "a/chunks".into() };
        let row = object.to_row();
        assert_eq!(BorrowedObject::from_row(&row), Some(object));
        let other_version = [&[2], &row[1..]].concat();
        for damaged in [&row[..0], &row[..ROW_BYTES - 1], &row[..ROW_BYTES], &other_version] {
            assert_eq!(BorrowedObject::from_row(damaged), None);
        }
        assert_eq!(BorrowedObject::from_row(&[&row[..ROW_BYTES], &[0xff]].concat()), None, "no name");
        assert!(key(0).as_slice() > KEY_PREFIX && key(u64::MAX).as_slice() < BEHIND_KEYS);
    }
}
