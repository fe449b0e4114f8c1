//! Metadata of any engine, with simulated crashes.

use crate::families;
use bucket::faulty::{Faults, FaultyBucket};
use bytes::Bytes;
use parking_lot::Mutex;
use slate_meta::{SlateConfig, SlateEngine};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use store::{
    Batch, Change, CommitNumber, Family, KeyRange, MemoryEngine, MetaConfig, MetaDatabase, MetaEngine,
    MetaOptions, MetaStore, Snapshot, StoreError, Visit,
};
use tempfile::TempDir;
use tokio::runtime::Builder;

/// Greater than every key.
const BEHIND_ALL: [u8; 64] = [0xff; 64];

/// An engine, and a folder for its databases.
#[derive(Clone)]
pub(crate) struct Place {
    engine: Arc<dyn MetaEngine>,
    /// Removed after the last use; `None` if the engine needs no folder.
    folder: Option<Arc<TempDir>>,
    databases: Arc<AtomicU32>,
    /// Those of the bucket, if it is in one.
    faults: Option<Faults>,
}

impl Place {
    /// Databases in memory.
    pub(crate) fn in_memory() -> Place {
        Place { engine: Arc::new(MemoryEngine::new()), folder: None, databases: Arc::default(), faults: None }
    }

    /// Databases of the engine that servers use.
    pub(crate) fn on_disk() -> Place {
        let folder = Some(Arc::new(tempfile::tempdir().unwrap()));
        Place { engine: store::engines::local(), folder, databases: Arc::default(), faults: None }
    }

    /// Databases in a bucket that refuses, delays, loses, repeats and never answers requests. Its clock runs only
    /// while a call waits.
    pub(crate) fn in_bucket(seed: u64) -> Place {
        let faults =
            Faults { refused: 30, lost: 30, own_conflict: 20, late: 20, repeated: 40, delayed: 30, hung: 2 };
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let config = SlateConfig {
            // Every call succeeds at last, however often its requests fail.
            patience: Duration::from_secs(3600),
            request_limit: Duration::from_secs(5),
            seed: Some(seed),
            ..SlateConfig::default()
        };
        let bucket = Arc::new(FaultyBucket::new(seed, faults));
        let engine = Arc::new(SlateEngine::with_runtime(Arc::new(runtime), bucket, "", config));
        Place { engine, folder: None, databases: Arc::default(), faults: Some(faults) }
    }

    /// Returns the faults of the bucket, if it is in one.
    pub(crate) fn faults(&self) -> Option<Faults> {
        self.faults
    }

    /// Returns the folder of a database that does not exist yet.
    fn next(&self) -> PathBuf {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let above = self.folder.as_ref().map_or(PathBuf::from("/"), |folder| folder.path().to_owned());
        above.join(format!("meta-{number}"))
    }

    fn open(&self, folder: &std::path::Path) -> Arc<dyn MetaDatabase> {
        let (families, config) = (&families::ALL[..], MetaConfig::small());
        let options = MetaOptions { families, config, ..MetaOptions::default() };
        self.engine.open(folder, &options).unwrap()
    }
}

/// A database that remembers how to undo the commits that a crash may lose.
pub(crate) struct Crashing {
    meta: Arc<dyn MetaDatabase>,
    place: Place,
    /// Held during a commit and a sync, so that it is in the order of the commits.
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    commits: u64,
    /// For each unsynced commit, the batch that undoes it.
    undo: Vec<Batch>,
}

impl Crashing {
    /// Creates an empty database.
    pub(crate) fn new(place: Place) -> Crashing {
        let meta = place.open(&place.next());
        Crashing { meta, place, log: Mutex::default() }
    }

    /// Returns the state after a crash in which the first `kept` unsynced commits survived. It is another
    /// database, so nothing that still uses this one affects it.
    pub(crate) fn crash(&self, kept: usize) -> Crashing {
        let mut state = Batch::new();
        let log = self.log.lock();
        for family in [&families::ALL[..], &[Family::SYSTEM, Family::SEGMENTS]].concat() {
            let copy = &mut |key: &[u8], value: &[u8]| {
                state.put(family, key, value);
                ControlFlow::Continue(())
            };
            self.meta.scan(family, KeyRange::ascending(&[], &BEHIND_ALL), copy).unwrap();
        }
        for undo in log.undo.iter().skip(kept).rev() {
            state.append(undo.clone());
        }
        let folder = self.place.next();
        let meta = self.place.open(&folder);
        meta.commit(state).unwrap();
        drop(meta);
        let meta = self.place.open(&folder);
        Crashing { meta, place: self.place.clone(), log: Mutex::default() }
    }

    /// Makes it fail like a disk, for ever; returns whether its engine can.
    pub(crate) fn fail(&self) -> bool {
        // A bucket is opened again instead.
        let can_fail = self.place.faults().is_none();
        if can_fail {
            self.meta.health().fail(StoreError::Meta("made to fail".into()));
        }
        can_fail
    }

    /// Returns the number of commits since it was created by `new` or by a crash.
    pub(crate) fn commits(&self) -> u64 {
        self.log.lock().commits
    }

    /// Returns the number of commits that a crash may lose.
    pub(crate) fn unsynced_commits(&self) -> usize {
        self.log.lock().undo.len()
    }

    fn undo(&self, batch: &Batch) -> Result<Batch, StoreError> {
        let mut undo = Batch::new();
        for change in batch.changes() {
            let (Change::Put(family, key, _) | Change::Delete(family, key)) = change;
            match self.meta.get(*family, key)? {
                Some(before) => undo.put(*family, key.clone(), before),
                None => undo.delete(*family, key.clone()),
            }
        }
        Ok(undo)
    }
}

impl MetaStore for Crashing {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.meta.get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.meta.get_many(family, keys)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.meta.scan(family, range, visit)
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.meta.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        let mut log = self.log.lock();
        let undo = self.undo(&batch)?;
        let number = self.meta.commit(batch)?;
        log.commits += 1;
        log.undo.push(undo);
        Ok(number)
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        let mut log = self.log.lock();
        self.meta.sync(number)?;
        log.undo.clear();
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        self.meta.failure()
    }
}

#[test]
fn a_crash_keeps_a_prefix_with_every_engine() {
    for place in [Place::in_memory(), Place::on_disk()] {
        let meta = Crashing::new(place);
        let put = |value: &str, more: &str| {
            let mut batch = Batch::new();
            batch.put(families::VNODES, "k", value);
            batch.put(families::TOTALS, more, value);
            batch.delete(families::VNODES, "k");
            batch.put(families::VNODES, "k", value);
            meta.commit(batch).unwrap()
        };
        meta.sync(put("1", "a")).unwrap();
        put("2", "b");
        put("3", "a");
        assert_eq!((meta.commits(), meta.unsynced_commits()), (3, 2));
        for (kept, value, a, b) in [(0, "1", "1", None), (1, "2", "1", Some("2")), (2, "3", "3", Some("2"))] {
            let after = meta.crash(kept);
            assert_eq!(after.get(families::VNODES, b"k").unwrap().unwrap(), value);
            assert_eq!(after.get(families::TOTALS, b"a").unwrap().unwrap(), a);
            assert_eq!(after.get(families::TOTALS, b"b").unwrap().as_deref(), b.map(str::as_bytes));
        }
    }
}
