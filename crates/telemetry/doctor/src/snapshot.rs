//! The input of rules.

use crate::cell::Cell;
use crate::slow::SlowCall;
use events::catalogue::{
    AuditFigures, BucketFigures, CacheCounts, CallFigures, CallbackFigures, ClusterFigures, DiskFigures,
    LaneFigures, LockFigures, NodeFigures, PartitionFigures, ProcessFigures, RefusalFigures, TakeoverFigures,
    UsageFigures, WorkerFigures,
};
use events::table::{self, Look};
use std::collections::BTreeMap;

/// Labels of a row.
pub type Labels = Vec<String>;

/// All tables of a Cellar server at one moment, with the labels that `cellar stat` shows. Tables that the
/// server did not send are empty.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By service and procedure.
    pub calls: Look<Labels, CallFigures>,
    /// By volume id and name.
    pub volumes: Look<Labels, UsageFigures>,
    /// By host and user.
    pub clients: Look<Labels, UsageFigures>,
    /// By partition and kind of access.
    pub disks: Look<Labels, DiskFigures>,
    /// By partition and kind of request.
    pub buckets: Look<Labels, BucketFigures>,
    /// By port and lane number.
    pub lanes: Look<Labels, LaneFigures>,
    /// By port.
    pub workers: Look<Labels, WorkerFigures>,
    /// By name.
    pub caches: Look<Labels, CacheCounts>,
    /// By sink.
    pub audit: Look<Labels, AuditFigures>,
    /// By reason.
    pub refusals: Look<Labels, RefusalFigures>,
    /// By name.
    pub locks: Look<Labels, LockFigures>,
    /// By port.
    pub callbacks: Look<Labels, CallbackFigures>,
    /// By name.
    pub partitions: Look<Labels, PartitionFigures>,
    /// The node of a cluster, if the server is one.
    pub own_node: Look<Labels, ClusterFigures>,
    /// By node and address.
    pub nodes: Look<Labels, NodeFigures>,
    /// By partition, epoch, cause and other node.
    pub takeovers: Look<Labels, TakeoverFigures>,
    /// The process, if reported.
    pub process: ProcessFigures,
    /// The file server's port, if reported.
    pub transport: Option<Transport>,
}

/// The file server's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Requested size of each socket's receive buffer.
    pub buffer_wanted_kib: u64,
    /// Size that the system granted.
    pub buffer_kib: u64,
    /// Datagrams dropped by the kernel at these sockets since the start.
    pub dropped: u64,
    /// Datagrams dropped at all sockets of the server's machine, or of its network namespace.
    pub machine_dropped: u64,
}

/// Settings of the server that rules refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `rx.lanes`.
    pub lanes: usize,
    /// `rx.workers`.
    pub workers: usize,
    /// `fairness.user_percent`.
    pub user_percent: u8,
}

/// Activity of the machine between the two samples, if the server runs on the same machine as this program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Number of processors.
    pub processors: usize,
    /// `net.core.rmem_max`.
    pub rmem_max_bytes: u64,
    /// Total time of all processors in clock ticks.
    pub ticks: u64,
    /// Ticks of these in which a processor was busy.
    pub busy_ticks: u64,
    /// Ticks of these that the hypervisor gave to other machines.
    pub stolen_ticks: u64,
    /// Datagrams dropped at all sockets for lack of buffer space.
    pub udp_drops: u64,
}

/// A server's clock compared with the local one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Name of the server.
    pub server: String,
    /// How far it is ahead, in milliseconds.
    pub ahead_ms: i64,
    /// Maximum error of that, in milliseconds.
    pub error_ms: u64,
}

/// Problems with the server's entry in the location database; each item names the addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// Addresses of the server that are in another server's entry.
    pub taken: Vec<String>,
    /// Other servers with the server's UUID.
    pub copied: Vec<String>,
    /// Addresses not registered for lack of space.
    pub left_out: Vec<String>,
    /// Addresses of running nodes of the cluster that are not in the server's entry.
    pub absent: Vec<String>,
}

/// A cluster of servers, as its bucket has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The partitions.
    pub partitions: Vec<SharedPartition>,
}

/// A node of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether its lease says that it runs.
    pub is_member: bool,
    /// Whether it was seen to renew its lease.
    pub renews: bool,
    /// When another node found it dead, as text by the bucket's clock; `None` if it is not dead.
    pub dead_since: Option<String>,
    /// Name and version of its program; `None` if its file server did not answer.
    pub version: Option<String>,
}

/// A partition of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedPartition {
    /// Its name.
    pub name: String,
    /// Its state in words, as in `cellar cluster status`.
    pub state: String,
    /// The node that owns it and renews its lease.
    pub owner: Option<String>,
}

