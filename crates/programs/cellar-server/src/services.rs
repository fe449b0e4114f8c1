//! The services, and the ports they are served on.

use super::FaultInjection;
use super::admission::Admission;
use super::authority::Authority;
use super::cell_keys::CellKeys;
use super::cluster::{Calls, Databases, Node, Peers, is_transfer};
use super::destinations::Destinations;
use super::dispatcher::{DemandOf, Dispatch, Dispatcher, FastPath};
use super::environment::{Callbacks, SystemClock, process_kib, transport_figures};
use super::holdings::Holdings;
use super::locator::{LocalLocator, RemoteLocator};
use super::membership::RemoteMembership;
use super::neighbours::FileServers;
use super::observed::Observatory;
use super::overseer::ProcessOverseer;
use super::refusals::Refusals;
use super::registration::server_uuid;
use super::snapshots::CellSnapshots;
use super::tickets::ObservedRxkad;
use super::transport;
use super::volume_servers::VolumeServers;
use adminserver::{AdminServer, AdminServerParts, Below, DirectoryUsage};
use afs_idl::rxstats_off::RpcStatisticsOff;
use afs_idl::{CallStream, rxstats};
use anyhow::{Context, Result};
use audit::ServiceTrail;
use base::{AbortCode, CallContext, Fid, HostUuid, SecurityLevel, VolumeId};
use bosserver::BosServer;
use cell_client::CellClient;
use cell_client::network::{CellIdentity, now};
use cellar_config::security::{LevelPolicy, SecuritySettings, ServiceLevels};
use cellar_config::{Role, Settings};
use events::catalogue::Class;
use fileserver::{
    Environment, FileServer, FileServerConfig, LocalMembership, Membership, TransportFigures, VolumeLocator,
};
use observe::ServiceMeter;
use parking_lot::Mutex;
use ptdb::Protection;
use ptserver::PtService;
use rx::{
    BoundServer, Class as Size, Demand, Fairness, Inherited, Server, ServerConfig, ServerStatistics,
    ServiceConfig, ServiceEntry, SocketOptions,
};
use rx_security::{LocalRealms, Null, RxkadServer, ServerSecurity};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use store::Database;
use vldb::Locations;
use vlserver::VlService;
use vlserver::ubik::{self, Standing, VoteService};
use volserver::{VolumeServer, VolumeServerParts};
use volume::{Pending, Totals, Volumes};

/// Time for which transport figures are cached.
const FIGURES_LIFETIME: Duration = Duration::from_millis(200);

/// Time for which a caller's groups from another server are cached. OpenAFS's file server keeps them for as
/// long as the connection lasts.
const REMOTE_MEMBERSHIP_LIFETIME: Duration = Duration::from_secs(600);

/// Service ID of the statistics by procedure (RX_STATS_SERVICE_ID), on every port.
const RPC_STATISTICS_SERVICE: u16 = 409;

/// Service ID of the file service.
const FILE_SERVICE: u16 = 1;

/// Service ID of the volume service.
const VOLUME_SERVICE: u16 = 4;

/// Whether a port offers the procedure with an opcode.
type Offered = fn(u32) -> bool;

/// Service ID of Cellar's own service, on the ports of the file server and the volume server.
pub(super) const ADMIN_SERVICE: u16 = 20011;

/// Returns the version string of this program.
pub(super) fn version() -> String {
    format!("Cellar {}", env!("CARGO_PKG_VERSION"))
}

/// An interface under which calls are counted.
#[derive(Clone, Copy)]
struct Interface {
    name: &'static str,
    procedures: &'static [(u32, &'static str)],
    class: fn(u32) -> Class,
}

