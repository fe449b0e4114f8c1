//! Named locks that count how often and how long threads wait for them, and which holder they wait for.
//!
//! Taking a free lock costs one more store than an unnamed lock: the location where it was taken, so that a
//! waiting thread can report the holder. Everything else happens on threads that have waited anyway.

use crate::raw::SiteCell;
use crate::waiting::contended;
use events::catalogue::{LockFigures, LockWait};
use events::{Figures, Sharded};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::panic::Location;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// Names of [`LockName`], in order.
pub const LOCKS: [&str; 6] = ["volume", "publish", "hosts", "lane", "segment", "test"];

/// Name of a lock; all locks of one name are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockName {
    /// Lock of a volume and its clones, held for changes.
    Volume,
    /// Lock of a volume's read view, held while a change takes effect.
    Publish,
    /// Lock of the file server's clients and their callback promises.
    Hosts,
    /// Lock of a lane's connections and calls.
    Lane,
    /// Lock of a partition's active segment.
    Segment,
    /// Lock used by tests only; the server has none.
    Test,
}

impl LockName {
    fn text(self) -> &'static str {
        LOCKS[self as usize]
    }
}

static FIGURES: LazyLock<Sharded<[LockFigures; LOCKS.len()]>> = LazyLock::new(Sharded::default);

/// Number of waiting threads, by [`LockName`].
static WAITING: [AtomicU64; LOCKS.len()] = [const { AtomicU64::new(0) }; LOCKS.len()];

/// Counts a waiting thread while it exists.
struct Waiting(LockName);

impl Waiting {
    fn begin(name: LockName) -> Waiting {
        WAITING[name as usize].fetch_add(1, SeqCst);
        Waiting(name)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING[self.0 as usize].fetch_sub(1, SeqCst);
    }
}

/// Returns the waits of this process's threads, by name of the lock. Locks without waits are included with
/// zeros; those of tests are not.
pub fn lock_figures() -> Vec<(&'static str, LockFigures)> {
    // Read before the counts, so that a thread that stops waiting in between is counted there.
    let waiting = WAITING.each_ref().map(|waiting| waiting.load(SeqCst));
    let mut sums = waiting.map(|waiting| LockFigures { waiting, ..LockFigures::default() });
    FIGURES.each(|shard| sums.iter_mut().zip(shard).for_each(|(sum, part)| sum.add(part)));
    LOCKS.into_iter().zip(sums).filter(|(name, _)| *name != LockName::Test.text()).collect()
}

/// Data common to both kinds of locks.
#[derive(Debug)]
struct Named {
    name: LockName,
    /// Source location where it was last taken.
    holder: SiteCell,
}

impl Named {
    const fn new(name: LockName) -> Named {
        Named { name, holder: SiteCell::new() }
    }

    /// Takes the lock with `take`, after the fast path has failed.
    #[cold]
    fn wait<G>(&self, take: impl FnOnce() -> G) -> G {
        // Read first, so that the wait covers the whole time in which the thread is counted as waiting.
        let begun = Instant::now();
        let _waiting = Waiting::begin(self.name);
        let holder = self.holder.get();
        let guard = take();
        let wait = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let event = LockWait { lock: self.name.text(), holder, wait };
        FIGURES.mine()[self.name as usize].count(&event);
        // A call's time waiting for locks covers only changes of its volume: docs/guide/observe.md.
        let is_noted = matches!(self.name, LockName::Volume | LockName::Test);
        contended(&event, is_noted);
        guard
    }
}

/// A named mutex.
#[derive(Debug)]
pub struct Lock<T> {
    named: Named,
    mutex: Mutex<T>,
}

impl<T> Lock<T> {
    /// Creates a lock that guards `value`.
    pub const fn new(name: LockName, value: T) -> Lock<T> {
        Lock { named: Named::new(name), mutex: Mutex::new(value) }
    }

    /// Takes the lock; counts the wait if it is not free.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let guard = self.mutex.try_lock().unwrap_or_else(|| self.named.wait(|| self.mutex.lock()));
        self.named.holder.set(Location::caller());
        guard
    }

    /// Takes the lock if it is free.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.mutex.try_lock()?;
        self.named.holder.set(Location::caller());
        Some(guard)
    }

    /// Returns the value without locking, since the borrow is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.mutex.get_mut()
    }
}

/// A named read-write lock.
#[derive(Debug)]
pub struct SharedLock<T> {
    named: Named,
    lock: RwLock<T>,
}

impl<T> SharedLock<T> {
    /// Creates a lock that guards `value`.
    pub const fn new(name: LockName, value: T) -> SharedLock<T> {
        SharedLock { named: Named::new(name), lock: RwLock::new(value) }
    }

    /// Takes the lock for reading. If there are several readers, only the last one is known as the holder.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let guard = self.lock.try_read().unwrap_or_else(|| self.named.wait(|| self.lock.read()));
        self.named.holder.set(Location::caller());
        guard
    }

    /// Takes the lock for reading, unless a writer holds it.
    #[track_caller]
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let guard = self.lock.try_read()?;
        self.named.holder.set(Location::caller());
        Some(guard)
    }

    /// Takes the lock for writing.
    #[track_caller]
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let guard = self.lock.try_write().unwrap_or_else(|| self.named.wait(|| self.lock.write()));
        self.named.holder.set(Location::caller());
        guard
    }
}

#[cfg(test)]
mod tests;
