//! Things that cost more to make than to keep.

use parking_lot::Mutex;

/// So many wait for their next use; more are thrown away. A context of a high level of compression has
/// megabytes, a buffer up to one.
const WAITING_MAX: usize = 8;

/// Things that wait for their next use. The one that was used last goes first: it is in a processor's caches.
pub(super) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    pub(super) const fn new() -> Pool<T> {
        Pool(Mutex::new(Vec::new()))
    }

    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().pop()
    }

    pub(super) fn give_back(&self, thing: T) {
        let mut waiting = self.0.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push(thing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_goes_first_and_a_few_wait() {
        let pool = Pool::new();
        assert_eq!(pool.take(), None);
        (0..20).for_each(|thing| pool.give_back(thing));
        let waiting: Vec<i32> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(waiting, (0..8).rev().collect::<Vec<_>>());
    }
}
