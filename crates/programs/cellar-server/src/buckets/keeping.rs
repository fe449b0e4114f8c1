//! Keeps partitions in buckets open while the server runs.

use super::{Held, Opening, begin_one};
use crate::running::Partitions;
use crate::startup::tend;
use crate::stores::handle;
use crate::threads::{thread, wait};
use base::{PartitionId, VolumeId};
use cellar_config::{PartitionSettings, Settings};
use disk::{Disk, DiskMeter};
use fileserver::FileServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use volume::Volumes;

/// Interval at which the ownership of a partition is checked.
const PERIOD: Duration = Duration::from_secs(1);

/// Pause before a partition that was lost is opened again.
const REST: Duration = Duration::from_secs(2);

/// Interval at which a partition is reported that was lost and is still in use.
const REPORT: Duration = Duration::from_secs(60);

/// Interval at which a wait for the end of its use checks it.
const NAP: Duration = Duration::from_millis(50);

/// What keeping partitions needs of the server.
pub(crate) struct Keeper {
    pub(crate) settings: Arc<Settings>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) ending: Arc<AtomicBool>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) partitions: Partitions,
    pub(crate) file_server: Option<Arc<FileServer>>,
}

impl Keeper {
    /// Starts the threads of the open partitions, and one more for each partition in a bucket: it brings the volumes online once the partition is open, takes them
    /// offline when the partition is lost, and opens it again. `later` are those that are not open yet.
    pub(crate) fn start(
        self,
        meters: &[(PartitionId, Arc<DiskMeter>)],
        later: Vec<Opening>,
    ) -> Vec<JoinHandle<()>> {
        let tend_open = |id| tend(&self.settings, &self.ending, &self.volumes, id);
        let mut threads: Vec<_> = self.volumes.partitions().into_iter().flat_map(tend_open).collect();
        let (keeper, mut later) = (Arc::new(self), later);
        let settings = Arc::clone(&keeper.settings);
        let all = settings.partitions.iter().zip(meters);
        let in_buckets = all.filter(|(partition, _)| partition.place.bucket().is_some());
        let start = |(partition, (_, meter)): (&PartitionSettings, &(_, Arc<DiskMeter>))| {
            let position = later.iter().position(|opening| opening.id == partition.id);
            let opening = position.map(|position| later.swap_remove(position));
            let (keeper, partition, meter) = (Arc::clone(&keeper), partition.clone(), Arc::clone(meter));
            let name = format!("keep {}", partition.id);
            thread(name, move || keeper.keep(&partition, &meter, opening))
        };
        threads.extend(in_buckets.map(start));
        threads
    }

    /// Keeps one partition until the server ends. Without `opening`, it is open.
    fn keep(&self, partition: &PartitionSettings, meter: &Arc<DiskMeter>, mut opening: Option<Opening>) {
        let (id, mut threads) = (partition.id, Vec::new());
        // Those of a partition that was open at the start are there.
        let mut is_tended = opening.is_none();
        loop {
            if let Some(opening) = opening.take() {
                let held = opening.wait(&self.ending);
                opening.join();
                let Some(held) = held else { break };
                if self.add(held) && !is_tended {
                    is_tended = true;
                    threads = tend(&self.settings, &self.ending, &self.volumes, id);
                }
            }
            while self.has(id) && wait(&self.ending, PERIOD) {}
            if self.is_ended_by_a_loss() {
                while wait(&self.ending, PERIOD) {}
            }
            if self.ending.load(Ordering::Relaxed) {
                break;
            }
            self.remove(id);
            if !wait(&self.ending, REST) {
                break;
            }
            opening = Some(begin_one(&self.settings, partition, meter, &self.disk, &self.ending));
        }
        for thread in threads {
            _ = thread.join();
        }
    }

    /// Brings the volumes of a partition online; returns whether they can be read.
    fn add(&self, held: Held) -> bool {
        let id = held.id;
        match self.volumes.add(handle(id, &held.partition), held.permit()) {
            Ok(()) => tracing::info!(partition = %id, "its volumes are online"),
            Err(error) => {
                tracing::error!(partition = %id, %error, "the partition cannot be read; its volumes are offline");
                return false;
            }
        }
        self.partitions.lock().push(held);
        true
    }

    /// Whether the partition is open and this server's.
    fn has(&self, id: PartitionId) -> bool {
        self.partitions.lock().iter().any(|held| held.id == id && !held.is_lost())
    }

    /// Whether the server ends when it loses a partition; see `Running::watch_ownership`.
    fn is_ended_by_a_loss(&self) -> bool {
        self.settings.partitions.iter().all(|partition| partition.place.bucket().is_some())
    }

