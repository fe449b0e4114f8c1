//! Metadata in RocksDB.
//!
//! A commit is one atomic write batch, written to the write-ahead log without a sync; a [`MetaStore::sync`]
//! syncs the log once for all waiting callers. RocksDB recovers the log up to the first incomplete record, so
//! the state after a crash is a prefix of the commits across all families; [`gaps`] prevents it from skipping
//! lost blocks. It takes a commit that the medium has lost for one that a crash has torn; [`claims`] prove that it was
//! durable, and then the database is not opened.
//!
//! After the first error of a write, a sync, or RocksDB's background work, no further write of any kind is
//! issued to RocksDB and its background work stops; reads continue, in the state that was durable.

mod claims;
mod durable;
mod gaps;
mod logs;
mod options;
mod probe;
mod rot;
mod survey;

use crate::group_sync::GroupSync;
use crate::health::Health;
use crate::home::failed;
use crate::meta::{Change, Snapshot, Visit};
use crate::{
    Batch, CommitNumber, Family, KeyRange, MetaConfig, MetaDatabase, MetaEngine, MetaOptions, MetaStatistics,
    MetaStore, StoreError,
};
use bytes::Bytes;
use claims::{Claims, Key};
use disk::RealDisk;
use durable::{Durable, State};
use logs::{Logs, Written};
use probe::check_writable;
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DBPinnableSlice, DBRawIterator, Error, ErrorKind, Options,
    ReadOptions, WriteBatch, WriteOptions, properties,
};
use rot::{Chain, Loss, Opened};
use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use survey::Survey;

/// Opens databases of RocksDB.
#[derive(Clone, Copy, Debug, Default)]
pub struct RocksEngine;

impl MetaEngine for RocksEngine {
    fn open(&self, folder: &Path, options: &MetaOptions<'_>) -> Result<Arc<dyn MetaDatabase>, StoreError> {
        Ok(Arc::new(RocksMeta::open(folder, options)?))
    }

    fn open_read_only(&self, folder: &Path) -> Result<Arc<dyn MetaDatabase>, StoreError> {
        Ok(Arc::new(RocksMeta::open_read_only(folder)?))
    }

    fn loss(&self, folder: &Path) -> Result<Option<String>, StoreError> {
        let logs = survey(folder)?;
        Ok(loss(folder, &logs)?.map(|loss| format!("{}: {}", loss.place(), loss.describe())))
    }

    fn accept_loss(&self, folder: &Path, also: Batch) -> Result<(), StoreError> {
        RocksMeta::accept_loss(folder, also)
    }
}

/// A [`MetaStore`] in its own folder.
struct RocksMeta {
    db: Arc<DB>,
    /// The state that reads see after a failure.
    durable: Durable,
    /// Families that may change: none if it is open read-only.
    families: Vec<Family>,
    unsynced_write: WriteOptions,
    /// Number of commits whose write has returned, which is what a sync started now covers.
    written: AtomicU64,
    log_bytes: AtomicU64,
    logs: Logs,
    claims: Claims,
    group: GroupSync,
    health: Arc<Health>,
    /// Number of background errors already handled.
    background_errors: AtomicU64,
    is_read_only: bool,
}

impl RocksMeta {
    /// Opens the database in the folder `path`; with `create`, creates folder and database if missing.
    fn open(path: &Path, how: &MetaOptions<'_>) -> Result<RocksMeta, StoreError> {
        check_writable(path)?;
        let logs = survey(path)?;
        if let Some(loss) = loss(path, &logs)? {
            return Err(loss.into_error());
        }
        gaps::close(&RealDisk, &logs)?;
        let families = how.all_families();
        let mut options = options::database(&how.config);
        options.create_if_missing(how.create);
        let descriptors = options::families(&how.config, &families, how.defers_upkeep);
        let db = DB::open_cf_descriptors(&options, path, descriptors)
            .map_err(|error| cannot_open(path, &error))?;
        let meta = RocksMeta::new(db, families, false)?;
        meta.retire(&logs)?;
        Ok(meta)
    }