/// An unfinished job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Job number.
    pub id: u32,
    /// Description of the job.
    pub title: String,
    /// Latest event, or what blocks the job.
    pub latest: String,
    /// Seconds since the latest event.
    pub silent_seconds: u64,
}

/// State of a port with rxdebug's protocol at the second sample, and what changed since the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Name for display.
    pub name: String,
    /// Calls waiting for a thread: the minimum of both samples.
    pub waiting: u32,
    /// Calls that started to wait for a thread between the samples.
    pub waited: u32,
    /// Idle threads: the maximum of both samples.
    pub idle_threads: u32,
    /// Free packet buffers: the maximum of both samples.
    pub free_packets: u32,
    /// Total number of packet buffers.
    pub packets: u32,
    /// Whether calls waited for packet buffers in a sample.
    pub is_waiting_for_packets: bool,
    /// Increase of counters between the samples, by their names in `cellar stat rx`.
    pub counters: BTreeMap<&'static str, u64>,
}

/// A kind of call in the extended statistics: what happened between the samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Name of the kind.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Total time in microseconds.
    pub time_us: u64,
}

/// Two samples of a server.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Seconds between the samples.
    pub seconds: f64,
    /// The first sample.
    pub before: Figures,
    /// The second sample.
    pub now: Figures,
    /// Slow calls of the last minutes.
    pub slow: Vec<SlowCall>,
    /// Settings, if known.
    pub settings: Option<Settings>,
    /// The machine, if it is the local one.
    pub machine: Option<Machine>,
    /// Clocks of the cell's servers.
    pub clocks: Vec<Clock>,
    /// The server's entry in the location database.
    pub registration: Registration,
    /// Unfinished jobs.
    pub jobs: Vec<Job>,
    /// The cluster, if the server is a node of one and its bucket could be read.
    pub cluster: Option<Cluster>,
    /// The cell's location database and volumes, if they could be compared.
    pub cell: Option<Cell>,
    /// Ports of a server other than Cellar.
    pub ports: Vec<Port>,
    /// Increase of its extended statistics between the samples, by their names in `cellar stat xstat`.
    pub extended: BTreeMap<String, i64>,
    /// Its kinds of calls.
    pub operations: Vec<Operation>,
}

/// Defines methods that return the change of a table between the two samples.
macro_rules! news {
    ($($(#[$doc:meta])* $name:ident: $figures:ty,)+) => {
        impl Snapshot {
            $($(#[$doc])* pub(crate) fn $name(&self) -> Look<Labels, $figures> {
                table::since(&self.now.$name, &self.before.$name)
            })+
        }
    };
}

news! {
    /// Returns the change of the calls.
    calls: CallFigures,
    /// Returns the change of the volumes.
    volumes: UsageFigures,
    /// Returns the change of the clients.
    clients: UsageFigures,
    /// Returns the change of the disks.
    disks: DiskFigures,
    /// Returns the change of the requests to buckets.
    buckets: BucketFigures,
    /// Returns the change of the lanes.
    lanes: LaneFigures,
    /// Returns the change of the workers.
    workers: WorkerFigures,
    /// Returns the change of the caches.
    caches: CacheCounts,
    /// Returns the change of the audit's sinks.
    audit: AuditFigures,
    /// Returns the change of the locks.
    locks: LockFigures,
    /// Returns the change of the callbacks.
    callbacks: CallbackFigures,
    /// Returns the change of the node.
    own_node: ClusterFigures,
    /// Returns the change of the traffic with other nodes.
    nodes: NodeFigures,
}

impl Snapshot {
    /// Returns the nanoseconds between the samples; never 0.
    pub(crate) fn span_ns(&self) -> u64 {
        #[allow(clippy::cast_sign_loss, reason = "clamped")]
        let ns = (self.seconds.max(0.001) * 1e9) as u64;
        ns
    }

    /// Formats a count as a rate per second.
    pub(crate) fn rate(&self, count: u64) -> String {
        #[allow(clippy::cast_precision_loss, reason = "people read three digits")]
        let rate = count as f64 / self.seconds.max(0.001);
        if rate >= 10.0 { format!("{rate:.0}/s") } else { format!("{rate:.1}/s") }
    }

    /// Returns `ns` as a percentage of the time between the samples: 250 is two and a half times.
    pub(crate) fn percent_of_span(&self, ns: u64) -> u64 {
        (u128::from(ns) * 100 / u128::from(self.span_ns())) as u64
    }

    /// Returns slow calls with this dominant cause.
    pub(crate) fn slow_for(&self, cause: &str) -> impl Iterator<Item = &SlowCall> {
        self.slow.iter().filter(move |call| call.cause == cause)
    }

    /// Returns the sum of a table.
    pub(crate) fn total<F: events::Figures>(look: &Look<Labels, F>) -> F {
        let mut total = look.1.clone();
        look.0.iter().for_each(|(_, row)| total.add(row));
        total
    }
}
