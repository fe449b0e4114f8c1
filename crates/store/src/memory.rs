//! Stores in memory, for tests and simulators. They can "crash": what was not synced is lost.

use crate::meta::{Change, Snapshot, Visit};
use crate::{
    Batch, ChunkAddress, ChunkOwner, ChunkStore, Codec, CommitNumber, Family, KeyRange, KeyRing, MetaStore,
    StoreError,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;

type Table = BTreeMap<(Family, Vec<u8>), Bytes>;

#[derive(Clone, Default)]
struct MetaState {
    table: Table,
    durable: Table,
    pending: Vec<Batch>,
    commits: u64,
}

/// A [`MetaStore`] in memory.
#[derive(Default)]
pub struct MemoryMeta(Mutex<MetaState>);

fn apply(table: &mut Table, batch: &Batch) {
    for change in batch.changes() {
        match change {
            Change::Put(family, key, value) => {
                table.insert((*family, key.clone()), Bytes::copy_from_slice(value));
            }
            Change::Delete(family, key) => {
                table.remove(&(*family, key.clone()));
            }
        }
    }
}

impl MemoryMeta {
    /// An empty database.
    pub fn new() -> MemoryMeta {
        MemoryMeta::default()
    }

    /// What is there after a crash in which `kept` of the commits that no sync covered survived.
    #[must_use]
    pub fn crash(&self, kept: usize) -> MemoryMeta {
        let state = self.0.lock();
        let mut table = state.durable.clone();
        for batch in state.pending.iter().take(kept) {
            apply(&mut table, batch);
        }
        MemoryMeta(Mutex::new(MetaState { durable: table.clone(), table, ..MetaState::default() }))
    }

    /// Commits that a crash may lose.
    pub fn unsynced_commits(&self) -> usize {
        self.0.lock().pending.len()
    }
}

/// A copy of everything.
struct MemorySnapshot(MemoryMeta);

impl Snapshot for MemorySnapshot {
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.0.scan(family, range, visit)
    }
}

impl MetaStore for MemoryMeta {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.lock().table.get(&(family, key.to_vec())).cloned())
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        if range.from >= range.to {
            return Ok(());
        }
        let bounds =
            (Bound::Included((family, range.from.to_vec())), Bound::Excluded((family, range.to.to_vec())));
        // Copied, so that `visit` may call back into the database.
        let mut found: Vec<_> =
            self.0.lock().table.range(bounds).map(|((_, key), value)| (key.clone(), value.clone())).collect();
        if range.reverse {
            found.reverse();
        }
        for (key, value) in found {
            if visit(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        let table = self.0.lock().table.clone();
        Box::new(MemorySnapshot(MemoryMeta(Mutex::new(MetaState { table, ..MetaState::default() }))))
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        let mut state = self.0.lock();
        apply(&mut state.table, &batch);
        state.pending.push(batch);
        state.commits += 1;
        Ok(CommitNumber(state.commits))
    }

    fn sync(&self, _number: CommitNumber) -> Result<(), StoreError> {
        let state = &mut *self.0.lock();
        for batch in state.pending.drain(..) {
            apply(&mut state.durable, &batch);
        }
        Ok(())
    }
}

/// A [`ChunkStore`] in memory.
#[derive(Default)]
pub struct MemoryChunks(Mutex<(u64, BTreeMap<ChunkAddress, Bytes>)>, Option<KeyRing>);

impl MemoryChunks {
    /// An empty store.
    pub fn new() -> MemoryChunks {
        MemoryChunks::default()
    }

    /// An empty store on a partition that is encrypted. Only contents in metadata are: chunks lie in
    /// memory as they are.
    pub fn encrypted() -> MemoryChunks {
        MemoryChunks(Mutex::default(), Some(KeyRing::random()))
    }

    /// Chunks that were appended and not released.
    pub fn live_chunks(&self) -> usize {
        self.0.lock().1.len()
    }
}

impl ChunkStore for MemoryChunks {
    fn append_for(
        &self,
        _owner: ChunkOwner,
        pieces: &[Bytes],
        _codec: Codec,
    ) -> Result<ChunkAddress, StoreError> {
        let data = Bytes::from(pieces.concat());
        let mut state = self.0.lock();
        let stored_bytes = data.len() as u32;
        let address = ChunkAddress { segment: 1, offset: state.0, stored_bytes };
        state.0 += u64::from(stored_bytes) + 1;
        state.1.insert(address, data);
        Ok(address)
    }

    fn read(&self, address: ChunkAddress) -> Result<Bytes, StoreError> {
        self.0.lock().1.get(&address).cloned().ok_or_else(|| StoreError::Damaged {
            place: format!("segment {} offset {}", address.segment, address.offset),
            what: "no chunk there".into(),
        })
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn seal(&self, context: &[u8], contents: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.1.as_ref().map(|keys| keys.seal_value(context, contents)).transpose()
    }

    fn unseal(&self, context: &[u8], sealed: &[u8]) -> Result<Bytes, String> {
        self.1.as_ref().ok_or("no key")?.unseal_value(context, sealed)
    }

    fn release(&self, address: ChunkAddress) {
        self.0.lock().1.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_loses_exactly_what_was_not_synced() {
        let meta = MemoryMeta::new();
        let put = |key: &str| {
            let mut batch = Batch::new();
            batch.put(Family::System, key, "1");
            meta.commit(batch).unwrap()
        };
        let first = put("a");
        meta.sync(first).unwrap();
        put("b");
        put("c");
        let after = meta.crash(1);
        let there = |key: &str| after.get(Family::System, key.as_bytes()).unwrap().is_some();
        assert_eq!((there("a"), there("b"), there("c")), (true, true, false));
    }
}
