//! The cluster's service: what other nodes ask of this one.

use crate::administration::{Concern, is_administration};
use crate::callers::Callers;
use crate::counters::{Counters, count};
use crate::environment::Environment;
use crate::fronts::{Fronts, converse};
use crate::outgoing::KEPT_BYTES_MAX;
use crate::questions::Questions;
use crate::scope::{self, Scope};
use crate::streams::{Checking, Collecting};
use crate::wire;
use afs_idl::cluster::{self, Server, refusal};
use afs_idl::{CallStream, StreamSource, Work, fs};
use base::{AbortCode, CallContext, CallId, Caller, Identity, Monotonic, SecurityLevel, VolumeId};
use bytes::Bytes;
use cluster_proto::{
    Begun, CallKind, Epoch, Incarnation, NodeName, NodeRecord, NodeState, PartitionName, Repeat, Results,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long a lease that was read from the bucket is relied on.
const LEASE_FRESH: Duration = Duration::from_secs(2);

/// How long a caller that was found to have no lease is refused without looking again. Nodes repeat refused calls for seconds.
const ABSENCE_FRESH: Duration = Duration::from_millis(200);

/// Maximum number of remembered leases, and of callers without one; beyond it all are forgotten.
const LEASES_MAX: usize = 256;

/// How often a call that waits is considered again.
const PAUSE: Duration = Duration::from_millis(10);

/// Maximum time for which a client is waited for on behalf of another node.
const PATIENCE_MAX: Duration = Duration::from_secs(30);

/// ENODEV, as the volume service sends it.
const ENODEV: AbortCode = AbortCode(19);

const NOT_OWNER: AbortCode = AbortCode(refusal::NOT_OWNER);
const OTHER_EPOCH: AbortCode = AbortCode(refusal::OTHER_EPOCH);
const HELD: AbortCode = AbortCode(refusal::HELD);
const NO_LEASE: AbortCode = AbortCode(refusal::NO_LEASE);
const LOST: AbortCode = AbortCode(refusal::LOST);

/// The request did not arrive whole. Its front gets no answer any more: it repeats the call, which is to be executed then.
const NOT_EXECUTED: AbortCode = AbortCode::RX_CALL_DEAD;

/// The result of a call that is executed once: its reply, or its error.
type Reply = Result<Bytes, AbortCode>;

/// The service; implements [`cluster::Server`].
///
/// Only a caller with the cell's key and an encrypted connection gets past the first step. It names itself by its
/// membership, which must be that of a live lease in the bucket with the caller's address.
pub struct ClusterService {
    pub(crate) environment: Environment,
    pub(crate) fronts: Arc<Fronts>,
    pub(crate) callers: Callers,
    /// Results of changes; nothing waits under the lock.
    results: Mutex<Results<Reply>>,
    /// Leases that were read from the bucket; nothing waits under the lock.
    leases: Mutex<HashMap<Incarnation, Lease>>,
    /// Callers for which the bucket had no lease, and when it was asked; nothing waits under the lock.
    absent: Mutex<HashMap<(NodeName, Incarnation), Monotonic>>,
    /// The questions to the bucket in vain, by the callers' addresses: one may name any membership. Nothing waits under the lock.
    questions: Mutex<Questions>,
}

/// A lease that was valid when it was read.
#[derive(Clone)]
struct Lease {
    read: Monotonic,
    node: NodeName,
    addresses: Vec<SocketAddr>,
}

/// Serves a call from a stream.
type Serve<'a> = dyn Fn(&mut dyn CallStream) -> Result<(), AbortCode> + 'a;

/// A forwarded call that may be executed now.
pub(crate) struct Admitted<'a> {
    pub(crate) partition: &'a PartitionName,
    pub(crate) epoch: Epoch,
    pub(crate) kind: CallKind,
    pub(crate) repeat: Repeat,
    /// Whether it can be executed again if its request did not arrive whole.
    pub(crate) is_of_files: bool,
}

impl<'a> Admitted<'a> {
    /// A call of the file service that changes nothing.
    fn read(partition: &'a PartitionName, epoch: u64) -> Admitted<'a> {
        let (epoch, kind, repeat) = (Epoch(epoch), CallKind::Read, Repeat::Freely);
        Admitted { partition, epoch, kind, repeat, is_of_files: true }
    }
}

impl ClusterService {
    /// Creates the service.
    pub fn new(environment: Environment, fronts: Arc<Fronts>) -> ClusterService {
        ClusterService {
            environment,
            fronts,
            callers: Callers::default(),
            results: Mutex::default(),
            leases: Mutex::default(),
            absent: Mutex::default(),
            questions: Mutex::default(),
        }
    }

