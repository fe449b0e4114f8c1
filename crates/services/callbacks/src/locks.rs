//! Advisory locks on files (RXAFS_SetLock, ExtendLock, ReleaseLock).
//!
//! The protocol does not record who holds a lock: it counts the readers, or one writer, of each file, and all
//! of them expire together five minutes after the last call that touched them. Locks are kept in memory. A
//! restart releases them, and their holders' next extension fails. On partitions that another server can take over,
//! they are records, too, which that server restores with five minutes more: it does not know when they expire.

use base::{AbortCode, Fid, Monotonic, PartitionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thiserror::Error;

/// How long a lock lasts unless it is extended (AFS_LOCKWAIT).
pub const LOCK_TIME: Duration = Duration::from_secs(5 * 60);

/// Type of the requested lock (ViceLockType).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared with other readers (LockRead = 0).
    Read,
    /// Exclusive (LockWrite = 1).
    Write,
}

/// The reason why a lock was not granted or extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LockError {
    /// Another client holds a conflicting lock.
    #[error("the file is locked")]
    Held,
    /// There is no lock to extend.
    #[error("there is no lock to extend")]
    Missing,
    /// The table is full of unexpired locks.
    #[error("too many locks")]
    TooMany,
}

impl LockError {
    /// Returns the wire code, which clients map to EWOULDBLOCK, EINVAL or ENOLCK.
    pub fn abort_code(self) -> AbortCode {
        match self {
            LockError::Held => AbortCode::UAEAGAIN,
            LockError::Missing => AbortCode::UAEINVAL,
            LockError::TooMany => AbortCode::UAENOLCK,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    /// Number of readers, or -1 for a writer; never 0.
    count: i32,
    until: Monotonic,
    /// The partition that has a record of it.
    recorded: Option<PartitionId>,
}

/// The locks of one server.
#[derive(Debug)]
pub struct Locks {
    held: BTreeMap<Fid, Lock>,
    locks_max: usize,
}

impl Locks {
    /// Creates a table for at most `locks_max` locked files.
    pub fn new(locks_max: usize) -> Locks {
        Locks { held: BTreeMap::new(), locks_max }
    }

    /// Locks `fid`, and returns its new count, which is to be recorded. Expired locks are ignored.
    ///
    /// # Errors
    /// `Held`, `TooMany`.
    pub fn set(&mut self, now: Monotonic, fid: Fid, kind: LockKind) -> Result<i32, LockError> {
        let count = match (self.count(now, fid), kind) {
            (held, LockKind::Read) if held >= 0 => held + 1,
            (0, LockKind::Write) => -1,
            _ => return Err(LockError::Held),
        };
        self.make_room(now, fid)?;
        let recorded = self.held.get(&fid).and_then(|lock| lock.recorded);
        self.held.insert(fid, Lock { count, until: now + LOCK_TIME, recorded });
        Ok(count)
    }

    /// Extends the locks on `fid` for another five minutes. As in OpenAFS, this also revives an expired lock
    /// that no other client has taken. Returns the count if `partition`, which has the file, has no record of it.
    ///
    /// # Errors
    /// `Missing`.
    pub fn extend(
        &mut self,
        now: Monotonic,
        fid: Fid,
        partition: PartitionId,
    ) -> Result<Option<i32>, LockError> {
        let lock = self.held.get_mut(&fid).ok_or(LockError::Missing)?;
        lock.until = now + LOCK_TIME;
        Ok((lock.recorded != Some(partition)).then_some(lock.count))
    }

    /// Releases one lock on `fid`. Returns the count that is left, with 0 if it was the last, or `None` if there was none. If none
    /// is left, waiting clients must be notified by a callback break.
    pub fn release(&mut self, fid: Fid) -> Option<i32> {
        let lock = self.held.get_mut(&fid)?;
        lock.count = (lock.count - 1).max(0);
        let left = lock.count;
        if left == 0 {
            self.held.remove(&fid);
        }
        Some(left)
    }

    /// Notes that a partition has a record of the locks on `fid`.
    pub fn recorded(&mut self, fid: Fid, partition: PartitionId) {
        if let Some(lock) = self.held.get_mut(&fid) {
            lock.recorded = Some(partition);
        }
    }

    /// Replaces the locks recorded by a partition with the contents of its records: files and counts. They expire in
    /// five minutes. Locks beyond the limit of the table are left out.
    pub fn restore(&mut self, now: Monotonic, partition: PartitionId, records: &[(Fid, i32)]) {
        self.held.retain(|_, lock| lock.recorded != Some(partition));
        for &(fid, count) in records {
            if self.make_room(now, fid).is_ok() {
                let lock = Lock { count, until: now + LOCK_TIME, recorded: Some(partition) };
                self.held.insert(fid, lock);
            }
        }
    }

    /// Returns the partitions with records of expired locks.
    pub fn partitions_with_expired(&self, now: Monotonic) -> BTreeSet<PartitionId> {
        self.held.values().filter(|lock| now > lock.until).filter_map(|lock| lock.recorded).collect()
    }

    /// Returns the expired locks that a partition has recorded, whose records are to be deleted; an extension of one is
    /// recorded anew.
    pub fn take_expired(&mut self, now: Monotonic, partition: PartitionId) -> Vec<Fid> {
        let is_expired = |lock: &Lock| now > lock.until && lock.recorded == Some(partition);
        let expired = self.held.iter_mut().filter(|(_, lock)| is_expired(lock));
        let take = |(fid, lock): (&Fid, &mut Lock)| {
            lock.recorded = None;
            *fid
        };
        expired.map(take).collect()
    }

    /// Returns the unexpired locks on `fid`: the number of readers, -1 for a writer, or 0 for none (lockCount
    /// in AFSFetchStatus).
    pub fn count(&self, now: Monotonic, fid: Fid) -> i32 {
        self.held.get(&fid).filter(|lock| now <= lock.until).map_or(0, |lock| lock.count)
    }

    /// Drops the locks on a deleted file. Returns the partition that has a record of them.
    pub fn forget(&mut self, fid: Fid) -> Option<PartitionId> {
        self.held.remove(&fid)?.recorded
    }

    fn make_room(&mut self, now: Monotonic, fid: Fid) -> Result<(), LockError> {
        if self.held.len() < self.locks_max || self.held.contains_key(&fid) {
            return Ok(());
        }
        self.held.retain(|_, lock| now <= lock.until);
        if self.held.len() < self.locks_max { Ok(()) } else { Err(LockError::TooMany) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::VolumeId;

    fn partitions() -> [PartitionId; 2] {
        [0, 1].map(|index| PartitionId::from_index(index).unwrap())
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    fn fid(vnode: u32) -> Fid {
        Fid { volume: VolumeId(1), vnode: base::VnodeId(vnode), unique: 1 }
    }

    #[test]
    fn readers_share_and_a_writer_does_not() {
        let mut locks = Locks::new(10);
        locks.set(at(0), fid(2), LockKind::Read).unwrap();
        locks.set(at(0), fid(2), LockKind::Read).unwrap();
        assert_eq!(locks.count(at(0), fid(2)), 2);
        assert_eq!(locks.set(at(0), fid(2), LockKind::Write), Err(LockError::Held));
        assert_eq!(
            (locks.release(fid(2)), locks.release(fid(2)), locks.release(fid(2))),
            (Some(1), Some(0), None)
        );
        locks.set(at(0), fid(2), LockKind::Write).unwrap();
        assert_eq!(locks.count(at(0), fid(2)), -1);
        assert_eq!(locks.set(at(0), fid(2), LockKind::Read), Err(LockError::Held));
        assert_eq!(locks.set(at(0), fid(2), LockKind::Write), Err(LockError::Held));
        assert_eq!(locks.release(fid(2)), Some(0));
        assert_eq!(locks.count(at(0), fid(2)), 0);
    }

    #[test]
    fn a_lock_lapses_after_five_minutes_unless_extended() {
        let [a, _] = partitions();
        let mut locks = Locks::new(10);
        locks.set(at(0), fid(2), LockKind::Write).unwrap();
        assert_eq!(locks.extend(at(200), fid(2), a), Ok(Some(-1)));
        assert_eq!(locks.set(at(500), fid(2), LockKind::Read), Err(LockError::Held));
        assert_eq!(locks.count(at(501), fid(2)), 0);
        locks.set(at(501), fid(2), LockKind::Read).unwrap();
        assert_eq!(locks.count(at(501), fid(2)), 1);
        assert_eq!(locks.extend(at(501), fid(4), a), Err(LockError::Missing));
    }

    #[test]
    fn a_full_table_drops_lapsed_locks_and_then_refuses() {
        let mut locks = Locks::new(2);
        locks.set(at(0), fid(2), LockKind::Read).unwrap();
        locks.set(at(200), fid(4), LockKind::Read).unwrap();
        assert_eq!(locks.set(at(200), fid(6), LockKind::Read), Err(LockError::TooMany));
        locks.set(at(200), fid(4), LockKind::Read).unwrap();
        locks.set(at(301), fid(6), LockKind::Read).unwrap();
        assert_eq!(locks.count(at(301), fid(4)), 2);
    }

    #[test]
    fn records_replace_the_locks_of_their_partition() {
        let [a, b] = partitions();
        let mut locks = Locks::new(3);
        for (vnode, partition) in [(2, a), (4, a), (6, b)] {
            locks.set(at(0), fid(vnode), LockKind::Write).unwrap();
            locks.recorded(fid(vnode), partition);
        }
        assert_eq!(locks.extend(at(1), fid(2), a), Ok(None));
        assert_eq!(locks.extend(at(1), fid(2), b), Ok(Some(-1)), "the volume has moved");
        locks.restore(at(10), a, &[(fid(4), 2), (fid(8), -1), (fid(10), 1)]);
        let counts = [2, 4, 6, 8, 10].map(|vnode| locks.count(at(310), fid(vnode)));
        assert_eq!(counts, [0, 2, 0, -1, 0], "the last one exceeds the limit, and that of B has expired");
        assert_eq!(locks.forget(fid(8)), Some(a));
        assert_eq!(locks.forget(fid(8)), None);
    }

    #[test]
    fn expired_locks_lose_their_records_until_they_are_extended() {
        let [a, _] = partitions();
        let mut locks = Locks::new(3);
        assert_eq!(locks.set(at(0), fid(2), LockKind::Read), Ok(1));
        assert_eq!(locks.set(at(0), fid(2), LockKind::Read), Ok(2));
        locks.recorded(fid(2), a);
        assert!(
            locks.take_expired(at(300), a).is_empty() && locks.partitions_with_expired(at(300)).is_empty()
        );
        assert_eq!(locks.partitions_with_expired(at(301)), BTreeSet::from([a]));
        assert_eq!(locks.take_expired(at(301), a), [fid(2)]);
        assert!(
            locks.take_expired(at(302), a).is_empty() && locks.partitions_with_expired(at(302)).is_empty()
        );
        assert_eq!(locks.extend(at(303), fid(2), a), Ok(Some(2)));
    }
}
