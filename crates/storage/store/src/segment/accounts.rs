//! Accounts of how much of each segment is still live.
//!
//! Only *dead* bytes are persisted, never live ones. They only grow, so a row that is out of date after a
//! crash keeps too much rather than too little. See docs/reference/formats/partition.md.

use super::audit::SegmentAccount;
use super::header::HEADER_BYTES;
use crate::{Batch, Change, ChunkAddress, Family, KeyRange, MetaStore, SegmentUse, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

const ROW_VERSION: u8 = 1;
const ROW_BYTES: usize = 18;
/// The row of a segment that was written as another one, a copy or borrowed, ends with its origin.
const ROW_VERSION_COPY: u8 = 2;
const ROW_BYTES_COPY: usize = ROW_BYTES + 8;
/// Greater than every 8-byte key.
const BEHIND_ALL: [u8; 9] = [0xff; 9];

/// Key in the family System that exists if the last run closed its segments cleanly and left no orphans.
const CLOSED_KEY: &[u8] = b"segments/closed";

/// Whether the previous run ended cleanly.
pub(super) fn is_closed(meta: &dyn MetaStore) -> Result<bool, StoreError> {
    Ok(meta.get(Family::SYSTEM, CLOSED_KEY)?.is_some())
}

/// Whether the previous run ended cleanly; clears the mark for this run.
pub(super) fn take_closed(meta: &dyn MetaStore) -> Result<bool, StoreError> {
    let was_closed = is_closed(meta)?;
    if was_closed {
        let mut batch = Batch::new();
        remove_closed(&mut batch);
        // Durable before the first segment, whose id is reserved by a later commit.
        meta.commit(batch)?;
    }
    Ok(was_closed)
}

/// Removes the mark: what follows may be another run than the one that has set it.
pub(crate) fn remove_closed(batch: &mut Batch) {
    batch.delete(Family::SYSTEM, CLOSED_KEY);
}

/// Records that the run ends cleanly.
pub(super) fn put_closed(batch: &mut Batch) {
    batch.put(Family::SYSTEM, CLOSED_KEY, [ROW_VERSION]);
}

/// Account of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    /// End offset of the last record reserved so far.
    pub(super) end: u64,
    /// Bytes of records that no metadata references, fillers included.
    pub(super) dead: u64,
    /// Bytes of these that were released since the open.
    released: u64,
    /// Whether appending to the segment has ended.
    pub(super) sealed: bool,
    /// For a segment that was written as another partition's, the id in its records.
    origin: Option<u64>,
    /// Whether another process may create the segment. Without a row, the segment is an orphan after a restart.
    is_reserved: bool,
    /// Whether the account differs from its row in the database.
    changed: bool,
    /// Whether the last collection found it entirely dead. Readers that took an address before the last
    /// reference was removed have had time to finish.
    doomed: bool,
}

impl Account {
    pub(super) fn new(end: u64) -> Account {
        let (dead, released, sealed, origin) = (0, 0, false, None);
        let (is_reserved, changed, doomed) = (false, true, false);
        Account { end, dead, released, sealed, origin, is_reserved, changed, doomed }
    }

    /// The account of a segment of an earlier run whose row was damaged. `origin` is the id in its header, if that is sound.
    pub(super) fn adopted(id: u64, end: u64, origin: Option<u64>) -> Account {
        Account { origin: origin.filter(|origin| *origin != id), ..Account::new(end) }
    }

    /// Returns the persistent part.
    pub(super) fn facts(self) -> SegmentAccount {
        SegmentAccount { sealed: self.sealed, end: self.end, dead: self.dead, origin: self.origin }
    }

    fn is_dead(&self) -> bool {
        self.sealed && self.dead >= self.end - HEADER_BYTES
    }

    /// Whether it holds records and all of them are dead.
    fn is_used_up(&self) -> bool {
        self.end > HEADER_BYTES && self.dead >= self.end - HEADER_BYTES
    }

    fn to_row(self) -> Vec<u8> {
        let version = if self.origin.is_some() { ROW_VERSION_COPY } else { ROW_VERSION };
        let mut row = vec![version, u8::from(self.sealed)];
        row.extend_from_slice(&self.end.to_be_bytes());
        row.extend_from_slice(&self.dead.to_be_bytes());
        row.extend(self.origin.iter().flat_map(|origin| origin.to_be_bytes()));
        row
    }

