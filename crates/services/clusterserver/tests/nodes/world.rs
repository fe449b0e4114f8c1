//! Two nodes in one process, each with the ports of the file service and of the cluster's service on an address of
//! its own, and clients with callback services. Who owns what is a table (`cluster_world`).

use afs_idl::{CallStream, ClientConnection, Forgetful, cb, cluster, fs, vol};
use base::{AbortCode, CallContext, HostUuid, Monotonic, SecurityLevel};
pub(crate) use cluster_world::{
    HOLD, Local, SERVER, Table, VOLUMES, incarnation, is_cell, memory, new_volumes, open_volumes, partition,
    root,
};
use cluster_world::{Sharing, Surroundings};
use clusterserver::{Clients, ClusterService, Environment, Files, Front, Fronts, Nodes, Ownership, Way};
use fileserver::{CallbackNetwork, Clock};
use parking_lot::Mutex;
use rx::{
    ConnectOptions, Connector, Path, Server, ServerCall, ServerConfig, Service, ServiceConfig, ServiceEntry,
};
use rx_security::{
    ClientSecurity, KeySet, LOCAL_TICKET_END_MAX, LocalRealms, Null, RxkadClient, RxkadServer,
    ServerSecurity, ServiceKey, forge_local_ticket,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use volume::PartitionHandle;

/// How long a front waits for an owner that answers pings only, longer than calls are held; and an owner for a front.
const IDLE_OF_FRONT: Duration = Duration::from_secs(10);
const IDLE_OF_OWNER: Duration = Duration::from_secs(4);

pub(crate) fn keys() -> KeySet {
    let mut keys = KeySet::new();
    keys.insert(1, ServiceKey::new(18, &[7; 32]).unwrap());
    keys
}

/// The identity of a holder of the cell's key.
pub(crate) fn cell(level: SecurityLevel) -> Arc<dyn ClientSecurity> {
    let ticket = forge_local_ticket(&keys(), [0x5b; 8], [2; 16], LOCAL_TICKET_END_MAX).unwrap();
    Arc::new(RxkadClient::from_ticket(ticket, level).unwrap())
}

/// A port that opens after its users were created.
#[derive(Clone, Default)]
pub(crate) struct Port(Arc<OnceLock<Connector>>);

impl Port {
    /// Connects to a volume server as the cell.
    pub(crate) fn to_volumes(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        let identity = Some(cell(SecurityLevel::Encrypted));
        self.0.get().unwrap().connect(address, vol::SERVICE_ID, identity)
    }
}

/// Connections to other nodes.
struct Ways {
    port: Port,
    idle: Duration,
}

impl Ways {
    fn connection(&self, address: SocketAddr, idle_time: Option<Duration>) -> Arc<dyn ClientConnection> {
        let dead_time = Some(Duration::from_secs(6));
        let options = ConnectOptions { dead_time, idle_time, ..ConnectOptions::default() };
        let (connector, identity) = (self.port.0.get().unwrap(), cell(SecurityLevel::Encrypted));
        connector.connect_with(Path::to(address), cluster::SERVICE_ID, Some(identity), options)
    }
}

impl Nodes for Ways {
    fn connect(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        self.connection(address, Some(self.idle))
    }

    fn connect_patiently(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        self.connection(address, None)
    }
}

impl Clients for Port {
    fn connection(&self, client: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
        let options = ConnectOptions { dead_time: Some(patience), ..ConnectOptions::default() };
        self.0.get().unwrap().connect_with(Path::to(client), cb::SERVICE_ID, None, options)
    }
}

pub(crate) struct Network {
    files: Port,
    fronts: Arc<Fronts>,
}

impl CallbackNetwork for Network {
    fn connection(&self, peer: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
        self.fronts.connection(peer, patience, (self.files.connection(peer, patience), None))
    }
}

struct Time;

impl Clock for Time {
    fn monotonic(&self) -> Monotonic {
        rx::now()
    }

    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
    }
}

