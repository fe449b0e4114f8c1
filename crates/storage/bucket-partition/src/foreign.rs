//! The file data of a partition that another process has open.

use crate::BucketConfig;
use crate::home::{CHUNKS, Home};
use bucket::{Objects, ObjectsConfig};
use bytes::Bytes;
use disk::Lock;
use object_store::ObjectStore;
use parking_lot::Mutex;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{
    Bucket as _, BucketError, ChunkAddress, ChunkPlace, ForeignChunks, KeyRing, MasterKey, NewObject,
    StoreError,
};
use tokio::runtime::Runtime;
use uuid::Uuid;

/// How long the bucket is left alone after it has failed.
const REST: Duration = Duration::from_secs(5);

/// How long the creation of an object may take, and one request for it.
const CREATION: ObjectsConfig =
    ObjectsConfig { patience: Duration::from_secs(20), request_limit: Duration::from_secs(15) };

/// How long no object is created after a failure, at most. The first time it is [`REST`], then twice as long each time.
const CREATION_REST_MAX: Duration = Duration::from_secs(300);

/// Number of chunks that are read ahead at a time, for all callers.
const AHEAD_MAX: usize = 16;

/// Returns the partition's key, if it has one, or why it cannot be read.
pub type LoadKey = Box<dyn Fn() -> Result<Option<MasterKey>, String> + Send + Sync>;

/// Reads chunks of a partition in a bucket that another process has open, and names to this one; creates objects for which that
/// process has reserved the ids.
///
/// [`read`](Self::read) opens what it needs. This process may open the partition itself later: call
/// [`suspend`](Self::suspend) before, which leaves the folder of the local copies to it, and [`resume`](Self::resume) when it is
/// closed.
pub struct Foreign {
    runtime: Arc<Runtime>,
    home: Home,
    chunks: Arc<Objects>,
    /// The same objects, for those that are created.
    created: Objects,
    options: BucketConfig,
    cache_bytes: u64,
    key: LoadKey,
    /// UUID of the partition, once it is known. No request is made under the lock.
    identity: Mutex<Option<Uuid>>,
    /// When the bucket was last asked for it; held meanwhile.
    asked: Mutex<Option<Instant>>,
    /// Held while it is opened, so that this happens once at a time.
    opening: Mutex<()>,
    /// No request is made under the lock.
    state: Arc<Mutex<State>>,
    /// As many references as chunks are being read ahead, and one.
    ahead: Arc<()>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// When the bucket may be asked again, after it has failed.
    not_before: Option<Instant>,
    /// When objects may be created again, and how long that was not to be.
    creation: Option<(Instant, Duration)>,
}

impl State {
    /// Leaves the bucket alone for a while.
    fn rest(&mut self) {
        self.not_before = Some(Instant::now() + REST);
    }

    fn is_resting(&self) -> bool {
        self.not_before.is_some_and(|not_before| Instant::now() < not_before)
    }

    fn may_create(&self) -> bool {
        self.creation.is_none_or(|(not_before, _)| Instant::now() >= not_before)
    }

    fn created(&mut self, is_done: bool) {
        let rest = self.creation.map_or(REST, |(_, last)| (last * 2).min(CREATION_REST_MAX));
        self.creation = (!is_done).then(|| (Instant::now() + rest, rest));
    }
}

#[derive(Default)]
enum Phase {
    #[default]
    Closed,
    Open(Open),
    /// This process has the partition.
    Suspended,
}

struct Open {
    partition: Uuid,
    chunks: Arc<ForeignChunks>,
    /// Keeps other processes off the local copies.
    _lock: Option<Box<dyn Lock>>,
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({})", self.home.place.display())
    }
}

