//! Two nodes in one process, each with the ports of the file service and of the cluster's service on an address of
//! its own, and clients with callback services. Who owns what is a table.

use crate::sharing::Sharing;
use afs_idl::{CallStream, ClientConnection, Forgetful, cb, cellar, cluster, fs, vol};
use base::{
    AbortCode, CallContext, Caller, Fid, HostUuid, Identity, Monotonic, PartitionId, SecurityLevel, UnixTime,
    UserId, VolumeId, VolumeType,
};
use bytes::Bytes;
use cluster_proto::{
    CallKind, Epoch, Incarnation, NodeName, NodeRecord, NodeState, PartitionName, Repeat, Route,
};
use clusterserver::{
    Clients, ClusterService, Data, Environment, Files, Front, Fronts, LeaseError, Nodes, Own, Ownership,
    Services, Way, kind_of_administration,
};
use fileserver::{
    CallbackNetwork, Clock, FileServer, FileServerConfig, Membership, Subject, TransportFigures,
};
use parking_lot::{Mutex, RwLock};
use rx::{
    ConnectOptions, Connector, Path, Server, ServerCall, ServerConfig, Service, ServiceConfig, ServiceEntry,
};
use rx_security::{
    ClientSecurity, KeySet, LOCAL_TICKET_END_MAX, LocalRealms, Null, RxkadClient, RxkadServer,
    ServerSecurity, ServiceKey, forge_local_ticket,
};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{Bucket, ChunkPlace, ForeignChunks, MemoryChunks, MemoryMeta, NewObject, StoreError};
use volserver::VolumeServer;
use volume::{NewVolume, PartitionHandle, Permit, Space, VolumeOptions, Volumes, recorded_locks};

/// The volume of each node.
pub(crate) const VOLUMES: [VolumeId; 2] = [VolumeId(536_870_912), VolumeId(536_870_915)];

/// How long calls are held.
pub(crate) const HOLD: Duration = Duration::from_secs(8);

/// How long a front waits for an owner that answers pings only, longer than calls are held; and an owner for a front.
const IDLE_OF_FRONT: Duration = Duration::from_secs(10);
const IDLE_OF_OWNER: Duration = Duration::from_secs(4);

/// The UUID of the file server that both nodes are.
pub(crate) const SERVER: HostUuid = HostUuid([7; 16]);

pub(crate) fn partition(index: usize) -> PartitionName {
    format!("cell/p{index}").parse().unwrap()
}

pub(crate) fn root(index: usize) -> fs::Fid {
    Fid::root(VOLUMES[index]).into()
}

fn name(index: usize) -> NodeName {
    format!("n{index}").parse().unwrap()
}

pub(crate) fn incarnation(index: usize) -> Incarnation {
    Incarnation { nonce: 100 + index as u128, count: 1 }
}

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

/// What is known of partitions and nodes.
#[derive(Default)]
pub(crate) struct Table {
    /// The owner of each partition, and its state there.
    pub(crate) owners: Mutex<HashMap<PartitionName, (usize, Own)>>,
    /// What a node believes instead.
    pub(crate) beliefs: Mutex<HashMap<(usize, PartitionName), (usize, Epoch)>>,
    pub(crate) addresses: Mutex<HashMap<usize, SocketAddr>>,
    pub(crate) dead: Mutex<Vec<usize>>,
    /// Nodes that may not know all partitions.
    pub(crate) outdated: Mutex<Vec<usize>>,
}

impl Table {
    pub(crate) fn set(&self, index: usize, change: impl FnOnce(&mut Own)) {
        change(&mut self.owners.lock().get_mut(&partition(index)).unwrap().1);
    }
}

struct View {
    index: usize,
    table: Arc<Table>,
}

impl Ownership for View {
    fn node(&self) -> (NodeName, Incarnation) {
        (name(self.index), incarnation(self.index))
    }

    fn partitions(&self) -> Vec<PartitionName> {
        self.table.owners.lock().keys().cloned().collect()
    }

    fn knows_all(&self) -> bool {
        !self.table.outdated.lock().contains(&self.index)
    }