/// Serves by a function.
struct Serve<F>(F);

impl<F: Fn(&CallContext<'_>, &mut dyn CallStream) -> Result<(), AbortCode> + Send + Sync> Service
    for Serve<F>
{
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        (self.0)(&CallContext::new(&caller), call)
    }
}

pub(crate) fn open(
    ip: Ipv4Addr,
    id: u16,
    serve: impl Fn(&CallContext<'_>, &mut dyn CallStream) -> Result<(), AbortCode> + Send + Sync + 'static,
) -> Server {
    let mut config = ServerConfig {
        addresses: vec![IpAddr::V4(ip)],
        lanes: 1,
        workers_min: 2,
        workers_max: 8,
        ..ServerConfig::default()
    };
    if id == cluster::SERVICE_ID {
        config.endpoint.abort_burst = u32::MAX;
    }
    let rxkad = RxkadServer::new(Arc::new(keys()), LocalRealms::of_cell("t.example"));
    let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null), Arc::new(rxkad)];
    let config_of_service = ServiceConfig { id, name: "test".into(), security };
    let entry = ServiceEntry { config: config_of_service, service: Arc::new(Serve(serve)) };
    Server::start(&config, vec![entry]).unwrap()
}

pub(crate) struct Node {
    pub(crate) front: Arc<Front>,
    pub(crate) service: Arc<ClusterService>,
    pub(crate) files: SocketAddr,
    pub(crate) cluster: SocketAddr,
    pub(crate) volumes: SocketAddr,
    file_port: Option<Server>,
    volume_port: Server,
    cluster_port: Option<Server>,
}

impl Node {
    pub(crate) fn start(
        number: u8,
        ownership: impl FnOnce(SocketAddr) -> Arc<dyn Ownership>,
        local: &Arc<Local>,
    ) -> Node {
        let ip = Ipv4Addr::new(127, 0, 7, number);
        let (file_connector, cluster_connector) = (Port::default(), Port::default());
        let late: Arc<OnceLock<(Arc<Front>, Arc<ClusterService>)>> = Arc::default();
        let (to_front, to_service, here) = (late.clone(), late.clone(), local.clone());
        let (to_volumes, at_hand) = (late.clone(), local.clone());
        let volume_port = open(ip, vol::SERVICE_ID, move |call, stream| {
            let here = |stream: &mut dyn CallStream| vol::dispatch(at_hand.volume_server()?, call, stream);
            to_volumes.get().unwrap().0.administer((vol::SERVICE_ID, |_| true), call, stream, &here)
        });
        let file_port = open(ip, fs::SERVICE_ID, move |call, stream| {
            match to_front.get().unwrap().0.route(call, stream) {
                Way::Here(mut source) => Files::serve(&*here, call, &mut source),
                Way::Ended(result) => result,
            }
        });
        let cluster_port = open(ip, cluster::SERVICE_ID, move |call, stream| {
            cluster::dispatch(&*to_service.get().unwrap().1, call, stream)
        });
        _ = file_connector.0.set(file_port.connector());
        _ = cluster_connector.0.set(cluster_port.connector());
        let (files, cluster) = (file_port.addresses()[0], cluster_port.addresses()[0]);
        let volumes = volume_port.addresses()[0];
        let ownership = ownership(cluster);
        let ways = |idle| Arc::new(Ways { port: cluster_connector.clone(), idle });
        let fronts = Fronts::new(ways(IDLE_OF_OWNER), ownership.clone(), rx::now);
        let network = Arc::new(Network { files: file_connector.clone(), fronts: fronts.clone() });
        let environment = Environment {
            ownership: ownership.clone(),
            files: local.clone(),
            data: local.clone(),
            services: local.clone(),
            nodes: ways(IDLE_OF_FRONT),
            clients: Arc::new(file_connector),
            is_cell,
            now: rx::now,
            pause: rx::pause,
        };
        let front = Arc::new(Front::new(environment.clone()));
        let service = Arc::new(ClusterService::new(environment, fronts));
        _ = late.set((front.clone(), service.clone()));
        let way = Port::default();
        _ = way.0.set(volume_port.connector());
        let to_volumes = Box::new(move |address| way.to_volumes(address));
        let sharing = Sharing::new((to_volumes, std::thread::sleep), ownership, &front);
        local.surround(Surroundings { network, clock: Arc::new(Time), sharing });
        let (file_port, cluster_port) = (Some(file_port), Some(cluster_port));
        Node { front, service, files, cluster, volumes, file_port, volume_port, cluster_port }
    }

