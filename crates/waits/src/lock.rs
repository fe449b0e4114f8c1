//! Locks with names: how often, how long and for whom threads wait for them is counted.
//!
//! Taking a lock that is free costs one store more than without a name: where it was taken, so that who has to
//! wait can tell for whom. Everything else happens on threads that have waited anyway.

use crate::raw::SiteCell;
use crate::waiting::contended;
use events::catalogue::{LockFigures, LockWait};
use events::{Figures, Sharded};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::panic::Location;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// The names of [`LockName`], in order.
pub const LOCKS: [&str; 6] = ["volume", "publish", "hosts", "lane", "segment", "test"];

/// Which lock; all of one kind are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockName {
    /// That of a volume and its clones, for changes.
    Volume,
    /// That of what readers of a volume see, while a change takes effect.
    Publish,
    /// That of the file server's clients and their promises.
    Hosts,
    /// That of a lane's connections and calls.
    Lane,
    /// That of the segment of a partition that is written.
    Segment,
    /// One of tests; the server has none.
    Test,
}

impl LockName {
    fn text(self) -> &'static str {
        LOCKS[self as usize]
    }
}

static FIGURES: LazyLock<Sharded<[LockFigures; LOCKS.len()]>> = LazyLock::new(Sharded::default);

/// Threads that wait, by [`LockName`].
static WAITING: [AtomicU64; LOCKS.len()] = [const { AtomicU64::new(0) }; LOCKS.len()];

/// A thread that waits, as long as it lives.
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

/// What threads of this process waited, by name of the lock. Names of locks that nobody waited for are
/// there with zeros; that of tests is not.
pub fn lock_figures() -> Vec<(&'static str, LockFigures)> {
    // Before what is counted: who does not wait any more is there.
    let waiting = WAITING.each_ref().map(|waiting| waiting.load(SeqCst));
    let mut sums = waiting.map(|waiting| LockFigures { waiting, ..LockFigures::default() });
    FIGURES.each(|shard| sums.iter_mut().zip(shard).for_each(|(sum, part)| sum.add(part)));
    LOCKS.into_iter().zip(sums).filter(|(name, _)| *name != LockName::Test.text()).collect()
}

/// What both kinds of locks know of themselves.
#[derive(Debug)]
struct Named {
    name: LockName,
    /// Where it was taken last.
    holder: SiteCell,
}

impl Named {
    const fn new(name: LockName) -> Named {
        Named { name, holder: SiteCell::new() }
    }

    /// Takes the lock with `take`, for which it has to wait.
    #[cold]
    fn wait<G>(&self, take: impl FnOnce() -> G) -> G {
        let _waiting = Waiting::begin(self.name);
        let (holder, begun) = (self.holder.get(), Instant::now());
        let guard = take();
        let wait = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let event = LockWait { lock: self.name.text(), holder, wait };
        FIGURES.mine()[self.name as usize].count(&event);
        // What calls note as a wait for a lock is that for changes of their volume: docs/guide/observe.md.
        let is_noted = matches!(self.name, LockName::Volume | LockName::Test);
        contended(&event, is_noted);
        guard
    }
}

/// A mutex with a name.
#[derive(Debug)]
pub struct Lock<T> {
    named: Named,
    mutex: Mutex<T>,
}

impl<T> Lock<T> {
    /// Guards `value`.
    pub const fn new(name: LockName, value: T) -> Lock<T> {
        Lock { named: Named::new(name), mutex: Mutex::new(value) }
    }

    /// Takes it; who has to wait is counted.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let guard = self.mutex.try_lock().unwrap_or_else(|| self.named.wait(|| self.mutex.lock()));
        self.named.holder.set(Location::caller());
        guard
    }

    /// Takes it if it is free.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.mutex.try_lock()?;
        self.named.holder.set(Location::caller());
        Some(guard)
    }

    /// Without a lock, since nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.mutex.get_mut()
    }
}

/// A lock for many readers or one writer, with a name.
#[derive(Debug)]
pub struct SharedLock<T> {
    named: Named,
    lock: RwLock<T>,
}

impl<T> SharedLock<T> {
    /// Guards `value`.
    pub const fn new(name: LockName, value: T) -> SharedLock<T> {
        SharedLock { named: Named::new(name), lock: RwLock::new(value) }
    }

    /// Takes it for reading. Of readers only the last is known as the holder.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let guard = self.lock.try_read().unwrap_or_else(|| self.named.wait(|| self.lock.read()));
        self.named.holder.set(Location::caller());
        guard
    }

    /// Takes it for reading, if nobody writes.
    #[track_caller]
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let guard = self.lock.try_read()?;
        self.named.holder.set(Location::caller());
        Some(guard)
    }

    /// Takes it for writing.
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