    fn from_row(row: &[u8]) -> Option<Account> {
        let long = |at: usize| Some(u64::from_be_bytes(row.get(at..at + 8)?.try_into().ok()?));
        let origin = match (row.first()?, row.len()) {
            (&ROW_VERSION, ROW_BYTES) => None,
            (&ROW_VERSION_COPY, ROW_BYTES_COPY) => Some(long(ROW_BYTES)?),
            _ => return None,
        };
        let (end, dead) = (long(2)?, long(10)?);
        let good = row[1] <= 1 && end >= HEADER_BYTES && dead <= end - HEADER_BYTES;
        let read = Account { dead, sealed: row[1] == 1, origin, changed: false, ..Account::new(end) };
        good.then_some(read)
    }
}

/// Accounts by segment, and keys of rows that cannot be read.
pub(super) type Rows = (BTreeMap<u64, Account>, Vec<Vec<u8>>);

/// Accounts of all segments of a partition.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    segments: BTreeMap<u64, Account>,
    /// Segments without a file, whose rows are to be removed.
    obsolete: BTreeSet<u64>,
    /// Segments whose file this run removed.
    removed: BTreeSet<u64>,
    /// Sums over `segments`.
    sums: Sums,
}

/// Bytes of segments, and their dead bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bytes: u64,
    dead: u64,
}

impl Sums {
    fn add(&mut self, account: &Account) {
        self.bytes += account.end;
        self.dead += account.dead;
    }

    fn subtract(&mut self, account: &Account) {
        self.bytes -= account.end;
        self.dead -= account.dead;
    }
}

