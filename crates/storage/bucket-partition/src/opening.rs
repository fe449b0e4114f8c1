//! Opening partitions.

use crate::BucketConfig;
use crate::errors::io_error;
use crate::home::{CHUNKS, Home, META};
use crate::local_cache::Copies;
use bucket::{Address, Metered, Objects, ObjectsConfig};
use object_store::ObjectStore;
use slate_meta::{SlateConfig, SlateEngine};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{
    BucketVersion, Inspection, KeyRing, MasterKey, MetaEngine, MetaOptions, ObjectChunks, ObjectConfig,
    Partition, PartitionConfig, PartitionParts, SegmentAudit, StoreError, UNLIMITED_BYTES,
};
use tokio::runtime::{Builder, Runtime};

/// Threads for the requests of one partition, and for merging its tables.
const THREADS: usize = 2;

/// Opens the partition at `address`, whose client is `bucket`, and creates it if [`PartitionConfig::create`] is set and
/// there is none. Of `config`, the engine and the settings of segments other than the size of the cache are not used.
///
/// The bucket is not probed: see [`bucket::probe`]. Waits at most a few times [`BucketConfig::patience`].
///
/// # Errors
/// `Unavailable`; `Key`; `Damaged` if the version is none, or missing although there is data; `Io` if the bucket refuses
/// requests, if there is no partition or one of a newer program, and for the local disk; `Fenced` if another process
/// opens it at the same time; errors of the metadata. An error before the metadata is opened leaves another owner alone.
pub fn open(
    bucket: Arc<dyn ObjectStore>,
    address: &Address,
    config: &PartitionConfig,
    options: &BucketConfig,
    key: Option<&MasterKey>,
) -> Result<Partition, StoreError> {
    Opener::new(bucket, address, options)?.open(config, key)
}

/// Opens the partition at `address` for a check. Nothing in it is changed. There is no lock: while another process has
/// the partition, data that it removes meanwhile looks damaged.
///
/// # Errors
/// Those of [`open`].
pub fn inspect(
    bucket: Arc<dyn ObjectStore>,
    address: &Address,
    options: &BucketConfig,
    key: Option<&MasterKey>,
) -> Result<Inspection, StoreError> {
    Opener::new(bucket, address, options)?.inspect(key)
}

/// Wraps the data keys of the partition at `address` with another master key and, with `adds_key`, adds a data key for
/// new data. Returns the number of data keys. A process that has the partition goes on with the data keys that it knows.
///
/// # Errors
/// `Key` if it is not encrypted, `old` is wrong, or another process has changed the keys at the same time; those of
/// [`open`]. The keys are unchanged then, except that a request without an answer may have changed them.
pub fn rekey(
    bucket: Arc<dyn ObjectStore>,
    address: &Address,
    options: &BucketConfig,
    (old, new): (&MasterKey, &MasterKey),
    adds_key: bool,
) -> Result<usize, StoreError> {
    Opener::new(bucket, address, options)?.rekey((old, new), adds_key)
}

/// Whether there is a complete partition at `address`.
///
/// # Errors
/// Those of [`open`].
pub fn exists(
    bucket: Arc<dyn ObjectStore>,
    address: &Address,
    options: &BucketConfig,
) -> Result<bool, StoreError> {
    Opener::new(bucket, address, options)?.exists()
}

/// Access to one partition, which [`open`] and the other functions make for themselves. Tests give it a runtime of their
/// own.
pub struct Opener {
    home: Home,
    chunks: Arc<Objects>,
    engine: SlateEngine,
    options: BucketConfig,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener({})", self.home.place.display())
    }
}

impl Opener {
    /// Accesses the partition at `address` with threads of its own. Sends no request.
    ///
    /// # Errors
    /// `Io` if the threads cannot be started.
    pub fn new(
        bucket: Arc<dyn ObjectStore>,
        address: &Address,
        options: &BucketConfig,
    ) -> Result<Opener, StoreError> {
        let place = address.to_string();
        Ok(Opener::with_runtime(threads(&place)?, bucket, address.prefix(), &place, options))
    }

    /// Accesses the partition below `prefix` by requests on `runtime`, whose timers must be enabled. Messages name it
    /// `place`. If the runtime has no threads of its own, background work happens only during calls, as a simulation
    /// needs it.
    pub fn with_runtime(
        runtime: Arc<Runtime>,
        bucket: Arc<dyn ObjectStore>,
        prefix: &str,
        place: &str,
        options: &BucketConfig,
    ) -> Opener {
        let BucketConfig { patience, request_limit, seed, .. } = *options;
        let bucket: Arc<dyn ObjectStore> = Arc::new(Metered::new(bucket, Arc::clone(&options.meter)));
        let limits = ObjectsConfig { patience, request_limit };
        let objects = |folder: &str, place: String| {
            let prefix = format!("{prefix}/{folder}");
            Objects::new(Arc::clone(&runtime), Arc::clone(&bucket), &prefix, limits).called(place)
        };
        let home = Home { objects: objects("", place.to_owned()), place: PathBuf::from(place) };
        let chunks = Arc::new(objects(CHUNKS, format!("{place}/{CHUNKS}")));
        let slate = SlateConfig { patience, request_limit, seed, ..SlateConfig::default() };
        let engine = SlateEngine::with_runtime(runtime, bucket, prefix, slate).called(place.to_owned());
        Opener { home, chunks, engine, options: options.clone() }
    }

