//! A server on volumes in memory, and a network of simulated clients that log the messages they receive.

use crate::people::People;
use afs_idl::{ClientConnection, MemoryConnection, MemoryStream, cb, fs};
use base::{
    AbortCode, CallContext, Caller, Connection, Fid, HostUuid, Identity, Monotonic, PartitionId, Principal,
    SecurityLevel, UnixTime, VolumeId, VolumeType,
};
use fileserver::{
    CallbackNetwork, Clock, Environment, FileCall, FileServer, FileServerConfig, VolumeLocator,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use store::{MemoryChunks, MemoryMeta};
use volume::{Durability, NewVolume, PartitionHandle, Permit, Space, VolumeOptions, Volumes};
use xdr::Encode;

pub(crate) const HOME: VolumeId = VolumeId(536_870_912);
pub(crate) const RELEASED: VolumeId = VolumeId(536_870_913);
/// Creation date of both volumes.
pub(crate) const CREATED: u32 = 1_600_000_000;
const START: Duration = Duration::from_secs(1_700_000_000);
/// Quota of [`HOME`] in KiB.
pub(crate) const QUOTA: u64 = 5_000;

/// Events of all clients, in order.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// A clock that only moves when advanced explicitly.
#[derive(Default)]
pub(crate) struct TestClock(AtomicU64);

impl TestClock {
    pub(crate) fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds * 1_000_000_000, SeqCst);
    }
}

impl Clock for TestClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.0.load(SeqCst))
    }

    fn wall(&self) -> Duration {
        START + Duration::from_nanos(self.0.load(SeqCst))
    }
}

type Reaction = Box<dyn Fn(&[fs::Fid]) + Send + Sync>;

/// The callback service of one client.
pub(crate) struct Workstation {
    name: &'static str,
    uuid: Option<HostUuid>,
    reachable: AtomicBool,
    /// The code with which calls to it fail at the server, before they reach it.
    cut_off: Mutex<Option<AbortCode>>,
    /// Whether it implements ProbeUuid.
    knows_probes: AtomicBool,
    log: Log,
    /// Action of the client while it handles a callback break.
    on_break: Mutex<Option<Reaction>>,
}

impl Workstation {
    fn heard(&self, what: &str) {
        self.log.lock().push(format!("{} {what}", self.name));
    }

    pub(crate) fn set_reachable(&self, reachable: bool) {
        self.reachable.store(reachable, SeqCst);
    }

    pub(crate) fn cut_off(&self, code: Option<AbortCode>) {
        *self.cut_off.lock() = code;
    }

    pub(crate) fn forget_probes(&self) {
        self.knows_probes.store(false, SeqCst);
    }

    pub(crate) fn on_break(&self, reaction: impl Fn(&[fs::Fid]) + Send + Sync + 'static) {
        *self.on_break.lock() = Some(Box::new(reaction));
    }
}

impl cb::Server for Workstation {
    fn tell_me_about_yourself(
        &self,
        _: &CallContext<'_>,
        _: cb::TellMeAboutYourselfRequest,
    ) -> Result<cb::TellMeAboutYourselfReply, AbortCode> {
        self.heard("tells about itself");
        let uuid = self.uuid.ok_or(AbortCode::RXGEN_OPCODE)?;
        let addresses = cb::InterfaceAddr::new(uuid, &[Ipv4Addr::new(192, 168, 7, 7)]);
        let capabilities = vec![cb::client_capability::ERROR_TRANSLATION];
        Ok(cb::TellMeAboutYourselfReply { addresses, capabilities })
    }

    fn init_call_back_state3(
        &self,
        _: &CallContext<'_>,
        request: cb::InitCallBackState3Request,
    ) -> Result<cb::InitCallBackState3Reply, AbortCode> {
        assert_eq!(request.server_uuid, SERVER_UUID);
        self.heard("forgets all");
        Ok(cb::InitCallBackState3Reply)
    }

    fn init_call_back_state(
        &self,
        _: &CallContext<'_>,
        _: cb::InitCallBackStateRequest,
    ) -> Result<cb::InitCallBackStateReply, AbortCode> {
        self.heard("forgets all (old)");
        Ok(cb::InitCallBackStateReply)
    }

