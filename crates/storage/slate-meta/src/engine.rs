//! Opening databases.

use crate::SlateConfig;
use crate::cache::BlockCache;
use crate::clock::Clock;
use crate::keys;
use crate::meta::SlateMeta;
use crate::reader::SlateReader;
use crate::reads::{Reads, unavailable};
use bucket::{Bounded, is_refusal};
use futures::StreamExt;
use object_store::path::Path as Name;
use object_store::{Error as BucketError, ObjectStore};
use parking_lot::Mutex;
use slatedb::admin::Admin;
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, DbReaderOptions, FlushOptions, FlushType,
    GarbageCollectorDirectoryOptions, GarbageCollectorOptions, ObjectStoreCacheOptions, Settings,
};
use slatedb::{CloseReason, Db, DbReader, DbReaderMode, Error, ErrorKind, VersionedCompactions};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use store::{Health, MetaConfig, MetaDatabase, MetaEngine, MetaOptions, StoreError};
use tokio::runtime::{Builder, Runtime};

/// Threads for requests and for merging tables, for all databases of an engine.
const THREADS: usize = 2;

/// For how long SlateDB repeats one change of its manifest. Every caller has its own limit; the end of this one
/// would close the database.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Interval at which a running merge is noted in the bucket. A new owner takes over the merges of the one before
/// after three of them. Until then it may be unable to flush a table, so this must be much less than the time that
/// an open may take.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Pause between attempts to reach the bucket while opening.
const PAUSE: Duration = Duration::from_millis(200);

/// A difference between the clocks of two owners that is reported.
const AHEAD_WORTH_A_WARNING: Duration = Duration::from_secs(10);

/// Share of the memory for unwritten changes that becomes one table.
const TABLES_IN_MEMORY: usize = 4;

/// Opens databases in a bucket. Engines of several processes may name the same ones.
#[derive(Clone)]
pub struct SlateEngine {
    bucket: Arc<Bounded>,
    prefix: String,
    /// Name of the prefix in messages, unless it is that of the client and the prefix.
    place: Option<String>,
    config: SlateConfig,
    runtime: Arc<Runtime>,
    is_abandoned: Arc<AtomicBool>,
}

impl fmt::Debug for SlateEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlateEngine({}/{})", self.bucket, self.prefix)
    }
}

