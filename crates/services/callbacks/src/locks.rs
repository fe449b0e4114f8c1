//! Advisory locks on files (RXAFS_SetLock, ExtendLock, ReleaseLock).
//!
//! The protocol does not record who holds a lock: it counts the readers, or one writer, of each file, and all
//! of them expire together five minutes after the last call that touched them. Locks are kept in memory. A
//! restart releases them, and their holders' next extension fails.

use base::{AbortCode, Fid, Monotonic};
use std::collections::BTreeMap;
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

    /// Locks `fid`. Expired locks are ignored.
    pub fn set(&mut self, now: Monotonic, fid: Fid, kind: LockKind) -> Result<(), LockError> {
        let count = match (self.count(now, fid), kind) {
            (held, LockKind::Read) if held >= 0 => held + 1,
            (0, LockKind::Write) => -1,
            _ => return Err(LockError::Held),
        };
        self.make_room(now, fid)?;
        self.held.insert(fid, Lock { count, until: now + LOCK_TIME });
        Ok(())
    }

    /// Extends the locks on `fid` for another five minutes. As in OpenAFS, this also revives an expired lock
    /// that no other client has taken.
    pub fn extend(&mut self, now: Monotonic, fid: Fid) -> Result<(), LockError> {
        let lock = self.held.get_mut(&fid).ok_or(LockError::Missing)?;
        lock.until = now + LOCK_TIME;
        Ok(())
    }

    /// Releases one lock on `fid`. Returns true if none is left, in which case waiting clients must be
    /// notified by a callback break.
    pub fn release(&mut self, fid: Fid) -> bool {
        match self.held.get_mut(&fid) {
            Some(lock) if lock.count > 1 => {
                lock.count -= 1;
                false
            }
            _ => {
                self.held.remove(&fid);
                true
            }
        }
    }

    /// Returns the unexpired locks on `fid`: the number of readers, -1 for a writer, or 0 for none (lockCount
    /// in AFSFetchStatus).
    pub fn count(&self, now: Monotonic, fid: Fid) -> i32 {
        self.held.get(&fid).filter(|lock| now <= lock.until).map_or(0, |lock| lock.count)
    }

    /// Drops the locks on a deleted file.
    pub fn forget(&mut self, fid: Fid) {
        self.held.remove(&fid);
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
        assert!(!locks.release(fid(2)));
        assert!(locks.release(fid(2)));
        locks.set(at(0), fid(2), LockKind::Write).unwrap();
        assert_eq!(locks.count(at(0), fid(2)), -1);
        assert_eq!(locks.set(at(0), fid(2), LockKind::Read), Err(LockError::Held));
        assert_eq!(locks.set(at(0), fid(2), LockKind::Write), Err(LockError::Held));
        assert!(locks.release(fid(2)));
        assert_eq!(locks.count(at(0), fid(2)), 0);
    }

    #[test]
    fn a_lock_lapses_after_five_minutes_unless_extended() {
        let mut locks = Locks::new(10);
        locks.set(at(0), fid(2), LockKind::Write).unwrap();
        locks.extend(at(200), fid(2)).unwrap();
        assert_eq!(locks.set(at(500), fid(2), LockKind::Read), Err(LockError::Held));
        assert_eq!(locks.count(at(501), fid(2)), 0);
        locks.set(at(501), fid(2), LockKind::Read).unwrap();
        assert_eq!(locks.count(at(501), fid(2)), 1);
        assert_eq!(locks.extend(at(501), fid(4)), Err(LockError::Missing));
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
}
