//! A running server.

use crate::buckets::Held;
use crate::cell_keys::CellKeys;
use crate::cluster::Node;
use crate::environment::Callbacks;
use crate::log::EventLog;
use crate::metrics::Metrics;
use crate::sockets::{Progress, Watchdog};
use crate::threads::{thread, wait};
use crate::volume_servers::VolumeServers;
use crate::web::Page;
use anyhow::{Context, Result};
use audit::Trail;
use cell_client::CellClient;
use cellar_config::{PartitionSettings, Settings};
use observe::Recorder;
use parking_lot::Mutex;
use rx::{KeptSocket, Server};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::Database;
use volume::Volumes;

/// Interval at which the cell's databases are checked for failure.
const DATABASES_PERIOD: Duration = Duration::from_secs(1);

/// Interval at which the ownership of partitions in buckets is checked.
const OWNERSHIP_PERIOD: Duration = Duration::from_secs(1);

/// Time limit for active calls when a server or an address goes. New calls wait meanwhile for the next process or node, and
/// Linux gives up a call after 20 seconds of silence.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Interval at which [`drain`] checks.
const DRAIN_LOOK: Duration = Duration::from_millis(2);

/// The open partitions; those in buckets may be added while the server runs.
pub(crate) type Partitions = Arc<Mutex<Vec<Held>>>;

/// A running server. Dropping it stops it; [`Running::stop`] also reports errors.
pub struct Running {
    pub(crate) metrics: Option<Metrics>,
    pub(crate) page: Option<Page>,
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) recorder: Arc<Recorder>,
    /// Connections from the ports to other hosts, which keep the ports' services alive.
    pub(crate) ways: (Arc<Callbacks>, Arc<VolumeServers>),
    pub(crate) background: Vec<JoinHandle<()>>,
    pub(crate) ending: Arc<AtomicBool>,
    pub(crate) trail: Option<Arc<Trail>>,
    pub(crate) keys: (Arc<CellKeys>, Arc<CellClient>),
    /// Dropped last of the threads, when there are no more events.
    pub(crate) event_log: Option<EventLog>,
    pub(crate) volumes: Arc<Volumes>,
    // Kept as long as their stores are used; dropped last.
    pub(crate) partitions: Partitions,
    pub(crate) databases: Option<Arc<Database>>,
    /// The port of the cluster's service, if there is a node.
    pub(crate) cluster_port: Option<u16>,
    /// The node of a cluster, which leaves when all partitions were given up.
    pub(crate) node: Option<Leaving>,
}

/// A node that leaves when this is dropped, also if a thread that has not ended yet still holds the node. Then the audit ends, which
/// has the partitions that were given up before.
pub(crate) struct Leaving {
    pub(crate) node: Arc<Node>,
    pub(crate) trail: Option<Arc<Trail>>,
}

impl Deref for Leaving {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.node.leave();
        self.node.end_audit();
        self.trail.iter().for_each(|trail| trail.stop());
    }
}

