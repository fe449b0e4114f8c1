//! Segments on a faulty in-memory disk, for the server of these tests.

use super::support::Meta;
use disk::{Disk, FaultyDisk, Garbling, Torn};
use rand::Rng;
use rand::rngs::SmallRng;
use std::path::Path;
use std::sync::Arc;
use store::{KeyRing, MetaStore as _, Reserve, SegmentAudit, SegmentConfig, SegmentStore};

const FOLDER: &str = "/segments";

/// The disk, and the segments as opened by the current run.
pub(crate) struct Segments {
    pub(crate) disk: FaultyDisk,
    keys: Option<Arc<KeyRing>>,
    config: SegmentConfig,
    /// `None` while the segments are closed.
    store: Option<Arc<SegmentStore>>,
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
        let keys = is_encrypted.then(|| Arc::new(KeyRing::random()));
        Segments { disk, keys, config, store: None }
    }

    /// Starts a run.
    pub(crate) fn open(&mut self, meta: &Arc<Meta>) {
        let (disk, meta) = (Arc::new(self.disk.clone()), Arc::clone(&meta.inner));
        let (folder, keys) = (Path::new(FOLDER), self.keys.clone());
        let store = SegmentStore::open_encrypted(disk, folder, Arc::clone(&meta) as _, self.config, keys);
        let store = store.unwrap();
        let recount = store.recount(&*meta.snapshot(), crate::CHUNK_NAMES, &mut || true).unwrap();
        assert!(recount.is_none_or(|found| found.missing == 0), "{recount:?}");
        self.store = Some(Arc::new(store));
    }

    pub(crate) fn store(&self) -> Arc<SegmentStore> {
        Arc::clone(self.store.as_ref().unwrap())
    }

    /// Ends the run cleanly; the caller must hold the only reference to the segments.
    pub(crate) fn close(&mut self) {
        let store = self.store.take().unwrap();
        assert_eq!(Arc::strong_count(&store), 1, "somebody has the segments in hand");
    }

    /// Simulates a power loss, without closing the current run.
    pub(crate) fn crash(&mut self) {
        self.disk = self.disk.crash();
        self.store = None;
    }

    /// Opens the segment files for a check.
    pub(crate) fn audit(&self, meta: &Meta) -> SegmentAudit {
        let disk = Arc::new(self.disk.clone());
        SegmentAudit::open_encrypted(disk, Path::new(FOLDER), &*meta.inner, self.keys.clone()).unwrap()
    }
}