    /// Opens and closes the database with what the logs have before the first loss.
    fn accept_loss(path: &Path, also: Batch) -> Result<(), StoreError> {
        check_writable(path)?;
        let logs = survey(path)?;
        if loss(path, &logs)?.is_none() {
            return Ok(());
        }
        gaps::close(&RealDisk, &logs)?;
        let (_, opened) = open_unchanged(path)?;
        // RocksDB must not read logs after the hole, and must know that it lies before them: it refuses if a table has more.
        let chain = Chain::of(logs.iter().filter(|log| Some(log.number) >= opened.oldest_log));
        if let Some(last) = chain.last {
            gaps::mark(&RealDisk, &last.path, last.next_record())?;
        } else {
            chain.apart.iter().try_for_each(|log| gaps::mark(&RealDisk, &log.path, 0))?;
        }
        let (options, families) = as_found(path)?;
        let db =
            DB::open_cf_descriptors(&options, path, families).map_err(|error| cannot_open(path, &error))?;
        let meta = RocksMeta::new(db, vec![Family::SYSTEM], false)?;
        meta.commit(also)?;
        meta.retire(&logs)
    }

    /// Makes the logs of earlier runs unnecessary, if RocksDB has not. They must not be read together with later ones:
    /// changes in them that no table has are gone, and their sequence numbers are used again.
    fn retire(&self, logs: &[Survey]) -> Result<(), StoreError> {
        let newest = logs.iter().filter(|log| !log.is_blank()).map(|log| log.number).max();
        if newest.is_none_or(|newest| Some(newest) < oldest_log(&self.db)) {
            return Ok(());
        }
        let family = self.family(Family::SYSTEM)?;
        let mut nothing = WriteBatch::default();
        nothing.delete_cf(family, "");
        let written =
            self.db.write_opt(nothing, &self.unsynced_write).and_then(|()| self.db.flush_cf(family));
        written.map_err(|error| cannot_open(self.db.path(), &error))
    }

    /// Sets an option of every family, if it can be changed at run time. An I/O error is final.
    fn set_of_all(&self, option: &str, value: &str) -> Result<(), StoreError> {
        self.health.check()?;
        // RocksDB records the change on disk. If a full disk fails that write and then a commit, RocksDB's
        // recovery runs into an assertion.
        check_writable(self.db.path())?;
        self.families.iter().map(|family| self.set(*family, option, value)).fold(Ok(()), Result::and)
    }

    fn set(&self, family: Family, option: &str, value: &str) -> Result<(), StoreError> {
        self.health.check()?;
        self.db.set_options_cf(self.family(family)?, &[(option, value)]).map_err(|error| {
            let refused = StoreError::Meta(format!("cannot set {option} of {}: {error}", family.name()));
            if error.kind() == ErrorKind::IOError { self.fail(refused) } else { refused }
        })
    }

    /// Opens the database in its current state and changes nothing in it; every commit fails.
    fn open_read_only(path: &Path) -> Result<RocksMeta, StoreError> {
        // A read-only open is for checks, so it must see what is really on the disk.
        forget_cached(path)?;
        let logs = survey(path)?;
        if let Some(loss) = loss(path, &logs)? {
            return Err(loss.into_error());
        }
        if let Some((log, offset)) = logs.iter().find_map(|log| Some((log.path.display(), log.gap?))) {
            let text = format!("a crash left a gap in {log} at {offset}; a start of the server closes it");
            return Err(StoreError::Meta(text));
        }
        let (db, _) = open_unchanged(path)?;
        RocksMeta::new(db, Vec::new(), true)
    }

    fn new(db: DB, families: Vec<Family>, is_read_only: bool) -> Result<RocksMeta, StoreError> {
        let db = Arc::new(db);
        Ok(RocksMeta {
            durable: if is_read_only { Durable::default() } else { Durable::begin(&db) },
            logs: Logs::new(Arc::new(RealDisk), db.path()),
            claims: Claims::new(Key::of(db.path())?),
            health: Arc::new(Health::of(db.path())),
            background_errors: AtomicU64::new(0),
            db,
            families,
            unsynced_write: WriteOptions::default(),
            written: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            group: GroupSync::default(),
            is_read_only,
        })
    }

