//! All figures of this process that can be queried at run time.

use super::cluster::{Calls, Node};
use super::environment::process_kib;
use super::refusals::Refusals;
use super::services::CLUSTER_PORT;
use super::stores::Meters;
use audit::Trail;
use base::{PartitionId, VolumeId};
use cellar_config::Role;
use disk::metered::ACCESSES;
use events::catalogue::{
    AuditFigures, BucketFigures, CACHES, CacheCounts, CallFigures, CallbackFigures, ClusterFigures,
    DiskFigures, LaneFigures, NodeFigures, PartitionFigures, PeerFigures, ProbeFigures, ProcessFigures,
    RefusalFigures, TakeoverFigures, UsageFigures, WorkerFigures,
};
use events::{Figures as _, Histogram, bucket_of};
use fileserver::FileServer;
use observe::{Observed, PERIOD, Recorder, Sheet, SlowCall, Snapshot, Table};
use parking_lot::{Mutex, RwLock};
use rx::{LaneStatistics, PeerCounters, PeerReport, RoundTrips, Server, ServerStatistics};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::bucket_meter::REQUESTS;
use volume::{CacheReport, CacheStatistics, Condition, DeduplicationStatistics, VolumeError, Volumes};

/// Figures that are read from the metadata of a partition.
#[derive(Clone, Copy, Default)]
struct Known {
    condition: Condition,
    shared: DeduplicationStatistics,
    scrubbed_bytes: u64,
}

/// The recorder of calls, and the sources of all other figures.
pub struct Observatory {
    started: Duration,
    volumes: Arc<Volumes>,
    recorder: Arc<Recorder>,
    /// Guards the list, which is complete once all ports are open.
    ports: Mutex<Vec<(&'static str, Weak<Server>)>>,
    /// Counters of all partitions, in order; nothing waits under the lock.
    meters: RwLock<Vec<(PartitionId, Meters)>>,
    /// Guards what was read last of each partition.
    known: Mutex<BTreeMap<PartitionId, Known>>,
    file_server: OnceLock<Weak<FileServer>>,
    node: OnceLock<Weak<Node>>,
    calls: OnceLock<Weak<Calls>>,
    trail: Option<Arc<Trail>>,
    refusals: Arc<Refusals>,
    /// History of `cellar probe run`.
    probe_history: Option<PathBuf>,
}

impl Observatory {
    /// Creates an observatory for a process that starts now, with these counters and volumes, and optionally an
    /// audit and a history of probes.
    pub fn new(
        meters: Vec<(PartitionId, Meters)>,
        volumes: &Arc<Volumes>,
        trail: Option<Arc<Trail>>,
        probe_history: Option<PathBuf>,
    ) -> Observatory {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let volumes = volumes.clone();
        let (ports, known, file_server, node, calls) = Default::default();
        Observatory {
            started,
            volumes,
            recorder: Arc::default(),
            ports,
            meters: RwLock::new(meters),
            known,
            file_server,
            node,
            calls,
            trail,
            refusals: Arc::default(),
            probe_history,
        }
    }

    /// Sets the file server; to be called once.
    pub fn set_file_server(&self, server: &Arc<FileServer>) {
        let _ = self.file_server.set(Arc::downgrade(server));
    }

    /// A partition was added to those of this process, with these counters.
    #[cfg(feature = "bucket")]
    pub(crate) fn add_partition(&self, id: PartitionId, meters: Meters) {
        let mut all = self.meters.write();
        all.retain(|(other, _)| *other != id);
        all.push((id, meters));
        all.sort_by_key(|(id, _)| *id);
    }

    /// A partition is not one of this process's any more.
    #[cfg(feature = "bucket")]
    pub(crate) fn remove_partition(&self, id: PartitionId) {
        self.meters.write().retain(|(other, _)| *other != id);
        self.known.lock().remove(&id);
    }

    /// Sets the node of a cluster, whose other nodes have the figures of their partitions; to be called once.
    pub(crate) fn set_node(&self, node: &Arc<Node>) {
        let _ = self.node.set(Arc::downgrade(node));
    }

    /// Sets the calls between nodes; to be called once.
    pub(crate) fn set_calls(&self, calls: &Arc<Calls>) {
        let _ = self.calls.set(Arc::downgrade(calls));
    }

