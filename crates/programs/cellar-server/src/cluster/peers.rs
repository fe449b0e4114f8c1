//! Calls between this node and the others.

use super::others::Others;
use super::{Databases, Node};
use crate::authority::Authority;
use crate::environment::Callbacks;
use adminserver::AdminServer;
use afs_idl::{CallStream, ClientCall, ClientConnection, cluster, fs, vol};
use anyhow::Result;
use base::{AbortCode, CallContext, PartitionId, SecurityLevel, VolumeId};
use bytes::Bytes;
use cell_client::network::{CellIdentity, RENEWAL, Renewing};
use cluster_proto::{NodeName, Owned, PartitionName};
use clusterserver::{
    ClusterService, Counters, Environment, Files, Front, Fronts, Handler, Nodes, Way, is_absence,
};
use fileserver::{Answer, FileServer};
use rx::{ConnectOptions, Connector, Path};
use rx_security::{ClientSecurity, KeyRing};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};
use volserver::VolumeServer;
use volume::{Pending, Volumes};

/// A node that is silent for this time is considered dead; half of a lease, like the protocol's doubt.
const DEAD: Duration = Duration::from_secs(3);

/// How long a front waits for an owner that answers pings, but sends and takes no data. Longer than an owner holds a call
/// (20 s). The front then repeats the call, or gives it up.
const IDLE_OF_OWNER: Duration = Duration::from_secs(30);

/// How long after the end of its lease a node counts on having lost what it owned: others wait for 6 s where it relies on 4.9 s, and see
/// its last renewal up to a second later.
const TAKEN: Duration = Duration::from_secs(2);

/// Interval at which the lease is looked up meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// The abort code of a call that may have been executed by a node that does not own the partition any more.
const LOST: AbortCode = AbortCode(cluster::refusal::LOST);

/// How long an owner waits in the same way for a front that calls a client. Longer than the front waits for a client that
/// is silent.
const IDLE_OF_FRONT: Duration = Duration::from_secs(15);

/// Connections to other nodes, and through them to clients.
pub(crate) struct Peers {
    node: Arc<Node>,
    links: Arc<Links>,
    fronts: Arc<Fronts>,
}

/// Connections from the cluster's port, with the cell's key.
struct Links {
    node: Arc<Node>,
    identity: Arc<dyn ClientSecurity>,
    /// How long a node may answer pings only.
    idle: Duration,
}

impl Links {
    fn link(&self, address: SocketAddr, idle_time: Option<Duration>) -> Arc<dyn ClientConnection> {
        let (node, identity) = (Arc::clone(&self.node), Arc::clone(&self.identity));
        let options = ConnectOptions { idle_time, dead_time: Some(DEAD), ..ConnectOptions::default() };
        let way = Box::new(move || node.way.get());
        Arc::new(Link { way, address, identity, options, made: OnceLock::new() })
    }
}

impl Nodes for Links {
    fn connect(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        self.link(address, Some(self.idle))
    }

    fn connect_patiently(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        self.link(address, None)
    }
}

/// A connection from a port that may open later. It is made for the first call while the port is open.
struct Link {
    way: Box<dyn Fn() -> Option<Connector> + Send + Sync>,
    address: SocketAddr,
    identity: Arc<dyn ClientSecurity>,
    options: ConnectOptions,
    made: OnceLock<Renewing>,
}

impl Link {
    fn make(&self, connector: Connector) -> Renewing {
        let (address, identity, options) = (self.address, Arc::clone(&self.identity), self.options);
        let connect = move || {
            let identity = Some(Arc::clone(&identity));
            connector.connect_with(Path::to(address), cluster::SERVICE_ID, identity, options)
        };
        Renewing::new(Box::new(connect), RENEWAL)
    }
}

impl ClientConnection for Link {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        let connector = (self.way)().ok_or(AbortCode::RX_RESTARTING)?;
        self.made.get_or_init(|| self.make(connector)).begin()
    }

    fn peer(&self) -> SocketAddr {
        self.address
    }
}

impl Peers {
    /// Creates the connections of a node, which encrypt whatever the cell's own calls use elsewhere.
    ///
    /// # Errors
    /// If the keys make no valid ticket.
    pub(crate) fn new(node: &Arc<Node>, keys: Arc<KeyRing>) -> Result<Arc<Peers>> {
        let identity = Arc::new(CellIdentity::new(keys, SecurityLevel::Encrypted)?);
        let links = |idle| {
            let (node, identity) = (Arc::clone(node), Arc::clone(&identity));
            Arc::new(Links { node, identity: identity as Arc<dyn ClientSecurity>, idle })
        };
        let fronts = Fronts::new(links(IDLE_OF_FRONT), node.members().clone(), rx::now);
        let links = links(IDLE_OF_OWNER);
        Ok(Arc::new(Peers { node: Arc::clone(node), links, fronts }))
    }