    /// Records the first error and stops RocksDB's background work, whose writes might abort the process.
    fn fail(&self, error: StoreError) -> StoreError {
        let error = self.health.fail(error);
        self.db.cancel_all_background_work(false);
        error
    }

    /// Checks whether a failed flush or compaction has stopped the database before any commit failed.
    fn check_background(&self) {
        if self.is_read_only || self.health.is_failed() {
            return;
        }
        let errors = self.property(Family::SYSTEM, properties::BACKGROUND_ERRORS);
        if self.background_errors.swap(errors, AcqRel) == errors {
            return;
        }
        // A stopped database refuses even an empty batch, and returns the reason. A compaction that lacks
        // space is retried later and stops nothing.
        match self.db.write_opt(WriteBatch::default(), &self.unsynced_write) {
            Ok(()) => {
                tracing::warn!(path = %self.db.path().display(), errors, "a metadata compaction failed");
            }
            Err(error) => _ = self.fail(StoreError::Meta(format!("background work failed: {error}"))),
        }
    }

    /// Returns a number that grows whenever RocksDB starts a new log, which happens only together with a new
    /// write buffer of some family. `None` if RocksDB does not provide it.
    fn layout(&self) -> Option<u64> {
        let name = properties::CURRENT_SUPER_VERSION_NUMBER;
        let of =
            |family: &Family| self.db.property_int_value_cf(self.family(*family).ok()?, name).ok().flatten();
        let unnamed = self.db.property_int_value(name).ok().flatten()?;
        self.families.iter().map(of).sum::<Option<u64>>().map(|sum| sum + unnamed)
    }

    fn sum_of(&self, name: &CStr) -> u64 {
        self.families.iter().map(|family| self.property(*family, name)).sum()
    }

    fn property(&self, family: Family, name: &CStr) -> u64 {
        let Ok(handle) = self.family(family) else { return 0 };
        self.db.property_int_value_cf(handle, name).ok().flatten().unwrap_or(0)
    }

    fn family(&self, family: Family) -> Result<&ColumnFamily, StoreError> {
        let handle = self.db.cf_handle(family.name());
        handle.ok_or_else(|| StoreError::Meta(format!("no family {}", family.name())))
    }

    /// Whether the family is missing because an older program created the database and it is open read-only.
    fn is_missing(&self, family: Family) -> bool {
        self.is_read_only && self.db.cf_handle(family.name()).is_none()
    }

    fn write_batch(&self, batch: &Batch) -> Result<WriteBatch, StoreError> {
        let mut out = self.claims.batch();
        for change in batch.changes() {
            match change {
                Change::Put(family, key, value) => out.put_cf(self.family(*family)?, key, value),
                Change::Delete(family, key) => out.delete_cf(self.family(*family)?, key),
            }
        }
        Ok(out)
    }

    /// Flushes all tables so that the next open need not replay the log. Stops at the first error.
    fn flush_tables(&self) {
        for handle in self.families.iter().filter_map(|family| self.family(*family).ok()) {
            if let Err(error) = self.db.flush_cf(handle) {
                tracing::warn!(%error, "cannot flush metadata while closing; the log has it");
                return;
            }
        }
    }

    fn sync_log(&self) -> Result<u64, StoreError> {
        self.health.check()?;
        let commits = self.written.load(Acquire);
        let written = Written { commits, bytes: self.log_bytes.load(Relaxed) };
        let newest = self.db.latest_sequence_number();
        // Has at least these commits, and what the sync covers at most.
        let state = State::of(&self.db);
        let is_new = self.logs.sync(self.layout(), written).map_err(|error| self.fail(error))?;
        if is_new && !self.durable.advance(state) {
            self.health.check()?;
        }
        if is_new {
            self.claims.advance(newest);
        }
        Ok(commits)
    }