    fn own(&self, partition: &PartitionName) -> Option<Own> {
        let owners = self.table.owners.lock();
        owners.get(partition).filter(|(owner, _)| *owner == self.index).map(|(_, own)| *own)
    }

    fn route(&self, partition: &PartitionName, kind: CallKind, _: Duration) -> Route {
        let (mut owner, own) = self.table.owners.lock()[partition];
        let mut epoch = own.epoch;
        if let Some(belief) = self.table.beliefs.lock().get(&(self.index, partition.clone())) {
            (owner, epoch) = *belief;
        }
        if owner != self.index {
            let addresses = vec![self.table.addresses.lock()[&owner]];
            Route::Forward { node: name(owner), epoch, addresses }
        } else if own.answers(kind) {
            Route::Local(epoch)
        } else {
            Route::Hold
        }
    }

    fn hold_limit(&self) -> Duration {
        HOLD
    }

    fn lease(&self, node: &NodeName) -> Result<Option<NodeRecord>, LeaseError> {
        let index = (0..VOLUMES.len()).find(|index| name(*index) == *node);
        Ok(index.map(|index| NodeRecord {
            node: node.clone(),
            incarnation: incarnation(index),
            sequence: 1,
            state: if self.table.dead.lock().contains(&index) { NodeState::Dead } else { NodeState::Live },
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: vec![self.table.addresses.lock()[&index]],
            takes_addresses: false,
        }))
    }
}

/// The file service of a node, with its volumes in memory.
pub(crate) struct Local {
    partition: PartitionName,
    network: OnceLock<Arc<Network>>,
    sharing: OnceLock<Arc<Sharing>>,
    open: RwLock<Option<(Arc<Volumes>, Arc<FileServer>)>>,
    volume_server: OnceLock<VolumeServer>,
    /// The file data of the other node's partition, and the identity of that.
    pub(crate) foreign: RwLock<Option<([u8; 16], ForeignChunks)>>,
    /// The bucket in which this node creates objects for the other one.
    pub(crate) bucket: RwLock<Option<Arc<dyn Bucket>>>,
    /// Names of the objects whose creation was cancelled.
    pub(crate) cancelled: Mutex<Vec<String>>,
    /// The chunks that were announced.
    pub(crate) expected: Mutex<Vec<([u8; 16], ChunkPlace)>>,
}

impl Local {
    pub(crate) fn new(partition: PartitionName) -> Arc<Local> {
        let (network, sharing, open, volume_server) = Default::default();
        let (foreign, bucket, cancelled, expected) = Default::default();
        Arc::new(Local {
            partition,
            network,
            sharing,
            open,
            volume_server,
            foreign,
            bucket,
            cancelled,
            expected,
        })
    }

    fn server(&self) -> Result<Arc<FileServer>, AbortCode> {
        self.open.read().as_ref().map(|(_, server)| server.clone()).ok_or(AbortCode::VNOVOL)
    }

    pub(crate) fn volume_server(&self) -> Result<&VolumeServer, AbortCode> {
        self.volume_server.get().ok_or(AbortCode::RXGEN_OPCODE)
    }

    /// Opens the volumes of partitions of another process, with their locks.
    fn take_over(&self, handles: &[PartitionHandle]) {
        self.open(open_all(handles));
        let open = self.open.read();
        for handle in handles {
            open.as_ref().unwrap().1.restore_locks(handle.id, recorded_locks(&*handle.meta).unwrap());
        }
    }

    /// Begins to serve volumes.
    pub(crate) fn open(&self, volumes: Volumes) {
        let volumes = Arc::new(volumes);
        let mut config = FileServerConfig { uuid: SERVER, ..FileServerConfig::default() };
        // The second attempt to identify a client follows the first one at once.
        config.callbacks.refused_after_silence = Duration::ZERO;
        let server = FileServer::new(
            config,
            fileserver::Environment {
                volumes: volumes.clone(),
                membership: Arc::new(People),
                network: self.network.get().unwrap().clone(),
                clock: Arc::new(Time),
                locator: None,
                transport: Arc::new(TransportFigures::default),
                process_kib: Arc::new(|| 0),
            },
        );
        let server = Arc::new(server);
        _ = self.volume_server.set(self.sharing.get().unwrap().volume_server(&volumes, &server));
        *self.open.write() = Some((volumes, server));
    }
}