    /// Returns the counts of calls that were executed for other nodes, and of messages to clients.
    pub fn counters(&self) -> Counters {
        self.fronts.tally.counters()
    }

    /// Returns the nodes that have called lately, with the addresses in their leases.
    pub fn callers(&self) -> Vec<(NodeName, Vec<SocketAddr>)> {
        let leases = self.leases.lock();
        leases.values().map(|lease| (lease.node.clone(), lease.addresses.clone())).collect()
    }

    /// Refuses callers that do not hold the cell's key, or do not encrypt.
    fn trust(&self, caller: &Caller) -> Result<(), AbortCode> {
        self.check_trust(caller).inspect_err(|_| count(&self.fronts.tally.strangers))
    }

    pub(crate) fn check_trust(&self, caller: &Caller) -> Result<(), AbortCode> {
        match caller.identity {
            Identity::Anonymous => Err(AbortCode::RXKADNOAUTH),
            Identity::Known(_) if !(self.environment.is_cell)(caller) => Err(AbortCode::UAEACCES),
            Identity::Known(_) if caller.level != SecurityLevel::Encrypted => Err(AbortCode::RXKADLEVELFAIL),
            Identity::Known(_) => Ok(()),
        }
    }

    /// Returns the membership of a trusted caller, and where it receives calls, if its lease was read lately.
    pub(crate) fn known_node(
        &self,
        caller: &Caller,
        node: &cluster::Node,
    ) -> Option<(Incarnation, Vec<SocketAddr>)> {
        let (name, incarnation) = wire::parse_node(node).ok()?;
        let addresses = self.fresh_lease(&name, incarnation)?;
        let ip = caller.peer.ip();
        addresses.iter().any(|address| address.ip() == ip).then_some((incarnation, addresses))
    }

    /// Returns the addresses in a lease that was read lately.
    fn fresh_lease(&self, name: &NodeName, incarnation: Incarnation) -> Option<Vec<SocketAddr>> {
        let leases = self.leases.lock();
        let lease = leases.get(&incarnation).filter(|lease| lease.node == *name)?;
        ((self.environment.now)().since(lease.read) < LEASE_FRESH).then(|| lease.addresses.clone())
    }

    /// Returns the membership of the calling node, and where it receives calls.
    fn node(
        &self,
        caller: &Caller,
        node: &cluster::Node,
    ) -> Result<(Incarnation, Vec<SocketAddr>), AbortCode> {
        self.trust(caller)?;
        let (name, incarnation) = wire::parse_node(node)?;
        let ip: IpAddr = caller.peer.ip();
        let addresses = match self.fresh_lease(&name, incarnation) {
            Some(addresses) => addresses,
            None => self.read_lease(ip, name.clone(), incarnation)?,
        };
        if addresses.iter().any(|address| address.ip() == ip) {
            return Ok((incarnation, addresses));
        }
        tracing::warn!(node = %name, peer = %caller.peer, ?addresses, "a caller says that it is a node, and its \
            address is not in that node's lease");
        Err(NO_LEASE)
    }

    /// Returns the membership of the calling node, and the client of the file service for which it calls.
    fn client(
        &self,
        caller: &Caller,
        front: &cluster::Node,
        client: &cluster::Caller,
    ) -> Result<(Incarnation, Caller), AbortCode> {
        let (front, addresses) = self.node(caller, front)?;
        let connection = client.connection;
        let client = self.callers.of(front, connection, wire::parse_caller(client)?);
        if let Some(front) = addresses.first() {
            self.fronts.met(client.peer, *front);
        }
        Ok((front, client))
    }