    /// Returns a connection to another node, whose calls end soon if that one does not answer.
    pub(super) fn link(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        self.links.link(address, Some(DEAD))
    }

    /// Returns a service address that this node has, from which clients accept messages.
    pub(crate) fn source(&self) -> Option<Ipv4Addr> {
        self.node.addresses().source()
    }

    /// Returns a connection to the callback service of a client: `direct`, or one through the node that the client has
    /// called. Without a service address, which clients know the server by, it goes through a node that has one.
    pub(crate) fn connection(
        &self,
        client: SocketAddr,
        patience: Duration,
        direct: Arc<dyn ClientConnection>,
    ) -> Arc<dyn ClientConnection> {
        self.fronts.connection(client, patience, (direct, self.node.addresses().holder()))
    }
}

/// The file service of this process, as other nodes use it.
struct Here {
    node: Arc<Node>,
    volumes: Arc<Volumes>,
    server: Arc<FileServer>,
}

impl Here {
    /// Returns the result of a call once it may be sent. If this node has had no lease for so long that another one may have taken the
    /// partition over, the call ends before: its front repeats it there, and finds its result.
    fn end<T: Send + 'static>(&self, served: Pending<Result<T, AbortCode>>) -> Result<T, AbortCode> {
        let served = match served.into_ready() {
            Ok(result) => return result,
            Err(pending) => pending,
        };
        let (ended, end) = sync_channel(1);
        // The bucket may not answer for a minute, and this thread must not sync for other calls, either.
        let waiting = Builder::new().name("pending".into()).spawn(move || _ = ended.send(served.wait()));
        if let Err(error) = waiting {
            tracing::error!(%error, "no thread can wait for a commit");
            return Err(LOST);
        }
        let mut lapsed: Option<Instant> = None;
        loop {
            match end.recv_timeout(LOOK) {
                Ok(result) => return result.map_err(|error| error.abort_code())?,
                Err(RecvTimeoutError::Disconnected) => return Err(LOST),
                Err(RecvTimeoutError::Timeout) if self.node.member().has_lease() => lapsed = None,
                Err(RecvTimeoutError::Timeout) => {
                    if lapsed.get_or_insert_with(Instant::now).elapsed() >= TAKEN {
                        return Err(LOST);
                    }
                }
            }
        }
    }

    fn partition(&self, volume: VolumeId) -> Option<PartitionId> {
        self.volumes.partition_of(volume)
    }
}

impl Files for Here {
    fn is_here(&self, volume: VolumeId) -> bool {
        self.partition(volume).is_some_and(|partition| self.node.owns(Owned::Partition(partition)))
    }

    fn partition_of(&self, volume: VolumeId) -> Option<PartitionName> {
        self.place(self.partition(volume)?)
    }

    fn place(&self, partition: PartitionId) -> Option<PartitionName> {
        self.node.place(partition)
    }

    fn serve(&self, call: &CallContext<'_>, stream: &mut dyn CallStream) -> Result<(), AbortCode> {
        self.end(self.server.serve(|server| afs_idl::fs::dispatch(server, call, stream)))
    }

    fn try_answer(&self, call: &CallContext<'_>, request: &[u8]) -> Option<Bytes> {
        self.server.try_answer(call, request).map(|answer| answer.reply)
    }

    fn fetch(
        &self,
        call: &CallContext<'_>,
        request: &cluster::FetchRequest,
    ) -> Result<cluster::FetchReply, AbortCode> {
        self.end(self.server.serve(|server| server.fetch_for_front(call, request)))
    }

    fn offer(
        &self,
        call: &CallContext<'_>,
        request: &fs::StoreData64Request,
    ) -> Result<cluster::OfferStoreReply, AbortCode> {
        self.end(self.server.serve(|server| server.offer_for_front(call, request)))
    }

    fn store(
        &self,
        call: &CallContext<'_>,
        request: fs::StoreData64Request,
        objects: (Vec<u64>, u64),
        stream: &mut dyn CallStream,
    ) -> Result<fs::StoreData64Reply, AbortCode> {
        self.end(self.server.serve(|server| server.store_for_front(call, request, objects, stream)))
    }
}

/// The ways of calls: to other nodes, and from them.
pub(crate) struct Calls {
    node: Arc<Node>,
    front: Front,
    service: ClusterService,
    others: Arc<Others>,
}

impl Calls {
    /// Begins to pass calls on, and to serve those of others.
    pub(crate) fn new(
        peers: &Peers,
        volumes: &Arc<Volumes>,
        server: &Arc<FileServer>,
        clients: &Arc<Callbacks>,
        databases: Option<&Arc<Databases>>,
    ) -> Calls {
        let node = Arc::clone(&peers.node);
        let here = Here { node: node.clone(), volumes: volumes.clone(), server: server.clone() };
        let others = Arc::new(Others::new(databases));
        let environment = Environment {
            ownership: node.members().clone(),
            files: Arc::new(here),
            data: node.foreign().clone(),
            services: others.clone(),
            nodes: peers.links.clone(),
            clients: clients.clone(),
            is_cell: Authority::is_cell,
            now: rx::now,
            pause: rx::pause,
        };
        let front = Front::new(environment.clone());
        let service = ClusterService::new(environment, peers.fronts.clone());
        Calls { node, front, service, others }
    }