impl Files for Local {
    fn is_here(&self, volume: VolumeId) -> bool {
        self.open.read().as_ref().is_some_and(|(volumes, _)| volumes.get_any_state(volume).is_ok())
    }

    fn partition_of(&self, volume: VolumeId) -> Option<PartitionName> {
        let id = self.open.read().as_ref()?.0.partition_of(volume)?;
        // Another test has one partition, of another name.
        let is_pair = (0..VOLUMES.len()).any(|index| partition(index) == self.partition);
        Some(if is_pair { partition(id.index() as usize) } else { self.partition.clone() })
    }

    fn place(&self, id: PartitionId) -> Option<PartitionName> {
        let index = id.index() as usize;
        (index < VOLUMES.len()).then(|| partition(index))
    }

    fn serve(&self, call: &CallContext<'_>, stream: &mut dyn CallStream) -> Result<(), AbortCode> {
        let served = self.server()?.serve(|server| fs::dispatch(server, call, stream));
        served.wait().map_err(|error| error.abort_code())?
    }

    fn try_answer(&self, call: &CallContext<'_>, request: &[u8]) -> Option<Bytes> {
        let server = self.open.read().as_ref()?.1.clone();
        server.try_answer(call, request).map(|answer| answer.reply)
    }

    fn fetch(
        &self,
        call: &CallContext<'_>,
        request: &cluster::FetchRequest,
    ) -> Result<cluster::FetchReply, AbortCode> {
        let served = self.server()?.serve(|server| server.fetch_for_front(call, request));
        served.wait().map_err(|error| error.abort_code())?
    }

    fn offer(
        &self,
        call: &CallContext<'_>,
        request: &fs::StoreData64Request,
    ) -> Result<cluster::OfferStoreReply, AbortCode> {
        let served = self.server()?.serve(|server| server.offer_for_front(call, request));
        served.wait().map_err(|error| error.abort_code())?
    }

    fn store(
        &self,
        call: &CallContext<'_>,
        request: fs::StoreData64Request,
        objects: (Vec<u64>, u64),
        stream: &mut dyn CallStream,
    ) -> Result<fs::StoreData64Reply, AbortCode> {
        let served = self.server()?.serve(|server| server.store_for_front(call, request, objects, stream));
        served.wait().map_err(|error| error.abort_code())?
    }
}

impl Data for Local {
    fn read(&self, _: &PartitionName, identity: [u8; 16], chunk: ChunkPlace) -> Result<Bytes, StoreError> {
        match &*self.foreign.read() {
            Some((known, chunks)) if *known == identity => chunks.read(chunk),
            _ => Err(unavailable("not here")),
        }
    }

    fn expect(&self, _: &PartitionName, identity: [u8; 16], chunks: &[ChunkPlace]) {
        self.expected.lock().extend(chunks.iter().map(|chunk| (identity, *chunk)));
    }

    fn begin(&self, _: &PartitionName, identity: [u8; 16], object: &NewObject) -> Result<(), StoreError> {
        assert_eq!(identity, crate::shelf::IDENTITY);
        let bucket = self.bucket.read().clone().ok_or_else(|| unavailable("no bucket"))?;
        bucket.begin(&object.name, &object.contents);
        Ok(())
    }

    fn finish(&self, _: &PartitionName, object: &NewObject) -> Result<(), StoreError> {
        let bucket = self.bucket.read().clone().unwrap();
        bucket.finish(std::slice::from_ref(&object.name)).map_err(|error| unavailable(&error.to_string()))
    }

    fn cancel(&self, _: &PartitionName, object: &NewObject) {
        self.cancelled.lock().push(object.name.clone());
    }
}

fn unavailable(what: &str) -> StoreError {
    StoreError::Unavailable { place: "the bucket".into(), what: what.to_owned() }
}

impl Services for Local {
    fn kind(&self, service: u16, opcode: u32) -> Option<(CallKind, Repeat)> {
        kind_of_administration(service, opcode)
    }