impl Interface {
    const fn new(name: &'static str, procedures: &'static [(u32, &'static str)]) -> Interface {
        Interface { name, procedures, class: |_| Class::Other }
    }
}

const FILES: Interface =
    Interface { name: "AFS", procedures: afs_idl::fs::PROCEDURES, class: afs_idl::fs::class };
const LOCATIONS: Interface = Interface::new("VL", afs_idl::vl::PROCEDURES);
const PROTECTION: Interface = Interface::new("PR", afs_idl::pr::PROCEDURES);
const VOLUMES: Interface = Interface::new("AFSVol", afs_idl::vol::PROCEDURES);
const OVERSEER: Interface = Interface::new("BOZO", afs_idl::bozo::PROCEDURES);
const VOTES: Interface = Interface::new("VOTE", ubik::PROCEDURES);
const OWN: Interface = Interface::new("CELLAR", afs_idl::cellar::PROCEDURES);
const CLUSTER: Interface = Interface::new("CLUSTER", afs_idl::cluster::PROCEDURES);
const RPC_STATISTICS: Interface = Interface::new("rpcstats", rxstats::PROCEDURES);

/// Name of the cluster's service and its port.
pub(crate) const CLUSTER_PORT: &str = "cluster";

/// Other nodes are holders of the cell's key, and encrypt.
const NODES: ServiceLevels = ServiceLevels {
    anonymous: false,
    users: SecurityLevel::Encrypted,
    administrators: SecurityLevel::Encrypted,
    cell: SecurityLevel::Encrypted,
};

/// A service that is ready to be served.
struct Prepared {
    role: Role,
    id: u16,
    name: &'static str,
    dispatcher: Arc<Dispatcher>,
}

/// State that the services share.
struct Stores {
    volumes: Arc<Volumes>,
    locations: Option<Arc<Locations>>,
    protection: Option<Arc<Protection>>,
    /// Client for data that other servers have.
    cell: Arc<CellClient>,
}

impl Stores {
    fn open(
        settings: &Settings,
        databases: Option<&Database>,
        volumes: &Arc<Volumes>,
        cell: &Arc<CellClient>,
    ) -> Result<Stores> {
        let meta = || databases.map(Database::meta).context("the cell's databases are not open");
        let open_locations = || Locations::open(meta()?).context("cannot open the location database");
        let open_protection = || {
            let policy = settings.security.queries.protection;
            Protection::open(meta()?, policy, now()).context("cannot open the protection database")
        };
        // Those in the bucket of a cluster are reached through this server's own ports, wherever they are open.
        let has = |role| settings.roles.contains(&role) && !settings.shares_databases();
        Ok(Stores {
            volumes: volumes.clone(),
            locations: has(Role::Vl).then(open_locations).transpose()?.map(Arc::new),
            protection: has(Role::Pt).then(open_protection).transpose()?.map(Arc::new),
            cell: cell.clone(),
        })
    }

    fn membership(&self, authority: &Arc<Authority>) -> Arc<dyn Membership> {
        match &self.protection {
            Some(protection) => Arc::new(LocalMembership::new(protection.clone(), authority.clone())),
            None => Arc::new(RemoteMembership::new(self.cell.clone(), authority.clone())),
        }
    }

    fn locator(&self) -> Arc<dyn VolumeLocator> {
        match &self.locations {
            Some(locations) => Arc::new(LocalLocator(locations.clone())),
            None => Arc::new(RemoteLocator::new(self.cell.clone())),
        }
    }

    fn locations(&self) -> Result<Arc<Locations>> {
        self.locations.clone().context("the role needs the role vl in the same process")
    }

    fn protection(&self) -> Result<Arc<Protection>> {
        self.protection.clone().context("the role needs the role pt in the same process")
    }
}

/// All services of the process.
pub struct Services {
    prepared: Vec<Prepared>,
    rxkad: RxkadServer,
    callbacks: Arc<Callbacks>,
    volume_servers: Arc<VolumeServers>,
    statistics: Arc<OnceLock<StatisticsSource>>,
    file_server: Option<Arc<FileServer>>,
    volume_server: Option<Arc<VolumeServer>>,
    admin_server: Option<Arc<AdminServer>>,
    snapshots: Option<Arc<CellSnapshots>>,
    uuid: HostUuid,
    observatory: Arc<Observatory>,
    keys: Arc<CellKeys>,
    levels: LevelPolicy,
    authority: Arc<Authority>,
    refusals: Arc<Refusals>,
    /// Time from which a ticket's start in the future is logged, in seconds.
    clock_warning_seconds: u32,
    holdings: Arc<Holdings>,
    node: Option<Arc<Node>>,
    /// The cell's databases, if they are in the bucket of a cluster.
    databases: Option<Arc<Databases>>,
    /// The ways of calls between this node and others.
    calls: Option<Arc<Calls>>,
}

/// Notifies this process's file server, if there is one, of changes to volumes.
struct ToFileServer(Option<Arc<FileServer>>);

impl volserver::FileService for ToFileServer {
    fn volume_changed(&self, volume: VolumeId) {
        if let Some(file_server) = &self.0 {
            file_server.volume_changed(volume);
        }
    }

    fn volume_moved(&self, volume: VolumeId) {
        if let Some(file_server) = &self.0 {
            file_server.volume_moved(volume);
        }
    }
}

/// Directory totals, with the file server's access checks.
pub struct FromFileServer(pub Arc<FileServer>);

impl DirectoryUsage for FromFileServer {
    fn totals(&self, caller: &CallContext<'_>, directory: Fid) -> Result<Totals, AbortCode> {
        self.0.directory_totals(caller, directory)
    }

    fn below(
        &self,
        caller: &CallContext<'_>,
        directory: Fid,
        after: &[u8],
        most: usize,
    ) -> Result<(Vec<Below>, bool), AbortCode> {
        let (found, more) = self.0.subdirectories(caller, directory, after, most)?;
        Ok((found.into_iter().map(|found| (found.name, found.fid, found.totals)).collect(), more))
    }
}

/// Returns the counters of the file server's port.
type StatisticsSource = Box<dyn Fn() -> ServerStatistics + Send + Sync>;

impl Services {
    /// Creates the services for the configured roles.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        authority: &Arc<Authority>,
        databases: Option<&Database>,
        volumes: &Arc<Volumes>,
        cell: &Arc<CellClient>,
        observatory: &Arc<Observatory>,
        (keys, node): (&Arc<CellKeys>, Option<&Arc<Node>>),
    ) -> Result<Services> {
        for warning in settings
            .warnings
            .iter()
            .chain(&settings.roles_warning())
            .chain(&super::exposed::warnings(settings))
        {
            tracing::warn!("{warning}");
        }
        let identity = CellIdentity::new(keys.ring(), settings.security.own_calls)?;
        let destinations = Destinations::new(settings.security.forward_destinations.clone(), cell.clone());
        let uuid = server_uuid(settings)?;
        let shared = node.and_then(|node| Databases::new(settings, node, authority, uuid));
        let mut services = Services {
            prepared: Vec::new(),
            rxkad: rxkad(&settings.security, keys, settings.realms.clone()),
            callbacks: Arc::default(),
            volume_servers: Arc::new(VolumeServers::new(identity, destinations)),
            statistics: Arc::default(),
            file_server: None,
            volume_server: None,
            admin_server: None,
            snapshots: None,
            uuid,
            observatory: observatory.clone(),
            keys: keys.clone(),
            levels: settings.security.levels,
            clock_warning_seconds: settings.security.clock_warning_seconds,
            authority: authority.clone(),
            refusals: observatory.refusals().clone(),
            holdings: Arc::default(),
            node: node.cloned(),
            databases: shared,
            calls: None,
        };
        if let Some(node) = node {
            // It is set once, here.
            _ = services.callbacks.peers.set(Peers::new(node, keys.ring())?);
        }
        let stores = Stores::open(settings, databases, volumes, cell)?;
        // In the order of Role::ALL, because the volume server needs the file server.
        for role in Role::ALL.into_iter().filter(|role| settings.roles.contains(role)) {
            services.prepare(role, settings, authority, &stores)?;
            services.add(role, RPC_STATISTICS_SERVICE, RPC_STATISTICS, |caller, call| {
                rxstats::dispatch(&RpcStatisticsOff, caller, call)
            });
        }
        Ok(services)
    }

    fn prepare(
        &mut self,
        role: Role,
        settings: &Arc<Settings>,
        authority: &Arc<Authority>,
        stores: &Stores,
    ) -> Result<()> {
        let clock: vlserver::Clock = Arc::new(now);
        match role {
            Role::Vl | Role::Pt if self.databases.is_some() => self.prepare_shared(role, settings),
            Role::Vl => self.prepare_locations(settings, authority, stores.locations()?),
            Role::Pt => self.prepare_protection(settings, authority, stores.protection()?),
            Role::Fs => self.prepare_file_server(settings, authority, stores),
            Role::Vol => self.prepare_volume_server(settings, authority, stores, clock),
            Role::Bos => {
                let overseer = ProcessOverseer::new(settings.clone(), authority.clone(), self.keys.clone());
                overseer.write_bos_config();
                let service = BosServer::new(Arc::new(overseer));
                self.add(role, 1, OVERSEER, move |caller, call| {
                    afs_idl::bozo::dispatch(&service, caller, call)
                });
            }
        }
        Ok(())
    }

    /// Adds a service whose calls are served by the owner of what they concern. That of a node passes calls on.
    fn add_administration(
        &mut self,
        role: Role,
        (id, is_offered): (u16, Offered),
        interface: Interface,
        dispatch: impl Fn(&CallContext<'_>, &mut dyn CallStream) -> Result<(), AbortCode> + Send + Sync + 'static,
    ) {
        let Some(calls) = self.calls.clone() else { return self.add(role, id, interface, dispatch) };
        self.add(role, id, interface, move |caller, call| {
            let here = |call: &mut dyn CallStream| dispatch(caller, call);
            calls.administer((id, is_offered), caller, call, &here)
        });
    }

    fn add(
        &mut self,
        role: Role,
        id: u16,
        interface: Interface,
        dispatch: impl Fn(&CallContext<'_>, &mut dyn CallStream) -> Result<(), AbortCode> + Send + Sync + 'static,
    ) {
        let demand: DemandOf = Box::new(|_, _| Demand::SMALL);
        let (meter, trail) = (self.meter(interface), self.trail(interface));
        let dispatcher = Dispatcher {
            admission: self.admission(role, id),
            // These services wait for their changes before they return.
            dispatch: Box::new(move |caller, call| Pending::ready(dispatch(caller, call))),
            fast_path: None,
            demand,
            meter,
            holdings: self.holdings.clone(),
            trail,
        };
        self.add_dispatcher(role, id, interface.name, dispatcher);
    }

    fn add_dispatcher(&mut self, role: Role, id: u16, name: &'static str, dispatcher: Dispatcher) {
        let dispatcher = Arc::new(dispatcher);
        self.prepared.push(Prepared { role, id, name, dispatcher });
    }

    /// Returns the admission rules of a service on a role's port.
    fn admission(&self, role: Role, id: u16) -> Admission {
        let levels = self.levels.of(role, id == ADMIN_SERVICE);
        let name = if id == ADMIN_SERVICE { "cellar" } else { role.instance() };
        Admission::new(name, levels, self.authority.clone(), self.refusals.clone())
    }

    fn meter(&self, interface: Interface) -> ServiceMeter {
        self.observatory.recorder().service(interface.name, interface.procedures, interface.class)
    }

    fn trail(&self, interface: Interface) -> Option<ServiceTrail> {
        self.observatory.trail().map(|trail| trail.service(interface.name, interface.procedures))
    }

    /// Adds the service that answers `udebug` on a database's port.
    fn add_votes(
        &mut self,
        role: Role,
        settings: &Settings,
        standing: impl Fn(&CallContext<'_>) -> Standing + Send + Sync + 'static,
    ) {
        let votes = VoteService::new(settings.announce.clone(), Box::new(standing), Arc::new(now));
        self.add(role, ubik::SERVICE_ID, VOTES, move |caller, call| votes.dispatch(caller, call));
    }

    fn prepare_locations(
        &mut self,
        settings: &Settings,
        authority: &Arc<Authority>,
        locations: Arc<Locations>,
    ) {
        let rules = vlserver::Settings { queries: settings.security.queries.location };
        let own = settings.roles.contains(&Role::Fs).then_some(self.uuid);
        let service = VlService::new(locations.clone(), authority.clone(), rules, Arc::new(now))
            .with_neighbours(Arc::new(FileServers { own }));
        self.add_votes(Role::Vl, settings, move |_| Standing::Alone { writes: locations.writes() });
        self.add(Role::Vl, 52, LOCATIONS, move |caller, call| afs_idl::vl::dispatch(&service, caller, call));
    }

    fn prepare_protection(
        &mut self,
        settings: &Settings,
        authority: &Arc<Authority>,
        protection: Arc<Protection>,
    ) {
        let service = PtService::new(protection.clone(), authority.clone(), Arc::new(now));
        self.add_votes(Role::Pt, settings, move |_| Standing::Alone { writes: protection.writes() });
        self.add(Role::Pt, 73, PROTECTION, move |caller, call| afs_idl::pr::dispatch(&service, caller, call));
    }

    /// Adds the services of a database in the bucket of a cluster.
    fn prepare_shared(&mut self, role: Role, settings: &Settings) {
        let Some(databases) = self.databases.clone() else { return };
        let asked = databases.clone();
        self.add_votes(role, settings, move |caller| asked.standing(caller));
        let (id, interface) = if role == Role::Vl { (52, LOCATIONS) } else { (73, PROTECTION) };
        self.add(role, id, interface, move |caller, call| databases.serve(id, caller, call));
    }

    fn prepare_volume_server(
        &mut self,
        settings: &Settings,
        authority: &Arc<Authority>,
        stores: &Stores,
        clock: vlserver::Clock,
    ) {
        let server = VolumeServer::new(VolumeServerParts {
            volumes: stores.volumes.clone(),
            administrators: authority.clone(),
            file_service: Arc::new(ToFileServer(self.file_server.clone())),
            clock,
        });
        let server = server
            .with_other_servers(self.volume_servers.clone())
            .with_idle_seconds_max(settings.tuning.idle_transaction_seconds)
            .with_queries(settings.security.queries.volume);
        let server = Arc::new(match &self.calls {
            Some(calls) => server.with_other_owners(calls.clone()),
            None => server,
        });
        self.calls.iter().for_each(|calls| calls.set_volume_server(&server));
        delete_unfinished(&server);
        self.volume_server = Some(server.clone());
        if let Some(snapshots) = &self.snapshots {
            snapshots.set_volume_server(server.clone());
        }
        let (own, offered) = (server.clone(), (ADMIN_SERVICE, is_transfer as Offered));
        self.add_administration(Role::Vol, offered, OWN, move |caller, call| {
            afs_idl::cellar::dispatch(&*own, caller, call)
        });
        let offered = (VOLUME_SERVICE, (|_| true) as Offered);
        self.add_administration(Role::Vol, offered, VOLUMES, move |caller, call| {
            afs_idl::vol::dispatch(&*server, caller, call)
        });
    }

    fn prepare_file_server(&mut self, settings: &Arc<Settings>, authority: &Arc<Authority>, stores: &Stores) {
        let environment = Environment {
            volumes: stores.volumes.clone(),
            membership: stores.membership(authority),
            network: self.callbacks.clone(),
            clock: Arc::new(SystemClock),
            locator: Some(stores.locator()),
            transport: Arc::new(self.figures()),
            process_kib: Arc::new(process_kib),
        };
        let mut config = FileServerConfig { uuid: self.uuid, ..FileServerConfig::default() };
        if stores.protection.is_none() {
            config.membership_lifetime = REMOTE_MEMBERSHIP_LIFETIME;
        }
        let server = Arc::new(FileServer::new(config, environment));
        let calls = |peers: &Arc<Peers>| {
            let (clients, databases) = (&self.callbacks, self.databases.as_ref());
            Arc::new(Calls::new(peers, &stores.volumes, &server, clients, databases))
        };
        self.calls = self.callbacks.peers.get().map(calls);
        if let (Some(databases), Some(calls)) = (&self.databases, &self.calls) {
            databases.set_calls(calls);
        }
        if let Some(calls) = &self.calls {
            self.observatory.set_calls(calls);
        }
        self.file_server = Some(server.clone());
        self.observatory.set_file_server(&server);
        let snapshots = Arc::new(CellSnapshots::new(settings, &stores.cell, &server));
        self.snapshots = Some(snapshots.clone());
        let usage = Arc::new(FromFileServer(server.clone()));
        let (admission, meter, trail) =
            (self.admission(Role::Fs, FILE_SERVICE), self.meter(FILES), self.trail(FILES));
        let calls = self.calls.clone();
        let dispatcher = file_dispatcher(server, calls, admission, self.holdings.clone(), (meter, trail));
        self.add_dispatcher(Role::Fs, FILE_SERVICE, FILES.name, dispatcher);
        self.prepare_admin_server(authority, stores, snapshots, usage);
    }

    fn prepare_admin_server(
        &mut self,
        authority: &Arc<Authority>,
        stores: &Stores,
        snapshots: Arc<CellSnapshots>,
        usage: Arc<FromFileServer>,
    ) {
        let server = Arc::new(AdminServer::new(AdminServerParts {
            volumes: stores.volumes.clone(),
            authority: authority.clone(),
            usage,
            clock: Arc::new(now),
            snapshots,
            observed: self.observatory.clone(),
            version: version(),
        }));
        self.admin_server = Some(server.clone());
        self.calls.iter().for_each(|calls| calls.set_admin_server(&server));
        let offered = (ADMIN_SERVICE, (|opcode| !is_transfer(opcode)) as Offered);
        self.add_administration(Role::Fs, offered, OWN, move |caller, call| {
            afs_idl::cellar::dispatch(&*server, caller, call)
        });
    }

    /// Returns a source of the file server port's figures, which are refreshed at most a few times per
    /// second.
    fn figures(&self) -> impl Fn() -> TransportFigures + Send + Sync + use<> {
        let source = self.statistics.clone();
        let last: Mutex<Option<(Instant, TransportFigures)>> = Mutex::new(None);
        move || {
            let mut last = last.lock();
            match *last {
                Some((at, figures)) if at.elapsed() < FIGURES_LIFETIME => figures,
                _ => {
                    let figures = source.get().map(|ask| transport_figures(&ask())).unwrap_or_default();
                    *last = Some((Instant::now(), figures));
                    figures
                }
            }
        }
    }

    /// Returns the file service, if it is among the roles.
    pub fn file_server(&self) -> Option<Arc<FileServer>> {
        self.file_server.clone()
    }

    /// Returns the volume service, if it is among the roles.
    pub fn volume_server(&self) -> Option<Arc<VolumeServer>> {
        self.volume_server.clone()
    }

    /// Returns Cellar's own service, if it is among the roles.
    pub fn admin_server(&self) -> Option<Arc<AdminServer>> {
        self.admin_server.clone()
    }

    /// Returns the access to clients and other servers, to be closed with the ports.
    pub fn ways(&self) -> (Arc<Callbacks>, Arc<VolumeServers>) {
        (self.callbacks.clone(), self.volume_servers.clone())
    }

    /// Returns the cell's databases, if they are in the bucket of a cluster.
    pub(crate) fn databases(&self) -> Option<Arc<Databases>> {
        self.databases.clone()
    }

    /// Returns the file server's UUID.
    pub fn uuid(&self) -> HostUuid {
        self.uuid
    }

    /// Opens the ports, the file server's last, so that clients find everything else running. All are bound before the
    /// first serves: a call that waits in an inherited socket may require calls from another port.
    pub fn start(
        self,
        settings: &Settings,
        faults: &FaultInjection,
        inherited: &Arc<Inherited>,
    ) -> Result<Vec<Arc<Server>>> {
        let mut roles: Vec<Role> = settings.roles.clone();
        roles.sort_by_key(|role| (*role == Role::Fs, *role));
        roles.dedup();
        let mut ports = Vec::new();
        if let (Some(node), Some(calls)) = (&self.node, &self.calls) {
            let port = self.bind_cluster(calls, settings, inherited)?;
            node.way.open(port.server.connector());
            ports.push(port);
        }
        for role in roles {
            let port = self.bind_role(role, settings, faults, inherited)?;
            match role {
                Role::Fs => self.callbacks.way.open(port.server.connector()),
                Role::Vol => self.volume_servers.way.open(port.server.connector()),
                _ => {}
            }
            ports.push(port);
        }
        ports.into_iter().map(|port| self.serve(port, settings, faults)).collect()
    }

    /// Starts serving on a port.
    fn serve(&self, port: BoundPort, settings: &Settings, faults: &FaultInjection) -> Result<Arc<Server>> {
        let BoundPort { role, number, server } = port;
        let name = port_name(role);
        let server = server.serve().with_context(|| unserved(name, number))?;
        thread::sleep(faults.port_pause);
        let (server, buffer_bytes) = (Arc::new(server), settings.tuning.socket_buffer_bytes);
        let statistics = server.statistics();
        tracing::info!(role = name, port = number, lanes = statistics.lanes.len(), "open");
        transport::warn_of_small_buffers(name, &statistics, buffer_bytes);
        self.observatory.add_port(name, &server);
        if role == Some(Role::Fs) {
            let asked = Arc::downgrade(&server);
            let ask = move || asked.upgrade().map(|server| server.statistics()).unwrap_or_default();
            let _ = self.statistics.set(Box::new(ask));
            self.show_transport(&server, buffer_bytes);
        }
        Ok(server)
    }

    /// Makes the port's state available to `cellar server status`.
    fn show_transport(&self, server: &Arc<Server>, wanted_bytes: usize) {
        let Some(admin_server) = &self.admin_server else { return };
        let asked = Arc::downgrade(server);
        admin_server.set_transport(Box::new(move || {
            let statistics = asked.upgrade().map(|server| server.statistics()).unwrap_or_default();
            transport::reply(&statistics, wanted_bytes)
        }));
    }

    /// Returns the security classes of a service. The challenge requires the lowest level required of any
    /// caller, so that a client with less protection fails before it makes a call.
    fn security_classes(&self, role: Role, id: u16) -> Vec<Arc<dyn ServerSecurity>> {
        let levels = self.levels.of(role, id == ADMIN_SERVICE);
        let least = levels.users.min(levels.administrators).min(levels.cell);
        self.security_at(least)
    }

    fn security_at(&self, least: SecurityLevel) -> Vec<Arc<dyn ServerSecurity>> {
        let rxkad = self.rxkad.clone().with_level_min(least);
        let refusals = self.refusals.clone();
        let observed = ObservedRxkad { rxkad, refusals, clock_warning_seconds: self.clock_warning_seconds };
        vec![Arc::new(Null), Arc::new(observed)]
    }

    /// Binds the port for the calls of other nodes, with workers of its own.
    fn bind_cluster(
        &self,
        calls: &Arc<Calls>,
        settings: &Settings,
        inherited: &Arc<Inherited>,
    ) -> Result<BoundPort> {
        let port = settings.cluster.as_ref().map_or(afs_idl::cluster::PORT, |cluster| cluster.port);
        let config = ServerConfig { inherited: Arc::clone(inherited), ..cluster_config(port, settings) };
        let (calls, quick) = (Arc::clone(calls), Arc::clone(calls));
        let admission = Admission::new(CLUSTER_PORT, NODES, self.authority.clone(), self.refusals.clone());
        let dispatcher = Dispatcher {
            admission,
            dispatch: Box::new(move |caller, call| Pending::ready(calls.dispatch(caller, call))),
            fast_path: Some(FastPath {
                answer: Box::new(move |caller, request| quick.try_answer(caller, request)),
                prefetch: Box::new(|_| {}),
            }),
            demand: Box::new(|_, request| demand_of_node(request)),
            meter: self.meter(CLUSTER),
            holdings: self.holdings.clone(),
            trail: self.trail(CLUSTER),
        };
        let service = ServiceConfig {
            id: afs_idl::cluster::SERVICE_ID,
            name: CLUSTER.name.into(),
            security: self.security_at(SecurityLevel::Encrypted),
        };
        let entry = ServiceEntry { config: service, service: Arc::new(dispatcher) };
        bind(None, &config, vec![entry])
    }

    /// Binds one role's port with all its services.
    fn bind_role(
        &self,
        role: Role,
        settings: &Settings,
        faults: &FaultInjection,
        inherited: &Arc<Inherited>,
    ) -> Result<BoundPort> {
        let mut config = server_config(role, settings);
        config.inherited = Arc::clone(inherited);
        if role == Role::Fs {
            config.socket.receive_pause = faults.receive_pause;
        }
        let entries =
            self.prepared.iter().filter(|prepared| prepared.role == role).map(|prepared| ServiceEntry {
                config: ServiceConfig {
                    id: prepared.id,
                    name: prepared.name.into(),
                    security: self.security_classes(role, prepared.id),
                },
                service: prepared.dispatcher.clone(),
            });
        bind(Some(role), &config, entries.collect())
    }
}

/// A port that receives nothing yet.
struct BoundPort {
    /// `None` for that of the cluster's nodes.
    role: Option<Role>,
    number: u16,
    server: BoundServer,
}

fn bind(role: Option<Role>, config: &ServerConfig, entries: Vec<ServiceEntry>) -> Result<BoundPort> {
    let number = config.port;
    let server = Server::bind(config, entries).with_context(|| unserved(port_name(role), number))?;
    Ok(BoundPort { role, number, server })
}

fn port_name(role: Option<Role>) -> &'static str {
    role.map_or(CLUSTER_PORT, Role::instance)
}

fn unserved(name: &str, port: u16) -> String {
    format!("cannot serve {name} on UDP port {port}")
}

/// Deletes volumes whose creation a crash has interrupted.
fn delete_unfinished(server: &VolumeServer) {
    let deleted = server.delete_unfinished();
    if deleted > 0 {
        tracing::info!(deleted, "deleting volumes whose creation was interrupted");
    }
}

/// Creates rxkad as configured.
fn rxkad(settings: &SecuritySettings, keys: &CellKeys, realms: LocalRealms) -> RxkadServer {
    let server = RxkadServer::new(keys.ring(), realms).with_clock_skew(settings.clock_skew_seconds);
    if settings.dotted_principals { server.with_dotted_names() } else { server }
}

/// Niceness of workers for bulk data, so that callers waiting for a few bytes need not wait for dozens of
/// workers that move megabytes.
const BULK_NICE: i32 = 10;

/// Time after the start in which clients may ping for calls of the previous process: they do so within a few
/// seconds of silence, and give up after half a minute.
const PREDECESSOR_MEMORY: Duration = Duration::from_secs(60);

/// Returns the hosts of the cell's administrators, as far as the configuration names them.
fn own_hosts(settings: &Settings) -> Vec<IpAddr> {
    let databases = settings.database_servers.iter().map(|server| server.address);
    let servers = settings.announce.iter().copied().chain(databases);
    settings.security.own_hosts.iter().copied().chain(servers.map(IpAddr::V4)).collect()
}

fn server_config(role: Role, settings: &Settings) -> ServerConfig {
    let is_file_server = role == Role::Fs;
    let addresses = match settings.bind.as_slice() {
        [] => vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        some => some.iter().copied().map(IpAddr::V4).collect(),
    };
    let mut config = ServerConfig {
        name: role.instance().into(),
        addresses,
        port: role.port(),
        lanes: if is_file_server { settings.tuning.lanes } else { 1 },
        workers_min: if is_file_server { 16 } else { 4 },
        workers_max: settings.tuning.workers,
        bulk_nice: BULK_NICE,
        fairness: settings.tuning.fairness.clone(),
        socket: SocketOptions {
            buffer_bytes: settings.tuning.socket_buffer_bytes,
            ..SocketOptions::default()
        },
        ..ServerConfig::default()
    };
    config.endpoint.version = version();
    config.endpoint.limit_packets(settings.tuning.packet_bytes_max);
    config.endpoint.rxdebug = settings.security.rxdebug;
    config.endpoint.own_hosts = own_hosts(settings);
    config.endpoint.predecessor_memory = PREDECESSOR_MEMORY;
    if role == Role::Vol {
        // A dump may wait for the next tape.
        let seconds = settings.tuning.idle_transaction_seconds;
        config.endpoint.server_idle_time = Duration::from_secs(seconds.into());
    }
    config
}

/// How long a front may be silent before its call ends here. The front gives the call up after half of this, and its
/// repetition waits until the first attempt has ended.
const FRONT_DEAD: Duration = Duration::from_secs(6);

/// Returns the configuration of the cluster's port. All its callers are one user, the cell.
fn cluster_config(port: u16, settings: &Settings) -> ServerConfig {
    let mut config = server_config(Role::Fs, settings);
    config.name = CLUSTER_PORT.into();
    config.port = port;
    config.workers_min = 4;
    config.bulk_nice = 0;
    // A dump may wait for the next tape.
    let seconds = settings.tuning.idle_transaction_seconds;
    config.endpoint.server_idle_time = Duration::from_secs(seconds.into());
    config.endpoint.dead_time = FRONT_DEAD;
    // The errors of all clients of a front go to the front. One that is delayed would be taken for the death of this node.
    config.endpoint.abort_burst = u32::MAX;
    config.fairness =
        Fairness { user_share_percent: 100, anonymous_calls_percent: 0, ..settings.tuning.fairness.clone() };
    config
}

/// Returns the demand of a call of another node. A call that is forwarded may wait for clients, through other nodes, and for the
/// cell's databases; the workers that are kept for small calls serve what those wait for.
fn demand_of_node(request: &[u8]) -> Demand {
    use afs_idl::{cellar, cluster, pr, vl, vol};
    let word = |index: usize| {
        let bytes = request.get(4 * index..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let is_long = match (word(0), word(1).try_into(), word(2)) {
        (cluster::FORWARD_TO, Ok(VOLUME_SERVICE), opcode) => {
            !matches!(opcode, vol::GET_FLAGS | vol::GET_NAME | vol::GET_STATUS | vol::PARTITION_INFO64)
        }
        // A transfer waits for these.
        (cluster::FORWARD_TO, Ok(ADMIN_SERVICE), opcode) => {
            !matches!(opcode, cellar::OFFER_VOLUME | cellar::BORROW_OBJECTS | cellar::GET_CHUNK_DIGESTS)
        }
        (cluster::FORWARD_TO, service, _) => {
            !matches!(service, Ok(vl::SERVICE_ID | pr::SERVICE_ID | ubik::SERVICE_ID))
        }
        (cluster::FORWARD | cluster::STORE, _, _) => true,
        _ => false,
    };
    if is_long { Demand { class: Size::Bulk, ..Demand::SMALL } } else { Demand::SMALL }
}

/// Returns the dispatcher of the file service. That of a node first passes on what belongs to other nodes; the fast path
/// answers only for volumes in memory, which are here.
fn file_dispatcher(
    server: Arc<FileServer>,
    calls: Option<Arc<Calls>>,
    admission: Admission,
    holdings: Arc<Holdings>,
    (meter, trail): (ServiceMeter, Option<ServiceTrail>),
) -> Dispatcher {
    let [quick, asked, reported] = [(); 3].map(|()| Arc::clone(&server));
    let dispatch: Dispatch = match calls {
        None => {
            Box::new(move |caller, stream| server.serve(|call| afs_idl::fs::dispatch(call, caller, stream)))
        }
        Some(calls) => Box::new(move |caller, stream| {
            let here = |stream: &mut dyn CallStream| {
                server.serve(|call| afs_idl::fs::dispatch(call, caller, stream))
            };
            calls.serve(caller, stream, here)
        }),
    };
    Dispatcher {
        admission,
        dispatch,
        fast_path: Some(FastPath {
            answer: Box::new(move |caller, request| quick.try_answer(caller, request)),
            prefetch: Box::new(move |requests| reported.prefetch(requests)),
        }),
        demand: Box::new(move |caller, request| asked.demand(caller, request)),
        meter,
        holdings,
        trail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registration::tests::settings;
    use afs_idl::cb;
    use rx::{Client, ClientConfig, ConnectOptions, Path, ServerCall, Service};

    /// A service that refuses every call.
    struct Refusing;

    impl Service for Refusing {
        fn serve(&self, _: &mut ServerCall) -> Result<(), AbortCode> {
            Err(AbortCode::UAENOENT)
        }
    }

    /// A store waits for its client: it must not have the workers that are kept for the calls which it waits for itself.
    #[test]
    fn stores_for_other_nodes_are_long_calls() {
        use afs_idl::cluster;
        let is_long = |opcode: u32| demand_of_node(&xdr::to_vec(&opcode)).class == Size::Bulk;
        assert!(is_long(cluster::FORWARD) && is_long(cluster::STORE));
        for short in [cluster::FETCH, cluster::OFFER_STORE, cluster::CALL_CLIENT, cluster::LOCATE_VOLUME] {
            assert!(!is_long(short), "{short}");
        }
    }

    /// A file server delays the errors of a client that repeats a failing call. A front has the errors of many clients.
    #[test]
    fn errors_for_other_nodes_are_not_delayed() {
        let folder = tempfile::tempdir().unwrap();
        let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let config = ServerConfig { addresses: addresses.clone(), ..cluster_config(0, &settings(&folder)) };
        let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
        let service = ServiceConfig { id: cb::SERVICE_ID, name: "refusing".into(), security };
        let node =
            Server::start(&config, vec![ServiceEntry { config: service, service: Arc::new(Refusing) }]);
        let node = node.unwrap();
        let client = Client::start(&ClientConfig { addresses, ..ClientConfig::default() }).unwrap();
        let options =
            ConnectOptions { call_time_max: Some(Duration::from_secs(60)), ..ConnectOptions::default() };
        let path = Path::to(node.addresses()[0]);
        let connection = client.connector().connect_with(path, cb::SERVICE_ID, None, options);
        for _ in 0..30 {
            let answer = cb::probe(&*connection, &cb::ProbeRequest);
            assert_eq!(answer.map(drop), Err(AbortCode::UAENOENT));
        }
        assert_eq!(node.statistics().endpoints.iter().map(|it| it.aborts_delayed).sum::<u64>(), 0);
    }
}
