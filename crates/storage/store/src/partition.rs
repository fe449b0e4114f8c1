//! One partition: metadata and file data, in a folder or elsewhere.

mod keeper;

use crate::encryption::rewrap;
use crate::gauge::{Gauge, Room};
use crate::home::{self, Home, Kind, ensure_dir, failed};
use crate::{
    ChunkNames, ChunkStatistics, ChunkStore, DiskCacheStatistics, Family, FileData, IdAllocator, KeyRing,
    MasterKey, MetaConfig, MetaDatabase, MetaEngine, MetaOptions, MetaStatistics, MetaStore, Recount,
    SegmentConfig, SegmentStore, StoreError, engines,
};
use disk::{Disk, Lock, RealDisk, Space};
use keeper::{Keeper, Stop};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The folder inside `/vicepX` that Cellar uses; format: docs/reference/formats/partition.md.
pub const FOLDER: &str = "cellar";

/// Options for opening a partition.
#[derive(Clone, Debug)]
pub struct PartitionConfig {
    /// Engine of the metadata.
    pub engine: Arc<dyn MetaEngine>,
    /// Families of the crates above.
    pub families: &'static [Family],
    /// Whether to create the partition if it does not exist; `/vicepX` itself must exist.
    pub create: bool,
    /// Limits of the metadata.
    pub meta: MetaConfig,
    /// Limits of the file data.
    pub segments: SegmentConfig,
    /// Interval of [`FileData::maintain`] on a thread of the partition; `None` if the caller calls it.
    pub maintenance: Option<Duration>,
    /// The records that reference chunks. If set, a partition that was not closed cleanly searches for the
    /// orphans of its last run on a background thread.
    pub chunk_names: Option<ChunkNames>,
}

impl Default for PartitionConfig {
    fn default() -> PartitionConfig {
        PartitionConfig {
            engine: engines::local(),
            families: &[],
            create: true,
            meta: MetaConfig::default(),
            segments: SegmentConfig::default(),
            maintenance: Some(Duration::from_secs(5)),
            chunk_names: None,
        }
    }
}

/// Statistics of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStatistics {
    /// Metadata.
    pub meta: MetaStatistics,
    /// File data.
    pub chunks: ChunkStatistics,
}

/// An open partition. Keep it as long as its stores are used.
pub struct Partition {
    // Dropped in this order: the threads end, the stores close, the lock is released.
    _recounter: Option<Recounter>,
    _keeper: Option<Keeper>,
    data: Arc<dyn FileData>,
    meta: Arc<dyn MetaDatabase>,
    ids: Arc<IdAllocator>,
    gauge: Gauge,
    uuid: Uuid,
    _lock: Option<Box<dyn Lock>>,
}

/// The open stores of a partition.
pub struct PartitionParts {
    /// Metadata.
    pub meta: Arc<dyn MetaDatabase>,
    /// File data, which shares the health of the metadata.
    pub data: Arc<dyn FileData>,
    /// UUID generated when the partition was created.
    pub uuid: Uuid,
    /// What is locked on this machine for as long as the partition is open.
    pub lock: Option<Box<dyn Lock>>,
}

impl Partition {
    /// Opens the partition in `path` (`/vicepX`). Only one process can have it open.
    pub fn open(path: &Path, config: &PartitionConfig) -> Result<Partition, StoreError> {
        Partition::open_encrypted(path, config, None)
    }

