//! File data on a faulty disk in memory, or in a faulty bucket, for the server of these tests.

use super::support::Meta;
use bucket::faulty::{Faults, FaultyBucket};
use bucket::{Objects, ObjectsConfig};
use disk::{Disk, FaultyDisk, Garbling, Torn};
use rand::Rng;
use rand::rngs::SmallRng;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{
    FileData, KeyRing, MetaStore as _, ObjectChunks, ObjectConfig, Reserve, SegmentAudit, SegmentConfig,
    SegmentStore, StoreError,
};
use tokio::runtime::Builder;

const FOLDER: &str = "/segments";

/// Where segments are, and the segments as opened by the current run.
pub(crate) struct Segments {
    medium: Medium,
    keys: Option<Arc<KeyRing>>,
    /// `None` while the segments are closed.
    store: Option<Arc<dyn FileData>>,
}

enum Medium {
    Files(FaultyDisk, SegmentConfig),
    /// With the client of the current run.
    Objects(FaultyBucket, Arc<Objects>, ObjectConfig),
}

impl Segments {
    /// Creates an empty disk; `random` chooses the disk's behaviour and the size of segments.
    pub(crate) fn new(random: &mut SmallRng, is_encrypted: bool) -> Segments {
        let torn = if random.random() { Torn::Sector } else { Torn::Byte };
        let garbling = Garbling { torn, noise: random.random(), short: random.random() };
        let disk = FaultyDisk::new(random.random(), garbling);
        disk.create_dir(Path::new(FOLDER)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let config = SegmentConfig {
            segment_bytes: random.random_range(1..20_000),
            // Either all reads go to the disk, or hardly any.
            cache_bytes: if random.random() { 0 } else { 100_000 },
            open_files_max: 4,
            reserve: Reserve { bytes: 0, permille: 0 },
            unsynced_bytes_max: if random.random() { 1 << 20 } else { 2000 },
            // Small records with padding would be moved for ever by a compaction at 1 % dead.
            aligned_bytes_min: 64 << 10,
        };
        Segments::on(Medium::Files(disk, config), is_encrypted)
    }

    /// Creates an empty bucket with faults; `random` chooses the size of objects.
    pub(crate) fn in_bucket(random: &mut SmallRng, is_encrypted: bool, faults: Faults) -> Segments {
        let bucket = FaultyBucket::new(random.random(), faults);
        let config = ObjectConfig {
            object_bytes_max: random.random_range(1..20_000),
            unsaved_bytes_max: if random.random() { 1 << 20 } else { 2000 },
            cache_bytes: if random.random() { 0 } else { 100_000 },
            ..ObjectConfig::default()
        };
        let client = client(&bucket);
        Segments::on(Medium::Objects(bucket, client, config), is_encrypted)
    }

    fn on(medium: Medium, is_encrypted: bool) -> Segments {
        let keys = is_encrypted.then(|| Arc::new(KeyRing::random()));
        Segments { medium, keys, store: None }
    }

    /// Starts a run.
    pub(crate) fn open(&mut self, meta: &Arc<Meta>) {
        let (meta, keys) = (Arc::clone(&meta.inner), self.keys.clone());
        let store = match &self.medium {
            Medium::Files(disk, config) => {
                let disk = Arc::new(disk.clone());
                let opened =
                    SegmentStore::open_encrypted(disk, Path::new(FOLDER), meta.clone(), *config, keys);
                opened.map(|store| Arc::new(store) as Arc<dyn FileData>)
            }
            Medium::Objects(_, client, config) => {
                let opened = ObjectChunks::open(Arc::clone(client) as _, meta.clone(), *config, keys);
                opened.map(|store| Arc::new(store) as Arc<dyn FileData>)
            }
        };
        let store = store.unwrap();
        let recount = store.recount(&*meta.snapshot(), crate::CHUNK_NAMES, &mut || true).unwrap();
        assert!(recount.is_none_or(|found| found.missing == 0), "{recount:?}");
        self.store = Some(store);
    }

    pub(crate) fn store(&self) -> Arc<dyn FileData> {
        Arc::clone(self.store.as_ref().unwrap())
    }

    /// Returns the disk, if they are on one.
    pub(crate) fn disk(&self) -> Option<&FaultyDisk> {
        match &self.medium {
            Medium::Files(disk, _) => Some(disk),
            Medium::Objects(..) => None,
        }
    }

    /// Ends the run cleanly; the caller must hold the only reference to the segments.
    pub(crate) fn close(&mut self) {
        let store = self.store.take().unwrap();
        assert_eq!(Arc::strong_count(&store), 1, "somebody has the segments in hand");
    }

    /// Simulates a power loss, without closing the current run.
    pub(crate) fn crash(&mut self) {
        match &mut self.medium {
            Medium::Files(disk, _) => *disk = disk.crash(),
            Medium::Objects(bucket, old, _) => {
                old.abandon();
                *old = client(bucket);
            }
        }
        self.store = None;
    }

    /// Opens the segments for a check.
    pub(crate) fn audit(&self, meta: &Meta) -> Result<SegmentAudit, StoreError> {
        let keys = self.keys.clone();
        match &self.medium {
            Medium::Files(disk, _) => {
                SegmentAudit::open_encrypted(Arc::new(disk.clone()), Path::new(FOLDER), &*meta.inner, keys)
            }
            Medium::Objects(_, client, _) => {
                SegmentAudit::of_bucket(Arc::clone(client) as _, &*meta.inner, keys)
            }
        }
    }
}

/// Returns a client whose every call succeeds at last, however often its requests fail. Its clock runs only while a
/// call waits.
fn client(bucket: &FaultyBucket) -> Arc<Objects> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let config = ObjectsConfig { patience: Duration::from_secs(3600), request_limit: Duration::from_secs(5) };
    Arc::new(Objects::new(Arc::new(runtime), Arc::new(bucket.clone()), "chunks", config))
}