    /// Reads the lease of a caller at this address. Callers without one, such as a node that was evicted and goes on, do not cause a
    /// request to the bucket with each call, whatever membership they name.
    fn read_lease(
        &self,
        ip: IpAddr,
        name: NodeName,
        incarnation: Incarnation,
    ) -> Result<Vec<SocketAddr>, AbortCode> {
        let (now, caller) = ((self.environment.now)(), (name, incarnation));
        let is_absent = self.absent.lock().get(&caller).is_some_and(|at| now.since(*at) < ABSENCE_FRESH);
        if is_absent || !self.questions.lock().may_ask(now, ip) {
            return Err(NO_LEASE);
        }
        let (name, _) = &caller;
        let record = self.environment.ownership.lease(name);
        let is_lease =
            |record: &NodeRecord| record.state == NodeState::Live && record.incarnation == incarnation;
        // A request that has failed says nothing about the lease.
        let Some(record) = record.map_err(|_| NO_LEASE)?.filter(is_lease) else {
            self.questions.lock().was_in_vain(now, ip);
            tracing::info!(node = %name, %incarnation, "a caller says that it is a node, and has no lease");
            let mut absent = self.absent.lock();
            if absent.len() >= LEASES_MAX {
                absent.clear();
            }
            absent.insert(caller, (self.environment.now)());
            return Err(NO_LEASE);
        };
        let mut leases = self.leases.lock();
        if leases.len() >= LEASES_MAX {
            leases.clear();
        }
        let lease = Lease { read: now, node: caller.0, addresses: record.addresses.clone() };
        leases.insert(incarnation, lease);
        Ok(record.addresses)
    }

    /// Returns for how long a call may be held here, whatever its front asks for.
    fn wait(&self, wait_ms: u32) -> Duration {
        Duration::from_millis(wait_ms.into()).min(self.environment.ownership.hold_limit())
    }

    /// Waits until this node may answer calls of this kind in this epoch.
    fn admit(
        &self,
        partition: &PartitionName,
        epoch: Epoch,
        kind: CallKind,
        wait: Duration,
    ) -> Result<(), AbortCode> {
        let begun = (self.environment.now)();
        loop {
            match self.environment.ownership.own(partition) {
                None => return Err(NOT_OWNER),
                Some(own) if own.epoch != epoch => return Err(OTHER_EPOCH),
                Some(own) if own.is_draining => return Err(NOT_OWNER),
                Some(own) if own.answers(kind) => return Ok(()),
                Some(_) if (self.environment.now)().since(begun) >= wait => return Err(HELD),
                Some(_) => (self.environment.pause)(PAUSE),
            }
        }
    }

    /// Checks that the reply may be sent: the ownership has lasted.
    pub(crate) fn check(&self, call: &Admitted<'_>) -> Result<(), AbortCode> {
        let own = self.environment.ownership.own(call.partition);
        let lasts = own.is_some_and(|own| own.epoch == call.epoch && own.answers(call.kind));
        if lasts { Ok(()) } else { Err(LOST) }
    }

    /// Returns what a call has returned, unless its volume may be absent because the partition is being given up. Then the
    /// call was not executed.
    fn unless_departed<T>(&self, call: &Admitted<'_>, served: Result<T, AbortCode>) -> Result<T, AbortCode> {
        let own = self.environment.ownership.own(call.partition);
        let has_departed = own.is_none_or(|own| own.epoch != call.epoch || own.is_draining);
        match served {
            Err(code) if has_departed && is_absence(code) => Err(NOT_OWNER),
            served => served,
        }
    }

    /// Executes a call and returns its reply, once its changes are durable.
    fn execute(
        &self,
        call: &Admitted<'_>,
        stream: &mut dyn CallStream,
        serve: &Serve<'_>,
    ) -> Result<Bytes, AbortCode> {
        let mut stream = Collecting { stream, reply: Vec::new(), is_cut_off: false };
        let served = serve(&mut stream);
        if stream.is_cut_off && call.is_of_files {
            return Err(NOT_EXECUTED);
        }
        self.check(call)?;
        self.unless_departed(call, served).map(|()| stream.reply.into())
    }

    /// Executes a call, unless an earlier attempt has done it. If its ownership ends meanwhile, a call whose result is
    /// recorded in the partition can be executed again, since it finds that, and so can one that may be repeated freely.
    fn execute_once(
        &self,
        (key, repeat): (CallId, Repeat),
        wait: Duration,
        execute: impl FnOnce() -> Reply,
    ) -> Reply {
        let begun = (self.environment.now)();
        loop {
            let now = (self.environment.now)();
            let state = self.results.lock().begin(now, key);
            match state {
                Begun::New => break,
                Begun::Done(result) => {
                    count(&self.fronts.tally.found);
                    return result;
                }
                // It is not refused: an earlier attempt may be executed.
                Begun::Running if now.since(begun) >= wait => return Err(LOST),
                Begun::Running => (self.environment.pause)(PAUSE),
            }
        }
        let mut running = Running { service: self, key, result: None };
        let result = execute();
        let has_result = match result {
            Err(NOT_OWNER | NOT_EXECUTED) => false,
            Err(LOST) => repeat == Repeat::Once,
            _ => true,
        };
        running.result = has_result.then(|| result.clone());
        result
    }

