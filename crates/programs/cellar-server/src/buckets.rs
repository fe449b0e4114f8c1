//! Partitions in buckets. Each is opened on a thread of its own, since the bucket may be away, or another server may
//! own the partition; until then, only its own volumes are offline.

#[cfg(feature = "bucket")]
mod around;
mod keeping;
#[cfg(feature = "bucket")]
mod lease;
#[cfg(feature = "bucket")]
mod opening;
mod resets;
#[cfg(feature = "bucket")]
mod standbys;
#[cfg(feature = "bucket")]
mod uuid;

pub(crate) use keeping::Keeper;
#[cfg(not(feature = "bucket"))]
pub(crate) use keeping::Keeping;
#[cfg(all(test, feature = "bucket"))]
pub(crate) use keeping::tests::until;
pub(crate) use resets::Resets;

use crate::cluster::Node;
use crate::known::KnownPartitions;
use crate::stores::{Meters, partition_config};
use crate::threads::thread;
use anyhow::{Result, bail};
use base::{HostUuid, PartitionId};
use cellar_config::{PartitionSettings, Role, Settings};
use disk::{Disk, MeteredDisk};
use fileserver::FileServer;
use std::any::Any;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::{BucketMeter, Partition, PartitionConfig};
use volume::{ListedHost, Permit};

/// How long a start waits for partitions in buckets while it has others to serve.
const PATIENCE: Duration = Duration::from_secs(10);

/// First pause before another attempt to open a partition; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long the end of the server waits for a thread that opens a partition: it may have to give up its lease.
const JOIN_LIMIT: Duration = Duration::from_secs(8);

/// Interval at which a waiting thread checks whether to end.
const LOOK: Duration = Duration::from_millis(200);
const NAP: Duration = Duration::from_millis(20);

/// What a program without the feature says.
pub const WITHOUT: &str = "this program was built without partitions in buckets (cargo feature `bucket`)";

/// The addresses of other servers to register with this one's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Those of servers that run, or did lately.
    pub known: Vec<Ipv4Addr>,
    /// Those of nodes of a cluster that were not seen to run yet. They stay registered, but are not added.
    pub unseen: Vec<Ipv4Addr>,
}

/// Returns the present addresses of the servers on standby.
pub(crate) type Standbys = Box<dyn FnMut() -> Others + Send>;

/// Keeps other servers out of a partition until it is dropped.
pub type Claim = Box<dyn Any + Send + Sync>;

/// The ownership of a partition that other servers can take over.
pub(crate) trait Ownership: Permit {
    /// Begins to answer calls, once the partition's volumes are known. Changes are acknowledged when all `owed` clients
    /// were reported with [`reset_done`](Self::reset_done).
    fn begin(&self, owed: &[ListedHost]);

    /// Reports that the clients with this UUID were reset, or that one of them does not answer. Changes are acknowledged
    /// once all clients that may hold promises were reported.
    fn reset_done(&self, client: HostUuid, is_reset: bool);

    /// Ends the ownership because the partition's database takes no more changes, perhaps because another server has
    /// opened it.
    fn end(&self);
}

/// An open partition with what keeps other servers out.
pub(crate) struct Held {
    pub(crate) id: PartitionId,
    pub(crate) partition: Arc<Partition>,
    /// `None` if no other server can take the partition over.
    ownership: Option<Arc<dyn Ownership>>,
    /// Clients that may hold promises of earlier owners, and have to be reset.
    owed: Vec<ListedHost>,
    /// Given up after the partition is closed, so it must be the last field.
    _claim: Option<Claim>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({})", self.id)
    }
}

impl Held {
    /// A partition on a local disk, whose lock file keeps others out.
    pub(crate) fn local(id: PartitionId, partition: Arc<Partition>) -> Held {
        Held { id, partition, ownership: None, owed: Vec::new(), _claim: None }
    }

    /// Returns the permit that [`volume::Volumes::limit`] needs, if there is one.
    pub(crate) fn permit(&self) -> Option<Arc<dyn Permit>> {
        self.ownership.clone().map(|ownership| ownership as Arc<dyn Permit>)
    }

    /// Whether this server may answer calls now.
    pub(crate) fn may_answer(&self) -> bool {
        self.ownership.as_ref().is_none_or(|ownership| ownership.may_answer())
    }

    /// Begins to answer calls. The partition's volumes must be known, with its permit.
    pub(crate) fn begin(&self) {
        self.ownership.iter().for_each(|ownership| ownership.begin(&self.owed));
    }