    /// Returns the node of a cluster, with the calls between nodes.
    fn node(&self) -> Option<(Arc<Node>, Option<Arc<Calls>>)> {
        Some((self.node.get()?.upgrade()?, self.calls.get().and_then(Weak::upgrade)))
    }

    fn is_elsewhere(&self, id: PartitionId) -> bool {
        self.node.get().and_then(Weak::upgrade).is_some_and(|node| node.is_elsewhere(id))
    }

    fn partition_figures(&self, id: PartitionId) -> PartitionFigures {
        let Ok(space) = self.volumes.space(id) else {
            return PartitionFigures { offline: 1, ..PartitionFigures::default() };
        };
        let Known { condition, shared, scrubbed_bytes } = self.known(id);
        let chunks = self.volumes.chunk_store(id).ok();
        let (lent_objects, borrowed_objects) = chunks.as_ref().map_or((0, 0), |chunks| chunks.loans());
        let copies = chunks.and_then(|chunks| chunks.disk_cache_statistics()).unwrap_or_default();
        PartitionFigures {
            size: space.total_kib << 10,
            free: space.free_kib << 10,
            offline: 0,
            read_only: self.volumes.failure(id).is_ok_and(|failure| failure.is_some()).into(),
            damaged: condition.damaged,
            reclaiming: condition.reclaiming,
            scrubbed: scrubbed_bytes,
            copy_hits: copies.hits,
            copy_misses: copies.misses,
            copy_failures: copies.failures,
            copies: copies.bytes,
            lent_objects,
            borrowed_objects,
            deduplicated_chunks: shared.chunks,
            deduplicated_names: shared.names,
            deduplicated: shared.stored_bytes,
            deduplication_saved: shared.saved_bytes,
            deduplication_table: shared.row_bytes,
            deduplication_memory: shared.memory_bytes,
        }
    }

    /// Returns what is read from the metadata of a partition. While its bucket is away, that is what was read last: figures are
    /// needed most then, and must not wait.
    fn known(&self, id: PartitionId) -> Known {
        if !self.volumes.may_read(id) {
            return self.known.lock().get(&id).copied().unwrap_or_default();
        }
        let condition = self.volumes.condition(id).unwrap_or_else(|error| {
            tracing::error!(partition = %id, %error, "cannot read damage reports");
            Condition::default()
        });
        let shared = readable(id, "deduplication", self.volumes.deduplication(id));
        let scrubbed = readable(id, "scrubbing", self.volumes.scrub_statistics(id));
        let known = Known { condition, shared, scrubbed_bytes: scrubbed.bytes_since_start };
        self.known.lock().insert(id, known);
        known
    }

    /// Returns the recorder of calls.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Starts the thread that ends periods until shutdown.
    pub(super) fn begin_periods(&self, ending: &Arc<AtomicBool>) -> JoinHandle<()> {
        let (recorder, ending) = (self.recorder.clone(), ending.clone());
        crate::threads::thread("periods", move || {
            while crate::threads::wait(&ending, PERIOD) {
                recorder.next_period();
            }
        })
    }

    /// Returns the counters of rejected callers.
    pub(super) fn refusals(&self) -> &Arc<Refusals> {
        &self.refusals
    }

    /// Returns the audit, if there is one.
    pub fn trail(&self) -> Option<&Arc<Trail>> {
        self.trail.as_ref()
    }

    /// Adds an open port.
    pub fn add_port(&self, name: &'static str, server: &Arc<Server>) {
        self.ports.lock().push((name, Arc::downgrade(server)));
    }

    fn statistics(&self) -> Vec<(&'static str, ServerStatistics)> {
        let ports = self.ports.lock().clone();
        let ask = |(name, server): (&'static str, Weak<Server>)| Some((name, server.upgrade()?.statistics()));
        ports.into_iter().filter_map(ask).collect()
    }
}

/// Returns figures of a partition; without them, an error is logged.
fn readable<T: Default>(id: PartitionId, what: &str, figures: Result<T, VolumeError>) -> T {
    let unreadable = |error: &VolumeError| {
        tracing::error!(partition = %id, %error, what, "cannot read a partition's figures");
    };
    figures.inspect_err(unreadable).unwrap_or_default()
}

impl Observed for Observatory {
    fn snapshot(&self) -> Snapshot {
        self.recorder.snapshot()
    }