    fn probe_uuid(
        &self,
        _: &CallContext<'_>,
        request: cb::ProbeUuidRequest,
    ) -> Result<cb::ProbeUuidReply, AbortCode> {
        self.heard("is probed");
        if !self.knows_probes.load(SeqCst) {
            return Err(AbortCode::RXGEN_OPCODE);
        }
        if Some(request.client_uuid) == self.uuid { Ok(cb::ProbeUuidReply) } else { Err(AbortCode(1)) }
    }

    fn call_back(
        &self,
        _: &CallContext<'_>,
        request: cb::CallBackRequest,
    ) -> Result<cb::CallBackReply, AbortCode> {
        let mut fids: Vec<String> = request.fids.iter().map(|&fid| Fid::from(fid).to_string()).collect();
        fids.sort();
        self.heard(&format!("drops {}", fids.join(" ")));
        if let Some(reaction) = &*self.on_break.lock() {
            reaction(&request.fids);
        }
        Ok(cb::CallBackReply)
    }
}

const SERVER_UUID: HostUuid = HostUuid([7; 16]);

/// All clients by address.
#[derive(Default)]
pub(crate) struct TestNetwork {
    stations: Mutex<HashMap<SocketAddr, Arc<Workstation>>>,
    own: Mutex<Option<IpAddr>>,
    /// Clients that the server was to call, and how long it waits for each.
    patiences: Mutex<Vec<(SocketAddr, Duration)>>,
    /// The only site of each volume in the location database.
    sites: Mutex<HashMap<u32, Ipv4Addr>>,
}

impl TestNetwork {
    /// Places a volume on the server with this address, according to the location database.
    pub(crate) fn place(&self, volume: u32, address: Ipv4Addr) {
        self.sites.lock().insert(volume, address);
    }

    /// Takes the calls to clients since the previous call of this: the addresses, and how long the server waits for a silent
    /// one.
    pub(crate) fn patiences(&self) -> Vec<(SocketAddr, Duration)> {
        std::mem::take(&mut self.patiences.lock())
    }

    /// Makes this address one of the server's own.
    pub(crate) fn own(&self, ip: IpAddr) {
        *self.own.lock() = Some(ip);
    }
}

impl VolumeLocator for TestNetwork {
    fn locate(&self, name: &[u8]) -> Result<fs::VolumeInfo, AbortCode> {
        let volume = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        let volume = volume.ok_or(AbortCode::VL_NOENT)?;
        let site = *self.sites.lock().get(&volume).ok_or(AbortCode::VL_NOENT)?;
        let mut info = fs::VolumeInfo { volume_id: volume, server_count: 1, ..fs::VolumeInfo::default() };
        info.servers[0] = site.into();
        Ok(info)
    }
}

impl CallbackNetwork for TestNetwork {
    fn connection(&self, peer: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
        self.patiences.lock().push((peer, patience));
        let station = self.stations.lock().get(&peer).cloned();
        Arc::new(MemoryConnection::new(peer, 100, move |stream| {
            let station = station.as_ref().filter(|station| station.reachable.load(SeqCst));
            let station = station.ok_or(AbortCode::RX_CALL_DEAD)?;
            if let Some(code) = *station.cut_off.lock() {
                return Err(code);
            }
            let from = caller("", SocketAddr::from(([9, 9, 9, 9], 7000)));
            cb::dispatch(&**station, &CallContext::new(&from), stream)
        }))
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        *self.own.lock() == Some(ip)
    }
}

fn caller(name: &str, peer: SocketAddr) -> Caller {
    let principal =
        |name: &str| Principal { name: name.into(), instance: String::new(), realm: String::new() };
    Caller {
        identity: if name.is_empty() { Identity::Anonymous } else { Identity::Known(principal(name)) },
        level: SecurityLevel::Encrypted,
        peer,
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        connection: Connection::new(),
    }
}

/// A user at a workstation.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) caller: Caller,
    pub(crate) station: Arc<Workstation>,
}

impl Client {
    /// Returns the context of a new call of this user.
    pub(crate) fn call(&self) -> CallContext<'_> {
        CallContext::new(&self.caller)
    }
}