    /// Returns a reference that shows whether anything uses the partition after this was dropped.
    pub(crate) fn uses(&self) -> Weak<Partition> {
        Arc::downgrade(&self.partition)
    }

    /// Requires resets of the clients that may hold promises of earlier owners. Call it before the volumes are online, and
    /// then [`Resets::send`].
    pub(crate) fn owe_resets(&self, server: Option<&Arc<FileServer>>) -> Option<Resets> {
        Resets::of(self.id, self.ownership.as_ref()?, &self.owed, server)
    }

    /// Restores the locks of files of a partition that another server had. Call it when the volumes are online, before calls about
    /// them are answered.
    pub(crate) fn restore_locks(&self, server: Option<&Arc<FileServer>>) {
        let (Some(server), Some(_)) = (server, &self.ownership) else { return };
        match volume::recorded_locks(&*self.partition.meta()) {
            Ok(locks) => server.restore_locks(self.id, locks),
            Err(error) => tracing::error!(partition = %self.id, %error, "the locks of its files are lost"),
        }
    }

    /// Returns why this server does not have the partition any more; `None` if it does. A partition in a bucket whose
    /// database has failed is given up here.
    pub(crate) fn loss(&self) -> Option<String> {
        let ownership = self.ownership.as_ref()?;
        let failure = self.partition.failure();
        if failure.is_some() {
            ownership.end();
        }
        let ended = || "another server has taken it over, or the lease was lost".to_owned();
        ownership.has_ended().then(|| failure.unwrap_or_else(ended))
    }

    /// Whether this server does not have the partition any more; see [`loss`](Self::loss).
    pub(crate) fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Whether anything else refers to the partition.
    pub(crate) fn is_used(&self) -> bool {
        Arc::strong_count(&self.partition) > 1
    }
}

/// The cell's databases, open in a bucket, with what keeps other nodes out. They are kept as a partition without volumes.
#[cfg(feature = "bucket")]
pub(crate) struct OpenDatabases {
    pub(crate) ownership: Arc<dyn Ownership>,
    pub(crate) partition: Arc<Partition>,
    /// Given up after they are closed, so it must be the last field.
    _claim: Claim,
}

/// How a partition in a bucket is opened.
#[cfg_attr(not(feature = "bucket"), expect(dead_code, reason = "nothing is opened without the feature"))]
pub(crate) struct Way {
    pub(crate) config: PartitionConfig,
    /// The partitions that are not created, because this server has had them.
    pub(crate) known: KnownPartitions,
    /// The disk of the local copies.
    pub(crate) disk: Arc<dyn Disk>,
    /// Counts the requests.
    pub(crate) meter: Arc<BucketMeter>,
    /// The file server's addresses, for other servers to read.
    pub(crate) addresses: Vec<SocketAddr>,
    /// See [`cluster::MemberConfig::process_file`]; commands have none.
    pub(crate) process_file: Option<PathBuf>,
    /// The node of a cluster, whose lease counts for all partitions.
    pub(crate) node: Option<Arc<Node>>,
    /// Whether the clients in the partition's list are reset. Commands leave that to the next server.
    pub(crate) resets_clients: bool,
}

impl Way {
    /// The way of a command, which serves nothing.
    #[cfg(feature = "bucket")]
    fn of_command(config: PartitionConfig) -> Way {
        Way {
            config,
            known: KnownPartitions::default(),
            disk: Arc::new(disk::RealDisk),
            meter: Arc::default(),
            addresses: Vec::new(),
            process_file: None,
            node: None,
            resets_clients: false,
        }
    }

    /// The way of a node to the cell's databases. They make no promises, and have no local copies.
    #[cfg(feature = "bucket")]
    pub(crate) fn of_databases(node: Arc<Node>) -> Way {
        Way { node: Some(node), ..Way::of_command(crate::stores::databases_config()) }
    }

    fn of(
        settings: &Settings,
        partition: PartitionId,
        (disk, meter): (Arc<dyn Disk>, Arc<BucketMeter>),
        node: Option<Arc<Node>>,
    ) -> Way {
        let name = format!("lease-{}", partition.to_string().trim_start_matches('/'));
        let port = Role::Fs.port();
        Way {
            config: partition_config(settings),
            known: KnownPartitions::of(settings),
            disk,
            meter,
            addresses: settings.announce.iter().map(|&address| (address, port).into()).collect(),
            process_file: process_file(settings, &name),
            node,
            resets_clients: true,
        }
    }
}

/// Returns the file by which this server knows after a crash that the process before has ended.
pub(crate) fn process_file(settings: &Settings, name: &str) -> Option<PathBuf> {
    let folder = settings.sysid_path.parent()?;
    // Without the folder, a start after a crash waits for the end of the lease.
    std::fs::create_dir_all(folder).ok()?;
    Some(folder.join(name))
}