    fn calls(&self) -> Sheet<CallFigures> {
        self.recorder.calls()
    }

    fn volumes(&self) -> Sheet<UsageFigures> {
        let mut sheet = self.snapshot().volume_sheet();
        for row in &mut sheet.rows {
            let Some(Ok(id)) = row.labels.first().map(|label| label.parse()) else { continue };
            let volume = self.volumes.get_at_hand(VolumeId(id));
            row.labels.push(volume.map(|volume| volume.header().name.to_string()).unwrap_or_default());
        }
        sheet
    }

    fn slow(&self) -> (u64, Vec<(u64, SlowCall)>) {
        (self.recorder.slow_from_ns(), self.recorder.slow_calls())
    }

    fn lanes(&self) -> Sheet<LaneFigures> {
        let mut sheet = Sheet::new(Table::Lanes.labels());
        for (name, statistics) in self.statistics() {
            for (number, (lane, endpoint)) in statistics.lanes.iter().zip(&statistics.endpoints).enumerate() {
                sheet.push([name.to_owned(), number.to_string()], lane_figures(lane, endpoint));
            }
        }
        sheet
    }

    fn workers(&self) -> Sheet<WorkerFigures> {
        let mut sheet = Sheet::new(Table::Workers.labels());
        for (name, statistics) in self.statistics() {
            sheet.push([name], worker_figures(&statistics));
        }
        sheet
    }

    fn disks(&self) -> Sheet<DiskFigures> {
        let mut sheet = Sheet::new(Table::Disks.labels());
        for (id, meter) in self.meters.read().iter() {
            for (access, figures) in ACCESSES.into_iter().zip(meter.disk.figures()) {
                sheet.push([id.to_string(), access.to_owned()], figures);
            }
        }
        sheet
    }

    fn buckets(&self) -> Sheet<BucketFigures> {
        let mut sheet = Sheet::new(Table::Buckets.labels());
        for (id, meter) in self.meters.read().iter() {
            let all = REQUESTS.into_iter().zip(meter.bucket.figures());
            for (request, figures) in all.filter(|(_, figures)| figures.requests > 0) {
                sheet.push([id.to_string(), request.to_owned()], figures);
            }
        }
        sheet
    }

    fn caches(&self) -> Sheet<CacheCounts> {
        let CacheReport { status, directories, totals, chunks } = self.volumes.caches();
        let mut sheet = Sheet::new(Table::Caches.labels());
        for (name, of) in CACHES.into_iter().zip([status, directories, totals, chunks]) {
            sheet.push([name], cache_counts(of));
        }
        sheet
    }

    fn peers(&self) -> Sheet<PeerFigures> {
        let mut sheet = Sheet::new(Table::Peers.labels());
        let mut others = PeerFigures::default();
        let ports = self.ports.lock().clone();
        for (name, server) in ports.iter().filter_map(|(name, server)| Some((name, server.upgrade()?))) {
            let (peers, forgotten) = server.peers();
            others.add(&peer_counters(&forgotten));
            for peer in peers {
                sheet.push([(*name).to_owned(), peer.address.to_string()], peer_figures(&peer));
            }
        }
        // Present values have no meaning for all other peers together.
        sheet.bound(others);
        sheet
    }

    fn audit(&self) -> Sheet<AuditFigures> {
        let mut sheet = Sheet::new(Table::Audit.labels());
        for (name, figures) in self.trail.iter().flat_map(|trail| trail.figures()) {
            sheet.push([name], figures);
        }
        sheet
    }

    fn refusals(&self) -> Sheet<RefusalFigures> {
        let mut sheet = Sheet::new(Table::Refusals.labels());
        for (refusal, figures) in self.refusals.figures(rx::now()) {
            sheet.push([refusal.name()], figures);
        }
        sheet
    }

    fn probes(&self) -> Sheet<ProbeFigures> {
        let mut sheet = Sheet::new(&["volume", "server"]);
        let latest = self.probe_history.as_deref().map(probe_history::latest);
        match latest.unwrap_or_else(|| Ok(Vec::new())) {
            Ok(rows) => rows.into_iter().for_each(|(labels, figures)| sheet.push(labels, figures)),
            // The file may not exist yet; at a higher level this would be logged with every query.
            Err(error) => tracing::debug!("no probes: {error:#}"),
        }
        sheet
    }