    /// Opens the partition; see [`open`].
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn open(&self, config: &PartitionConfig, key: Option<&MasterKey>) -> Result<Partition, StoreError> {
        let BucketConfig { cache, size_bytes, object_bytes_max, patience, tenure, disk, .. } = &self.options;
        let (version, is_new) = match self.home.find()? {
            Some(version) => (version, false),
            None if config.create => (self.home.begin()?, true),
            None => return Err(self.missing()),
        };
        // Everything that may be wrong comes before the metadata is opened, which supersedes another owner.
        let keys = KeyRing::open_in(&self.home, version.uuid, key)?.map(Arc::new);
        let copies = match cache {
            Some(cache) => cache.open_if_usable(disk, version.uuid)?.map(|copies| (copies, cache.tables())),
            None => None,
        };
        let engine = match &copies {
            Some((_, (folder, bytes_max))) => self.engine.clone().with_disk_cache(folder.clone(), *bytes_max),
            None => self.engine.clone(),
        };
        let meta = engine.open(Path::new(META), &meta_options(config, is_new))?;
        let meta = tenure.limit(meta, *patience);
        let objects = ObjectConfig {
            object_bytes_max: *object_bytes_max,
            cache_bytes: config.segments.cache_bytes,
            size_bytes: size_bytes.unwrap_or(UNLIMITED_BYTES),
            ..ObjectConfig::default()
        };
        let data = ObjectChunks::open(Arc::clone(&self.chunks) as _, Arc::clone(&meta) as _, objects, keys)?;
        let data = data
            .failing_with(meta.health())
            .during(tenure, *patience)
            .shared_as(*version.uuid.as_bytes(), CHUNKS);
        let (data, lock) = match copies {
            Some((Copies { chunks, lock }, _)) => (data.with_disk_cache(chunks), Some(lock)),
            None => (data, None),
        };
        let data = Arc::new(data);
        if is_new {
            self.home.finish(version)?;
            let place = self.home.place.display();
            tracing::warn!(
                "created a new, empty partition at {place}: if there should be data, its address is wrong"
            );
        }
        let parts = PartitionParts { meta, data, uuid: version.uuid, lock };
        Partition::of(parts, &self.home.place, config)
    }

    /// Opens the partition for a check; see [`inspect`].
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn inspect(&self, key: Option<&MasterKey>) -> Result<Inspection, StoreError> {
        let version = self.known()?;
        let keys = KeyRing::look_in(&self.home, version.uuid, key)?.map(Arc::new);
        let meta = self.engine.open_read_only(Path::new(META))?;
        let segments = SegmentAudit::of_bucket(Arc::clone(&self.chunks) as _, &*meta, keys)?;
        Ok(Inspection::of(meta, segments, version.uuid))
    }

    /// Changes the keys of the partition; see [`rekey`].
    ///
    /// # Errors
    /// Those of [`rekey`].
    pub fn rekey(&self, masters: (&MasterKey, &MasterKey), adds_key: bool) -> Result<usize, StoreError> {
        let version = self.known()?;
        KeyRing::rewrap_in(&self.home, version.uuid, masters, adds_key)
    }

    /// Whether there is a complete partition.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn exists(&self) -> Result<bool, StoreError> {
        Ok(self.home.find()?.is_some())
    }

    /// For tests: ends all requests as a crash of the process does. Dropping the partition then changes nothing.
    pub fn abandon(&self) {
        self.engine.abandon();
        self.chunks.abandon();
        self.home.objects.abandon();
    }

    fn known(&self) -> Result<BucketVersion, StoreError> {
        self.home.find()?.ok_or_else(|| self.missing())
    }

    fn missing(&self) -> StoreError {
        io_error("open", &self.home.place, ErrorKind::NotFound, "there is no partition yet")
    }
}

/// Starts threads for requests to the bucket at `place`.
///
/// # Errors
/// `Io` if they cannot be started.
pub fn threads(place: &str) -> Result<Arc<Runtime>, StoreError> {
    let built =
        Builder::new_multi_thread().worker_threads(THREADS).thread_name("bucket").enable_all().build();
    let failed = |error: std::io::Error| {
        io_error("start threads for", Path::new(place), error.kind(), error.to_string())
    };
    built.map(Arc::new).map_err(failed)
}

fn meta_options(config: &PartitionConfig, create: bool) -> MetaOptions<'static> {
    MetaOptions {
        families: config.families,
        config: config.meta,
        create,
        // The partition's thread begins it.
        defers_upkeep: config.maintenance.is_some(),
    }
}
