//! Keeps partitions in buckets open while the server runs.

use super::{Held, Means, Opening, Resets, begin_one};
use crate::cluster::Node;
use crate::running::Partitions;
use crate::startup::tend;
use crate::stores::{Meters, handle};
use crate::threads::{thread, wait};
use base::{PartitionId, VolumeId};
use cellar_config::{PartitionSettings, Settings};
use cluster_proto::Owned;
use disk::Disk;
use fileserver::FileServer;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use volserver::VolumeServer;
use volume::Volumes;

/// Interval at which the ownership of a partition is checked.
const PERIOD: Duration = Duration::from_secs(1);

/// Pause before a partition that was lost is opened again.
const REST: Duration = Duration::from_secs(2);

/// Interval at which a partition is reported that was lost and is still in use.
const REPORT: Duration = Duration::from_secs(60);

/// How long calls and volume transactions may still use a partition that a node closes, unless it was removed from the cluster.
const GRACE: Duration = Duration::from_secs(5);

/// Interval at which a wait for the end of its use checks it.
const NAP: Duration = Duration::from_millis(50);

/// The threads of partitions in buckets.
pub(crate) type Keeping = Vec<(PartitionId, JoinHandle<()>)>;

/// What keeping partitions needs of the server.
pub(crate) struct Keeper {
    pub(crate) settings: Arc<Settings>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) ending: Arc<AtomicBool>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) partitions: Partitions,
    pub(crate) file_server: Option<Arc<FileServer>>,
    pub(crate) volume_server: Option<Arc<VolumeServer>>,
    /// The node of a cluster.
    pub(crate) node: Option<Arc<Node>>,
}

impl Keeper {
    /// Starts the threads of the open partitions, and one more for each partition in a bucket: it brings the volumes online
    /// once the partition is open, takes them offline when the partition is lost or given up, and opens it again. `later`
    /// are those that are not open yet. Returns the threads of the open partitions, and those of the partitions in buckets.
    pub(crate) fn start(
        self: &Arc<Self>,
        meters: &[(PartitionId, Meters)],
        later: Vec<Opening>,
    ) -> (Vec<JoinHandle<()>>, Keeping) {
        let tend_open = |id| tend(&self.settings, &self.ending, &self.volumes, id);
        let threads: Vec<_> = self.volumes.partitions().into_iter().flat_map(tend_open).collect();
        let mut later = later;
        let all = self.settings.partitions.iter().zip(meters);
        let in_buckets = all.filter(|(partition, _)| partition.place.bucket().is_some());
        let start = |(partition, (_, meter)): (&PartitionSettings, &(_, Meters))| {
            let position = later.iter().position(|opening| opening.id == partition.id);
            let opening = position.map(|position| later.swap_remove(position));
            (partition.id, self.start_one(partition, meter, opening))
        };
        (threads, in_buckets.map(start).collect())
    }

    /// Begins to open a partition of a node, and starts its thread, which ends when the partition was removed from the cluster.
    #[cfg(feature = "bucket")]
    pub(crate) fn begin(self: &Arc<Self>, partition: &PartitionSettings, meter: &Meters) -> JoinHandle<()> {
        let opening = self.open(partition, meter);
        self.start_one(partition, meter, Some(opening))
    }

    fn start_one(
        self: &Arc<Self>,
        partition: &PartitionSettings,
        meter: &Meters,
        opening: Option<Opening>,
    ) -> JoinHandle<()> {
        let (keeper, partition, meter) = (Arc::clone(self), partition.clone(), meter.clone());
        let name = format!("keep {}", partition.id);
        thread(name, move || keeper.keep(&partition, &meter, opening))
    }

    fn open(&self, partition: &PartitionSettings, meter: &Meters) -> Opening {
        let means = Means { disk: &self.disk, node: self.node.as_ref() };
        begin_one(&self.settings, partition, meter, means)
    }