    /// Ends both services. Their addresses answer nothing any more.
    pub(crate) fn kill_all(&mut self) {
        self.kill();
        self.file_port.take().unwrap().stop();
    }

    /// Ends the cluster's service. Its address answers nothing any more.
    pub(crate) fn kill(&mut self) {
        self.cluster_port.take().unwrap().stop();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.volume_port.stop();
        self.file_port.iter().for_each(Server::stop);
        self.cluster_port.iter().for_each(Server::stop);
    }
}

/// A service that no server of the tests has to provide.
const OTHER_SERVICE: u16 = 4711;

/// A service that answers no call, only pings, until it is dropped.
pub(crate) struct Stuck {
    port: Server,
    /// Its calls end when this is dropped.
    held: Option<Sender<()>>,
}

impl Stuck {
    pub(crate) fn start(ip: Ipv4Addr, id: u16) -> Stuck {
        let (held, end) = channel();
        let end = Mutex::new(end);
        let port = open(ip, id, move |_, _| {
            _ = end.lock().recv();
            Err(AbortCode::VRESTARTING)
        });
        Stuck { port, held: Some(held) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.addresses()[0]
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        drop(self.held.take());
        self.port.stop();
    }
}

/// The cache manager of a client.
pub(crate) struct Station {
    about: Forgetful,
    /// Broken FIDs, with the addresses that the messages came from.
    pub(crate) broken: Mutex<Vec<(fs::Fid, SocketAddr)>>,
}

impl cb::Server for Station {
    fn call_back(
        &self,
        caller: &CallContext<'_>,
        request: cb::CallBackRequest,
    ) -> Result<cb::CallBackReply, AbortCode> {
        self.broken.lock().extend(request.fids.into_iter().map(|fid| (fid, caller.peer)));
        Ok(cb::CallBackReply)
    }

    fn init_call_back_state3(
        &self,
        _: &CallContext<'_>,
        request: cb::InitCallBackState3Request,
    ) -> Result<cb::InitCallBackState3Reply, AbortCode> {
        assert_eq!(request.server_uuid, SERVER);
        Ok(cb::InitCallBackState3Reply)
    }

    fn probe_uuid(
        &self,
        caller: &CallContext<'_>,
        request: cb::ProbeUuidRequest,
    ) -> Result<cb::ProbeUuidReply, AbortCode> {
        cb::Server::probe_uuid(&self.about, caller, request)
    }

    fn tell_me_about_yourself(
        &self,
        caller: &CallContext<'_>,
        request: cb::TellMeAboutYourselfRequest,
    ) -> Result<cb::TellMeAboutYourselfReply, AbortCode> {
        cb::Server::tell_me_about_yourself(&self.about, caller, request)
    }
}

pub(crate) struct Client {
    pub(crate) station: Arc<Station>,
    port: Server,
}

impl Client {
    pub(crate) fn start(number: u8) -> Client {
        let capabilities = vec![cb::client_capability::ERROR_TRANSLATION];
        let about = Forgetful { uuid: HostUuid([number; 16]), addresses: Vec::new(), capabilities };
        let station = Arc::new(Station { about, broken: Mutex::default() });
        let server = station.clone();
        let port = open(Ipv4Addr::new(127, 0, 7, number), cb::SERVICE_ID, move |call, stream| {
            cb::dispatch(&*server, call, stream)
        });
        Client { station, port }
    }

