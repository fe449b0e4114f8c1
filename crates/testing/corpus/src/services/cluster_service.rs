//! The service between the nodes of a cluster, as the owner of a partition serves it. Its peers are strangers, nodes that lie, nodes
//! whose membership or ownership has ended, and processes with access to the bucket.
//!
//! The owner is the second node, and owns the second partition. It still has the first one open, which the other node owns: nothing
//! may be changed there, whatever is said. A file that only administrators may use must stay as it is while no call is made
//! for one.

use super::client::Network;
use super::{CALLS_MAX, Patience, REPLY_BYTES_MAX};
use crate::frames::frames;
use crate::idl::anonymous;
use crate::records::{NOW, dump, options};
use afs_format::acl::{Acl, AclEntry};
use afs_idl::cluster::{self, refusal};
use afs_idl::{ClientConnection, MemoryConnection};
use base::{
    AbortCode, CallContext, Caller, Fid, Identity, Monotonic, Principal, Rights, SecurityLevel, UserId,
    VnodeId,
};
use bytes::Bytes;
use cluster_world::{
    Local, Sharing, Shelf, Surroundings, Table, VOLUMES, create, is_cell, memory, open_all, partition,
};
use clusterserver::{Clients, ClusterService, Environment, Front, Fronts, Nodes, Own};
use fileserver::{CallbackNetwork, Clock};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use store::{ChunkOwner, Codec, EncodedChunk, ObjectBuilder};
use volume::{Actor, PartitionHandle, SetStatus, StoreRequest, VolumeOptions, Volumes};
use volume_check::{CheckOptions, check};

/// The file that only administrators may use.
pub const SECRET: Fid = Fid { volume: VOLUMES[OWNER], vnode: VnodeId(2), unique: 3 };

/// The node that serves.
const OWNER: usize = 1;

/// Length of the secret file: a whole chunk and a part of one.
const SECRET_BYTES: u64 = 5000;

/// Size of a chunk.
const CHUNK_BYTES: usize = 4096;

/// Maximum time that a call may take while nothing but its peer is slow. It may be held twice, and the creation of a volume waits
/// for other nodes for 15 s.
const CALL_MAX: Duration = Duration::from_secs(60);

/// The bit of a piece's first byte by which the receiving thread is asked first.
const FAST: u8 = 8;

/// Who makes a call. The lowest three bits of a piece's first byte; other values are `Node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Peer {
    /// A caller without a ticket.
    Anonymous = 0,
    /// An administrator of the cell, who does not have the cell's key.
    Administrator = 1,
    /// A holder of the cell's key that does not encrypt.
    Unencrypted = 2,
    /// The other node.
    Node = 3,
    /// A holder of the cell's key at an address that no node has.
    Elsewhere = 4,
    /// No caller: the other node creates an object in the bucket, of those that were offered last. Two bytes select the object and say
    /// whether the rest is a chunk of it (0) or all of it.
    Bucket = 5,
}

impl Peer {
    fn of(byte: u8) -> Peer {
        use Peer::{Administrator, Anonymous, Bucket, Elsewhere, Node, Unencrypted};
        let peers = [Anonymous, Administrator, Unencrypted, Node, Elsewhere, Bucket];
        peers.get(usize::from(byte & 7)).copied().unwrap_or(Node)
    }

    fn caller(self) -> Caller {
        let name = match self {
            Peer::Anonymous => return anonymous(),
            Peer::Administrator => "admin",
            Peer::Unencrypted | Peer::Node | Peer::Elsewhere | Peer::Bucket => "afs",
        };
        let level = match self {
            Peer::Unencrypted => SecurityLevel::Authenticated,
            _ => SecurityLevel::Encrypted,
        };
        let host = if self == Peer::Elsewhere { 76 } else { 0 };
        let principal = Principal { name: name.into(), instance: String::new(), realm: String::new() };
        Caller { identity: Identity::Known(principal), level, peer: address(host), ..anonymous() }
    }

    /// Returns the code that every well-formed call of one that is no node ends with.
    fn refusal(self) -> Option<AbortCode> {
        match self {
            Peer::Anonymous => Some(AbortCode::RXKADNOAUTH),
            Peer::Administrator => Some(AbortCode::UAEACCES),
            Peer::Unencrypted => Some(AbortCode::RXKADLEVELFAIL),
            Peer::Elsewhere => Some(AbortCode(refusal::NO_LEASE)),
            Peer::Node | Peer::Bucket => None,
        }
    }
}