    /// Opens the partition with its master key. A partition without encryption is encrypted from then on:
    /// existing data stays unchanged, new data is encrypted.
    ///
    /// # Errors
    /// `Key` if the partition is encrypted and `key` is missing or wrong.
    pub fn open_encrypted(
        path: &Path,
        config: &PartitionConfig,
        key: Option<&MasterKey>,
    ) -> Result<Partition, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        Partition::open_with(&disk, path, config, key)
    }

    /// Wraps the data keys of a partition that no server has open with another master key and, with
    /// `adds_key`, adds a data key for new data. No data is rewritten. Returns the number of data keys.
    ///
    /// # Errors
    /// `Io` if a server has it open; `Key` if it is not encrypted or `old` is wrong. Nothing is changed then.
    pub fn rekey(path: &Path, old: &MasterKey, new: &MasterKey, adds_key: bool) -> Result<usize, StoreError> {
        let home = Home::open(&RealDisk, &path.join(FOLDER), Kind::Partition, false)?;
        rewrap(&RealDisk, &home.path, home.uuid, (old, new), adds_key)
    }

    /// Opens the partition with file data on the given disk. Metadata is where
    /// [`PartitionConfig::engine`] keeps it.
    pub fn open_on(
        disk: &Arc<dyn Disk>,
        path: &Path,
        config: &PartitionConfig,
    ) -> Result<Partition, StoreError> {
        Partition::open_with(disk, path, config, None)
    }

    /// [`Partition::open_on`] with a master key.
    pub fn open_with(
        disk: &Arc<dyn Disk>,
        path: &Path,
        config: &PartitionConfig,
        key: Option<&MasterKey>,
    ) -> Result<Partition, StoreError> {
        if !disk.exists(path).map_err(|error| failed("look for", path, error))? {
            let text = "there is no such directory; a partition is only created in an existing one";
            return Err(failed("open", path, io::Error::new(ErrorKind::NotFound, text)));
        }
        let home = Home::open(&**disk, &path.join(FOLDER), Kind::Partition, config.create)?;
        let meta = open_meta(&home, config)?;
        let keys = KeyRing::open(&**disk, &home.path, home.uuid, key)?.map(Arc::new);
        let data = open_segments(disk, &home, &meta, config, keys)?;
        home.finish(&**disk)?;
        let uuid = home.uuid;
        Partition::of(PartitionParts { meta, data, uuid, lock: Some(home.into_lock()) }, path, config)
    }

    /// Combines open stores to a partition. Of `config` it uses what concerns the threads of the partition. `place` is
    /// used in messages.
    ///
    /// # Errors
    /// Errors of the metadata; `Io` if a thread cannot be started.
    pub fn of(
        parts: PartitionParts,
        place: &Path,
        config: &PartitionConfig,
    ) -> Result<Partition, StoreError> {
        let PartitionParts { meta, data, uuid, lock } = parts;
        let ids = Arc::new(IdAllocator::open(as_meta(&meta), "any")?);
        let failed_thread = |error| failed("start a thread for", place, error);
        let recounter = config.chunk_names.filter(|_| data.needs_recount());
        let recounter = recounter.map(|names| Recounter::start(&data, &meta, names)).transpose();
        let recounter = recounter.map_err(failed_thread)?;
        let keeper = config.maintenance.map(|every| keep(&data, &meta, every)).transpose();
        let keeper = keeper.map_err(failed_thread)?;
        Ok(Partition {
            _recounter: recounter,
            _keeper: keeper,
            data,
            meta,
            ids,
            gauge: Gauge::default(),
            uuid,
            _lock: lock,
        })
    }

    /// Returns the metadata.
    pub fn meta(&self) -> Arc<dyn MetaStore> {
        as_meta(&self.meta)
    }

    /// Returns the file data.
    pub fn chunks(&self) -> Arc<dyn ChunkStore> {
        Arc::clone(&self.data) as Arc<dyn ChunkStore>
    }

    /// Returns the allocator of ids that are never reused in this partition.
    pub fn ids(&self) -> Arc<IdAllocator> {
        Arc::clone(&self.ids)
    }

    /// Whether there is a partition in `path`, complete or not.
    pub fn exists(path: &Path) -> bool {
        path.join(FOLDER).exists()
    }

    /// Returns the UUID generated when the partition was created.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Returns the space on the file system, or that of the partition if it is not in a file system.
    pub fn space(&self) -> Result<Space, StoreError> {
        self.data.space()
    }

    /// Returns the space as of at most 100 ms ago: cheap enough to query before every growing operation.
    pub fn room(&self) -> Result<Room, StoreError> {
        self.gauge.read(|| self.data.room())
    }

    /// Returns the space still available to file data, in bytes.
    pub fn usable_bytes(&self) -> Result<u64, StoreError> {
        self.data.usable_bytes()
    }

    /// Returns the statistics of this partition.
    pub fn statistics(&self) -> PartitionStatistics {
        PartitionStatistics { meta: self.meta.statistics(), chunks: self.data.statistics() }
    }

    /// Returns the statistics of the copies of chunks on the local disk, if the partition is elsewhere and has any.
    pub fn disk_cache_statistics(&self) -> Option<DiskCacheStatistics> {
        self.data.disk_cache_statistics()
    }

    /// Returns the I/O error that made it read-only, if any; reads continue to work.
    pub fn failure(&self) -> Option<String> {
        self.meta.failure()
    }

    /// Performs one round of maintenance; see [`FileData::maintain`].
    pub fn maintain(&self) -> Result<usize, StoreError> {
        self.data.maintain()
    }

    /// Removes what nothing knows of, as the partition's thread does once a day; see [`FileData::sweep`].
    pub fn sweep(&self) -> Result<u64, StoreError> {
        self.data.sweep(&mut || true)
    }

    /// Finds the orphans of a crash on this thread, for callers that open the partition without
    /// [`PartitionConfig::chunk_names`]. Call it before anything is changed.
    pub fn recount(&self, names: ChunkNames) -> Result<Option<Recount>, StoreError> {
        self.data.recount(&*self.meta.snapshot(), names, &mut || true)
    }

    /// Whether orphans of a crash still have to be found; see [`PartitionConfig::chunk_names`].
    pub fn needs_recount(&self) -> bool {
        self.data.needs_recount()
    }
}