    /// Starts a client that has no callback service.
    pub(crate) fn mute(number: u8) -> Client {
        let client = Client::start(number);
        let port = open(Ipv4Addr::new(127, 0, 7, number), OTHER_SERVICE, |_, _| Ok(()));
        Client { port, ..client }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.addresses()[0]
    }

    /// Connects to the file service of a node, for calls of at most this time.
    pub(crate) fn to_within(&self, node: &Node, time: Duration) -> Arc<dyn ClientConnection> {
        let options = ConnectOptions { call_time_max: Some(time), ..ConnectOptions::default() };
        self.port.connector().connect_with(Path::to(node.files), fs::SERVICE_ID, None, options)
    }

    /// Connects to the file service of a node, anonymously.
    pub(crate) fn to(&self, node: &Node) -> Arc<dyn ClientConnection> {
        self.port.connect(node.files, fs::SERVICE_ID, None)
    }

    /// Connects to a node's file service, or to another service, with an identity.
    pub(crate) fn to_service(
        &self,
        address: SocketAddr,
        service: u16,
        identity: Option<Arc<dyn ClientSecurity>>,
    ) -> Arc<dyn ClientConnection> {
        self.port.connect(address, service, identity)
    }
}

pub(crate) struct World {
    pub(crate) table: Arc<Table>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) locals: Vec<Arc<Local>>,
    handles: Vec<PartitionHandle>,
}

impl World {
    /// Starts two nodes with a partition and a volume each, in which anyone may do anything.
    pub(crate) fn new() -> World {
        World::of((0..VOLUMES.len()).map(memory).collect())
    }

    /// Starts two nodes with these partitions.
    pub(crate) fn of(handles: Vec<PartitionHandle>) -> World {
        let mut world = World { table: Table::new(), nodes: Vec::new(), locals: Vec::new(), handles };
        for index in 0..VOLUMES.len() {
            let (node, local) = world.start(index, 1 + index as u8);
            local.open(new_volumes(&world.handles[index], index));
            allow_all(&node, index);
            world.nodes.push(node);
            world.locals.push(local);
        }
        world
    }

    /// Starts a process of a node, which opens nothing yet.
    fn start(&self, index: usize, number: u8) -> (Node, Arc<Local>) {
        let local = Local::new(partition(index));
        let ownership = |address| -> Arc<dyn Ownership> {
            self.table.addresses.lock().insert(index, address);
            self.table.view(index)
        };
        (Node::start(number, ownership, &local), local)
    }

    /// Replaces a node by another process, which owns the same partition in the next epoch.
    pub(crate) fn restart(&mut self, index: usize, number: u8) {
        let (node, local) = self.start(index, number);
        local.take_over(std::slice::from_ref(&self.handles[index]));
        self.table.set(index, |own| own.epoch = own.epoch.next());
        (self.nodes[index], self.locals[index]) = (node, local);
    }

    /// Lets a node own the partitions of both.
    pub(crate) fn take_over(&self, index: usize) {
        self.locals[index].take_over(&self.handles);
        for (owner, own) in self.table.owners.lock().values_mut().filter(|(owner, _)| *owner != index) {
            (*owner, own.epoch) = (index, own.epoch.next());
        }
    }
}

/// Lets anyone do anything in the volume of a node.
pub(crate) fn allow_all(node: &Node, index: usize) {
    let admin = Client::start(99);
    let connection = admin.to_service(node.files, fs::SERVICE_ID, Some(cell(SecurityLevel::Encrypted)));
    let access_list = b"1\n0\nsystem:anyuser\t127\n".to_vec();
    fs::store_acl(&*connection, &fs::StoreACLRequest { fid: root(index), access_list }).unwrap();
}