    /// Takes the volumes of a lost partition offline, closes it, and gives up what is left of its lease.
    fn remove(&self, id: PartitionId) {
        let held = {
            let mut partitions = self.partitions.lock();
            let position = partitions.iter().position(|held| held.id == id);
            position.map(|position| partitions.remove(position))
        };
        let Some(held) = held else { return };
        let volumes = self.volumes.remove(id).unwrap_or_default();
        tracing::warn!(partition = %id, volumes = volumes.len(), "the partition was lost; its volumes are offline");
        self.break_promises(&volumes);
        let mut next = Instant::now() + REPORT;
        while held.is_used() && wait(&self.ending, NAP) {
            if Instant::now() >= next {
                next += REPORT;
                tracing::warn!(partition = %id,
                    "calls or volume transactions still use the lost partition; it is opened again after their end");
            }
        }
    }

    /// Ends the promises to clients that only the server that has the partition now can keep.
    fn break_promises(&self, volumes: &[VolumeId]) {
        let Some(server) = &self.file_server else { return };
        for &volume in volumes {
            server.volume_changed(volume);
        }
    }
}

#[cfg(all(test, feature = "bucket"))]
mod tests {
    use super::*;
    use crate::buckets::{begin, open_offline};
    use crate::startup::volume_options;
    use crate::stores::{disk_meters, partition_config};
    use base::{UnixTime, VolumeType};
    use bucket_partition::BucketConfig;
    use disk::RealDisk;
    use parking_lot::Mutex;
    use volume::NewVolume;

    fn create(volumes: &Volumes, partition: PartitionId, id: u32) -> Result<(), volume::VolumeError> {
        let new = NewVolume {
            id: VolumeId(id),
            name: format!("volume.{id}").parse().unwrap(),
            kind: VolumeType::ReadWrite,
            parent: VolumeId(id),
            quota_max_kib: 0,
            with_root: true,
            in_service: true,
            destroy_me: 0,
            now: UnixTime(1000),
        };
        volumes.create(partition, &new).map(drop)
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(NAP);
        }
    }

    /// A process that knows nothing of the lease takes the database: the volumes go offline, and come back with a new
    /// ownership, which takes the database back.
    #[test]
    fn a_partition_that_another_process_opened_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cellar.toml");
        std::fs::create_dir(folder.path().join("bucket")).unwrap();
        // It is not read.
        cellar_config::files::replace(&folder.path().join("KeyFileExt"), b"").unwrap();
        let text = format!(
            "[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\n[partitions]\na = \"vicepa\"\n[[partition]]\nname = \"b\"\n\
             bucket = \"file://{}/bucket\"\n",
            folder.path().display()
        );
        std::fs::write(&path, text).unwrap();
        let settings = Arc::new(cellar_config::file::load(&path).unwrap());
        let (meters, disk): (_, Arc<dyn Disk>) = (disk_meters(&settings), Arc::new(RealDisk));
        let (config, ending) = (partition_config(&settings), Arc::new(AtomicBool::new(false)));
        let later = begin(&settings, &meters, &disk, &ending).unwrap();
        let volumes = Arc::new(Volumes::open(Vec::new(), volume_options(&settings)).unwrap());
        let partitions: Partitions = Arc::new(Mutex::new(Vec::new()));
        let keeper = Keeper {
            settings: Arc::clone(&settings),
            disk,
            ending: Arc::clone(&ending),
            volumes: Arc::clone(&volumes),
            partitions: Arc::clone(&partitions),
            file_server: None,
        };
        let threads = keeper.start(&meters, later);
        let in_bucket = &settings.partitions[1];
        let has_volumes = || volumes.partitions() == [in_bucket.id];
        until("the partition is open", has_volumes);
        create(&volumes, in_bucket.id, 7).unwrap();

        let bucket = in_bucket.place.bucket().unwrap();
        let client = bucket::open(&bucket.address, &crate::buckets::access(bucket).unwrap()).unwrap();
        let taken =
            bucket_partition::open(client, &bucket.address, &config, &BucketConfig::default(), None).unwrap();
        until("the loss is noticed", || volumes.partitions().is_empty());
        assert!(volumes.get(VolumeId(7)).is_err());
        until("the partition is open again", has_volumes);
        assert!(volumes.get(VolumeId(7)).is_ok());
        create(&volumes, in_bucket.id, 8).unwrap();
        volumes.sync().unwrap();
        until("the other one has lost it", || taken.failure().is_some());

        drop(taken);
        ending.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
        drop(volumes);
        partitions.lock().clear();
        let offline = open_offline(in_bucket, &config).unwrap();
        assert!(!offline.is_used() && !offline.is_lost());
    }
}