    /// Serves calls of the volume server for other nodes, too.
    pub(crate) fn set_volume_server(&self, server: &Arc<VolumeServer>) {
        self.others.set_volume_server(Arc::downgrade(server));
    }

    /// Serves calls of Cellar's own service for other nodes, too.
    pub(crate) fn set_admin_server(&self, server: &Arc<AdminServer>) {
        // It is set once, at the start.
        _ = self.others.admin_server.set(Arc::downgrade(server));
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    pub(super) fn front(&self) -> &Front {
        &self.front
    }

    /// Serves a client's call of the volume server or of Cellar's own service by `here`, or passes it on; see
    /// [`Front::administer`].
    pub(crate) fn administer(
        &self,
        (service, is_offered): (u16, fn(u32) -> bool),
        caller: &CallContext<'_>,
        stream: &mut dyn CallStream,
        here: &Handler<'_>,
    ) -> Result<(), AbortCode> {
        let departures = self.node.members().departures();
        let result = self.front.administer((service, is_offered), caller, stream, here);
        let code = match result {
            // Its partition may have left after the way was chosen.
            Err(code) if is_absence(code) && self.node.members().departures() != departures => {
                AbortCode::VRESTARTING
            }
            Err(code) => code,
            Ok(()) => return Ok(()),
        };
        // `vos` has no message for the restart of a server.
        let is_restart = service == vol::SERVICE_ID && code == AbortCode::VRESTARTING;
        Err(if is_restart { AbortCode::VBUSY } else { code })
    }

    /// Serves a client's call of the file service by `here`, or passes it on.
    pub(crate) fn serve(
        &self,
        caller: &CallContext<'_>,
        stream: &mut dyn CallStream,
        here: impl FnOnce(&mut dyn CallStream) -> Pending<Result<(), AbortCode>>,
    ) -> Pending<Result<(), AbortCode>> {
        let departures = self.node.members().departures();
        let mut source = match self.front.route(caller, stream) {
            Way::Here(source) => source,
            Way::Ended(result) => return Pending::ready(result),
        };
        here(&mut source).map(|result| match result {
            // Its volume may have left after the way was chosen. The client begins anew.
            Err(code) if is_absence(code) && self.node.members().departures() != departures => {
                Err(AbortCode::VRESTARTING)
            }
            result => result,
        })
    }

    /// Returns the counts of calls between nodes.
    pub(crate) fn counters(&self) -> Counters {
        self.front.counters() + self.service.counters()
    }

    /// Returns the nodes that have called lately, with their addresses.
    pub(crate) fn callers(&self) -> Vec<(NodeName, Vec<SocketAddr>)> {
        self.service.callers()
    }

    /// Serves a call of another node.
    pub(crate) fn dispatch(
        &self,
        caller: &CallContext<'_>,
        stream: &mut dyn CallStream,
    ) -> Result<(), AbortCode> {
        cluster::dispatch(&self.service, caller, stream)
    }

    /// Returns the reply to a call of another node that needs no waiting.
    pub(crate) fn try_answer(&self, caller: &CallContext<'_>, request: &[u8]) -> Option<Answer> {
        let begun = rx::now();
        let reply = self.service.try_answer(caller, request)?;
        let ended = rx::now();
        Some(Answer { reply, time: ended.since(begun), ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Way;
    use rx::{Client, ClientConfig};
    use rx_security::{KeySet, ServiceKey};

    #[test]
    fn a_link_works_as_soon_as_its_port_is_open() {
        let mut keys = KeySet::new();
        keys.insert(1, ServiceKey::new(18, &[7; 32]).unwrap());
        let identity = CellIdentity::new(Arc::new(KeyRing::new(keys)), SecurityLevel::Encrypted).unwrap();
        let port = Arc::new(Way::default());
        let way = Arc::clone(&port);
        let link = Link {
            way: Box::new(move || way.get()),
            address: "127.0.0.1:7010".parse().unwrap(),
            identity: Arc::new(identity),
            options: ConnectOptions::default(),
            made: OnceLock::new(),
        };
        let begin = || link.begin().map(drop);
        assert_eq!(begin(), Err(AbortCode::RX_RESTARTING));
        let addresses = vec!["127.0.0.1".parse().unwrap()];
        let client = Client::start(&ClientConfig { addresses, ..ClientConfig::default() }).unwrap();
        port.open(client.connector());
        assert_eq!((begin(), begin()), (Ok(()), Ok(())));
        port.close();
        assert_eq!(begin(), Err(AbortCode::RX_RESTARTING));
    }
}