/// What happens before a call. The highest four bits of a piece's first byte; other values are `Nothing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// Nothing.
    Nothing = 0,
    /// The owner can answer nothing for now.
    Lapse = 1,
    /// It can answer again.
    Resume = 2,
    /// It begins to give the partition up.
    Drain = 3,
    /// It owns the partition in the next epoch.
    Succeed = 4,
    /// The lease of the other node ends.
    Evict = 5,
    /// The other node has a lease again.
    Join = 6,
    /// Some seconds pass.
    Wait = 7,
}

impl Event {
    fn of(byte: u8) -> Event {
        use Event::{Drain, Evict, Join, Lapse, Nothing, Resume, Succeed, Wait};
        let events = [Nothing, Lapse, Resume, Drain, Succeed, Evict, Join, Wait];
        events.get(usize::from(byte >> 4)).copied().unwrap_or(Nothing)
    }
}

thread_local! {
    /// The time in nanoseconds. It goes on by a microsecond whenever it is read.
    static CLOCK: Arc<AtomicU64> = Arc::default();
    /// The time at which the present call must have ended.
    static LIMIT: Cell<u64> = const { Cell::new(0) };
}

fn now() -> Monotonic {
    CLOCK.with(|clock| Monotonic(clock.fetch_add(1000, Relaxed)))
}

fn pause(time: Duration) {
    let now = CLOCK.with(|clock| clock.fetch_add(time.as_nanos() as u64, Relaxed));
    assert!(now < LIMIT.get(), "a call waits for more than {CALL_MAX:?}");
}

struct Ticks(Arc<AtomicU64>);

impl Clock for Ticks {
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.0.fetch_add(1000, Relaxed))
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(NOW.0.into()) + Duration::from_nanos(self.0.load(Relaxed))
    }
}

/// The other node, as the owner calls it: it does not reach clients, or says that it has got a reply.
struct Liar;

impl cluster::Server for Liar {
    fn call_client(
        &self,
        _: &CallContext<'_>,
        request: cluster::CallClientRequest,
    ) -> Result<cluster::CallClientReply, AbortCode> {
        let reaches = request.port.is_multiple_of(2);
        if reaches { Ok(cluster::CallClientReply::default()) } else { Err(AbortCode::RX_CALL_DEAD) }
    }

    fn locate_volume(
        &self,
        _: &CallContext<'_>,
        _: cluster::LocateVolumeRequest,
    ) -> Result<cluster::LocateVolumeReply, AbortCode> {
        Err(AbortCode::VNOVOL)
    }
}

impl Nodes for Liar {
    fn connect(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        Arc::new(MemoryConnection::new(address, 1444, |stream| {
            cluster::dispatch(&Liar, &CallContext::new(&anonymous()), stream)
        }))
    }
}

impl Clients for Network {
    fn connection(&self, client: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
        CallbackNetwork::connection(self, client, patience)
    }
}

/// The ways to clients of the owner's file service.
struct Through(Arc<Fronts>);

impl CallbackNetwork for Through {
    fn connection(&self, peer: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
        let direct = CallbackNetwork::connection(&Network, peer, patience);
        self.0.connection(peer, patience, (direct, None))
    }
}

fn address(index: usize) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 7, 1 + index as u8), cluster::PORT).into()
}

/// What is stored.
#[derive(PartialEq, Eq)]
struct Picture {
    metadata: [Vec<u8>; 2],
    secret: Option<(String, Vec<u8>)>,
}

/// The owner.
struct Owner {
    table: Arc<Table>,
    local: Arc<Local>,
    service: ClusterService,
    /// Kept for the volume server, which has a weak reference.
    _front: Arc<Front>,
    shelf: Shelf,
    handles: [PartitionHandle; 2],
    /// The last offer for a store.
    offer: cluster::OfferStoreReply,
}