    fn process(&self) -> Sheet<ProcessFigures> {
        let mut sheet = Sheet::new(Table::Process.labels());
        let figures = ProcessFigures {
            started: nanoseconds(self.started),
            resident: process_kib() << 10,
            volumes_loaded: self.volumes.loaded_count() as u64,
        };
        sheet.push([""; 0], figures);
        sheet
    }

    fn callbacks(&self) -> Sheet<CallbackFigures> {
        let mut sheet = Sheet::new(Table::Callbacks.labels());
        if let Some(server) = self.file_server.get().and_then(Weak::upgrade) {
            sheet.push([Role::Fs.instance()], callback_figures(&server));
        }
        sheet
    }

    fn partitions(&self) -> Sheet<PartitionFigures> {
        let mut sheet = Sheet::new(Table::Partitions.labels());
        let ids: Vec<PartitionId> = self.meters.read().iter().map(|(id, _)| *id).collect();
        for id in ids.into_iter().filter(|id| !self.is_elsewhere(*id)) {
            sheet.push([id.to_string()], self.partition_figures(id));
        }
        sheet
    }

    fn is_node(&self) -> bool {
        self.node.get().is_some()
    }

    fn cluster(&self) -> Sheet<ClusterFigures> {
        let own = self.node().map(|(node, calls)| node.cluster(calls.as_deref()));
        own.unwrap_or_else(|| Sheet::new(Table::Cluster.labels()))
    }

    fn nodes(&self) -> Sheet<NodeFigures> {
        let Some((node, calls)) = self.node() else { return Sheet::new(Table::Nodes.labels()) };
        let port = self.ports.lock().iter().find(|(name, _)| *name == CLUSTER_PORT).cloned();
        let peers = port.and_then(|(_, server)| server.upgrade()).map(|server| server.peers().0);
        node.nodes(calls.as_deref(), &peers.unwrap_or_default())
    }