    /// Returns the state to read; `None` is the current one.
    fn state(&self) -> Option<&rocksdb::Snapshot<'_>> {
        if self.health.is_failed() { self.durable.freeze() } else { None }
    }

    /// Returns the options of a read of the state to read.
    fn read_options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        if let Some(state) = self.state() {
            options.set_snapshot(state);
        }
        options
    }
}

impl MetaStore for RocksMeta {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if self.is_missing(family) {
            return Ok(None);
        }
        let found = self.db.get_pinned_cf_opt(self.family(family)?, key, &self.read_options());
        let found = found.map_err(|error| read_error(family, key, &error))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        if self.is_missing(family) {
            return Ok(vec![None; keys.len()]);
        }
        if let [key] = keys {
            return Ok(vec![self.get(family, key)?]);
        }
        let family_handle = self.family(family)?;
        let found = self.db.batched_multi_get_cf_opt(family_handle, keys, false, &self.read_options());
        let copy = |(value, key): (Result<Option<DBPinnableSlice<'_>>, Error>, &&[u8])| {
            let value = value.map_err(|error| read_error(family, key, &error))?;
            Ok(value.map(|value| Bytes::copy_from_slice(&value)))
        };
        found.into_iter().zip(keys).map(copy).collect()
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        if range.from >= range.to || self.is_missing(family) {
            return Ok(());
        }
        let options = bounded(self.read_options(), range);
        let cursor = self.db.raw_iterator_cf_opt(self.family(family)?, options);
        walk(cursor, family, range, visit)
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        // A failed database does not change.
        let state = if self.health.is_failed() { None } else { Some(self.db.snapshot()) };
        Box::new(RocksSnapshot { meta: self, state })
    }

    /// Of two concurrent commits, either may get the lower number.
    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        self.health.check()?;
        if batch.is_empty() {
            return Ok(CommitNumber(self.written.load(Acquire)));
        }
        let batch = self.write_batch(&batch)?;
        self.log_bytes.fetch_add(batch.size_in_bytes() as u64, Relaxed);
        match self.db.write_opt(batch, &self.unsynced_write) {
            Ok(()) => Ok(CommitNumber(self.written.fetch_add(1, AcqRel) + 1)),
            Err(error) => Err(self.fail(StoreError::Meta(format!("cannot write: {error}")))),
        }
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        self.group.wait(number.0, || self.sync_log())
    }

    fn read_anew(&self) -> Result<(), StoreError> {
        forget_cached(self.db.path())
    }

    fn failure(&self) -> Option<String> {
        // Background work may have failed since the last commit.
        self.check_background();
        self.health.failure()
    }
}

impl MetaDatabase for RocksMeta {
    /// Starts compacting tables in the background, unless already started. A failure for one family does not
    /// skip the others.
    fn begin_upkeep(&self) -> Result<(), StoreError> {
        self.set_of_all(options::NO_COMPACTION, "false")
    }

    fn statistics(&self) -> MetaStatistics {
        MetaStatistics {
            commits: self.written.load(Acquire),
            log_bytes: self.log_bytes.load(Relaxed),
            sync_requests: self.group.requests(),
            syncs: self.group.rounds(),
            table_bytes: self.sum_of(properties::TOTAL_SST_FILES_SIZE),
            write_buffer_bytes: self.sum_of(properties::CUR_SIZE_ALL_MEM_TABLES),
            cache_bytes: self.property(Family::SYSTEM, properties::BLOCK_CACHE_USAGE),
        }
    }

    fn health(&self) -> &Arc<Health> {
        &self.health
    }
}

struct RocksSnapshot<'a> {
    meta: &'a RocksMeta,
    /// `None` is the state of a failed database.
    state: Option<rocksdb::Snapshot<'a>>,
}

impl Snapshot for RocksSnapshot<'_> {
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        if range.from >= range.to || self.meta.is_missing(family) {
            return Ok(());
        }
        let state = self.state.as_ref().or_else(|| self.meta.state());
        let mut options = ReadOptions::default();
        if let Some(state) = state {
            options.set_snapshot(state);
        }
        let mut options = bounded(options, range);
        // Snapshots serve long scans, which must not evict cached blocks that other readers use.
        options.fill_cache(false);
        walk(self.meta.db.raw_iterator_cf_opt(self.meta.family(family)?, options), family, range, visit)
    }
}

