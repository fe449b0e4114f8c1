//! Metadata in memory, for tests and simulators. A simulated crash loses everything that was not synced.

use crate::health::Health;
use crate::meta::{Change, Snapshot, Visit};
use crate::{
    Batch, CommitNumber, Family, KeyRange, MetaDatabase, MetaEngine, MetaOptions, MetaStatistics, MetaStore,
    StoreError,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Table = BTreeMap<(u8, Vec<u8>), Bytes>;

/// Keeps databases in memory under the names of folders, across closing and opening.
///
/// Opening a database that is still open takes it over: the earlier writer's next commit or sync fails with
/// `Fenced`, and its unsynced commits are lost.
#[derive(Debug, Default)]
pub struct MemoryEngine(Mutex<BTreeMap<PathBuf, Arc<MemoryMeta>>>);

impl MemoryEngine {
    /// Creates an engine without databases.
    pub fn new() -> MemoryEngine {
        MemoryEngine::default()
    }

    /// Returns the database of this folder, open or closed.
    pub fn database(&self, folder: &Path) -> Option<Arc<MemoryMeta>> {
        self.0.lock().get(folder).cloned()
    }

    /// Simulates a crash of the machine, in which the first `kept` unsynced commits of each open database
    /// survive. Open databases are taken over; closed ones keep everything.
    pub fn crash(&self, kept: usize) {
        for meta in self.0.lock().values_mut() {
            let kept = if is_closed(meta) { usize::MAX } else { kept };
            *meta = Arc::new(meta.taken_over(kept));
        }
    }
}

/// Whether the owner of a database has closed it, which makes its contents durable.
fn is_closed(meta: &Arc<MemoryMeta>) -> bool {
    Arc::strong_count(meta) == 1
}

impl MetaEngine for MemoryEngine {
    fn open(&self, folder: &Path, options: &MetaOptions<'_>) -> Result<Arc<dyn MetaDatabase>, StoreError> {
        let mut databases = self.0.lock();
        let meta = match databases.get(folder) {
            Some(closed) if is_closed(closed) => closed.taken_over(usize::MAX),
            Some(open) => open.taken_over(0),
            None if options.create => MemoryMeta::of(folder),
            None => {
                return Err(StoreError::Meta(format!("cannot open {}: there is none", folder.display())));
            }
        };
        let meta = Arc::new(meta);
        databases.insert(folder.to_owned(), Arc::clone(&meta));
        Ok(meta)
    }

    fn open_read_only(&self, folder: &Path) -> Result<Arc<dyn MetaDatabase>, StoreError> {
        let meta = self.database(folder);
        let meta =
            meta.ok_or_else(|| StoreError::Meta(format!("cannot open {}: there is none", folder.display())))?;
        Ok(Arc::new(MemoryMeta { is_read_only: true, ..meta.crash(usize::MAX) }))
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    table: Table,
    durable: Table,
    pending: Vec<Batch>,
    statistics: MetaStatistics,
}

/// A database in memory.
#[derive(Debug, Default)]
pub struct MemoryMeta {
    /// Guards the contents. Held for one call, and never while a visitor runs.
    state: Mutex<State>,
    place: PathBuf,
    health: Arc<Health>,
    is_read_only: bool,
}

fn apply(table: &mut Table, batch: &Batch) {
    for change in batch.changes() {
        match change {
            Change::Put(family, key, value) => {
                table.insert((family.number(), key.clone()), Bytes::copy_from_slice(value));
            }
            Change::Delete(family, key) => {
                table.remove(&(family.number(), key.clone()));
            }
        }
    }
}

/// Bytes of keys and values.
fn size(batch: &Batch) -> u64 {
    let of = |change: &Change| match change {
        Change::Put(_, key, value) => key.len() + value.len(),
        Change::Delete(_, key) => key.len(),
    };
    batch.changes().iter().map(of).sum::<usize>() as u64
}

impl MemoryMeta {
    /// Creates an empty database.
    pub fn new() -> MemoryMeta {
        MemoryMeta::default()
    }

    fn of(place: &Path) -> MemoryMeta {
        let health = Arc::new(Health::of(place));
        MemoryMeta { place: place.to_owned(), health, ..MemoryMeta::default() }
    }

    /// Returns the state after a crash in which the first `kept` unsynced commits survived.
    #[must_use]
    pub fn crash(&self, kept: usize) -> MemoryMeta {
        let state = self.state.lock();
        let mut table = state.durable.clone();
        for batch in state.pending.iter().take(kept) {
            apply(&mut table, batch);
        }
        let durable = table.clone();
        let state = Mutex::new(State { table, durable, ..State::default() });
        MemoryMeta { state, ..MemoryMeta::of(&self.place) }
    }

    /// Returns what a new writer finds, with the first `kept` unsynced commits of this one. This one is fenced.
    #[must_use]
    pub fn taken_over(&self, kept: usize) -> MemoryMeta {
        // Before the state is read, so that nothing is acknowledged that the new writer does not find.
        let fenced = self.health.fenced();
        let state = self.state.lock();
        if !self.health.is_failed() {
            _ = self.health.fail(fenced);
        }
        drop(state);
        self.crash(kept)
    }

    /// Returns what reads show: after a failure only what was durable.
    fn table<'a>(&self, state: &'a State) -> &'a Table {
        if self.health.is_failed() { &state.durable } else { &state.table }
    }

    /// Returns the number of commits since it was created by `new` or by a crash.
    pub fn commits(&self) -> u64 {
        self.state.lock().statistics.commits
    }

    /// Returns the number of commits that a crash may lose.
    pub fn unsynced_commits(&self) -> usize {
        self.state.lock().pending.len()
    }
}