    /// Serves a forwarded call. The reply to one that `is_streamed` is sent while it is produced, as long as the ownership
    /// lasts.
    fn serve_forwarded(
        &self,
        call: &Admitted<'_>,
        (key, wait, is_streamed): (CallId, Duration, bool),
        stream: &mut dyn CallStream,
        serve: &Serve<'_>,
    ) -> Result<(), AbortCode> {
        if is_streamed {
            let check = || self.check(call);
            let served = serve(&mut Checking { stream, check: &check });
            // An error, too, shows what the volume contains.
            return served.or_else(|code| self.check(call).and(self.unless_departed(call, Err(code))));
        }
        // A store, too, is executed once by one owner: the first attempt must not overtake a later store.
        let reply = match call.kind {
            CallKind::Read => self.execute(call, stream, serve),
            CallKind::Change => {
                self.execute_once((key, call.repeat), wait, || self.execute(call, stream, serve))
            }
        }?;
        drain(stream)?;
        if reply.is_empty() { Ok(()) } else { stream.write(reply) }
    }

    /// Checks that a call concerns what is stored in the partition: the ownership of another one is not what was checked.
    fn check_concern(&self, call: &Admitted<'_>, service: u16, concern: Concern) -> Result<(), AbortCode> {
        let files = &self.environment.files;
        match concern {
            // A front answers such calls itself.
            Concern::Here if is_administration(service) => Err(AbortCode::RXGEN_OPCODE),
            Concern::Here | Concern::Everywhere => Ok(()),
            Concern::Partition(id) if files.place(id).as_ref() == Some(call.partition) => Ok(()),
            Concern::Partition(_) => Err(AbortCode::RXGEN_SS_UNMARSHAL),
            Concern::Volume(volume) => self.check_volume(call, volume),
        }
    }

    /// Checks that a volume is in the partition. What this process knows of a volume that is not does not matter.
    fn check_volume(&self, call: &Admitted<'_>, volume: VolumeId) -> Result<(), AbortCode> {
        if self.environment.files.partition_of(volume).as_ref() == Some(call.partition) {
            return Ok(());
        }
        self.unless_departed(call, Err(AbortCode::VNOVOL))
    }
}

/// Whether a code of a service says that a volume or partition is not here.
pub fn is_absence(code: AbortCode) -> bool {
    let absent = [
        AbortCode::VNOVOL,
        AbortCode::VOLSERNOVOL,
        AbortCode::VOLSERILLEGAL_PARTITION,
        AbortCode::UAENODEV,
        ENODEV,
    ];
    absent.contains(&code)
}

/// A call that is executed once. Its result is stored when this is dropped; there is none after a panic, or if it was not
/// executed.
struct Running<'a> {
    service: &'a ClusterService,
    key: CallId,
    result: Option<Reply>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut results = self.service.results.lock();
        match self.result.take() {
            Some(result) => results.end((self.service.environment.now)(), self.key, result),
            None => results.abandon(self.key),
        }
    }
}

impl Server for ClusterService {
    fn forward(
        &self,
        caller: &CallContext<'_>,
        request: cluster::ForwardRequest,
        stream: &mut dyn CallStream,
    ) -> Result<cluster::ForwardReply, AbortCode> {
        let (front, client) = self.client(caller, &request.front, &request.caller)?;
        let partition = wire::partition(&request.partition)?;
        let (head, scope) = beginning(stream, Scope::of)?;
        let opcode = scope::opcode(&head);
        let call = Admitted {
            partition: &partition,
            epoch: Epoch(request.epoch),
            kind: scope::kind(opcode),
            repeat: scope::repeat(opcode),
            is_of_files: true,
        };
        let wait = self.wait(request.wait_ms);
        match scope {
            // A front answers such calls itself.
            Scope::Here => return Err(AbortCode::RXGEN_OPCODE),
            Scope::Everywhere => {}
            Scope::Volume(volume) => {
                self.admit(&partition, call.epoch, call.kind, wait)?;
                self.check_volume(&call, volume)?;
            }
            // A front makes a call for each volume.
            Scope::Volumes(_) => return Err(AbortCode::RXGEN_SS_UNMARSHAL),
        }
        count(&self.fronts.tally.executed);
        let context = CallContext::new(&client);
        let key = CallId { process: front.nonce, number: request.number };
        context.identify(key);
        let mut source = StreamSource::continuing(head, stream);
        let serve = |stream: &mut dyn CallStream| {
            self.environment.files.serve(&context, stream).map_err(wire::shielded)
        };
        if scope == Scope::Everywhere {
            serve(&mut source)?;
        } else {
            let is_streamed = matches!(fs::work(opcode), Work::Read(_));
            self.serve_forwarded(&call, (key, wait, is_streamed), &mut source, &serve)?;
        }
        Ok(cluster::ForwardReply)
    }