impl Owner {
    fn new() -> Owner {
        let clock = CLOCK.with(Arc::clone);
        clock.store(1_000_000_000, Relaxed);
        LIMIT.set(u64::MAX);
        let (table, shelf) = (Table::new(), Shelf::default());
        table.addresses.lock().extend((0..VOLUMES.len()).map(|index| (index, address(index))));
        let (local, ownership) = (Local::new(partition(OWNER)), table.view(OWNER));
        let fronts = Fronts::new(Arc::new(Liar), ownership.clone(), now);
        let environment = Environment {
            ownership: ownership.clone(),
            files: local.clone(),
            data: local.clone(),
            services: local.clone(),
            nodes: Arc::new(Liar),
            clients: Arc::new(Network),
            is_cell,
            now,
            pause,
        };
        let front = Arc::new(Front::new(environment.clone()));
        let refusing = |address| -> Arc<dyn ClientConnection> {
            Arc::new(MemoryConnection::new(address, 1444, |_| Err(AbortCode::VBUSY)))
        };
        let sharing = Sharing::new((Box::new(refusing), pause), ownership, &front);
        let network = Arc::new(Through(fronts.clone()));
        local.surround(Surroundings { network, clock: Arc::new(Ticks(clock)), sharing });
        let handles = [memory(0), shelf.partition(None)];
        local.open(volumes(&handles));
        let service = ClusterService::new(environment, fronts);
        let offer = cluster::OfferStoreReply::default();
        Owner { table, local, service, _front: front, shelf, handles, offer }
    }

    fn picture(&self) -> Picture {
        let metadata = [0, 1].map(|index| dump(&*self.handles[index].meta));
        Picture { metadata, secret: self.secret() }
    }

    /// Returns the status, the access list and the data of the secret file; `None` if it cannot be read.
    fn secret(&self) -> Option<(String, Vec<u8>)> {
        let volume = self.local.volumes().expect("they are open").get_any_state(SECRET.volume).ok()?;
        let (status, acl) = volume.status_and_acl(SECRET).ok()?;
        let mut reader = volume.reader(SECRET, 0, u64::MAX).ok()?;
        let mut data = Vec::new();
        while reader.remaining() > 0 {
            data.extend(reader.next(CHUNK_BYTES).ok()?.concat());
        }
        Some((format!("{status:?} {acl:?}"), data))
    }

    fn happen(&self, event: Event) {
        let set = |change: fn(&mut Own)| self.table.set(OWNER, change);
        match event {
            Event::Nothing => {}
            Event::Lapse => set(|own| (own.reads, own.changes) = (false, false)),
            Event::Resume => set(|own| (own.reads, own.changes) = (true, true)),
            Event::Drain => set(|own| own.is_draining = true),
            Event::Succeed => set(|own| (own.is_draining, own.epoch) = (false, own.epoch.next())),
            Event::Evict => self.table.dead.lock().push(0),
            Event::Join => self.table.dead.lock().clear(),
            Event::Wait => _ = CLOCK.with(|clock| clock.fetch_add(3_000_000_000, Relaxed)),
        }
    }

    /// Plays a piece of the history. Returns the outcome of the call, which is 0 for success.
    fn play(&mut self, frame: &[u8]) -> i32 {
        let Some((&head, request)) = frame.split_first() else { return 0 };
        self.happen(Event::of(head));
        match Peer::of(head) {
            Peer::Bucket => {
                self.create(request);
                0
            }
            peer => self.call(peer, head & FAST != 0, request),
        }
    }

    fn call(&mut self, peer: Peer, is_fast: bool, request: &[u8]) -> i32 {
        let caller = peer.caller();
        let context = CallContext::new(&caller);
        LIMIT.set(now().0 + CALL_MAX.as_nanos() as u64);
        let before = (self.local.executed(), self.service.counters().executed);
        if is_fast && let Some(reply) = self.service.try_answer(&context, request) {
            assert!(reply.len() <= REPLY_BYTES_MAX, "{} bytes", reply.len());
            assert_eq!(peer.refusal(), None, "a stranger was answered at once");
            return 0;
        }
        let mut stream = Patience::new(request);
        let outcome = cluster::dispatch(&self.service, &context, &mut stream);
        let reply = stream.0.outgoing;
        if let Some(code) = peer.refusal() {
            let permitted = [code, AbortCode::RXGEN_SS_UNMARSHAL, AbortCode::RXGEN_OPCODE];
            assert!(outcome.is_err_and(|code| permitted.contains(&code)), "{peer:?} got {outcome:?}");
            assert!(reply.is_empty(), "{peer:?} got a reply");
            let after = (self.local.executed(), self.service.counters().executed);
            assert_eq!(before, after, "a call of {peer:?} was executed");
        }
        let opcode = request.first_chunk().map_or(0, |opcode| u32::from_be_bytes(*opcode));
        if outcome.is_ok() {
            self.check_reply(opcode, &reply);
        }
        let code = outcome.err().map(|code| code.0);
        assert_ne!(code, Some(0), "an abort with the code of success");
        code.unwrap_or_default()
    }

