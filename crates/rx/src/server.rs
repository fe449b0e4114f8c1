//! A server: lanes on one port, and the workers behind them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afs_idl::ClientConnection;
use base::AbortCode;
use rx_proto::{EndpointConfig, PeerCounters, PeerReport, ServiceConfig};
use rx_security::ClientSecurity;

use crate::connector::Connector;
use crate::fairness::Fairness;
use crate::inherited::{Inherited, KeptSocket};
use crate::lane::Arrivals;
use crate::lanes::{Lanes, LanesConfig};
use crate::priority::Priority;
use crate::server_call::Service;
use crate::socket::SocketOptions;
use crate::statistics::ServerStatistics;
use crate::workers::{WorkerLimits, WorkerPool};

/// Lanes by default, at most: one lane moves some 10 Gbit/s.
const DEFAULT_LANES_MAX: usize = 4;

/// How long a server that stops waits for clients to acknowledge their replies.
const DELIVERY_MAX: Duration = Duration::from_secs(2);

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// For thread names and messages; short.
    pub name: String,
    /// Addresses to listen at; by default all of IPv4.
    pub addresses: Vec<IpAddr>,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// Threads and sockets that share the port, 1 to 64. All traffic with one peer port goes
    /// through one lane.
    pub lanes: usize,
    /// Worker threads that are always there.
    pub workers_min: usize,
    /// Worker threads at most: calls served at a time.
    pub workers_max: usize,
    /// By how much the nice value of a worker is above the program's while it moves bulk data, where the system lets
    /// it have its own back; 0 leaves all as they are.
    pub bulk_nice: i32,
    /// How users and volumes share them.
    pub fairness: Fairness,
    /// Socket buffers and offloads.
    pub socket: SocketOptions,
    /// Protocol behaviour.
    pub endpoint: EndpointConfig,
    /// Sockets that another process left. Those of the addresses and the port are used in place of new ones, whatever
    /// their number: lanes share sockets if there are too few, and read more than one if there are too many.
    pub inherited: Arc<Inherited>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        ServerConfig {
            name: String::from("rx"),
            addresses: vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
            port: 0,
            lanes: cores.min(DEFAULT_LANES_MAX),
            workers_min: 16,
            workers_max: 128,
            bulk_nice: 0,
            fairness: Fairness::default(),
            socket: SocketOptions::default(),
            endpoint: EndpointConfig::default(),
            inherited: Arc::default(),
        }
    }
}

/// A service and how it is reached.
#[derive(Clone)]
pub struct ServiceEntry {
    /// Service id and the security classes that are accepted.
    pub config: ServiceConfig,
    /// Who answers.
    pub service: Arc<dyn Service>,
}

/// A running server. Dropped, it is stopped.
pub struct Server {
    lanes: Arc<Lanes>,
    workers: Arc<WorkerPool>,
}

impl Server {
    /// Binds the port and serves from then on.
    ///
    /// # Errors
    /// What the system said, e.g. that the port is in use.
    pub fn start(config: &ServerConfig, services: Vec<ServiceEntry>) -> io::Result<Server> {
        let configs: Vec<ServiceConfig> = services.iter().map(|entry| entry.config.clone()).collect();
        let services: BTreeMap<u16, Arc<dyn Service>> =
            services.into_iter().map(|entry| (entry.config.id, entry.service)).collect();
        let priority = Priority::new(config.bulk_nice);
        let workers = WorkerPool::new(&config.name, services, worker_limits(config), priority);
        let arrivals: Arc<dyn Arrivals> = Arc::clone(&workers) as Arc<dyn Arrivals>;
        let lanes = Lanes::bind(&lanes_config(config, &configs), &arrivals)?;
        workers.start(&lanes);
        let server = Server { lanes, workers };
        server.lanes.start(&config.name)?;
        Ok(server)
    }

    /// The addresses that are bound, with the port.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.lanes.addresses()
    }

    /// A connection to somebody's service from this server's port, as for callbacks; `None` is
    /// the null security class.
    pub fn connect(
        &self,
        peer: SocketAddr,
        service_id: u16,
        security: Option<Arc<dyn ClientSecurity>>,
    ) -> Arc<dyn ClientConnection> {
        self.connector().connect(peer, service_id, security)
    }

    /// For making connections elsewhere than where the server is at hand.
    pub fn connector(&self) -> Connector {
        Connector::new(Arc::clone(&self.lanes))
    }

    /// Other descriptors of all sockets, for the process that comes after this one. Until all are closed, the kernel
    /// keeps what arrives for the port.
    ///
    /// # Errors
    /// There may not be so many open files.
    pub fn sockets(&self) -> io::Result<Vec<KeptSocket>> {
        self.lanes.to_keep()
    }

    /// Leaves new calls to the process that comes after this one: what would begin one is dropped without an answer,
    /// and clients repeat it.
    pub fn hold_new_calls(&self) {
        self.lanes.hold_new_calls();
    }

    /// Whether no call is served and none waits to be.
    pub fn is_idle(&self) -> bool {
        self.workers.busy() == 0 && self.workers.queue_load().waiting == 0
    }

    /// What has been counted.
    pub fn statistics(&self) -> ServerStatistics {
        let (receive_buffer_bytes, send_buffer_bytes) = self.lanes.all()[0].sockets()[0].buffer_bytes();
        let load = self.workers.queue_load();
        ServerStatistics {
            lanes: self.lanes.statistics(),
            endpoints: self.lanes.endpoint_statistics(),
            calls: self.workers.statistics(),
            waiting_calls: load.waiting,
            worker_threads: self.workers.threads(),
            workers_limit: load.limit,
            workers_full: load.is_full,
            busy_workers: self.workers.busy(),
            receive_buffer_bytes,
            send_buffer_bytes,
        }
    }

    /// The peers that are remembered, and what those did together that are forgotten. Each lane is held up
    /// while its peers are copied.
    pub fn peers(&self) -> (Vec<PeerReport>, PeerCounters) {
        self.lanes.peers()
    }

    /// Ends all calls, ours to others too, with `RX_RESTARTING`, waits until the services have
    /// returned and, for at most two seconds, until clients have the replies of calls that were
    /// served, and ends all threads. A service that neither touches its call nor returns keeps this
    /// waiting.
    pub fn stop(&self) {
        self.workers.close();
        self.lanes.refuse(AbortCode::RX_RESTARTING);
        self.workers.join();
        self.lanes.deliver(DELIVERY_MAX);
        self.lanes.stop();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn worker_limits(config: &ServerConfig) -> WorkerLimits {
    WorkerLimits {
        threads_min: config.workers_min.max(1),
        threads_max: config.workers_max.max(config.workers_min).max(1),
        fairness: config.fairness.clone(),
    }
}

fn lanes_config<'a>(config: &'a ServerConfig, services: &'a [ServiceConfig]) -> LanesConfig<'a> {
    LanesConfig {
        name: &config.name,
        addresses: &config.addresses,
        port: config.port,
        lanes: config.lanes,
        socket: &config.socket,
        endpoint: &config.endpoint,
        services,
        inherited: &config.inherited,
    }
}
