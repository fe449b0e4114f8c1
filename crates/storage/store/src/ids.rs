//! Ids that are never reused, whatever is deleted and however often the power fails.

use crate::{Batch, Family, MetaStore, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;

/// Number of ids that one durable reservation covers.
const BLOCK: u64 = 1024;

/// Hands out 64-bit ids, ascending from 1, each at most once in the lifetime of the database.
///
/// Ids are reserved in blocks: the database holds the first id not yet reserved, and a block is durable
/// before its first id is handed out. A crash loses the rest of a block.
///
/// Only one allocator of each name may exist at a time.
pub struct IdAllocator {
    meta: Arc<dyn MetaStore>,
    key: Vec<u8>,
    /// Guards the numbers. Held during the sync of a new block, once in `BLOCK` ids.
    state: Mutex<State>,
}

struct State {
    next: u64,
    reserved_until: u64,
}

impl IdAllocator {
    /// Opens the allocator called `name`; its state is in [`Family::SYSTEM`] under `ids/` and the name.
    pub fn open(meta: Arc<dyn MetaStore>, name: &str) -> Result<IdAllocator, StoreError> {
        let key = format!("ids/{name}").into_bytes();
        let first = match meta.get(Family::SYSTEM, &key)? {
            None => 1,
            Some(value) => parse(&value).ok_or_else(|| StoreError::Damaged {
                place: format!("system ids/{name}"),
                what: format!("expected 8 bytes, got {}", value.len()),
            })?,
        };
        Ok(IdAllocator { meta, key, state: Mutex::new(State { next: first, reserved_until: first }) })
    }

    /// Returns an id that was never handed out before.
    pub fn next(&self) -> Result<u64, StoreError> {
        let mut state = self.state.lock();
        if state.next == state.reserved_until {
            state.reserved_until = self.reserve(state.next)?;
        }
        state.next += 1;
        Ok(state.next - 1)
    }

    /// Ensures that no id below `first` is handed out from now on; for ids that come from elsewhere.
    pub fn skip_to(&self, first: u64) {
        let mut state = self.state.lock();
        state.next = state.next.max(first);
        state.reserved_until = state.reserved_until.max(state.next);
    }

    /// Durably reserves a block that starts at `first`; returns its end.
    fn reserve(&self, first: u64) -> Result<u64, StoreError> {
        let end = first.checked_add(BLOCK).ok_or_else(|| StoreError::Meta("no ids left".into()))?;
        let mut batch = Batch::new();
        batch.put(Family::SYSTEM, self.key.clone(), end.to_be_bytes());
        self.meta.sync(self.meta.commit(batch)?)?;
        Ok(end)
    }
}

fn parse(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryMeta;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_never_used_again_over_crashes() {
        let mut meta = Arc::new(MemoryMeta::new());
        let mut seen = BTreeSet::new();
        for round in 0..50u64 {
            let ids = IdAllocator::open(Arc::clone(&meta) as Arc<dyn MetaStore>, "test").unwrap();
            for _ in 0..round * 77 {
                assert!(seen.insert(ids.next().unwrap()));
            }
            meta = Arc::new(meta.crash(0));
        }
        assert_eq!(seen.first(), Some(&1));
    }

    #[test]
    fn skipping_never_goes_back() {
        let meta = Arc::new(MemoryMeta::new());
        let ids = IdAllocator::open(meta.clone(), "test").unwrap();
        assert_eq!(ids.next().unwrap(), 1);
        ids.skip_to(10);
        assert_eq!(ids.next().unwrap(), 10);
        ids.skip_to(5);
        assert_eq!(ids.next().unwrap(), 11);
        ids.skip_to(1_000_000);
        assert_eq!(ids.next().unwrap(), 1_000_000);
        let again = IdAllocator::open(Arc::new(meta.crash(0)), "test").unwrap();
        assert!(again.next().unwrap() > 1_000_000);
    }

    #[test]
    fn a_damaged_counter_is_not_taken_for_a_fresh_one() {
        let meta = Arc::new(MemoryMeta::new());
        let mut batch = Batch::new();
        batch.put(Family::SYSTEM, "ids/test", "xyz");
        meta.commit(batch).unwrap();
        assert!(matches!(IdAllocator::open(meta, "test"), Err(StoreError::Damaged { .. })));
    }
}