impl Foreign {
    /// Accesses the partition below `prefix` by requests on `runtime`. Messages name it `place`. At most `cache_bytes` of chunks stay
    /// in memory. Sends no request.
    pub fn new(
        runtime: &Arc<Runtime>,
        bucket: &Arc<dyn ObjectStore>,
        (prefix, place): (&str, &str),
        options: &BucketConfig,
        (key, cache_bytes): (LoadKey, u64),
    ) -> Foreign {
        let limits = ObjectsConfig { patience: options.patience, request_limit: options.request_limit };
        let objects = |folder: &str, place: String, limits| {
            let prefix = format!("{prefix}/{folder}");
            Objects::new(Arc::clone(runtime), Arc::clone(bucket), &prefix, limits).called(place)
        };
        let home = Home { objects: objects("", place.to_owned(), limits), place: PathBuf::from(place) };
        let of_chunks = |limits| objects(CHUNKS, format!("{place}/{CHUNKS}"), limits);
        let (chunks, created) = (Arc::new(of_chunks(limits)), of_chunks(CREATION));
        let (identity, asked, opening, state, ahead) = Default::default();
        let (runtime, options) = (Arc::clone(runtime), options.clone());
        Foreign {
            runtime,
            home,
            chunks,
            created,
            options,
            cache_bytes,
            key,
            identity,
            asked,
            opening,
            state,
            ahead,
        }
    }

    /// Whether this is the partition with this identity. If it is not known as that, this needs a request, once every few seconds;
    /// `None` if the bucket does not answer, or has not answered lately.
    pub fn is_of(&self, identity: [u8; 16]) -> Option<bool> {
        if self.is_known_as(identity) {
            return Some(true);
        }
        // One request for all that wait.
        let mut asked = self.asked.lock();
        if asked.is_none_or(|asked| asked.elapsed() >= REST) {
            if self.state.lock().is_resting() {
                return None;
            }
            let found = self.home.find().inspect_err(|_| self.state.lock().rest()).ok()?;
            *self.identity.lock() = found.map(|version| version.uuid);
            *asked = Some(Instant::now());
        }
        Some(self.is_known_as(identity))
    }

    /// Whether this is known to be the partition with this identity. Sends no request.
    pub fn is_known_as(&self, identity: [u8; 16]) -> bool {
        self.identity.lock().is_some_and(|own| *own.as_bytes() == identity)
    }

    /// Returns a chunk of the partition with this identity, decoded and verified.
    ///
    /// # Errors
    /// `Damaged` if it is not there any more, or is not what it should be; `Unavailable` if the bucket does not answer, has not
    /// answered lately, or this process has the partition itself; `Key`, `Io`.
    pub fn read(&self, identity: [u8; 16], chunk: ChunkPlace) -> Result<Bytes, StoreError> {
        let chunks = self.chunks_of(Uuid::from_bytes(identity), chunk.address)?;
        let read = chunks.read(chunk);
        if let Err(StoreError::Unavailable { .. }) = &read {
            self.state.lock().rest();
        }
        read
    }

    /// Begins to read chunks of the partition with this identity that will be read soon, as far as the partition is open and few
    /// chunks are being read ahead. Returns at once.
    pub fn expect(&self, identity: [u8; 16], places: &[ChunkPlace]) {
        for place in places {
            let Ok(Some(chunks)) = self.known(Uuid::from_bytes(identity), place.address) else { return };
            if chunks.is_at_hand(place.address) {
                continue;
            }
            let one = Arc::clone(&self.ahead);
            if Arc::strong_count(&one) > AHEAD_MAX + 1 {
                return;
            }
            let (place, state) = (*place, Arc::clone(&self.state));
            self.runtime.spawn_blocking(move || {
                if let Err(StoreError::Unavailable { .. }) = chunks.read(place) {
                    state.lock().rest();
                }
                drop(one);
            });
        }
    }