/// A copy of the whole database.
struct MemorySnapshot(MemoryMeta);

impl Snapshot for MemorySnapshot {
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.0.scan(family, range, visit)
    }
}

impl MetaStore for MemoryMeta {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.table(&self.state.lock()).get(&(family.number(), key.to_vec())).cloned())
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        if range.from >= range.to {
            return Ok(());
        }
        let number = family.number();
        let bounds =
            (Bound::Included((number, range.from.to_vec())), Bound::Excluded((number, range.to.to_vec())));
        // Copied so that `visit` may call back into the database.
        let mut found: Vec<_> = {
            let state = self.state.lock();
            self.table(&state).range(bounds).map(|((_, key), value)| (key.clone(), value.clone())).collect()
        };
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
        let table = self.table(&self.state.lock()).clone();
        let state = Mutex::new(State { table, ..State::default() });
        Box::new(MemorySnapshot(MemoryMeta { state, ..MemoryMeta::default() }))
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        let mut state = self.state.lock();
        self.health.check()?;
        if self.is_read_only {
            return Err(self.health.fail(StoreError::Meta("cannot write: it is open read-only".into())));
        }
        apply(&mut state.table, &batch);
        state.statistics.log_bytes += size(&batch);
        state.statistics.commits += 1;
        state.pending.push(batch);
        Ok(CommitNumber(state.statistics.commits))
    }

    fn sync(&self, _number: CommitNumber) -> Result<(), StoreError> {
        let state = &mut *self.state.lock();
        self.health.check()?;
        state.statistics.sync_requests += 1;
        state.statistics.syncs += 1;
        for batch in state.pending.drain(..) {
            apply(&mut state.durable, &batch);
        }
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        self.health.failure()
    }
}

impl MetaDatabase for MemoryMeta {
    fn statistics(&self) -> MetaStatistics {
        self.state.lock().statistics
    }

    fn health(&self) -> &Arc<Health> {
        &self.health
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(meta: &dyn MetaStore, key: &str) -> Result<CommitNumber, StoreError> {
        let mut batch = Batch::new();
        batch.put(Family::SYSTEM, key, "1");
        meta.commit(batch)
    }

    fn has(meta: &dyn MetaStore, keys: &[&str]) -> Vec<bool> {
        keys.iter().map(|key| meta.get(Family::SYSTEM, key.as_bytes()).unwrap().is_some()).collect()
    }

    #[test]
    fn a_crash_loses_only_unsynced_writes() {
        let meta = MemoryMeta::new();
        meta.sync(put(&meta, "a").unwrap()).unwrap();
        put(&meta, "b").unwrap();
        put(&meta, "c").unwrap();
        assert_eq!(has(&meta.crash(1), &["a", "b", "c"]), [true, true, false]);
    }

    #[test]
    fn a_second_writer_fences_the_first() {
        let (engine, place) = (MemoryEngine::new(), Path::new("/vicepa/meta"));
        let options = MetaOptions::default();
        let first = engine.open(place, &options).unwrap();
        let synced = put(&*first, "synced").unwrap();
        first.sync(synced).unwrap();
        let unsynced = put(&*first, "unsynced").unwrap();
        let second = engine.open(place, &options).unwrap();
        for result in [put(&*first, "late").err(), first.sync(unsynced).err()] {
            assert!(matches!(result, Some(StoreError::Fenced { .. })), "{result:?}");
        }
        assert!(first.failure().unwrap().contains("/vicepa/meta"));
        assert_eq!(has(&*first, &["synced", "unsynced"]), [true, false], "what is durable can be read");
        assert_eq!(has(&*second, &["synced", "unsynced", "late"]), [true, false, false]);
        second.sync(put(&*second, "new").unwrap()).unwrap();
        assert_eq!(second.failure(), None);
    }

    #[test]
    fn a_closed_database_keeps_its_contents() {
        let (engine, place) = (MemoryEngine::new(), Path::new("/vicepa/meta"));
        let missing = MetaOptions { create: false, ..MetaOptions::default() };
        assert!(engine.open(place, &missing).is_err() && engine.open_read_only(place).is_err());
        let meta = engine.open(place, &MetaOptions::default()).unwrap();
        put(&*meta, "k").unwrap();
        drop(meta);
        assert_eq!(has(&*engine.open(place, &missing).unwrap(), &["k"]), [true]);
        let read_only = engine.open_read_only(place).unwrap();
        assert_eq!(has(&*read_only, &["k"]), [true]);
        assert!(put(&*read_only, "l").is_err());
        put(&*engine.open(place, &missing).unwrap(), "l").unwrap();
        engine.crash(0);
        assert_eq!(has(&*engine.open(place, &missing).unwrap(), &["k", "l"]), [true, true]);
    }
}
