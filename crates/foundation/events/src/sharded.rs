//! Per-thread copies of a value, so that counting threads do not wait for each other.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of copies; if there are more threads, some share one.
pub const SHARDS: usize = 64;

/// Number of the next thread.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: usize = NEXT.fetch_add(1, Relaxed) % SHARDS;
}

/// Copies of a `T`. A thread uses its own copy, whose lock is contended only by readers of all copies.
#[derive(Debug)]
pub struct Sharded<T> {
    shards: Box<[Shard<T>]>,
}

/// Two cache lines, since processors fetch neighbours in pairs. The lock guards one copy; nothing blocks
/// under it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard<T>(Mutex<T>);

impl<T: Default> Default for Sharded<T> {
    fn default() -> Sharded<T> {
        Sharded { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl<T> Sharded<T> {
    /// Locks and returns the calling thread's copy.
    pub fn mine(&self) -> MutexGuard<'_, T> {
        self.shards[MINE.with(|mine| *mine)].0.lock()
    }

    /// Calls `look` with each copy in turn. Each copy is locked only during its own call.
    pub fn each(&self, mut look: impl FnMut(&T)) {
        for shard in &self.shards {
            look(&shard.0.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_add_up() {
        let counts = Sharded::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..SHARDS + 3 {
                scope.spawn(|| (0..1000).for_each(|_| *counts.mine() += 1));
            }
        });
        let mut sum = 0;
        counts.each(|count| sum += count);
        assert_eq!(sum, 1000 * (SHARDS as u64 + 3));
    }
}