pub(crate) struct World {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) network: Arc<TestNetwork>,
    pub(crate) people: Arc<People>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) meta: Arc<MemoryMeta>,
    chunks: Arc<MemoryChunks>,
    pub(crate) server: Arc<FileServer>,
    pub(crate) log: Log,
}

/// The only partition.
pub(crate) fn partition() -> PartitionId {
    PartitionId::from_index(0).unwrap()
}

fn open(meta: &Arc<MemoryMeta>, chunks: &Arc<MemoryChunks>, durability: Durability) -> Volumes {
    let handle = PartitionHandle {
        id: partition(),
        meta: meta.clone(),
        chunks: chunks.clone(),
        space: Arc::new(|| Space { total_kib: 1 << 30, free_kib: 1 << 29 }),
    };
    Volumes::open(vec![handle], VolumeOptions { durability, ..VolumeOptions::default() }).unwrap()
}

fn create(volumes: &Volumes) {
    let new = NewVolume {
        id: HOME,
        name: "home".parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: HOME,
        quota_max_kib: QUOTA,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(CREATED),
    };
    volumes.create(partition(), &new).unwrap();
    let released =
        NewVolume { id: RELEASED, name: "home.readonly".parse().unwrap(), kind: VolumeType::ReadOnly, ..new };
    volumes.create(partition(), &released).unwrap();
}

impl World {
    /// Creates a server with two volumes: [`HOME`], whose root grants all rights to `staff` and read access
    /// to anyone, and [`RELEASED`], which is read-only.
    pub(crate) fn new() -> World {
        World::with_config(FileServerConfig::default())
    }

    pub(crate) fn with_config(config: FileServerConfig) -> World {
        World::with(config, Durability::Always)
    }

    pub(crate) fn with_durability(durability: Durability) -> World {
        World::with(FileServerConfig::default(), durability)
    }

    fn with(config: FileServerConfig, durability: Durability) -> World {
        let clock = Arc::new(TestClock::default());
        let network = Arc::new(TestNetwork::default());
        let people = Arc::new(People::default());
        let meta = Arc::new(MemoryMeta::new());
        let chunks = Arc::new(MemoryChunks::new());
        let volumes = Arc::new(open(&meta, &chunks, durability));
        create(&volumes);
        let server = start(config, &clock, &network, &people, &volumes);
        let world = World { clock, network, people, volumes, meta, chunks, server, log: Log::default() };
        let admin = world.client("admin", 99);
        world.set_acl(&admin, root(), "2\n0\nstaff\t127\nsystem:anyuser\t9\n").unwrap();
        world.heard();
        world
    }

    /// Returns another server that takes the partition over, with the same clients and clock. It finds what is durable.
    pub(crate) fn taken_over(&self, permit: Arc<dyn Permit>) -> World {
        let (clock, network, people) = (self.clock.clone(), self.network.clone(), self.people.clone());
        let (meta, chunks) = (Arc::new(self.meta.taken_over(0)), self.chunks.clone());
        let volumes = Arc::new(open(&meta, &chunks, Durability::Always));
        volumes.limit(partition(), permit).unwrap();
        let server = start(FileServerConfig::default(), &clock, &network, &people, &volumes);
        World { clock, network, people, volumes, meta, chunks, server, log: self.log.clone() }
    }

    /// Restarts the server with the same volumes, clients and clock. All other state is lost.
    pub(crate) fn restart(&mut self) {
        let config = FileServerConfig::default();
        self.server = start(config, &self.clock, &self.network, &self.people, &self.volumes);
    }

    /// Returns `user` at workstation `number`, on a new connection.
    pub(crate) fn client(&self, user: &'static str, number: u8) -> Client {
        let name = if user.is_empty() { "nobody" } else { user };
        self.client_with(user, name, number, Some(HostUuid([number; 16])))
    }

    /// Like [`Self::client`], with an old cache manager that has no UUID.
    pub(crate) fn old_client(&self, user: &'static str, number: u8) -> Client {
        self.client_with(user, user, number, None)
    }

    /// Returns a client at workstation `number` that answers to the UUID of another client.
    pub(crate) fn impostor(&self, name: &'static str, number: u8, victim: &Client) -> Client {
        self.client_with("", name, number, victim.station.uuid)
    }