impl Running {
    /// Returns the address of the metrics port, if enabled.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Metrics::address)
    }

    /// Returns the address of the web page, if enabled.
    pub fn page_address(&self) -> Option<SocketAddr> {
        self.page.as_ref().map(Page::address)
    }

    /// Returns the recorder of calls, which can be switched to measure the cost of counting.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Returns the audit, if configured.
    pub fn trail(&self) -> Option<&Trail> {
        self.trail.as_deref()
    }

    /// Returns the number of calls on all ports that Rx has completed since the start, even if counting is
    /// off.
    pub fn calls_ended(&self) -> u64 {
        let endpoints = self.servers.iter().flat_map(|server| server.statistics().endpoints);
        endpoints.map(|endpoint| endpoint.calls_ended).sum()
    }

    /// Calls `failed` with the error once the cell's databases accept no more writes.
    pub(crate) fn watch_databases(&mut self, failed: impl FnOnce(String) + Send + 'static) {
        let Some(databases) = self.databases.clone() else { return };
        let ending = self.ending.clone();
        self.background.push(thread("databases", move || {
            while wait(&ending, DATABASES_PERIOD) {
                if let Some(error) = databases.failure() {
                    return failed(error);
                }
            }
        }));
    }

    /// Calls `lost` with the reason once a partition in a bucket is lost, if this server has no partition on a local
    /// disk: it is of no use then until it is started again, and must not announce its addresses for the other's UUID. A node
    /// of a cluster goes on.
    pub(crate) fn watch_ownership(
        &mut self,
        settings: &Settings,
        lost: impl FnOnce(String) + Send + 'static,
    ) {
        let is_local = |partition: &PartitionSettings| partition.place.folder().is_some();
        let has_buckets = settings.partitions.iter().any(|partition| !is_local(partition));
        if !has_buckets || self.node.is_some() || settings.partitions.iter().any(is_local) {
            return;
        }
        let (ending, partitions) = (self.ending.clone(), self.partitions.clone());
        self.background.push(thread("ownership", move || {
            while wait(&ending, OWNERSHIP_PERIOD) {
                let gone = partitions.lock().iter().find_map(|held| Some((held.id, held.loss()?)));
                if let Some((id, why)) = gone {
                    return lost(format!("the partition {id} was lost: {why}"));
                }
            }
        }));
    }

    /// Notifies the service manager's watchdog for as long as the threads of all lanes make progress.
    pub(crate) fn feed(&mut self, watchdog: Watchdog) {
        let (servers, ending) = (self.servers.clone(), self.ending.clone());
        self.background.push(thread("watchdog", move || {
            let (start, mut progress) = (Instant::now(), Progress::default());
            while wait(&ending, watchdog.period()) {
                // Takes the locks of all lanes: waits like everything else for one that is never released.
                let lanes = servers.iter().flat_map(|server| server.statistics().lanes);
                let stuck =
                    progress.stuck(lanes.map(|lane| lane.wakeups + lane.receive_batches), start.elapsed());
                if stuck.is_empty() {
                    watchdog.feed();
                } else {
                    tracing::error!(lanes = ?stuck, "receiving threads make no progress; the watchdog is not fed");
                }
            }
        }));
    }

    /// Reopens the audit files, which may have been renamed, and reads the cell's keys if their files have
    /// changed.
    pub fn reopen(&self) {
        self.keys.0.look(&self.keys.1);
        self.trail.iter().for_each(|trail| trail.reopen());
    }

    /// Returns descriptors of the sockets of all ports, for a successor process.
    pub fn sockets(&self) -> Result<Vec<KeptSocket>> {
        let mut all = Vec::new();
        for server in &self.servers {
            all.extend(server.sockets().context("cannot duplicate the sockets")?);
        }
        Ok(all)
    }

    /// Ends all calls and threads and makes everything durable.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        self.volumes.sync().context("cannot make the last changes durable")
    }

    pub(crate) fn end(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.ending();
        }
        // The calls of clients end here, in a cluster as long as their replies can leave from the service addresses. Clients
        // retransmit new ones until the next process or another node answers. The cluster's port goes on: other nodes' calls
        // end with the partitions.
        let is_of_nodes = |server: &Server| {
            server.addresses().iter().any(|address| Some(address.port()) == self.cluster_port)
        };
        let of_clients: Vec<_> = self.servers.iter().filter(|server| !is_of_nodes(server)).cloned().collect();
        drain(&of_clients);
        self.node.iter().for_each(|node| node.withdraw());
        self.ending.store(true, Ordering::Relaxed);
        self.trail.iter().for_each(|trail| trail.ending());
        stop(std::mem::take(&mut self.servers));
        for thread in self.background.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
        self.ways.0.way.close();
        self.ways.1.way.close();
        self.node.iter().for_each(|node| node.way.close());
        if self.node.is_none() {
            self.trail.iter().for_each(|trail| trail.stop());
        }
        self.event_log.take();
    }
}

/// Stops ports at once, since each waits for its clients.
fn stop(servers: Vec<Arc<Server>>) {
    std::thread::scope(|scope| {
        for server in servers {
            let stopping = Arc::clone(&server);
            let begun = std::thread::Builder::new().spawn_scoped(scope, move || stopping.stop());
            if begun.is_err() {
                server.stop();
            }
        }
    });
}

/// Drops packets that would begin new calls, and waits a few seconds for active ones.
fn drain(servers: &[Arc<Server>]) {
    for server in servers {
        server.hold_new_calls();
    }
    let end = Instant::now() + DRAIN_MAX;
    while Instant::now() < end && !servers.iter().all(|server| server.is_idle()) {
        std::thread::sleep(DRAIN_LOOK);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