fn as_meta(meta: &Arc<dyn MetaDatabase>) -> Arc<dyn MetaStore> {
    Arc::clone(meta) as Arc<dyn MetaStore>
}

fn open_meta(home: &Home, config: &PartitionConfig) -> Result<Arc<dyn MetaDatabase>, StoreError> {
    let options = MetaOptions {
        families: config.families,
        config: config.meta,
        create: home.is_new,
        // The keeper begins it.
        defers_upkeep: config.maintenance.is_some(),
    };
    config.engine.open(&home.path.join("meta"), &options)
}

fn open_segments(
    disk: &Arc<dyn Disk>,
    home: &Home,
    meta: &Arc<dyn MetaDatabase>,
    config: &PartitionConfig,
    keys: Option<Arc<KeyRing>>,
) -> Result<Arc<dyn FileData>, StoreError> {
    let folder = home.path.join("segments");
    if home.is_new {
        ensure_dir(&**disk, &folder)?;
    }
    let (disk, health) = (Arc::clone(disk), meta.health());
    let store =
        SegmentStore::open_encrypted(Arc::clone(&disk), &folder, as_meta(meta), config.segments, keys)?;
    let store = store.failing_with(health);
    if !home.is_before_sharing() {
        return Ok(Arc::new(store));
    }
    let (path, uuid) = (home.path.clone(), home.uuid);
    Ok(Arc::new(store.before_sharing(Box::new(move || home::begin_sharing(&*disk, &path, uuid)))))
}

/// Interval of [`FileData::sweep`], and the pause after one that failed.
const SWEEP_EVERY: Duration = Duration::from_secs(24 * 3600);
const SWEEP_AGAIN: Duration = Duration::from_secs(300);

/// Upkeep of the metadata begins in the first round, when the start should be complete.
fn keep(data: &Arc<dyn FileData>, meta: &Arc<dyn MetaDatabase>, every: Duration) -> io::Result<Keeper> {
    let (data, meta) = (Arc::clone(data), Arc::clone(meta));
    let checked = Arc::clone(&meta);
    let mut next_sweep = Instant::now();
    let maintain = move |stop: &Stop| {
        if checked.failure().is_some() {
            return;
        }
        if let Err(error) = data.maintain_resting(&mut stop.rests()) {
            tracing::warn!(%error, "maintenance of the segments failed");
        }
        if Instant::now() >= next_sweep {
            let swept = data.sweep(&mut || !stop.is_notified());
            next_sweep = Instant::now() + if swept.is_ok() { SWEEP_EVERY } else { SWEEP_AGAIN };
            if let Err(error) = swept {
                tracing::warn!(%error, again_after = ?SWEEP_AGAIN, "cannot look for unreferenced objects");
            }
        }
    };
    Keeper::start(every, move || meta.begin_upkeep(), maintain)
}

/// The thread that finds orphans. Dropping it ends the thread; the next run starts over.
struct Recounter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Number of records after which the recount pauses for [`RECOUNT_REST`], so that it takes about half of one
/// processor.
const RECOUNT_RECORDS: u32 = 2000;
const RECOUNT_REST: Duration = Duration::from_millis(2);

impl Recounter {
    /// Returns once the snapshot to count has been taken; later changes do not affect the count.
    fn start(
        data: &Arc<dyn FileData>,
        meta: &Arc<dyn MetaDatabase>,
        names: ChunkNames,
    ) -> io::Result<Recounter> {
        let stop = Arc::new(AtomicBool::new(false));
        let (held, is_held) = sync_channel(1);
        let (data, meta, stop_too) = (Arc::clone(data), Arc::clone(meta), Arc::clone(&stop));
        let run = move || recount(&*data, &*meta, names, &held, &stop_too);
        let thread = Some(thread::Builder::new().name("store-recount".into()).spawn(run)?);
        is_held.recv().map_err(io::Error::other)?;
        Ok(Recounter { stop, thread })
    }
}

fn recount(
    data: &dyn FileData,
    meta: &dyn MetaStore,
    names: ChunkNames,
    held: &SyncSender<()>,
    stop: &AtomicBool,
) {
    let state = meta.snapshot();
    if held.send(()).is_err() {
        return;
    }
    let mut records = 0;
    let mut go_on = || {
        records += 1;
        if records % RECOUNT_RECORDS == 0 {
            thread::sleep(RECOUNT_REST);
        }
        !stop.load(Relaxed)
    };
    match data.recount(&*state, names, &mut go_on) {
        Ok(Some(found)) => tracing::info!(?found, "counted the space that the last run left behind"),
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "cannot count the space that the last run left behind; \
            keeping all of it"),
    }
}

impl Drop for Recounter {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