impl SlateEngine {
    /// Creates an engine with threads of its own. The name of a database in the bucket is `prefix` followed by the
    /// folder that it is opened in, so that each process has to use the same folder for the same database.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub fn new(
        bucket: Arc<dyn ObjectStore>,
        prefix: &str,
        config: SlateConfig,
    ) -> std::io::Result<SlateEngine> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("slate-meta")
            .enable_all()
            .build();
        Ok(SlateEngine::with_runtime(Arc::new(runtime?), bucket, prefix, config))
    }

    /// Creates an engine that runs on `runtime`, whose timers must be enabled. If that has no threads of its own,
    /// background work happens only during calls, as a simulation needs it.
    pub fn with_runtime(
        runtime: Arc<Runtime>,
        bucket: Arc<dyn ObjectStore>,
        prefix: &str,
        config: SlateConfig,
    ) -> SlateEngine {
        let bucket = Arc::new(Bounded::new(bucket, config.request_limit));
        SlateEngine {
            bucket,
            prefix: prefix.to_owned(),
            place: None,
            config,
            runtime,
            is_abandoned: Arc::default(),
        }
    }

    /// Sets the name of the prefix in messages: the address that the administrator knows.
    #[must_use]
    pub fn called(mut self, place: String) -> SlateEngine {
        self.place = Some(place);
        self
    }

    /// Sets the folder on the local disk for copies of tables, and its maximum size in bytes.
    #[must_use]
    pub fn with_disk_cache(self, folder: PathBuf, bytes_max: usize) -> SlateEngine {
        let config = SlateConfig { disk_cache: Some((folder, bytes_max)), ..self.config };
        SlateEngine { config, ..self }
    }

    /// For tests: ends the engine as a crash of the process does. Dropping its databases afterwards writes nothing,
    /// and their background work ends with the runtime.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
    }

    fn name(&self, folder: &Path) -> Name {
        let folders = folder.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy()),
            _ => None,
        });
        let parts = self.prefix.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        parts.chain(folders.map(String::from)).collect()
    }

    fn reads(&self, folder: &Path, name: &Name) -> Reads {
        let place = match &self.place {
            Some(place) => format!("{place}/{}", folder.display()),
            None => format!("{}/{name}", self.bucket),
        };
        let health = Arc::new(Health::of(&PathBuf::from(&place)));
        Reads { runtime: Arc::clone(&self.runtime), patience: self.config.patience, place, health }
    }

    fn opening<T>(
        &self,
        place: &str,
        open: impl AsyncFnOnce(&Attempts<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let attempts = Attempts { place, last: Mutex::default() };
        let opened = self
            .runtime
            .block_on(async { tokio::time::timeout(self.config.patience, open(&attempts)).await.ok() });
        opened.unwrap_or_else(|| Err(attempts.late(self.config.patience)))
    }

    async fn exists(&self, name: &Name, attempts: &Attempts<'_>) -> Result<bool, StoreError> {
        let manifests = name.clone().join("manifest");
        attempts
            .repeat(async || self.bucket.list(Some(&manifests)).next().await.transpose())
            .await
            .map(|one| one.is_some())
    }

    async fn open_writer(
        &self,
        name: &Name,
        options: &MetaOptions<'_>,
        cache: &Arc<BlockCache>,
        attempts: &Attempts<'_>,
    ) -> Result<Db, StoreError> {
        if !self.exists(name, attempts).await? && !options.create {
            return Err(attempts.refused("there is none"));
        }
        let clock = Arc::new(self.config.seed.map_or_else(Clock::default, |_| Clock::for_tests()));
        clock.reach(newest_stamp(name, &self.bucket, attempts).await?);
        loop {
            // A request of the owner before may have arrived after its newest time was read.
            let taken = self.take(name, options, cache, &clock, attempts).await;
            let is_behind = !clock.reach(newest_stamp(name, &self.bucket, attempts).await?).is_zero();
            match taken {
                Ok(db) if !is_behind => return Ok(db),
                // Its merges may already have used an earlier time.
                Ok(db) => close(&db).await,
                // The clock may have caught up meanwhile, or another process has created the database first.
                Err(error) if is_behind || is_of_clock(&error) || is_of_creation(&error) => {
                    tracing::debug!(place = attempts.place, %error, "opening again");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes this process the owner.
    async fn take(
        &self,
        name: &Name,
        options: &MetaOptions<'_>,
        cache: &Arc<BlockCache>,
        clock: &Arc<Clock>,
        attempts: &Attempts<'_>,
    ) -> Result<Db, StoreError> {
        let mut builder = Db::builder(name.clone(), Arc::clone(&self.bucket) as _)
            .with_settings(self.settings(&options.config))
            .with_system_clock(Arc::clone(clock) as _)
            .with_db_cache(Arc::clone(cache) as _, 0);
        if let Some(seed) = self.config.seed {
            builder = builder.with_seed(seed);
        }
        let db = builder.build().await.map_err(|error| attempts.failed("take it over", &error))?;
        let checked = match catch_up(&db, clock, attempts).await {
            Ok(()) => declare(&db, options, attempts).await,
            failed => failed,
        };
        match checked {
            Ok(()) => Ok(db),
            Err(error) => {
                close(&db).await;
                Err(error)
            }
        }
    }

    fn settings(&self, limits: &MetaConfig) -> Settings {
        let config = &self.config;
        let worker = CompactionWorkerOptions {
            max_concurrent_compactions: usize::from(limits.background_jobs.max(1)),
            heartbeat_interval: HEARTBEAT,
            ..CompactionWorkerOptions::default()
        };
        let compactor = CompactorOptions {
            poll_interval: config.compaction_interval,
            manifest_update_timeout: FOR_EVER,
            max_concurrent_compactions: usize::from(limits.background_jobs.max(1)),
            checkpoint_lifetime: config.snapshot_life,
            worker: Some(worker),
            worker_heartbeat_timeout: 3 * HEARTBEAT,
            ..CompactorOptions::default()
        };
        let disk_cache = config.disk_cache.clone().map(|(folder, bytes)| ObjectStoreCacheOptions {
            root_folder: Some(folder),
            max_cache_size_bytes: Some(bytes),
            cache_on_flush: true,
            cache_on_compaction: true,
            ..ObjectStoreCacheOptions::default()
        });
        Settings {
            // The log is written when a sync waits for it.
            flush_interval: None,
            manifest_poll_interval: config.poll_interval,
            manifest_update_timeout: FOR_EVER,
            l0_sst_size_bytes: (limits.write_buffer_bytes / TABLES_IN_MEMORY).max(1),
            // SlateDB would wait without end; `SlateMeta` has a limit of its own.
            max_unflushed_bytes: usize::MAX,
            compactor_options: Some(compactor),
            object_store_cache_options: disk_cache.unwrap_or_default(),
            garbage_collector_options: config.garbage_age.map(garbage_options),
            ..Settings::default()
        }
    }
}

impl MetaEngine for SlateEngine {
    fn open(&self, folder: &Path, options: &MetaOptions<'_>) -> Result<Arc<dyn MetaDatabase>, StoreError> {
        let name = self.name(folder);
        let reads = self.reads(folder, &name);
        let cache = Arc::new(BlockCache::new(options.config.cache_bytes));
        let db = self.opening(&reads.place, async |attempts| {
            self.open_writer(&name, options, &cache, attempts).await
        })?;
        let bytes_max = options.config.write_buffer_bytes.max(1);
        let admin = Admin::builder(name, Arc::clone(&self.bucket) as _).build();
        Ok(Arc::new(SlateMeta::new(db, admin, reads, cache, bytes_max, Arc::clone(&self.is_abandoned))))
    }

    fn open_read_only(&self, folder: &Path) -> Result<Arc<dyn MetaDatabase>, StoreError> {
        let name = self.name(folder);
        let reads = self.reads(folder, &name);
        // No poll: what is read stays as it was at the open.
        let options = DbReaderOptions { manifest_poll_interval: FOR_EVER, ..DbReaderOptions::default() };
        let db = self.opening(&reads.place, async |attempts| {
            if !self.exists(&name, attempts).await? {
                return Err(attempts.refused("there is none"));
            }
            let cache = Arc::new(BlockCache::new(MetaConfig::default().cache_bytes));
            let builder = DbReader::builder(name.clone(), Arc::clone(&self.bucket) as _)
                .with_reader_mode(DbReaderMode::FollowLatest)
                .with_options(options)
                .with_db_cache(cache, 0);
            builder.build().await.map_err(|error| attempts.failed("read its log", &error))
        })?;
        Ok(Arc::new(SlateReader { db, reads }))
    }
}

/// Closes a database that is not used.
async fn close(db: &Db) {
    if let Err(error) = db.close().await {
        tracing::debug!(%error, "a database that was refused did not close");
    }
}

/// Whether SlateDB refused a time that is before one in the bucket. It has no kind of error for that.
fn is_of_clock(error: &StoreError) -> bool {
    error.to_string().contains("invalid clock tick")
}

/// Whether SlateDB found an object that it did not see a moment before, and that it was to create. It repeats changes
/// of such objects itself, but not their creation.
fn is_of_creation(error: &StoreError) -> bool {
    error.to_string().contains("version already exists")
}

/// Attempts to open one database, and the last error of the bucket.
struct Attempts<'a> {
    place: &'a str,
    last: Mutex<Option<String>>,
}

impl Attempts<'_> {
    /// Repeats a request until it succeeds or fails for a reason that does not pass.
    async fn repeat<T>(&self, request: impl AsyncFn() -> Result<T, BucketError>) -> Result<T, StoreError> {
        loop {
            match request().await {
                Ok(answer) => return Ok(answer),
                Err(error) if is_lasting(&error) => return Err(self.refused(&error.to_string())),
                Err(error) => *self.last.lock() = Some(error.to_string()),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn refused(&self, why: &str) -> StoreError {
        StoreError::Meta(format!("cannot open {}: {why}", self.place))
    }

    fn failed(&self, doing: &str, error: &Error) -> StoreError {
        let what = format!("cannot {doing}: {error}");
        match error.kind() {
            ErrorKind::Unavailable => unavailable(self.place, what),
            ErrorKind::Closed(CloseReason::Fenced) => StoreError::Fenced { place: self.place.to_owned() },
            ErrorKind::Data => StoreError::Damaged { place: self.place.to_owned(), what },
            _ => self.refused(&what),
        }
    }

    fn late(&self, patience: Duration) -> StoreError {
        let last = self.last.lock().take().unwrap_or_else(|| "none was reported".to_owned());
        unavailable(
            self.place,
            format_args!("it could not be opened within {patience:?}; the last error: {last}"),
        )
    }
}

/// Whether an error of the bucket says that the request will not succeed later either.
fn is_lasting(error: &BucketError) -> bool {
    matches!(error, BucketError::NotFound { .. }) || is_refusal(error)
}

fn garbage_options(min_age: Duration) -> GarbageCollectorOptions {
    let age = GarbageCollectorDirectoryOptions { interval: Some(min_age / 4), min_age, dry_run: false };
    GarbageCollectorOptions {
        manifest_options: Some(age),
        wal_options: Some(age),
        // A fence that is gone lets a writer that slept go on: SlateDB's own default keeps all of them, too.
        wal_fence_options: None,
        compacted_options: Some(age),
        compactions_options: Some(age),
        detach_options: None,
        ..GarbageCollectorOptions::default()
    }
}

/// Returns the newest time, in milliseconds since 1970, in what the owner before has left: of writes in tables, in
/// the names of tables and of merges, and of signs of life of merges. SlateDB refuses to add older ones, and gives a
/// merge to another worker only some seconds after its sign of life.
async fn newest_stamp(
    name: &Name,
    bucket: &Arc<Bounded>,
    attempts: &Attempts<'_>,
) -> Result<i64, StoreError> {
    let failed = |error| attempts.failed("read its manifest", &error);
    let admin = Admin::builder(name.clone(), Arc::clone(bucket) as _).build();
    let Some(manifest) = admin.read_manifest(None).await.map_err(failed)? else { return Ok(i64::MIN) };
    let tables = manifest.all_sst_views().map(|table| table.sst.id.value().timestamp_ms());
    let merged = manifest.last_compacted_l0_sst_id().map(|id| id.timestamp_ms());
    let merges = admin.read_compactions(None).await.map_err(failed)?;
    let merges = merges.iter().flat_map(VersionedCompactions::recent_compactions);
    let merges = merges.flat_map(|merge| {
        let outputs = merge.output_ssts().into_iter().map(|table| table.id.value().timestamp_ms());
        // A sign of life that is in the future keeps the merge for its worker, though that is gone.
        let sign_of_life = merge.worker().map(|worker| worker.last_heartbeat_ms);
        outputs.chain([merge.id().timestamp_ms()]).chain(sign_of_life).collect::<Vec<_>>()
    });
    let newest = tables.chain(merged).chain(merges).max().unwrap_or(0);
    Ok(manifest.last_l0_clock_tick().max(i64::try_from(newest).unwrap_or(i64::MAX)))
}

/// Sets the clock forward to the newest write of the owner before, which the log may have.
async fn catch_up(db: &Db, clock: &Clock, attempts: &Attempts<'_>) -> Result<(), StoreError> {
    // Only tables have their newest time in the manifest, so what the log has is written to them.
    let tables = FlushOptions { flush_type: FlushType::MemTable };
    db.flush_with_options(tables)
        .await
        .map_err(|error| attempts.failed("write its log to tables", &error))?;
    let ahead = clock.reach(db.manifest().last_l0_clock_tick());
    if ahead > AHEAD_WORTH_A_WARNING {
        let ahead_s = ahead.as_secs();
        tracing::warn!(place = attempts.place, ahead_s, "the last owner's clock was ahead of this machine's");
    }
    Ok(())
}

/// Checks that every family of the database is declared, and durably adds those that it lacks.
async fn declare(db: &Db, options: &MetaOptions<'_>, attempts: &Attempts<'_>) -> Result<(), StoreError> {
    let found = db
        .get(keys::FAMILIES)
        .await
        .map_err(|error| attempts.failed("read or write its families", &error))?;
    let damaged =
        || StoreError::Damaged { place: attempts.place.to_owned(), what: "the list of families".to_owned() };
    let known = found.map_or(Some(Vec::new()), |record| keys::parse_families(&record)).ok_or_else(damaged)?;
    let declared: Vec<_> =
        options.all_families().iter().map(|family| (family.number(), family.name().to_owned())).collect();
    if let Some((number, _)) = declared.iter().find(|(number, _)| *number == keys::OWN) {
        return Err(attempts.refused(&format!("family {number} is for the engine's own records")));
    }
    if let Some((number, name)) = known.iter().find(|family| !declared.contains(family)) {
        return Err(attempts.refused(&format!(
            "it has the family {number} {name}, which is not declared: a newer program wrote it"
        )));
    }
    if known.len() == declared.len() {
        return Ok(());
    }
    let written = db.put(keys::FAMILIES, keys::families_record(&declared)).await;
    written.map_err(|error| attempts.failed("read or write its families", &error))?;
    db.flush().await.map_err(|error| attempts.failed("read or write its families", &error))
}