    /// Keeps one partition until the server ends, or it was removed from the cluster. Without `opening`, it is open.
    fn keep(&self, partition: &PartitionSettings, meter: &Meters, mut opening: Option<Opening>) {
        let (id, mut threads) = (partition.id, Vec::new());
        // Ends the partition's own threads.
        let is_done = Arc::<AtomicBool>::default();
        // Those of a partition that was open at the start are there.
        let mut is_tended = opening.is_none();
        loop {
            if let Some(opening) = opening.take() {
                let held = opening.wait(&|| self.ending.load(Ordering::Relaxed) || self.is_removed(id));
                opening.join();
                let Some(held) = held else { break };
                if self.add(held, &mut threads) && !is_tended {
                    is_tended = true;
                    threads.extend(tend(&self.settings, &is_done, &self.volumes, id));
                }
            }
            self.refuse_to_give_up(id);
            while self.has(id) && !self.is_removed(id) && wait(&self.ending, PERIOD) {
                self.give_up_if_asked(id);
            }
            if self.is_ended_by_a_loss() {
                while wait(&self.ending, PERIOD) {}
            }
            if self.ending.load(Ordering::Relaxed) {
                break;
            }
            if self.is_removed(id) {
                self.close(id);
                break;
            }
            self.remove(id);
            if !wait(&self.ending, REST) {
                break;
            }
            opening = Some(self.open(partition, meter));
        }
        is_done.store(true, Ordering::Relaxed);
        for thread in threads {
            _ = thread.join();
        }
    }

    /// Brings the volumes of a partition online, and resets the clients that may hold promises of its last owner;
    /// returns whether they can be read.
    fn add(&self, held: Held, threads: &mut Vec<JoinHandle<()>>) -> bool {
        let id = held.id;
        let resets = held.owe_resets(self.file_server.as_ref());
        match self.volumes.add(handle(id, &held.partition), held.permit()) {
            Ok(()) => tracing::info!(partition = %id, "its volumes are online"),
            Err(error) => {
                tracing::error!(partition = %id, %error, "the partition cannot be read; its volumes are offline");
                return false;
            }
        }
        let left_over = self.volume_server.as_ref().map(|server| server.left_over(id));
        held.restore_locks(self.file_server.as_ref());
        held.begin();
        self.file_server.iter().for_each(|server| server.partition_opened(id));
        threads.retain(|thread| !thread.is_finished());
        threads.extend(resets.map(Resets::send));
        self.partitions.lock().push(held);
        if let (Some(server), Some(left_over)) = (&self.volume_server, left_over) {
            server.delete_left_over(&left_over);
        }
        true
    }

    /// Whether the partition is open and this server's.
    fn has(&self, id: PartitionId) -> bool {
        self.partitions.lock().iter().any(|held| held.id == id && !held.is_lost())
    }

    /// Whether the server ends when it loses a partition; see `Running::watch_ownership`.
    fn is_ended_by_a_loss(&self) -> bool {
        self.node.is_none() && self.settings.has_buckets_only()
    }

    /// Whether the partition was removed from the cluster.
    fn is_removed(&self, id: PartitionId) -> bool {
        self.node.as_ref().is_some_and(|node| node.is_removed(id))
    }

    /// Closes a partition that was removed from the cluster.
    fn close(&self, id: PartitionId) {
        self.refuse_to_give_up(id);
        let Some(node) = &self.node else { return };
        // No other node takes it while that one may not know yet that it was removed.
        node.drain(Owned::Partition(id), node.name());
        let volumes = self.count_volumes(id);
        if volumes > 0 {
            tracing::error!(partition = %id, volumes,
                "a partition with volumes was removed from the cluster; they are in its folder, and not served");
        }
        if let Err(error) = self.volumes.sync() {
            tracing::warn!(partition = %id, %error, "not everything could be made durable before the partition is closed");
        }
        self.remove(id);
    }