    fn takeovers(&self) -> Sheet<TakeoverFigures> {
        self.node().map_or_else(|| Sheet::new(Table::Takeovers.labels()), |(node, _)| node.takeovers())
    }
}

fn callback_figures(server: &FileServer) -> CallbackFigures {
    let counters = server.callback_counters();
    CallbackFigures {
        hosts: counters.hosts,
        hosts_down: counters.hosts_down,
        promises: counters.promises,
        limit: counters.promises_max,
        delivered: counters.breaks_delivered,
        unanswered: counters.breaks_failed,
        evictions: counters.cleared_asking_host + counters.cleared_idle_host,
        shared_uuids: counters.uuids_shared,
    }
}

fn cache_counts(of: CacheStatistics) -> CacheCounts {
    CacheCounts {
        entries: of.entries,
        held: of.bytes,
        held_max: of.peak_bytes,
        limit: of.limit_bytes,
        hits: of.hits,
        misses: of.misses,
        evictions: of.evictions,
        purged: of.purged,
        recycle_age: of.recycle_age_ms.saturating_mul(1_000_000),
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn lane_figures(lane: &LaneStatistics, endpoint: &rx_proto::Statistics) -> LaneFigures {
    LaneFigures {
        received_datagrams: lane.datagrams_received,
        received: lane.bytes_received,
        receive_batches: lane.receive_batches,
        kernel_drops: lane.kernel_drops,
        handed_over: lane.handed_over,
        handover_drops: lane.handover_drops,
        sent_datagrams: lane.datagrams_sent,
        sent: lane.bytes_sent,
        send_batches: lane.send_batches,
        send_waits: lane.send_waits,
        send_errors: lane.send_errors,
        wakeups: lane.wakeups,
        idle: lane.idle_ns,
        data_received: endpoint.data_received,
        data_duplicates: endpoint.data_duplicates,
        data_sent: endpoint.data_sent,
        data_resent: endpoint.data_resent,
        timeouts: endpoint.timeouts,
        bad_packets: endpoint.malformed + endpoint.spurious + lane.truncated,
        calls_refused: endpoint.calls_refused,
        round_trips: endpoint.rtt_samples,
        round_trip: nanoseconds(endpoint.rtt_total),
        round_trip_max: nanoseconds(endpoint.rtt_max),
        connections: endpoint.connections_now,
        calls_present: endpoint.calls_now,
        peers: endpoint.peers_now,
        faults: lane.faults,
    }
}

fn peer_counters(counters: &PeerCounters) -> PeerFigures {
    PeerFigures {
        opened: counters.connections,
        received_packets: counters.received,
        received: counters.bytes_received,
        data_sent: counters.sent,
        data_resent: counters.resent,
        stalls: counters.stalls,
        sent: counters.bytes_sent,
        round_trips: round_trips(&counters.round_trips),
        ..PeerFigures::default()
    }
}

/// A bucket's limit is a power of two, exclusive, so its longest time is a nanosecond less.
fn round_trips(counted: &RoundTrips) -> Histogram {
    let counts = (0..).zip(counted.counts).filter(|(_, count)| *count > 0);
    let longest = |power: u32| (1000 << power) - 1;
    let max = counts.clone().last().map_or(0, |(power, _)| longest(power));
    let buckets = counts.map(|(power, count)| (bucket_of(longest(power)), u64::from(count)));
    Histogram::from_buckets(nanoseconds(counted.total), max, buckets)
}

pub(crate) fn peer_figures(peer: &PeerReport) -> PeerFigures {
    PeerFigures {
        connections: peer.connections as u64,
        round_trip: nanoseconds(peer.rtt),
        variation: nanoseconds(peer.rtt_variation),
        timeout: nanoseconds(peer.timeout),
        window: peer.window_packets.into(),
        congestion_window: peer.congestion_window_packets.into(),
        packet: peer.packet_bytes as u64,
        ..peer_counters(&peer.counters)
    }
}

fn worker_figures(statistics: &ServerStatistics) -> WorkerFigures {
    WorkerFigures {
        threads: statistics.worker_threads as u64,
        limit: statistics.workers_limit as u64,
        busy: statistics.busy_workers as u64,
        full: statistics.workers_full.into(),
        waiting: statistics.waiting_calls as u64,
        arrived: statistics.calls.arrived,
        refused: statistics.calls.refused_busy,
        panicked: statistics.calls.panicked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::handle;
    use std::sync::atomic::Ordering::Relaxed;
    use store::{MemoryEngine, Partition, PartitionConfig};
    use volume::{Permit, VolumeOptions};

    #[derive(Default)]
    struct Lease(AtomicBool);

    impl Permit for Lease {
        fn may_answer(&self) -> bool {
            self.0.load(Relaxed)
        }

        fn may_change(&self) -> bool {
            self.may_answer()
        }

        fn has_ended(&self) -> bool {
            false
        }
    }

    #[test]
    fn figures_are_those_read_last_while_a_bucket_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Arc::new(MemoryEngine::new());
        let config = PartitionConfig { engine, maintenance: None, ..PartitionConfig::default() };
        let partition = Arc::new(Partition::open(folder.path(), &config).unwrap());
        let id = PartitionId::from_index(1).unwrap();
        let volumes = Volumes::open(vec![handle(id, &partition)], VolumeOptions::default()).unwrap();
        let (volumes, lease) = (Arc::new(volumes), Arc::<Lease>::default());
        volumes.limit(id, lease.clone()).unwrap();
        let observatory = Observatory::new(Vec::new(), &volumes, None, None);
        let condition = Condition { damaged: 3, ..Condition::default() };
        observatory.known.lock().insert(id, Known { condition, ..Known::default() });
        assert_eq!(observatory.partition_figures(id).damaged, 3);
        lease.0.store(true, Relaxed);
        assert_eq!(observatory.partition_figures(id).damaged, 0, "it is read again");
        lease.0.store(false, Relaxed);
        assert_eq!(observatory.partition_figures(id).damaged, 0);
    }

    #[test]
    fn round_trips_of_peers_have_percentiles() {
        let mut counted = RoundTrips { total: Duration::from_micros(1900), ..RoundTrips::default() };
        (counted.counts[0], counted.counts[3], counted.counts[10]) = (7, 2, 1);
        let reported = round_trips(&counted);
        assert_eq!((reported.count(), reported.sum()), (10, 1_900_000));
        let [half, most] = [500, 1000].map(|permille| reported.quantile(permille));
        assert!((999..1125).contains(&half) && most == 1_023_999, "{half} {most}");
        assert_eq!(round_trips(&RoundTrips::default()), Histogram::default());
    }
}