    fn forward_to(
        &self,
        caller: &CallContext<'_>,
        request: cluster::ForwardToRequest,
        stream: &mut dyn CallStream,
    ) -> Result<cluster::ForwardToReply, AbortCode> {
        let (front, _) = self.node(caller, &request.front)?;
        let partition = wire::partition(&request.partition)?;
        let client = wire::parse_caller(&request.caller)?;
        let client = self.callers.of(front, request.caller.connection, client);
        let service = u16::try_from(request.service).map_err(|_| AbortCode::RXGEN_OPCODE)?;
        let services = &self.environment.services;
        let (kind, repeat) = services.kind(service, request.opcode).ok_or(AbortCode::RXGEN_OPCODE)?;
        let (head, concern) = beginning(stream, |head| Concern::of(service, head))?;
        if scope::opcode(&head) != request.opcode {
            return Err(AbortCode::RXGEN_SS_UNMARSHAL);
        }
        let epoch = Epoch(request.epoch);
        let call = Admitted { partition: &partition, epoch, kind, repeat, is_of_files: false };
        let wait = self.wait(request.wait_ms);
        self.admit(&partition, call.epoch, kind, wait)?;
        self.check_concern(&call, service, concern)?;
        count(&self.fronts.tally.executed);
        let context = CallContext::new(&client);
        let key = CallId { process: front.nonce, number: request.number };
        let serve = |stream: &mut dyn CallStream| {
            services.serve((service, request.opcode), &partition, &context, stream).map_err(wire::shielded)
        };
        let mut source = StreamSource::continuing(head, stream);
        self.serve_forwarded(&call, (key, wait, kind == CallKind::Read), &mut source, &serve)?;
        Ok(cluster::ForwardToReply)
    }

    fn fetch(
        &self,
        caller: &CallContext<'_>,
        request: cluster::FetchRequest,
    ) -> Result<cluster::FetchReply, AbortCode> {
        let (_, client) = self.client(caller, &request.front, &request.caller)?;
        let partition = wire::partition(&request.partition)?;
        let call = Admitted::read(&partition, request.epoch);
        self.admit(&partition, call.epoch, call.kind, self.wait(request.wait_ms))?;
        self.check_volume(&call, VolumeId(request.volume))?;
        count(&self.fronts.tally.executed);
        let context = CallContext::new(&client);
        let reply = self.environment.files.fetch(&context, &request).map_err(wire::shielded);
        // An error, too, shows what the volume contains.
        self.check(&call)?;
        self.unless_departed(&call, reply)
    }

    fn offer_store(
        &self,
        caller: &CallContext<'_>,
        request: cluster::OfferStoreRequest,
    ) -> Result<cluster::OfferStoreReply, AbortCode> {
        let (_, client) = self.client(caller, &request.front, &request.caller)?;
        let partition = wire::partition(&request.partition)?;
        let store = store_arguments(&request.arguments)?;
        let call = Admitted { kind: CallKind::Change, ..Admitted::read(&partition, request.epoch) };
        self.admit(&partition, call.epoch, call.kind, self.wait(request.wait_ms))?;
        self.check_volume(&call, VolumeId(store.fid.volume))?;
        let context = CallContext::new(&client);
        let reply = self.environment.files.offer(&context, &store).map_err(wire::shielded);
        // An error, too, shows what the volume contains.
        self.check(&call)?;
        self.unless_departed(&call, reply)
    }