    fn serve(
        &self,
        (service, _): (u16, u32),
        _: &PartitionName,
        call: &CallContext<'_>,
        stream: &mut dyn CallStream,
    ) -> Result<(), AbortCode> {
        match service {
            vol::SERVICE_ID => vol::dispatch(self.volume_server()?, call, stream),
            cellar::SERVICE_ID => cellar::dispatch(self.volume_server()?, call, stream),
            _ => Err(AbortCode::RXGEN_OPCODE),
        }
    }

    fn volume_deleted(&self, volume: VolumeId) {
        self.volume_server().unwrap().deleted_elsewhere(volume);
    }
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

impl Nodes for Ways {
    fn connect(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        let (dead_time, idle_time) = (Some(Duration::from_secs(6)), Some(self.idle));
        let options = ConnectOptions { dead_time, idle_time, ..ConnectOptions::default() };
        let (connector, identity) = (self.port.0.get().unwrap(), cell(SecurityLevel::Encrypted));
        connector.connect_with(Path::to(address), cluster::SERVICE_ID, Some(identity), options)
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

/// Everyone is a user by name; anyone may do anything, by the access lists of the tests' volumes.
struct People;

impl Membership for People {
    fn subject(&self, caller: &Caller) -> Result<Subject, AbortCode> {
        let is_admin = is_cell(caller);
        let user = if is_admin { UserId(1) } else { UserId::ANONYMOUS };
        Ok(Subject {
            user,
            groups: vec![user, UserId::ANYUSER],
            host_groups: Vec::new(),
            administrator: is_admin,
            superuser: is_admin,
            is_partial: false,
        })
    }

    fn names(&self, ids: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode> {
        Ok(ids.iter().map(|id| id.0.to_string().into_bytes()).collect())
    }

    fn ids(&self, names: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode> {
        let anyone = b"system:anyuser";
        Ok(names.iter().map(|name| (*name == anyone).then_some(UserId::ANYUSER)).collect())
    }
}

pub(crate) fn is_cell(caller: &Caller) -> bool {
    matches!(&caller.identity, Identity::Known(principal) if principal.name == "afs")
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
        _ = local.network.set(Arc::new(Network { files: file_connector.clone(), fronts: fronts.clone() }));
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
        _ = local.sharing.set(Sharing::new(way, ownership, &front));
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

/// Returns an empty partition in memory.
pub(crate) fn memory(index: usize) -> PartitionHandle {
    PartitionHandle {
        id: PartitionId::from_index(index as u32).unwrap(),
        meta: Arc::new(MemoryMeta::new()),
        chunks: Arc::new(MemoryChunks::new()),
        space: Arc::new(|| Space { total_kib: 1 << 30, free_kib: 1 << 29 }),
    }
}

/// Replies may always be sent.
struct Permitted;

impl Permit for Permitted {
    fn may_answer(&self) -> bool {
        true
    }

    fn may_change(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// Opens the volumes of partitions in a bucket.
fn open_all(handles: &[PartitionHandle]) -> Volumes {
    let volumes = Volumes::open(handles.to_vec(), VolumeOptions::default()).unwrap();
    for handle in handles {
        volumes.limit(handle.id, Arc::new(Permitted)).unwrap();
    }
    volumes
}

/// Opens the volumes of a partition.
pub(crate) fn open_volumes(handle: &PartitionHandle) -> Volumes {
    open_all(std::slice::from_ref(handle))
}

/// Opens an empty partition, and creates the volume of a node in it.
pub(crate) fn new_volumes(handle: &PartitionHandle, index: usize) -> Volumes {
    let volumes = open_volumes(handle);
    let id = VOLUMES[index];
    let new = NewVolume {
        id,
        name: format!("v{index}").parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: id,
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1_600_000_000),
    };
    volumes.create(handle.id, &new).unwrap();
    volumes
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
        let table = Arc::new(Table::default());
        for index in 0..VOLUMES.len() {
            let epoch = Epoch(5 + index as u64);
            let own = Own { epoch, reads: true, changes: true, is_draining: false };
            table.owners.lock().insert(partition(index), (index, own));
        }
        let mut world = World { table, nodes: Vec::new(), locals: Vec::new(), handles };
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
            Arc::new(View { index, table: self.table.clone() })
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
