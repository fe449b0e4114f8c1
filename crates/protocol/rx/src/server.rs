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

/// Maximum number of lanes by default: one lane moves some 10 Gbit/s.
const DEFAULT_LANES_MAX: usize = 4;

/// How long a stopping server waits for clients to acknowledge their replies.
const DELIVERY_MAX: Duration = Duration::from_secs(2);

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Short name for threads and messages.
    pub name: String,
    /// Addresses to listen on; by default all IPv4 addresses.
    pub addresses: Vec<IpAddr>,
    /// Port to listen on; 0 selects a free one.
    pub port: u16,
    /// Number of threads and sockets that share the port, 1 to 64. All traffic with one peer port uses the
    /// same lane.
    pub lanes: usize,
    /// Number of worker threads that are always running.
    pub workers_min: usize,
    /// Maximum number of worker threads, and so of calls served at a time.
    pub workers_max: usize,
    /// Amount added to a worker's nice value while it moves bulk data, if the system permits lowering it
    /// again; 0 disables this.
    pub bulk_nice: i32,
    /// How users and volumes share the workers.
    pub fairness: Fairness,
    /// Socket buffers and offloads.
    pub socket: SocketOptions,
    /// Protocol configuration.
    pub endpoint: EndpointConfig,
    /// Sockets of a previous process. Those of the configured addresses and port are used instead of new
    /// ones, whatever their number: lanes share sockets if there are too few, and read several if there are
    /// too many.
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

/// A service and its configuration.
#[derive(Clone)]
pub struct ServiceEntry {
    /// Service id and accepted security classes.
    pub config: ServiceConfig,
    /// Implementation of the service.
    pub service: Arc<dyn Service>,
}

/// A server whose port is bound and which receives nothing yet. What clients send meanwhile waits in the sockets.
/// Dropping it gives the port up.
pub struct BoundServer {
    server: Server,
    name: String,
}

impl BoundServer {
    /// Returns a connector. Calls through it are answered once the server [serves](BoundServer::serve).
    pub fn connector(&self) -> Connector {
        self.server.connector()
    }

    /// Starts serving.
    ///
    /// # Errors
    /// The system may refuse to start threads.
    pub fn serve(self) -> io::Result<Server> {
        self.server.lanes.start(&self.name)?;
        Ok(self.server)
    }
}

/// A running server. Dropping it stops it.
pub struct Server {
    lanes: Arc<Lanes>,
    workers: Arc<WorkerPool>,
}

impl Server {
    /// Binds the port and starts serving.
    ///
    /// # Errors
    /// Errors of the system calls, for example that the port is in use.
    pub fn start(config: &ServerConfig, services: Vec<ServiceEntry>) -> io::Result<Server> {
        Server::bind(config, services)?.serve()
    }

    /// Binds the port. Services that make calls from it can be given its connector before the first call is served: one
    /// may already wait in an inherited socket.
    ///
    /// # Errors
    /// Errors of the system calls, for example that the port is in use.
    pub fn bind(config: &ServerConfig, services: Vec<ServiceEntry>) -> io::Result<BoundServer> {
        let configs: Vec<ServiceConfig> = services.iter().map(|entry| entry.config.clone()).collect();
        let services: BTreeMap<u16, Arc<dyn Service>> =
            services.into_iter().map(|entry| (entry.config.id, entry.service)).collect();
        let priority = Priority::new(config.bulk_nice);
        let workers = WorkerPool::new(&config.name, services, worker_limits(config), priority);
        let arrivals: Arc<dyn Arrivals> = Arc::clone(&workers) as Arc<dyn Arrivals>;
        let lanes = Lanes::bind(&lanes_config(config, &configs), &arrivals)?;
        workers.start(&lanes);
        Ok(BoundServer { server: Server { lanes, workers }, name: config.name.clone() })
    }

    /// Returns the bound addresses with the port.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.lanes.addresses()
    }

    /// Returns a connection from this server's port to another service, as for callbacks; `security` of
    /// `None` is the null security class.
    pub fn connect(
        &self,
        peer: SocketAddr,
        service_id: u16,
        security: Option<Arc<dyn ClientSecurity>>,
    ) -> Arc<dyn ClientConnection> {
        self.connector().connect(peer, service_id, security)
    }

    /// Returns a connector, which makes connections without access to the server.
    pub fn connector(&self) -> Connector {
        Connector::new(Arc::clone(&self.lanes))
    }

    /// Duplicates all sockets for the process that replaces this one. Until all duplicates are closed, the
    /// kernel keeps the datagrams that arrive for the port.
    ///
    /// # Errors
    /// The process may have reached its limit on open files.
    pub fn sockets(&self) -> io::Result<Vec<KeptSocket>> {
        self.lanes.to_keep()
    }

    /// Leaves new calls to the process that replaces this one: their packets are dropped without an answer,
    /// and clients retransmit them.
    pub fn hold_new_calls(&self) {
        self.lanes.hold_new_calls();
    }

    /// Leaves new calls at the address `local` to the host that is about to have it, like
    /// [`hold_new_calls`](Server::hold_new_calls), until [`succeed`](Server::succeed) is called.
    pub fn hold_new_calls_at(&self, local: IpAddr) {
        self.lanes.hold_new_calls_at(local);
    }

    /// Reports that this host has the address `local` now, which another one has had: new calls are accepted there, and
    /// calls that clients still wait for are ended with `RX_RESTARTING`, so that clients repeat them.
    pub fn succeed(&self, local: IpAddr) {
        self.lanes.succeed(local);
    }

    /// Returns the number of clients' calls at the address `local` that have not ended: whose reply the client has not
    /// acknowledged, or which their service has not left. Each lane is blocked while its calls are counted.
    pub fn calls_at(&self, local: IpAddr) -> usize {
        self.lanes.calls_at(local)
    }

    /// Whether no call is waiting, being served, or to be [concluded later](crate::ServerCall::conclude_later).
    pub fn is_idle(&self) -> bool {
        self.workers.busy() == 0 && self.workers.queue_load().waiting == 0 && !self.lanes.is_serving()
    }

    /// Returns the server's statistics.
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

    /// Returns the remembered peers, and the sums of the forgotten ones. Each lane is blocked while its peers
    /// are copied.
    pub fn peers(&self) -> (Vec<PeerReport>, PeerCounters) {
        self.lanes.peers()
    }

    /// Ends outgoing calls, calls that wait for a worker, and those whose service waits for the client, with `RX_RESTARTING`.
    /// Waits until the services have returned and, for at most two seconds, until their calls have ended, also those that
    /// are [concluded later](crate::ServerCall::conclude_later), and clients have acknowledged the replies; then ends all
    /// threads. A service that neither uses its call nor returns blocks this.
    pub fn stop(&self) {
        self.workers.close();
        self.lanes.refuse(AbortCode::RX_RESTARTING);
        self.workers.join();
        self.lanes.deliver(DELIVERY_MAX);
        self.lanes.abort_left(AbortCode::RX_RESTARTING);
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
