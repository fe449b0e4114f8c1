//! A metadata store that runs a test's hook before each operation, for example to wait, count or block a
//! caller.

use crate::{Batch, CommitNumber, Family, KeyRange, MetaStore, Snapshot, StoreError, Visit};
use bytes::Bytes;
use std::sync::Arc;

/// Kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaStep {
    /// A value is read.
    Get(Family),
    /// A scan begins.
    Scan(Family),
    /// A scan visits a record.
    Visit(Family),
    /// A batch is committed.
    Commit,
    /// A caller waits for changes to become durable.
    Sync,
}

/// Wraps another database and calls a function before each step, on the calling thread. Snapshots are those
/// of the inner database.
pub struct HookedMeta {
    meta: Arc<dyn MetaStore>,
    hook: Box<dyn Fn(MetaStep) + Send + Sync>,
}

impl HookedMeta {
    /// Wraps `meta` so that `hook` is called before each [`MetaStep`].
    pub fn new(meta: Arc<dyn MetaStore>, hook: impl Fn(MetaStep) + Send + Sync + 'static) -> HookedMeta {
        HookedMeta { meta, hook: Box::new(hook) }
    }
}

impl MetaStore for HookedMeta {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        (self.hook)(MetaStep::Get(family));
        self.meta.get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        for _ in keys {
            (self.hook)(MetaStep::Get(family));
        }
        self.meta.get_many(family, keys)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        (self.hook)(MetaStep::Scan(family));
        self.meta.scan(family, range, &mut |key, value| {
            (self.hook)(MetaStep::Visit(family));
            visit(key, value)
        })
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.meta.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        (self.hook)(MetaStep::Commit);
        self.meta.commit(batch)
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        (self.hook)(MetaStep::Sync);
        self.meta.sync(number)
    }

    fn read_anew(&self) -> Result<(), StoreError> {
        self.meta.read_anew()
    }

    fn failure(&self) -> Option<String> {
        self.meta.failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryMeta;
    use crate::test_families::ITEMS;
    use parking_lot::Mutex;
    use std::ops::ControlFlow;

    #[test]
    fn each_step_is_announced_first() {
        let (plain, reported) = (Arc::new(MemoryMeta::default()), Arc::new(Mutex::new(Vec::new())));
        let (log, before) = (reported.clone(), plain.clone());
        let hook = move |step| log.lock().push((step, before.get(ITEMS, b"k").unwrap().is_some()));
        let meta = HookedMeta::new(plain, hook);
        let mut batch = Batch::default();
        batch.put(ITEMS, b"k".to_vec(), b"v".to_vec());
        meta.sync(meta.commit(batch).unwrap()).unwrap();
        assert_eq!(meta.get(ITEMS, b"k").unwrap().unwrap(), "v");
        let mut seen = 0;
        let visit: Visit<'_> = &mut |_, _| {
            seen += 1;
            ControlFlow::Continue(())
        };
        meta.scan(ITEMS, KeyRange::ascending(b"a", b"z"), visit).unwrap();
        assert_eq!(seen, 1);
        let family = ITEMS;
        let steps = [MetaStep::Sync, MetaStep::Get(family), MetaStep::Scan(family), MetaStep::Visit(family)];
        let expected: Vec<_> =
            [(MetaStep::Commit, false)].into_iter().chain(steps.map(|step| (step, true))).collect();
        assert_eq!(*reported.lock(), expected);
    }
}