impl Accounts {
    /// Loads the rows in the database, and the keys of damaged ones.
    pub(super) fn load(meta: &dyn MetaStore) -> Result<Rows, StoreError> {
        let mut rows = BTreeMap::new();
        let mut damaged = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            let id = key.try_into().map(u64::from_be_bytes).ok();
            if let (Some(id), Some(account)) = (id, Account::from_row(value)) {
                rows.insert(id, account);
            } else {
                tracing::warn!(key = %key.escape_ascii(), "ignoring a damaged account of a segment");
                damaged.push(key.to_vec());
            }
            ControlFlow::Continue(())
        };
        meta.scan(Family::SEGMENTS, KeyRange::ascending(&[], &BEHIND_ALL), &mut visit)?;
        Ok((rows, damaged))
    }

    /// Adds a segment of an earlier run, sealed.
    pub(super) fn take_over(&mut self, id: u64, mut account: Account) {
        account.changed |= !account.sealed;
        account.sealed = true;
        self.insert(id, account);
    }

    fn insert(&mut self, id: u64, account: Account) {
        self.sums.add(&account);
        if let Some(before) = self.segments.insert(id, account) {
            self.sums.subtract(&before);
        }
    }

    pub(super) fn forget_row(&mut self, id: u64) {
        self.obsolete.insert(id);
    }

    /// Adds a segment whose first record is at `end`; the space between the header and there is dead.
    pub(super) fn begin(&mut self, id: u64, end: u64) {
        self.insert(id, Account { dead: end - HEADER_BYTES, ..Account::new(end) });
    }

    /// Adds a segment that another process may create. It has no row before it is [complete](Self::complete).
    pub(super) fn reserve(&mut self, id: u64) {
        self.insert(id, Account { is_reserved: true, ..Account::new(HEADER_BYTES) });
    }

    /// Records that the segment is reserved up to `end`; the last `filler_bytes` are a filler and therefore
    /// dead.
    pub(super) fn set_end(&mut self, id: u64, end: u64, filler_bytes: u32) {
        self.change(id, |account| {
            account.end = account.end.max(end);
            account.kill(filler_bytes.into());
        });
    }

    pub(super) fn seal(&mut self, id: u64) {
        self.change(id, |account| account.sealed = true);
    }

    /// Records that the segment is complete. Everything in it is live. `origin` is the id in its records if these were written to
    /// another partition's segment.
    pub(super) fn complete(&mut self, id: u64, end: u64, origin: Option<u64>) {
        self.change(id, |account| {
            *account = Account { sealed: true, origin, ..Account::new(end) };
        });
    }

    /// Counts bytes of a segment as dead that nothing refers to or will.
    pub(super) fn abandon(&mut self, id: u64, bytes: u64) {
        self.change(id, |account| account.kill(bytes));
    }

    /// Records that nothing refers or will refer to the segment, whether it exists or not.
    pub(super) fn abandon_all(&mut self, id: u64) {
        self.change(id, |account| {
            account.sealed = true;
            account.kill(u64::MAX);
        });
    }

    /// Returns the id in the records of a segment: its own, unless it was written as another one.
    pub(super) fn origin(&self, id: u64) -> u64 {
        self.segments.get(&id).and_then(|account| account.origin).unwrap_or(id)
    }

    /// Whether the segment was written as another one: a copy, or borrowed.
    pub(super) fn is_copy(&self, id: u64) -> bool {
        self.segments.get(&id).is_some_and(|account| account.origin.is_some())
    }

    /// Returns the row of a segment, which stays among those to be written.
    pub(super) fn row_of(&self, id: u64) -> Batch {
        let mut batch = Batch::new();
        if let Some(account) = self.segments.get(&id) {
            batch.put(Family::SEGMENTS, id.to_be_bytes(), account.to_row());
        }
        batch
    }

    /// Whether everything ever put into this segment is dead.
    pub(super) fn is_used_up(&self, id: u64) -> bool {
        self.segments.get(&id).is_some_and(Account::is_used_up)
    }

    /// Counts a record as dead; returns false if the address is unknown.
    pub(super) fn release(&mut self, address: ChunkAddress) -> bool {
        let bytes = u64::from(address.stored_bytes);
        let end = address.offset.saturating_add(bytes);
        let known = self.segments.get(&address.segment).is_some_and(|account| end <= account.end);
        if known {
            self.change(address.segment, |account| account.kill(bytes));
        }
        known
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Account)) {
        if let Some(account) = self.segments.get_mut(&id) {
            self.sums.subtract(account);
            change(account);
            self.sums.add(account);
            account.changed = true;
        }
    }

    /// Whether this address was in a segment when the store was opened, or is now.
    pub(super) fn had(&self, address: ChunkAddress) -> bool {
        let end = address.offset.saturating_add(address.stored_bytes.into());
        let is_there = self.segments.get(&address.segment).is_some_and(|account| end <= account.end);
        is_there || self.removed.contains(&address.segment)
    }

    /// Applies a recount: `named` has the bytes of each segment below `limit` that were referenced when the
    /// store was opened; a segment without an entry had none. Returns the number of bytes newly found dead.
    pub(super) fn recount(&mut self, limit: u64, named: &BTreeMap<u64, u64>) -> u64 {
        let mut found = 0;
        for (id, account) in self.segments.range_mut(..limit) {
            let before = account.dead;
            self.sums.subtract(account);
            account.recount(named.get(id).copied().unwrap_or(0));
            self.sums.add(account);
            found += account.dead.saturating_sub(before);
        }
        found
    }

    /// Returns the changed rows as a batch.
    pub(super) fn changed_rows(&mut self) -> Batch {
        self.changed_rows_below(u64::MAX)
    }

    /// Returns the changed rows of segments below `limit` as a batch.
    pub(super) fn changed_rows_below(&mut self, limit: u64) -> Batch {
        let mut batch = Batch::new();
        for id in std::mem::take(&mut self.obsolete) {
            batch.delete(Family::SEGMENTS, id.to_be_bytes());
        }
        let to_write = |(_, account): &(&u64, &mut Account)| account.changed && !account.is_reserved;
        for (id, account) in self.segments.range_mut(..limit).filter(to_write) {
            account.changed = false;
            batch.put(Family::SEGMENTS, id.to_be_bytes(), account.to_row());
        }
        batch
    }

    /// Takes back a batch of changed rows that was not committed.
    pub(super) fn not_written(&mut self, batch: &Batch) {
        let id = |key: &[u8]| key.try_into().map(u64::from_be_bytes).ok();
        for change in batch.changes() {
            match change {
                Change::Put(_, key, _) => {
                    if let Some(account) = id(key).and_then(|id| self.segments.get_mut(&id)) {
                        account.changed = true;
                    }
                }
                Change::Delete(_, key) => self.obsolete.extend(id(key)),
            }
        }
    }

    /// Whether there is an account of this segment.
    pub(super) fn has(&self, id: u64) -> bool {
        self.segments.contains_key(&id)
    }

    /// Returns the end of this segment.
    pub(super) fn end(&self, id: u64) -> Option<u64> {
        self.segments.get(&id).map(|account| account.end)
    }

    /// Whether the segment of this address ends before the chunk does.
    pub(super) fn ends_before(&self, address: ChunkAddress) -> bool {
        let end = address.offset.saturating_add(address.stored_bytes.into());
        self.segments.get(&address.segment).is_some_and(|account| end > account.end)
    }

    /// Returns the segments that are entirely dead and already were at the last call.
    pub(super) fn collect(&mut self) -> Vec<u64> {
        let mut found = Vec::new();
        for (id, account) in self.segments.iter_mut().filter(|(_, account)| account.is_dead()) {
            if account.doomed {
                found.push(*id);
            }
            account.doomed = true;
        }
        found
    }

    /// Returns sealed segments of which at least `dead_percent` percent is dead, but not all.
    pub(super) fn sparse(&self, dead_percent: u8) -> Vec<SegmentUse> {
        let percent = u64::from(dead_percent);
        let is_sparse =
            |used: &SegmentUse| used.dead.saturating_mul(100) >= used.bytes.saturating_mul(percent);
        self.sealed_below(u64::MAX).filter(is_sparse).collect()
    }

    /// Returns sealed segments below this id that are not entirely dead, in the order of their ids.
    pub(super) fn sealed_below(&self, id: u64) -> impl Iterator<Item = SegmentUse> {
        let uses = self.segments.range(..id).filter(|(_, account)| account.sealed && !account.is_dead());
        uses.map(|(&segment, account)| SegmentUse {
            segment,
            bytes: account.end - HEADER_BYTES,
            dead: account.dead,
        })
    }

    /// Returns the bytes of entirely dead sealed segments.
    pub(super) fn doomed_bytes(&self) -> u64 {
        self.segments.values().filter(|account| account.is_dead()).map(|account| account.end).sum()
    }

    /// Drops the account of a reserved segment that does not exist.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(account) = self.segments.remove(&id) {
            self.sums.subtract(&account);
        }
    }

    /// Records that the file of this segment has been removed.
    pub(super) fn remove(&mut self, id: u64) {
        self.forget(id);
        self.removed.insert(id);
        self.obsolete.insert(id);
    }

    /// Returns the number of segments, their bytes, and their dead bytes.
    pub(super) fn totals(&self) -> (u64, u64, u64) {
        (self.segments.len() as u64, self.sums.bytes, self.sums.dead)
    }
}