    /// Checks that a reply is one that the other node decodes: lists have their maximum lengths.
    fn check_reply(&mut self, opcode: u32, reply: &[u8]) {
        let what = "a reply to this procedure";
        match opcode {
            cluster::FETCH => {
                let reply: cluster::FetchReply = xdr::from_slice(reply).expect(what);
                let pieces = reply.pieces.iter().map(|piece| piece.length).sum::<u64>();
                assert!(pieces <= reply.length, "{pieces} bytes of {}", reply.length);
            }
            cluster::OFFER_STORE => self.offer = xdr::from_slice(reply).expect(what),
            cluster::CALL_CLIENT => drop(xdr::from_slice::<cluster::CallClientReply>(reply).expect(what)),
            cluster::LOCATE_VOLUME | cluster::VOLUME_DELETED => assert!(reply.is_empty(), "{what}"),
            _ => assert!(reply.len() <= REPLY_BYTES_MAX, "{} bytes", reply.len()),
        }
    }

    /// Lets the other node create an object that was offered to it.
    fn create(&self, request: &[u8]) {
        let [index, is_raw, data @ ..] = request else { return };
        let objects = &self.offer.objects;
        let Some(id) = objects.get(usize::from(*index) % objects.len().max(1)) else { return };
        let mut chunk = data.to_vec();
        chunk.resize(CHUNK_BYTES, 7);
        let owner = ChunkOwner(self.offer.owner);
        let chunk = EncodedChunk::new(owner, &[chunk.into()], Codec::Raw).expect("a short chunk");
        let mut object = ObjectBuilder::new(*id);
        object.add(&chunk);
        let object = object.build();
        let contents = if *is_raw == 0 { object.contents } else { Bytes::copy_from_slice(data) };
        self.shelf.put(&object.name, contents);
    }

    /// Checks what the history has left.
    fn finish(&self, before: &Picture) {
        let (after, (executed, privileged)) = (self.picture(), self.local.executed());
        assert!(before.metadata[0] == after.metadata[0], "a partition of the other node has changed");
        assert!(executed > 0 || *before == after, "nothing was executed, and something has changed");
        assert!(privileged > 0 || before.secret == after.secret, "the secret file has changed");
        self.local.server().expect("it is open").maintain();
        let volumes = self.local.volumes().expect("they are open");
        while volumes.purge_step().expect("a store in memory") {}
        for handle in &self.handles {
            let report = check(&*handle.meta, None, CheckOptions::default(), &mut |_| {});
            assert!(report.is_clean(), "{:#?}", report.damages);
        }
    }
}

/// Opens both partitions with a volume each, in which anyone may do anything, except in a directory of the second one.
fn volumes(handles: &[PartitionHandle; 2]) -> Volumes {
    let options = VolumeOptions { append_threads: 0, read_threads: 0, ..options() };
    let volumes = open_all(handles, options);
    let everybody = AclEntry { id: UserId::ANYUSER, rights: Rights::ALL };
    let acl = Acl::new(&[everybody], &[]).expect("a short list");
    let actor = Actor { user: UserId(1), privileged: true, in_transaction: false, call: None, now: NOW };
    let (stored, set) = ("a store in memory", SetStatus { mode: Some(0o644), ..SetStatus::default() });
    for (index, handle) in handles.iter().enumerate() {
        let volume = create(&volumes, handle.id, index);
        volume.set_acl(&actor, volume.root(), acl.clone()).expect(stored);
        let private = volume.make_directory(&actor, volume.root(), b"private", &set).expect(stored);
        let private = private.status.fid(volume.id());
        volume.set_acl(&actor, private, Acl::administrators()).expect(stored);
        let secret = volume.create_file(&actor, private, b"secret", &set).expect(stored);
        let secret = secret.status.fid(volume.id());
        assert_eq!(Fid { volume: SECRET.volume, ..secret }, SECRET, "the number of the secret file");
        let request = StoreRequest { offset: 0, length: SECRET_BYTES, file_length: SECRET_BYTES, set };
        let mut source = |most: usize| Ok(Bytes::from(vec![b's'; most]));
        volume.store(&actor, secret, &request, &mut source).expect(stored);
    }
    volumes
}

/// Plays a history, and returns the outcome of each call, which is 0 for success.
pub fn cluster_outcomes(data: &[u8]) -> Vec<i32> {
    let mut owner = Owner::new();
    let before = owner.picture();
    let outcomes = frames(data).take(CALLS_MAX).map(|frame| owner.play(frame)).collect();
    owner.finish(&before);
    outcomes
}

/// Exercises the service between nodes.
pub fn serve_cluster(data: &[u8]) {
    cluster_outcomes(data);
}
