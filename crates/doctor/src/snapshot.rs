//! What rules look at.

use crate::cell::Cell;
use crate::slow::SlowCall;
use events::catalogue::{
    AuditFigures, CacheCounts, CallFigures, CallbackFigures, DiskFigures, LaneFigures, LockFigures,
    PartitionFigures, ProcessFigures, RefusalFigures, UsageFigures, WorkerFigures,
};
use events::table::{self, Look};
use std::collections::BTreeMap;

/// What a row is about.
pub type Labels = Vec<String>;

/// All tables of a Cellar server at one moment, with the labels that `cellar stat` shows. Tables that the server
/// did not tell are empty.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By service and procedure.
    pub calls: Look<Labels, CallFigures>,
    /// By number and name.
    pub volumes: Look<Labels, UsageFigures>,
    /// By host and user.
    pub clients: Look<Labels, UsageFigures>,
    /// By partition and kind of access.
    pub disks: Look<Labels, DiskFigures>,
    /// By port and number.
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
    /// The process, if it told.
    pub process: ProcessFigures,
    /// The file server's port, if it told.
    pub transport: Option<Transport>,
}

/// The file server's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// The receive buffer of each socket that was asked for.
    pub buffer_wanted_kib: u64,
    /// What the system gave.
    pub buffer_kib: u64,
    /// Datagrams that the kernel dropped at these sockets since the start.
    pub dropped: u64,
    /// Likewise at all sockets of the server's machine, or of its network namespace.
    pub machine_dropped: u64,
}

/// Settings of the server, as far as rules name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `rx.lanes`.
    pub lanes: usize,
    /// `rx.workers`.
    pub workers: usize,
    /// `fairness.user_percent`.
    pub user_percent: u8,
}

/// The machine, if the server runs on the one that asks: what happened between the two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Processors.
    pub processors: usize,
    /// `net.core.rmem_max`.
    pub rmem_max_bytes: u64,
    /// Time of all processors together in clock ticks.
    pub ticks: u64,
    /// Of that, time in which they did something.
    pub busy_ticks: u64,
    /// Of that, time that the hypervisor gave to others.
    pub stolen_ticks: u64,
    /// Datagrams dropped for want of buffer, of all sockets.
    pub udp_drops: u64,
}

/// A server's clock beside that of who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Whose.
    pub server: String,
    /// How far it is ahead, in milliseconds.
    pub ahead_ms: i64,
    /// By how much that may be wrong.
    pub error_ms: u64,
}

/// What is wrong with the server's entry in the location database; each item names the addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// Addresses of the server that another server's entry has.
    pub taken: Vec<String>,
    /// Servers elsewhere with the server's UUID.
    pub copied: Vec<String>,
    /// Addresses that are not registered for want of room.
    pub left_out: Vec<String>,
}

/// A job that is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: u32,
    /// What it is.
    pub title: String,
    /// What happened last, or what is in its way.
    pub latest: String,
    /// Seconds since then.
    pub silent_seconds: u64,
}

/// What a port that speaks rxdebug's protocol told at the second look, and what came since the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Its name for people.
    pub name: String,
    /// Calls that waited for a thread at both looks, the fewer of both.
    pub waiting: u32,
    /// Calls that began to wait for a thread since.
    pub waited: u32,
    /// Threads that were idle, the more of both looks.
    pub idle_threads: u32,
    /// Packets that were free, the more of both looks.
    pub free_packets: u32,
    /// Packets that there are.
    pub packets: u32,
    /// Calls waited for packets at a look.
    pub is_waiting_for_packets: bool,
    /// Counters by the names of `cellar stat rx`: what came since.
    pub counters: BTreeMap<&'static str, u64>,
}

/// A kind of call in extended statistics: what came since the first look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Calls.
    pub calls: u64,
    /// Their time together in microseconds.
    pub time_us: u64,
}

/// Two looks at a server.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Seconds between them.
    pub seconds: f64,
    /// The first look.
    pub before: Figures,
    /// The second.
    pub now: Figures,
    /// Calls that took long, of the last minutes.
    pub slow: Vec<SlowCall>,
    /// Settings, if they are known.
    pub settings: Option<Settings>,
    /// The machine, if it is this one.
    pub machine: Option<Machine>,
    /// Clocks of the cell's servers.
    pub clocks: Vec<Clock>,
    /// The server's entry in the location database.
    pub registration: Registration,
    /// Jobs that are not over.
    pub jobs: Vec<Job>,
    /// The cell's location database and volumes, if they could be compared.
    pub cell: Option<Cell>,
    /// Ports of a server that is not Cellar's.
    pub ports: Vec<Port>,
    /// Its extended statistics: what came since the first look, by the names of `cellar stat xstat`.
    pub extended: BTreeMap<String, i64>,
    /// Likewise, of its kinds of calls.
    pub operations: Vec<Operation>,
}

/// A table of figures as it came between the two looks.
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
    /// Calls.
    calls: CallFigures,
    /// Volumes.
    volumes: UsageFigures,
    /// Clients.
    clients: UsageFigures,
    /// Disks.
    disks: DiskFigures,
    /// Lanes.
    lanes: LaneFigures,
    /// Workers.
    workers: WorkerFigures,
    /// Caches.
    caches: CacheCounts,
    /// Sinks of the audit.
    audit: AuditFigures,
    /// Locks.
    locks: LockFigures,
    /// Callbacks.
    callbacks: CallbackFigures,
}

impl Snapshot {
    /// Nanoseconds between the looks; not 0.
    pub(crate) fn span_ns(&self) -> u64 {
        #[allow(clippy::cast_sign_loss, reason = "clamped")]
        let ns = (self.seconds.max(0.001) * 1e9) as u64;
        ns
    }

    /// So many a second.
    pub(crate) fn rate(&self, count: u64) -> String {
        #[allow(clippy::cast_precision_loss, reason = "people read three digits")]
        let rate = count as f64 / self.seconds.max(0.001);
        if rate >= 10.0 { format!("{rate:.0}/s") } else { format!("{rate:.1}/s") }
    }

    /// How many nanoseconds are of the time between the looks, in percent: 250 is two and a half times.
    pub(crate) fn percent_of_span(&self, ns: u64) -> u64 {
        (u128::from(ns) * 100 / u128::from(self.span_ns())) as u64
    }

    /// Slow calls with this dominant cause.
    pub(crate) fn slow_for(&self, cause: &str) -> impl Iterator<Item = &SlowCall> {
        self.slow.iter().filter(move |call| call.cause == cause)
    }

    /// The sum of a table.
    pub(crate) fn total<F: events::Figures>(look: &Look<Labels, F>) -> F {
        let mut total = look.1.clone();
        look.0.iter().for_each(|(_, row)| total.add(row));
        total
    }
}