    fn client_with(&self, user: &str, name: &'static str, number: u8, uuid: Option<HostUuid>) -> Client {
        let address = SocketAddr::from(([10, 0, 0, number], 7001));
        let log = self.log.clone();
        let new = || {
            let (reachable, cut_off, on_break) = (AtomicBool::new(true), Mutex::default(), Mutex::default());
            let knows_probes = AtomicBool::new(true);
            Arc::new(Workstation { name, uuid, reachable, cut_off, knows_probes, log, on_break })
        };
        let station = self.network.stations.lock().entry(address).or_insert_with(new).clone();
        Client { caller: caller(user, address), station }
    }

    /// Returns the same workstation and user on another connection, from another address.
    pub(crate) fn moved(&self, client: &Client, address: SocketAddr) -> Client {
        let mut stations = self.network.stations.lock();
        stations.remove(&client.caller.peer);
        stations.insert(address, client.station.clone());
        let connection = Connection::new();
        Client { caller: Caller { peer: address, connection, ..client.caller.clone() }, ..client.clone() }
    }

    /// Takes the events logged since the previous call.
    pub(crate) fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }

    /// FetchStatus on the fast path, if it applies.
    pub(crate) fn try_status(&self, client: &Client, fid: fs::Fid) -> Option<fs::FetchStatusReply> {
        let mut request = xdr::to_vec(&fs::FETCH_STATUS);
        fs::FetchStatusRequest { fid }.encode(&mut request);
        let answer = self.server.try_answer(&CallContext::new(&client.caller), &request)?;
        Some(xdr::from_slice(&answer.reply).unwrap())
    }

    /// InlineBulkStatus on the fast path, if it applies.
    pub(crate) fn try_statuses(
        &self,
        client: &Client,
        fids: &[fs::Fid],
    ) -> Option<fs::InlineBulkStatusReply> {
        let mut request = xdr::to_vec(&fs::INLINE_BULK_STATUS);
        fs::InlineBulkStatusRequest { fids: fids.to_vec() }.encode(&mut request);
        let answer = self.server.try_answer(&CallContext::new(&client.caller), &request)?;
        Some(xdr::from_slice(&answer.reply).unwrap())
    }

    /// Serves a call, and returns when its changes are durable.
    pub(crate) fn serve<T>(&self, call: impl FnOnce(&FileCall<'_>) -> T) -> T {
        serve(&self.server, call)
    }

    /// Makes a call in wire form, and logs when it is acknowledged.
    pub(crate) fn wire_call(
        &self,
        client: &Client,
        opcode: u32,
        request: &impl xdr::Encode,
        data: &[u8],
    ) -> Reply {
        let mut message = xdr::to_vec(&opcode);
        request.encode(&mut message);
        message.extend_from_slice(data);
        let mut stream = MemoryStream::new(&message, 1_000);
        let result = self.serve(|call| fs::dispatch(call, &CallContext::new(&client.caller), &mut stream));
        self.log.lock().push(format!("{} is answered", client.station.name));
        result.map(|()| stream.outgoing)
    }
}

/// Serves a call, and returns when its changes are durable.
pub(crate) fn serve<T>(server: &FileServer, call: impl FnOnce(&FileCall<'_>) -> T) -> T {
    server.serve(call).wait().expect("a store in memory")
}

/// The bytes of a reply, or the abort code of the call.
pub(crate) type Reply = Result<Vec<u8>, AbortCode>;

fn start(
    config: FileServerConfig,
    clock: &Arc<TestClock>,
    network: &Arc<TestNetwork>,
    people: &Arc<People>,
    volumes: &Arc<Volumes>,
) -> Arc<FileServer> {
    let environment = Environment {
        volumes: volumes.clone(),
        membership: people.clone(),
        network: network.clone(),
        clock: clock.clone(),
        locator: Some(network.clone()),
        transport: Arc::new(fileserver::TransportFigures::default),
        process_kib: Arc::new(|| 4_711),
    };
    Arc::new(FileServer::new(FileServerConfig { uuid: SERVER_UUID, ..config }, environment))
}

pub(crate) fn root() -> fs::Fid {
    Fid::root(HOME).into()
}

pub(crate) fn released_root() -> fs::Fid {
    Fid::root(RELEASED).into()
}

pub(crate) fn text(fid: fs::Fid) -> String {
    Fid::from(fid).to_string()
}