/// A partition that is being opened. The attempts end when it is dropped.
pub(crate) struct Opening {
    pub(crate) id: PartitionId,
    opened: Receiver<Held>,
    thread: Option<JoinHandle<()>>,
    /// Ends the thread.
    is_over: Arc<AtomicBool>,
}

impl Opening {
    /// Waits until the partition is open, or `is_over`.
    pub(crate) fn wait(&self, is_over: &dyn Fn() -> bool) -> Option<Held> {
        loop {
            match self.opened.recv_timeout(LOOK) {
                Ok(held) => return Some(held),
                Err(RecvTimeoutError::Timeout) if !is_over() => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits until the thread has ended; a partition that is not open yet is not opened any more. A thread that
    /// still waits for the bucket after [`JOIN_LIMIT`] is left to the end of the process.
    pub(crate) fn join(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        let begun = Instant::now();
        while !thread.is_finished() {
            if begun.elapsed() >= JOIN_LIMIT {
                tracing::warn!(partition = %self.id, "the bucket does not answer; not waiting for it");
                return;
            }
            std::thread::sleep(NAP);
        }
        if thread.join().is_err() {
            tracing::error!(partition = %self.id, "opening the partition panicked");
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Returns why these settings cannot be served by this program, if there is a reason.
pub fn refusal(settings: &Settings) -> Option<String> {
    let buckets = settings.partitions.iter().find_map(|partition| partition.place.bucket());
    let bucket = buckets.filter(|_| !cfg!(feature = "bucket"))?;
    Some(format!("{}, `partition.bucket`: {WITHOUT}", bucket.at))
}

/// What opening a partition needs besides its settings.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    /// The disk of the local copies.
    pub(crate) disk: &'a Arc<dyn Disk>,
    /// The node of a cluster.
    pub(crate) node: Option<&'a Arc<Node>>,
}

/// Begins to open all partitions in buckets, with the meters of their caches' disks. A server that has no partition on a
/// local disk opens the first one before the others: of several such servers with the same partitions, one has all. Those of
/// a cluster share them.
pub(crate) fn begin(
    settings: &Settings,
    meters: &[(PartitionId, Meters)],
    means: Means<'_>,
) -> Result<Vec<Opening>> {
    if let Some(refusal) = refusal(settings) {
        bail!(refusal);
    }
    let others = Arc::new(AtomicBool::new(!settings.has_buckets_only() || means.node.is_some()));
    let mut all = Vec::new();
    for (partition, (_, meter)) in settings.partitions.iter().zip(meters) {
        if partition.place.bucket().is_none() {
            continue;
        }
        let turn = if all.is_empty() { Arc::new(AtomicBool::new(true)) } else { Arc::clone(&others) };
        all.push(begin_in_turn(settings, partition, meter, means, (turn, &others)));
    }
    Ok(all)
}

/// Begins to open one partition.
pub(crate) fn begin_one(
    settings: &Settings,
    partition: &PartitionSettings,
    meter: &Meters,
    means: Means<'_>,
) -> Opening {
    let turn = Arc::new(AtomicBool::new(true));
    begin_in_turn(settings, partition, meter, means, (Arc::clone(&turn), &turn))
}

/// Begins to open a partition once `turn` is set; sets `others` when it is open.
fn begin_in_turn(
    settings: &Settings,
    partition: &PartitionSettings,
    meter: &Meters,
    means: Means<'_>,
    (turn, others): (Arc<AtomicBool>, &Arc<AtomicBool>),
) -> Opening {
    let (report, opened) = channel();
    let disk: Arc<dyn Disk> = Arc::new(MeteredDisk::new(Arc::clone(means.disk), Arc::clone(&meter.disk)));
    let (id, partition) = (partition.id, partition.clone());
    let way = Way::of(settings, id, (disk, Arc::clone(&meter.bucket)), means.node.cloned());
    let (is_over, others) = (Arc::<AtomicBool>::default(), Arc::clone(others));
    let ending = Arc::clone(&is_over);
    let open = move || {
        while !turn.load(Ordering::Relaxed) {
            if !crate::threads::wait(&ending, LOOK) {
                return;
            }
        }
        open_until_done(&partition, &way, &ending, &|held| {
            others.store(true, Ordering::Relaxed);
            // Without a receiver, the server has ended.
            _ = report.send(held);
        });
    };
    Opening { id, opened, thread: Some(thread(format!("open {id}"), open)), is_over }
}

/// Waits for partitions: until all are open, or, if `has_others` or one of them is open, for [`PATIENCE`]. Returns the
/// open ones, and those that may be opened later.
///
/// # Errors
/// If `interrupted` is set meanwhile.
pub(crate) fn wait(
    openings: Vec<Opening>,
    has_others: bool,
    interrupted: &AtomicBool,
) -> Result<(Vec<Held>, Vec<Opening>)> {
    let is_any = !openings.is_empty();
    let (begun, mut open, mut later) = (Instant::now(), Vec::new(), openings);
    let mut is_logged = false;
    while !later.is_empty() {
        later = later.into_iter().filter_map(|opening| still_opening(opening, &mut open)).collect();
        let is_late = begun.elapsed() >= PATIENCE;
        if later.is_empty() || is_late && (has_others || !open.is_empty()) {
            break;
        }
        if interrupted.load(Ordering::Relaxed) {
            bail!("stopped while waiting for partitions in buckets");
        }
        if is_late && !is_logged {
            is_logged = true;
            let waiting: Vec<String> = later.iter().map(|opening| opening.id.to_string()).collect();
            tracing::warn!(?waiting, "there is no other partition to serve; waiting for these");
        }
        std::thread::sleep(NAP);
    }
    if is_any && !has_others && open.is_empty() && later.is_empty() {
        bail!("no partition could be opened; the log says why");
    }
    for opening in &later {
        tracing::warn!(partition = %opening.id, "not open yet; its volumes are offline until it is");
    }
    Ok((open, later))
}

/// Moves a partition that is open to `open`; returns one that is not.
fn still_opening(opening: Opening, open: &mut Vec<Held>) -> Option<Opening> {
    match opening.opened.try_recv() {
        Err(TryRecvError::Empty) => return Some(opening),
        Err(TryRecvError::Disconnected) => {
            tracing::error!(partition = %opening.id, "the thread that opens it has failed; its volumes stay offline");
        }
        Ok(held) => open.push(held),
    }
    opening.join();
    None
}

/// Tries to open a partition until it is open or the server is ending. An error is logged when it is another one than
/// before.
fn open_until_done(partition: &PartitionSettings, way: &Way, ending: &AtomicBool, report: &dyn Fn(Held)) {
    let (mut pause, mut last) = (PAUSE_MIN, String::new());
    loop {
        match open(partition, way, ending) {
            Ok(Some(held)) => {
                tracing::info!(partition = %partition.id, place = %partition.place, "open");
                way.known.note(partition, &held.partition);
                return report(held);
            }
            Ok(None) => return,
            Err(error) => {
                let error = format!("{error:#}");
                if error != last {
                    tracing::error!(partition = %partition.id, place = %partition.place, error,
                        "the partition cannot be opened; trying again");
                }
                last = error;
            }
        }
        if !crate::threads::wait(ending, pause) {
            return;
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Opens a partition; `None` if `ending` is set meanwhile.
#[cfg(feature = "bucket")]
fn open(partition: &PartitionSettings, way: &Way, ending: &AtomicBool) -> Result<Option<Held>> {
    opening::open(partition, way, ending)
}

#[cfg(not(feature = "bucket"))]
fn open(_: &PartitionSettings, _: &Way, _: &AtomicBool) -> Result<Option<Held>> {
    bail!(WITHOUT)
}

/// Returns where servers that can be this one find each other: the cluster's place in its bucket, or the first partition of
/// a server whose partitions are all in buckets.
#[cfg(feature = "bucket")]
fn shared(settings: &Settings) -> Option<&cellar_config::BucketSettings> {
    if let Some(cluster) = &settings.cluster {
        return Some(&cluster.bucket);
    }
    settings.partitions.first().filter(|_| settings.has_buckets_only())?.place.bucket()
}

/// Returns a function that returns the present addresses of the servers on standby for this one; `None` if there can be
/// none.
#[cfg(feature = "bucket")]
pub(crate) fn standbys(settings: &Settings) -> Result<Option<Standbys>> {
    let own = settings.cluster.as_ref().map(|cluster| cluster.node.clone());
    let own = own.unwrap_or_else(cellar_config::cluster::host_node_name);
    let mut standbys = standbys::Standbys::of(settings, own)?;
    if settings.cluster.is_some() {
        standbys.iter_mut().for_each(standbys::Standbys::meet);
    }
    let is_node = settings.cluster.is_some();
    Ok(standbys.map(|mut standbys| -> Standbys {
        Box::new(move || {
            if is_node {
                return standbys.nodes();
            }
            Others { known: standbys.addresses(), unseen: Vec::new() }
        })
    }))
}

#[cfg(not(feature = "bucket"))]
#[expect(clippy::unnecessary_wraps, reason = "the function with the feature fails")]
pub(crate) fn standbys(_: &Settings) -> Result<Option<Standbys>> {
    Ok(None)
}

/// Takes the UUID of a server whose partitions are all in buckets from the first of them, or puts it there, so that it
/// is the same server on every machine. Call it once that partition is open. That of a node is in the cluster's folder, and
/// is waited for until `interrupted`.
#[cfg(feature = "bucket")]
pub(crate) fn share_uuid(settings: &Settings, interrupted: &AtomicBool) -> Result<()> {
    let mut last = String::new();
    loop {
        match uuid::share(settings) {
            Err(error) if settings.cluster.is_some() => {
                let error = format!("{error:#}");
                if error != last {
                    tracing::error!(error, "a node needs the server's UUID; trying again");
                }
                last = error;
            }
            shared => return shared,
        }
        if !crate::threads::wait(interrupted, PAUSE_MIN) {
            bail!("stopped while waiting for the server's UUID: {last}");
        }
    }
}

#[cfg(not(feature = "bucket"))]
pub(crate) fn share_uuid(settings: &Settings, _: &AtomicBool) -> Result<()> {
    match refusal(settings) {
        Some(refusal) => bail!(refusal),
        None => Ok(()),
    }
}

#[cfg(feature = "bucket")]
pub use around::{Around, cluster_around};
#[cfg(feature = "bucket")]
pub use opening::{access, connect, inspect, rekey};
#[cfg(feature = "bucket")]
pub(crate) use opening::{local_options, open_databases, open_databases_offline, open_offline};
#[cfg(feature = "bucket")]
pub(crate) use standbys::Standbys as Leases;

/// See the function of this name with the feature `bucket`.
///
/// # Errors
/// Always.
#[cfg(not(feature = "bucket"))]
pub fn inspect(
    _: &cellar_config::BucketSettings,
    _: Option<&store::MasterKey>,
) -> Result<(store::Inspection, Claim)> {
    bail!(WITHOUT)
}

/// See the function of this name with the feature `bucket`.
///
/// # Errors
/// Always.
#[cfg(not(feature = "bucket"))]
pub fn rekey(
    _: &cellar_config::BucketSettings,
    _: (&store::MasterKey, &store::MasterKey),
    _: bool,
) -> Result<usize> {
    bail!(WITHOUT)
}

#[cfg(not(feature = "bucket"))]
pub(crate) fn open_offline(_: &PartitionSettings, _: &PartitionConfig, _: KnownPartitions) -> Result<Held> {
    bail!(WITHOUT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::{FaultyDisk, Garbling};
    use std::path::Path;
    use store::{Codec, MemoryEngine};

    /// An ownership that ends when it is given up.
    #[derive(Default)]
    struct Given(AtomicBool);

    impl Permit for Given {
        fn may_answer(&self) -> bool {
            !self.has_ended()
        }

        fn may_change(&self) -> bool {
            !self.has_ended()
        }

        fn has_ended(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Ownership for Given {
        fn begin(&self, _owed: &[ListedHost]) {}

        fn reset_done(&self, _client: HostUuid, _is_reset: bool) {}

        fn end(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_lost_partition_has_the_reason_of_its_failure() {
        let (faulty, path) = (FaultyDisk::new(1, Garbling::default()), Path::new("/vicepb"));
        faulty.create_dir(path).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let engine = Arc::new(MemoryEngine::new());
        let config = PartitionConfig { engine, maintenance: None, ..PartitionConfig::default() };
        let partition = Arc::new(Partition::open_on(&disk, path, &config).unwrap());
        let (id, chunks) = (PartitionId::from_index(1).unwrap(), partition.chunks());
        let held = |ownership: &Arc<Given>| Held {
            ownership: Some(Arc::clone(ownership) as _),
            ..Held::local(id, Arc::clone(&partition))
        };
        let (taken, own) = (Arc::<Given>::default(), Arc::<Given>::default());
        assert_eq!(held(&taken).loss(), None);
        taken.end();
        assert!(held(&taken).loss().unwrap().contains("another server"));
        chunks.append(&[bytes::Bytes::from_static(b"data")], Codec::Raw).unwrap();
        faulty.cut_power_at(faulty.operations());
        chunks.sync().unwrap_err();
        let why = held(&own).loss().unwrap();
        assert!(own.has_ended() && !why.contains("another server"), "{why}");
        assert_eq!(partition.failure(), Some(why));
    }
}