    /// Returns the number of volumes of an open partition, also of unfinished ones.
    fn count_volumes(&self, id: PartitionId) -> usize {
        let mut count = 0;
        _ = self.volumes.list_headers(id, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        count
    }

    /// Refuses what was asked of an earlier ownership.
    fn refuse_to_give_up(&self, id: PartitionId) {
        let order = self.node.as_ref().and_then(|node| node.handovers().take(Owned::Partition(id)));
        if let Some(order) = order {
            order.end(false);
        }
    }

    /// Gives a partition up for another node, if that is asked for: calls that have begun are answered, others wait for the next
    /// owner.
    fn give_up_if_asked(&self, id: PartitionId) {
        let Some(node) = &self.node else { return };
        let owned = Owned::Partition(id);
        let Some(order) = node.handovers().take(owned) else { return };
        if !node.drain(owned, &order.to) {
            return order.end(false);
        }
        tracing::info!(partition = %id, to = %order.to, "giving the partition up");
        // What was acknowledged before it is durable; a partition that fails elsewhere must not prevent that.
        if let Err(error) = self.volumes.sync() {
            tracing::warn!(partition = %id, %error, "not everything could be made durable before the partition is given up");
        }
        self.remove(id);
        order.end(true);
    }

    /// Takes the volumes of a lost or released partition offline, closes it, and releases its lease.
    fn remove(&self, id: PartitionId) {
        let held = {
            let mut partitions = self.partitions.lock();
            let position = partitions.iter().position(|held| held.id == id);
            position.map(|position| partitions.remove(position))
        };
        let Some(held) = held else { return };
        // Calls of a cluster wait for the next owner.
        if let (Some(server), None) = (&self.file_server, &self.node) {
            server.await_partition(id);
        }
        let volumes = self.volumes.remove(id).unwrap_or_default();
        if self.node.is_some() {
            tracing::info!(partition = %id, volumes = volumes.len(), "the partition is not served here any more");
        } else {
            tracing::warn!(partition = %id, volumes = volumes.len(), "the partition was lost; its volumes are offline");
        }
        self.break_promises(&volumes);
        if let Some(server) = &self.volume_server {
            server.partition_lost(id);
        }
        // The lease of a node goes on: others can only have the partition once it is given up, whatever still uses it. No other is
        // to have one that was removed, whose folder may be deleted once it is free: its database must not write there any more.
        let grace = if self.node.is_some() && !self.is_removed(id) { GRACE } else { Duration::MAX };
        self.await_disuse(id, grace, &|| held.is_used());
        let uses = held.uses();
        drop(held);
        self.await_disuse(id, Duration::MAX, &|| uses.strong_count() > 0);
    }

    /// Waits until nothing uses a partition any more, or for this time.
    fn await_disuse(&self, id: PartitionId, limit: Duration, is_used: &dyn Fn() -> bool) {
        let (begun, mut next) = (Instant::now(), REPORT);
        while is_used() && begun.elapsed() < limit && wait(&self.ending, NAP) {
            if begun.elapsed() >= next {
                next += REPORT;
                tracing::warn!(partition = %id,
                    "calls or volume transactions still use a partition that was lost or removed; it is closed at their end");
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
pub(super) mod tests {
    use super::*;
    use crate::buckets::{begin, open_offline};
    use crate::known::KnownPartitions;
    use crate::startup::volume_options;
    use crate::stores::{meters_of, partition_config};
    use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
    use base::{UnixTime, VolumeType};
    use bucket_partition::BucketConfig;
    use cellar_config::{Place, SharedLeases};
    use cluster_proto::PartitionName;
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

    /// Waits until something is so; `what` names it in the failure message.
    pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
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
        let secret = Secret::new(&[7; 32]);
        let key = TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: 18, secret };
        let keys = folder.path().join("KeyFileExt");
        cellar_config::files::replace(&keys, &write_extended(&[key])).unwrap();
        let text = format!(
            "[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\n[partitions]\na = \"vicepa\"\n[[partition]]\nname = \"b\"\n\
             bucket = \"file://{}/bucket\"\n",
            folder.path().display()
        );
        std::fs::write(&path, text).unwrap();
        let settings = Arc::new(cellar_config::file::load(&path).unwrap());
        let (meters, disk): (_, Arc<dyn Disk>) = (meters_of(&settings), Arc::new(RealDisk));
        let (config, ending) = (partition_config(&settings), Arc::new(AtomicBool::new(false)));
        let means = Means { disk: &disk, node: None };
        let later = begin(&settings, &meters, means).unwrap();
        let volumes = Arc::new(Volumes::open(Vec::new(), volume_options(&settings)).unwrap());
        let partitions: Partitions = Arc::new(Mutex::new(Vec::new()));
        let keeper = Arc::new(Keeper {
            settings: Arc::clone(&settings),
            disk,
            ending: Arc::clone(&ending),
            volumes: Arc::clone(&volumes),
            partitions: Arc::clone(&partitions),
            file_server: None,
            volume_server: None,
            node: None,
        });
        let (threads, keeping) = keeper.start(&meters, later);
        drop(keeper);
        let in_bucket = &settings.partitions[1];
        let has_volumes = || volumes.partitions() == [in_bucket.id];
        until("the partition is open", has_volumes);
        create(&volumes, in_bucket.id, 7).unwrap();
        let before = Arc::downgrade(&volumes.get(VolumeId(7)).unwrap());

        let bucket = in_bucket.place.bucket().unwrap();
        let client = bucket::open(&bucket.address, &crate::buckets::access(bucket).unwrap()).unwrap();
        let taken =
            bucket_partition::open(client, &bucket.address, &config, &BucketConfig::default(), None).unwrap();
        until("the loss is noticed", || before.upgrade().is_none());
        until("the partition is open again", has_volumes);
        assert!(volumes.get(VolumeId(7)).is_ok());
        create(&volumes, in_bucket.id, 8).unwrap();
        volumes.sync().unwrap();
        until("the other one has lost it", || taken.failure().is_some());

        drop(taken);
        ending.store(true, Ordering::Relaxed);
        for thread in threads.into_iter().chain(keeping.into_iter().map(|(_, thread)| thread)) {
            thread.join().unwrap();
        }
        drop(volumes);
        partitions.lock().clear();
        let known = KnownPartitions::of(&settings);
        let offline = open_offline(in_bucket, &config, known.clone()).unwrap();
        assert!(!offline.is_used() && !offline.is_lost());
        drop(offline);

        // The shared file system is not mounted: there is the empty folder below it.
        std::fs::remove_dir_all(folder.path().join("bucket")).unwrap();
        std::fs::create_dir(folder.path().join("bucket")).unwrap();
        let is_refused = |partition: &PartitionSettings| {
            let opened = open_offline(partition, &config, known.clone());
            opened.is_err_and(|error| format!("{error:#}").contains("is its file system mounted?"))
        };
        assert!(is_refused(in_bucket));

        // It was one of a cluster, which has another one of this letter now. This server may be the first to take it.
        let mut bucket = bucket.clone();
        let name: PartitionName = "b".parse().unwrap();
        let leases = folder.path().join("cluster");
        std::fs::create_dir(&leases).unwrap();
        let address: base::BucketAddress = format!("file://{}", leases.display()).parse().unwrap();
        let client = bucket::open(&address, &crate::buckets::access(&bucket).unwrap()).unwrap();
        bucket.leases = Some(SharedLeases { address, partition: name.clone() });
        let added = PartitionSettings { place: Place::Bucket(Box::new(bucket)), ..in_bucket.clone() };
        assert!(is_refused(&added));
        cluster::note_added_empty(&*client, &name).unwrap();
        drop(open_offline(&added, &config, known.clone()).unwrap());
        assert!(!cluster::was_added_empty(&*client, &name).unwrap(), "it has been created");
    }
}