impl Account {
    fn kill(&mut self, bytes: u64) {
        self.released = self.released.saturating_add(bytes);
        self.dead = self.dead.saturating_add(bytes).min(self.end - HEADER_BYTES);
    }

    /// Bytes referenced at the open and not released since are live, all others are dead.
    fn recount(&mut self, named: u64) {
        let room = self.end - HEADER_BYTES;
        let live = named.saturating_sub(self.released).min(room);
        self.changed |= self.dead != room - live;
        self.dead = room - live;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryMeta;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn address(segment: u64, offset: u64, stored_bytes: u32) -> ChunkAddress {
        ChunkAddress { segment, offset, stored_bytes }
    }

    fn with_segment(end: u64) -> Accounts {
        let mut accounts = Accounts::default();
        accounts.begin(1, HEADER_BYTES);
        accounts.set_end(1, end, 0);
        accounts
    }

    #[test]
    fn only_sealed_segments_that_stay_dead_are_collected() {
        let mut accounts = with_segment(132);
        assert!(accounts.release(address(1, 32, 60)));
        assert!(accounts.release(address(1, 92, 40)));
        assert!(accounts.collect().is_empty() && accounts.collect().is_empty(), "not sealed");
        accounts.seal(1);
        assert!(accounts.collect().is_empty(), "just died");
        assert_eq!(accounts.collect(), [1]);
    }

    #[test]
    fn addresses_of_no_record_are_not_counted() {
        let mut accounts = with_segment(132);
        assert!(!accounts.release(address(2, 32, 60)));
        assert!(!accounts.release(address(1, 100, 60)));
        assert!(!accounts.release(address(1, u64::MAX, 60)));
        assert_eq!(accounts.totals(), (1, 132, 0));
    }

    #[test]
    fn rows_come_back_and_damaged_ones_are_ignored() {
        let meta = MemoryMeta::new();
        let mut accounts = with_segment(132);
        accounts.release(address(1, 32, 60));
        accounts.begin(2, HEADER_BYTES);
        accounts.seal(2);
        meta.commit(accounts.changed_rows()).unwrap();
        assert!(accounts.changed_rows().is_empty());
        let mut bad = Batch::new();
        bad.put(Family::SEGMENTS, 3u64.to_be_bytes(), "short");
        bad.put(Family::SEGMENTS, "odd key", Account::new(32).to_row());
        bad.put(Family::SEGMENTS, 4u64.to_be_bytes(), Account { dead: 1, ..Account::new(32) }.to_row());
        meta.commit(bad).unwrap();
        let rows = Accounts::load(&meta).unwrap().0;
        assert_eq!(rows.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!((rows[&1].end, rows[&1].dead, rows[&1].sealed), (132, 60, false));
        assert_eq!((rows[&2].end, rows[&2].dead, rows[&2].sealed), (32, 0, true));
    }

    #[test]
    fn a_recount_finds_leaks_and_keeps_this_run() {
        let mut accounts = Accounts::default();
        (1..=3).for_each(|id| accounts.take_over(id, Account::new(132)));
        accounts.begin(4, HEADER_BYTES);
        accounts.set_end(4, 132, 0);
        accounts.seal(4);
        // Referenced when the recount started, and released before it finished.
        accounts.release(address(2, 32, 30));
        assert_eq!(accounts.recount(4, &BTreeMap::from([(2, 70), (3, 100)])), 100 + 30);
        let dead =
            |accounts: &Accounts| accounts.segments.values().map(|account| account.dead).collect::<Vec<_>>();
        assert_eq!(dead(&accounts), [100, 60, 0, 0]);
        accounts.release(address(2, 62, 40));
        assert_eq!(dead(&accounts), [100, 100, 0, 0]);
        accounts.collect();
        assert_eq!(accounts.collect(), [1, 2]);
    }

    #[test]
    fn a_recount_corrects_high_counts() {
        let mut accounts = Accounts::default();
        accounts.take_over(1, Account { dead: 90, sealed: true, ..Account::new(132) });
        assert_eq!(accounts.recount(2, &BTreeMap::from([(1, 100)])), 0);
        assert_eq!(accounts.totals(), (1, 132, 0));
    }

    #[test]
    fn totals_are_the_sums_of_all_accounts() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut accounts = Accounts::default();
        for _ in 0..2000 {
            let id = random.random_range(0..10);
            let some = address(id, HEADER_BYTES, random.random_range(0..50));
            match random.random_range(0..8) {
                0 => accounts.begin(id, HEADER_BYTES + random.random_range(0..20)),
                1 => accounts.take_over(id, Account { dead: 9, ..Account::new(random.random_range(50..90)) }),
                2 => accounts.set_end(id, random.random_range(40..200), random.random_range(0..20)),
                3 => accounts.seal(id),
                4 => accounts.remove(id),
                5 => _ = accounts.recount(id, &BTreeMap::from([(0, 30), (3, 70)])),
                _ => _ = accounts.release(some),
            }
            let of = |what: fn(&Account) -> u64| accounts.segments.values().map(what).sum::<u64>();
            let sums =
                (accounts.segments.len() as u64, of(|account| account.end), of(|account| account.dead));
            assert_eq!(accounts.totals(), sums);
        }
    }
}
