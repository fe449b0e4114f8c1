//! A database's state at one moment, usable as a read-only database.

use crate::{Batch, CommitNumber, Family, KeyRange, MetaStore, Snapshot, StoreError, Visit};
use bytes::Bytes;
use std::ops::ControlFlow;

/// A [`Snapshot`] that can be read like the database itself; every commit fails. Its reads do not fill the
/// database's caches.
pub struct Frozen<'a>(Box<dyn Snapshot + 'a>);

impl<'a> Frozen<'a> {
    /// Takes a snapshot of the current state of `meta`.
    pub fn of(meta: &'a dyn MetaStore) -> Frozen<'a> {
        Frozen(meta.snapshot())
    }
}

impl MetaStore for Frozen<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let mut found = None;
        let behind = [key, &[0]].concat();
        self.0.scan(family, KeyRange::ascending(key, &behind), &mut |_, value| {
            found = Some(Bytes::copy_from_slice(value));
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.0.scan(family, range, visit)
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(Again(&*self.0))
    }

    fn commit(&self, _batch: Batch) -> Result<CommitNumber, StoreError> {
        Err(StoreError::Meta("a past state cannot be changed".to_owned()))
    }

    fn sync(&self, _number: CommitNumber) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A snapshot of the same state.
struct Again<'a>(&'a dyn Snapshot);

impl Snapshot for Again<'_> {
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.0.scan(family, range, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryMeta;

    #[test]
    fn a_frozen_store_never_changes() {
        let meta = MemoryMeta::new();
        let put = |meta: &dyn MetaStore, key: &str| {
            let mut batch = Batch::new();
            batch.put(Family::SYSTEM, key, "1");
            meta.commit(batch)
        };
        put(&meta, "a").unwrap();
        let frozen = Frozen::of(&meta);
        put(&meta, "ab").unwrap();
        let there = |key: &str| frozen.get(Family::SYSTEM, key.as_bytes()).unwrap().is_some();
        assert_eq!((there("a"), there("ab")), (true, false));
        assert!(put(&frozen, "c").is_err());
        let mut count = 0;
        let again = frozen.snapshot();
        again
            .scan(Family::SYSTEM, KeyRange::ascending(b"a", b"z"), &mut |_, _| {
                count += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(count, 1);
    }
}