    /// Begins to create an object of the partition with this identity, and returns at once. Call [`finish`](Self::finish) then.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn begin(&self, identity: [u8; 16], object: &NewObject) -> Result<(), StoreError> {
        self.chunks_of(Uuid::from_bytes(identity), ChunkAddress::default())?;
        if !self.state.lock().may_create() {
            return Err(self.unavailable("no object was created lately"));
        }
        self.created.begin(&object.name, &object.contents);
        Ok(())
    }

    /// Waits until an object that was begun exists, for 20 s at most.
    ///
    /// # Errors
    /// `Unavailable` if it may not exist. No more requests are made for it, and no other object is begun for a while.
    pub fn finish(&self, object: &NewObject) -> Result<(), StoreError> {
        let finished = self.created.finish(std::slice::from_ref(&object.name));
        self.state.lock().created(finished.is_ok());
        finished.map_err(|error: BucketError| {
            self.created.cancel(&object.name);
            self.unavailable(&error.to_string())
        })
    }

    /// Ends the creation of an object that was begun. It may exist, or appear later.
    pub fn cancel(&self, object: &NewObject) {
        self.created.cancel(&object.name);
    }

    /// Whether [`read`](Self::read) returns the chunk without waiting.
    pub fn is_at_hand(&self, address: ChunkAddress) -> bool {
        matches!(&self.state.lock().phase, Phase::Open(open) if open.chunks.is_at_hand(address))
    }

    /// Reads nothing until [`resume`](Self::resume), and leaves the local copies to this process's own partition.
    pub fn suspend(&self) {
        let mut state = self.state.lock();
        if let Phase::Open(open) = &state.phase {
            open.chunks.close_disk_cache();
        }
        state.phase = Phase::Suspended;
    }

    /// Reads again, if it was suspended.
    pub fn resume(&self) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Suspended) {
            state.phase = Phase::Closed;
        }
    }

    fn unavailable(&self, what: &str) -> StoreError {
        StoreError::Unavailable { place: self.home.place.display().to_string(), what: what.to_owned() }
    }

    /// Returns the chunks of a partition, for this one of them; opens them if necessary.
    fn chunks_of(&self, partition: Uuid, address: ChunkAddress) -> Result<Arc<ForeignChunks>, StoreError> {
        if let Some(chunks) = self.known(partition, address)? {
            return Ok(chunks);
        }
        let _one = self.opening.lock();
        if let Some(chunks) = self.known(partition, address)? {
            return Ok(chunks);
        }
        let keys = self.keys_of(partition).inspect_err(|_| self.state.lock().rest())?;
        self.open(partition, keys)
    }

    /// Returns the chunks if they are open.
    fn known(
        &self,
        partition: Uuid,
        address: ChunkAddress,
    ) -> Result<Option<Arc<ForeignChunks>>, StoreError> {
        let state = self.state.lock();
        let open = match &state.phase {
            Phase::Suspended => return Err(self.unavailable("this process has the partition itself")),
            Phase::Open(open) if open.partition == partition => Some(&open.chunks),
            Phase::Open(_) | Phase::Closed => None,
        };
        if state.is_resting() && !open.is_some_and(|open| open.is_at_hand(address)) {
            return Err(self.unavailable("the bucket has not answered lately"));
        }
        Ok(open.cloned())
    }

    /// Returns the keys of the partition, if this is the one with that identity.
    fn keys_of(&self, partition: Uuid) -> Result<Option<Arc<KeyRing>>, StoreError> {
        let place = || self.home.place.display().to_string();
        let found = self.home.find()?.map(|version| version.uuid);
        if found != Some(partition) {
            let found = found.map_or_else(|| "there is none".to_owned(), |found| format!("{found} is there"));
            let what = format!("expected the partition {partition}, {found}");
            return Err(StoreError::Damaged { place: place(), what });
        }
        let key = (self.key)().map_err(|what| StoreError::Key { place: place(), what })?;
        Ok(KeyRing::look_in(&self.home, partition, key.as_ref())?.map(Arc::new))
    }

    fn open(&self, partition: Uuid, keys: Option<Arc<KeyRing>>) -> Result<Arc<ForeignChunks>, StoreError> {
        let mut chunks = ForeignChunks::new(Arc::clone(&self.chunks) as _, keys, self.cache_bytes);
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Suspended) {
            return Err(self.unavailable("this process opens the partition itself"));
        }
        let mut lock = None;
        if let Some(cache) = &self.options.cache {
            match cache.open(&self.options.disk, partition) {
                Ok(copies) => (lock, chunks) = (Some(copies.lock), chunks.with_disk_cache(copies.chunks)),
                Err(error) => tracing::warn!(%error, "no copies of chunks are kept on the local disk"),
            }
        }
        let chunks = Arc::new(chunks);
        state.phase = Phase::Open(Open { partition, chunks: Arc::clone(&chunks), _lock: lock });
        Ok(chunks)
    }
}