impl Drop for RocksMeta {
    fn drop(&mut self) {
        if !self.is_read_only && self.failure().is_none() {
            match self.sync_log() {
                Ok(_) => self.flush_tables(),
                Err(error) => tracing::error!(%error, "cannot sync the metadata log while closing"),
            }
        }
        self.db.cancel_all_background_work(true);
    }
}

fn survey(path: &Path) -> Result<Vec<Survey>, StoreError> {
    survey::read_all(&RealDisk, path, Key::of(path)?.as_ref())
}

/// Returns the durable changes that the logs provably lack.
fn loss(path: &Path, logs: &[Survey]) -> Result<Option<Loss>, StoreError> {
    if !rot::is_possible(logs) {
        return Ok(None);
    }
    match open_unchanged(path) {
        Ok((_, opened)) => Ok(rot::find(logs, opened)),
        // RocksDB itself refuses, because tables have some of what follows the damage.
        Err(StoreError::Meta(error)) => Err(StoreError::Meta(rot::explain(logs, error))),
        Err(error) => Err(error),
    }
}

/// Opens a database without changing anything in it.
fn open_unchanged(path: &Path) -> Result<(DB, Opened), StoreError> {
    let (options, families) = as_found(path)?;
    let db = DB::open_cf_descriptors_read_only(&options, path, families, false);
    let db = db.map_err(|error| cannot_open(path, &error))?;
    let opened = Opened { oldest_log: oldest_log(&db), newest_change: db.latest_sequence_number() };
    Ok((db, opened))
}

/// Returns the options for a database with the families that it has: one of an older program may lack some.
fn as_found(path: &Path) -> Result<(Options, Vec<ColumnFamilyDescriptor>), StoreError> {
    let config = MetaConfig::default();
    let options = options::database(&config);
    let names = DB::list_cf(&options, path).map_err(|error| cannot_open(path, &error))?;
    Ok((options, options::families_named(&config, &names)))
}

/// Returns the number of the oldest log that is needed; `None` if RocksDB does not provide it.
fn oldest_log(db: &DB) -> Option<u64> {
    db.property_int_value(properties::MIN_LOG_NUMBER_TO_KEEP).ok().flatten()
}

fn cannot_open(path: &Path, error: &Error) -> StoreError {
    StoreError::Meta(format!("cannot open {}: {error}", path.display()))
}

fn forget_cached(path: &Path) -> Result<(), StoreError> {
    disk::forget_cached(path).map_err(|error| failed("read", path, error))
}

fn bounded(mut options: ReadOptions, range: KeyRange<'_>) -> ReadOptions {
    options.set_iterate_lower_bound(range.from);
    options.set_iterate_upper_bound(range.to);
    options.set_total_order_seek(true);
    options.set_verify_checksums(true);
    options
}

fn walk(
    mut cursor: DBRawIterator<'_>,
    family: Family,
    range: KeyRange<'_>,
    visit: Visit<'_>,
) -> Result<(), StoreError> {
    if range.reverse {
        cursor.seek_to_last();
    } else {
        cursor.seek_to_first();
    }
    while let Some((key, value)) = cursor.item() {
        if visit(key, value).is_break() {
            return Ok(());
        }
        if range.reverse {
            cursor.prev();
        } else {
            cursor.next();
        }
    }
    cursor.status().map_err(|error| read_error(family, range.from, &error))
}

fn read_error(family: Family, key: &[u8], error: &Error) -> StoreError {
    match error.kind() {
        ErrorKind::Corruption => StoreError::Damaged {
            place: format!("family {} near key {}", family.name(), key.escape_ascii()),
            what: error.to_string(),
        },
        _ => StoreError::Meta(format!("cannot read {}: {error}", family.name())),
    }
}

#[cfg(test)]
mod tests;