    fn store(
        &self,
        caller: &CallContext<'_>,
        request: cluster::StoreRequest,
        stream: &mut dyn CallStream,
    ) -> Result<cluster::StoreReply, AbortCode> {
        let (front, client) = self.client(caller, &request.front, &request.caller)?;
        let partition = wire::partition(&request.partition)?;
        let store = store_arguments(&request.arguments)?;
        let chunk_bytes = 1u64.checked_shl(request.chunk_shift).ok_or(AbortCode::RXGEN_SS_UNMARSHAL)?;
        let repeat = scope::repeat(fs::STORE_DATA64);
        let call = Admitted { kind: CallKind::Change, repeat, ..Admitted::read(&partition, request.epoch) };
        let wait = self.wait(request.wait_ms);
        self.admit(&partition, call.epoch, call.kind, wait)?;
        self.check_volume(&call, VolumeId(store.fid.volume))?;
        count(&self.fronts.tally.executed);
        let context = CallContext::new(&client);
        let key = CallId { process: front.nonce, number: request.number };
        context.identify(key);
        let serve = |stream: &mut dyn CallStream| {
            let objects = (request.objects.clone(), chunk_bytes);
            let stored = self.environment.files.store(&context, store, objects, stream);
            stream.write(xdr::to_vec(&stored.map_err(wire::shielded)?).into())
        };
        self.serve_forwarded(&call, (key, wait, false), stream, &serve)?;
        Ok(cluster::StoreReply)
    }

    fn call_client(
        &self,
        caller: &CallContext<'_>,
        request: cluster::CallClientRequest,
    ) -> Result<cluster::CallClientReply, AbortCode> {
        self.node(caller, &request.owner)?;
        let client = wire::parse_address(request.address, request.port)?;
        let patience = Duration::from_millis(request.patience_ms.into()).min(PATIENCE_MAX);
        let connection = self.environment.clients.connection(client, patience);
        match converse(&*connection, request.request) {
            Ok(reply) => Ok(cluster::CallClientReply { code: 0, reply }),
            // This node could not make the call, which says nothing about the client.
            Err(AbortCode::RX_RESTARTING) => Err(AbortCode::RX_RESTARTING),
            Err(code) => Ok(cluster::CallClientReply { code: code.0, reply: Vec::new() }),
        }
    }

    fn locate_volume(
        &self,
        caller: &CallContext<'_>,
        request: cluster::LocateVolumeRequest,
    ) -> Result<cluster::LocateVolumeReply, AbortCode> {
        self.node(caller, &request.node)?;
        let (partition, epoch) = (wire::partition(&request.partition)?, Epoch(request.epoch));
        let check = || match self.environment.ownership.own(&partition) {
            Some(own) if own.epoch != epoch => Err(OTHER_EPOCH),
            Some(own) if !own.is_draining && own.reads => Ok(()),
            Some(_) | None => Err(NOT_OWNER),
        };
        // The list of volumes is that of an ownership that lasts from before it is read until afterwards.
        check()?;
        let place = self.environment.files.partition_of(VolumeId(request.volume));
        check()?;
        if place == Some(partition) { Ok(cluster::LocateVolumeReply) } else { Err(AbortCode::VNOVOL) }
    }

    fn volume_deleted(
        &self,
        caller: &CallContext<'_>,
        request: cluster::VolumeDeletedRequest,
    ) -> Result<cluster::VolumeDeletedReply, AbortCode> {
        self.node(caller, &request.node)?;
        self.environment.services.volume_deleted(VolumeId(request.volume));
        Ok(cluster::VolumeDeletedReply)
    }
}

fn store_arguments(arguments: &[u8]) -> Result<fs::StoreData64Request, AbortCode> {
    xdr::from_slice(arguments).map_err(|_| AbortCode::RXGEN_SS_UNMARSHAL)
}

/// Reads the rest of a request that was executed. The data of a repeated store or restore has not been read; a front repeats none
/// that is longer than what it keeps. Handlers of calls with data have read theirs, whatever its length.
fn drain(stream: &mut dyn CallStream) -> Result<(), AbortCode> {
    let mut left = KEPT_BYTES_MAX;
    loop {
        let piece = stream.read_chunk(scope::PIECE_BYTES)?;
        if piece.is_empty() {
            return Ok(());
        }
        // A client may send on for ever.
        left = left.checked_sub(piece.len()).ok_or(AbortCode::RXGEN_SS_UNMARSHAL)?;
    }
}

/// Reads the beginning of a forwarded call.
fn beginning<T>(
    stream: &mut dyn CallStream,
    of: impl Fn(&[u8]) -> Result<T, usize>,
) -> Result<(Bytes, T), AbortCode> {
    let mut head = Bytes::new();
    let found = scope::read_until(&mut head, stream, of)?;
    found.map(|found| (head, found)).ok_or(AbortCode::RXGEN_SS_UNMARSHAL)
}
