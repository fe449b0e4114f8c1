//! The step before a service's own handlers: a call for a volume or partition of another node is passed on.

use crate::administration::{self, Concern};
use crate::bulk;
use crate::counters::{Counters, Tally, add_time, count};
use crate::environment::Environment;
use crate::fetch::{self, Fetch};
use crate::links::Links;
use crate::outgoing::{Outgoing, Trouble};
use crate::places::{Found, Owner, Places};
use crate::scope::{self, Scope};
use crate::stores::{Offer, Placing, Store};
use crate::streams::Gathering;
use crate::wire;
use afs_idl::cluster::{self, refusal};
use afs_idl::{CallStream, ClientConnection, MemoryStream, StreamSource, fs};
use base::{AbortCode, CallContext, CallId, VolumeId};
use bytes::Bytes;
use cluster_proto::{CallKind, Epoch, Forwarding, Outcome, PartitionName, Repeat, Route, Step};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use xdr::Encode;

/// Maximum size of a request that is passed to several nodes, which has at most 50 FIDs, and of a reply that does not matter.
const SMALL_BYTES_MAX: usize = 4096;

/// Maximum size of the reply to BulkStatus or InlineBulkStatus, which has at most 50 statuses.
const BULK_REPLY_BYTES_MAX: usize = 16 * 1024;

/// Maximum size of the list of one owner that is joined with those of others.
const LIST_BYTES_MAX: usize = 4 << 20;

/// How long an owner may hold a call that is passed to all of them.
const NO_WAIT: Duration = Duration::ZERO;

/// Maximum number of stores whose data this node writes to the bucket at a time. Others are forwarded.
const WRITERS_MAX: usize = 4;

/// Interval at which other nodes are asked again whether they have a volume.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// What happened to a call.
pub enum Way<'s> {
    /// It is to be served here, from this stream.
    Here(StreamSource<'s>),
    /// It was answered by another node, or given up.
    Ended(Result<(), AbortCode>),
}

/// Where a call of a service other than the file service goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The partition, or what else is owned.
    pub partition: PartitionName,
    /// Rx number of the service.
    pub service: u16,
    /// What the call does.
    pub kind: CallKind,
    /// Whether it may be executed twice.
    pub repeat: Repeat,
    /// For how long it is held. Then it fails with VRESTARTING.
    pub limit: Duration,
}

/// Serves a call here.
pub type Handler<'h> = dyn Fn(&mut dyn CallStream) -> Result<(), AbortCode> + 'h;

/// Passes calls of clients to the owners of what they concern.
///
/// For each call of the file service call [`route`](Self::route) first. For a volume that is here it costs a look at the
/// list of volumes. [`administer`](Self::administer) serves calls of the volume service and of Cellar's own, and
/// [`pass_to`](Self::pass_to) passes calls of other services. No handler of the cluster's service uses a front, so a
/// forwarded call is never forwarded again.
pub struct Front {
    environment: Environment,
    links: Arc<Links>,
    /// For calls of services other than the file service, unless they go to all owners.
    patient: Links,
    places: Places,
    tally: Tally,
    /// Number of the next call.
    next: AtomicU64,
    /// As many references as stores write to the bucket, and one.
    writers: Arc<()>,
}

/// A call on its way.
struct Passage<'c> {
    call: &'c CallContext<'c>,
    number: u64,
    opcode: u32,
    /// Rx number of the service; `None` for the file service.
    service: Option<u16>,
    kind: CallKind,
    repeat: Repeat,
    limit: Duration,
}

/// What a call concerns.
#[derive(Clone, Copy)]
enum Goal<'g> {
    Volume(VolumeId),
    Partition(&'g PartitionName),
}

/// Where an attempt goes.
struct To<'t> {
    partition: &'t PartitionName,
    /// The ownership in which this node believes.
    epoch: Epoch,
    /// For how long the owner may hold the call.
    wait: Duration,
    /// Whether the call may take any time, such as the copying of a volume.
    is_patient: bool,
    addresses: &'t [SocketAddr],
}

impl To<'_> {
    /// To an owner that may not hold the call. One that answers pings only is given up.
    fn at_once(owner: &Owner) -> To<'_> {
        let Owner { partition, epoch, addresses, .. } = owner;
        To { partition, epoch: Epoch(*epoch), wait: NO_WAIT, is_patient: false, addresses }
    }

    fn wait_ms(&self) -> u32 {
        u32::try_from(self.wait.as_millis()).unwrap_or(u32::MAX)
    }
}

/// What an owner's abort code means.
enum Meaning {
    /// The call has this result.
    Result(AbortCode),
    Ended(Outcome),
}

impl Front {
    /// Creates a front.
    pub fn new(environment: Environment) -> Front {
        let links = Arc::new(Links::new(environment.nodes.clone()));
        let places = Places::new(environment.clone(), links.clone());
        let patient = Links::patient(environment.nodes.clone());
        let (tally, next, writers) = (Tally::default(), AtomicU64::new(1), Arc::default());
        Front { environment, links, patient, places, tally, next, writers }
    }

    /// Returns the counts of forwarded calls.
    pub fn counters(&self) -> Counters {
        self.tally.counters()
    }

    /// Answers a call of the file service if its volume belongs to another node.
    pub fn route<'s>(&self, call: &CallContext<'_>, stream: &'s mut dyn CallStream) -> Way<'s> {
        let mut head = Bytes::new();
        let scope = match scope::read_until(&mut head, stream, Scope::of) {
            // The handler's decoder reports a request that is too short.
            Ok(scope) => scope.unwrap_or(Scope::Here),
            Err(code) => return Way::Ended(Err(code)),
        };
        match scope {
            Scope::Here => Way::Here(StreamSource::continuing(head, stream)),
            Scope::Volume(volume) => self.pass(call, volume, head, stream),
            Scope::Volumes(volumes) => self.pass_bulk(call, &volumes, head, stream),
            Scope::Everywhere => self.pass_to_all(call, head, stream),
        }
    }

    /// Serves a call of the volume service or of Cellar's own by `here`, or passes it to the owner of the partition or volume
    /// that it concerns. `service` is the Rx number; a call for which `is_offered` returns false, because its port does not offer
    /// the procedure with this opcode, is left to `here`.
    ///
    /// # Errors
    /// The abort code of the call; VRESTARTING if it was held for too long.
    pub fn administer(
        &self,
        (service, is_offered): (u16, fn(u32) -> bool),
        call: &CallContext<'_>,
        stream: &mut dyn CallStream,
        here: &Handler<'_>,
    ) -> Result<(), AbortCode> {
        let mut head = Bytes::new();
        let concern_of = |head: &[u8]| match scope::word(head, 0)? {
            opcode if is_offered(opcode) => Concern::of(service, head),
            _ => Ok(Concern::Here),
        };
        let concern = scope::read_until(&mut head, stream, concern_of)?;
        let place = match concern {
            Some(Concern::Everywhere) => return self.join(service, call, head, stream, here),
            Some(Concern::Partition(id)) => self.environment.files.place(id),
            Some(Concern::Here | Concern::Volume(_)) | None => None,
        };
        let goal = match (concern, &place) {
            (Some(Concern::Volume(volume)), _) => Some(Goal::Volume(volume)),
            (_, place) => place.as_ref().map(Goal::Partition),
        };
        // The handler refuses what is nowhere.
        let way = match goal {
            Some(goal) => {
                let passage = self.administration(service, call, &head)?;
                self.pass_for(&passage, goal, head, stream)
            }
            None => Way::Here(StreamSource::continuing(head, stream)),
        };
        match way {
            Way::Here(mut source) => here(&mut source),
            Way::Ended(result) => result,
        }
    }

    /// Passes a call to the owner of its target. `head` is the part of the request that was already read.
    pub fn pass_to<'s>(
        &self,
        call: &CallContext<'_>,
        target: &Target,
        head: Bytes,
        stream: &'s mut dyn CallStream,
    ) -> Way<'s> {
        let passage = Passage {
            call,
            number: self.next_number(),
            opcode: scope::opcode(&head),
            service: Some(target.service),
            kind: target.kind,
            repeat: target.repeat,
            limit: target.limit,
        };
        self.pass_for(&passage, Goal::Partition(&target.partition), head, stream)
    }

    /// Whether a volume is in a partition of another node; `None` if that is not known after `wait`, because a node does not
    /// answer, or a partition has no owner.
    pub fn is_elsewhere(&self, volume: VolumeId, wait: Duration) -> Option<bool> {
        let begun = (self.environment.now)();
        loop {
            match self.places.ask(volume) {
                Found::In(_) => return Some(true),
                Found::Nowhere => return Some(false),
                Found::Unknown | Found::NotAsked => {}
            }
            if (self.environment.now)().since(begun) >= wait {
                return None;
            }
            (self.environment.pause)(ASK_AGAIN);
        }
    }

    /// Reports to the other nodes that a volume was deleted here.
    pub fn volume_deleted(&self, volume: VolumeId) {
        self.places.left(volume);
        let node = wire::node(&self.environment.ownership.node());
        for owner in self.other_owners() {
            let Some(address) = owner.addresses.first() else { continue };
            let request = cluster::VolumeDeletedRequest { node: node.clone(), volume: volume.0 };
            if let Err(code) = cluster::volume_deleted(&*self.links.to(*address), &request) {
                tracing::debug!(%volume, node = %owner.node, %code, "a node does not know of a deletion");
            }
        }
    }

    fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Returns the passage of a call of the file service.
    fn passage<'c>(&self, call: &'c CallContext<'c>, head: &[u8]) -> Passage<'c> {
        let (opcode, limit) = (scope::opcode(head), self.environment.ownership.hold_limit());
        let (kind, repeat) = (scope::kind(opcode), scope::repeat(opcode));
        Passage { call, number: self.next_number(), opcode, service: None, kind, repeat, limit }
    }

    fn administration<'c>(
        &self,
        service: u16,
        call: &'c CallContext<'c>,
        head: &[u8],
    ) -> Result<Passage<'c>, AbortCode> {
        let (opcode, limit) = (scope::opcode(head), self.environment.ownership.hold_limit());
        let known = administration::kind_of_administration(service, opcode);
        let (kind, repeat) = known.ok_or(AbortCode::RXGEN_OPCODE)?;
        Ok(Passage { call, number: self.next_number(), opcode, service: Some(service), kind, repeat, limit })
    }

    /// Passes a call of the file service to the owner of its volume.
    pub(crate) fn pass<'s>(
        &self,
        call: &CallContext<'_>,
        volume: VolumeId,
        head: Bytes,
        stream: &'s mut dyn CallStream,
    ) -> Way<'s> {
        self.pass_for(&self.passage(call, &head), Goal::Volume(volume), head, stream)
    }

    fn pass_for<'s>(
        &self,
        passage: &Passage<'_>,
        goal: Goal<'_>,
        head: Bytes,
        stream: &'s mut dyn CallStream,
    ) -> Way<'s> {
        if let Goal::Volume(volume) = goal {
            if self.environment.files.is_here(volume) {
                return Way::Here(StreamSource::continuing(head, stream));
            }
            passage.call.note_volume(volume);
        }
        let begun = (self.environment.now)();
        let mut outgoing = match outgoing(passage, head, stream) {
            Ok(outgoing) => outgoing,
            Err(code) => return Way::Ended(Err(code)),
        };
        match self.settle(passage, goal, &mut outgoing) {
            Some(result) => {
                add_time(&self.tally.forward_ns, (self.environment.now)().since(begun));
                count(if result == Err(AbortCode::VRESTARTING) {
                    &self.tally.given_up
                } else {
                    &self.tally.forwarded
                });
                Way::Ended(result)
            }
            None => Way::Here(outgoing.into_source()),
        }
    }

    /// Passes a call on until it has ended. Returns `None` if it is to be served here.
    fn settle(
        &self,
        passage: &Passage<'_>,
        goal: Goal<'_>,
        outgoing: &mut Outgoing<'_>,
    ) -> Option<Result<(), AbortCode>> {
        let (ownership, now) = (&self.environment.ownership, self.environment.now);
        let mut forwarding = Forwarding::new(now(), passage.repeat, passage.limit);
        // The volume that may have moved to another partition since it was found.
        let mut doubted = match goal {
            Goal::Volume(volume) => Some(volume),
            Goal::Partition(_) => None,
        };
        // The callers of other services are administrators.
        let client = passage.service.is_none().then(|| passage.call.caller().peer.ip());
        loop {
            let found = match goal {
                Goal::Volume(volume) => self.places.find(volume, client),
                Goal::Partition(partition) => Found::In(partition.clone()),
            };
            let (route, partition) = match found {
                Found::Nowhere if outgoing.is_whole() && !forwarding.is_in_doubt() => return None,
                Found::Nowhere => return Some(Err(AbortCode::VRESTARTING)),
                Found::Unknown => (Route::Hold, None),
                Found::NotAsked => return Some(Err(AbortCode::VBUSY)),
                Found::In(partition) => {
                    let age = forwarding.age(now());
                    (ownership.route(&partition, passage.kind, age), Some(partition))
                }
            };
            match (forwarding.step(now(), partition.as_ref(), route), partition) {
                (Step::Hold(pause), _) => (self.environment.pause)(pause),
                (Step::Fail(code), _) => return Some(Err(code)),
                (Step::Local, partition) => match doubted.take() {
                    Some(volume) if !self.environment.files.is_here(volume) => self.places.forget(volume),
                    _ if forwarding.is_in_doubt() => return self.end_here(passage, goal, partition.as_ref()),
                    _ if !outgoing.is_whole() => return Some(Err(AbortCode::VRESTARTING)),
                    _ => return None,
                },
                (Step::Send { .. }, None) => return None,
                (Step::Send { epoch, addresses, wait, .. }, Some(partition)) => {
                    let is_patient = passage.service.is_some();
                    let to = To { partition: &partition, epoch, wait, is_patient, addresses: &addresses };
                    let code = match self.attempt(passage, &to, outgoing) {
                        Ok(()) => return Some(Ok(())),
                        Err(Trouble::Client(code)) => return Some(Err(code)),
                        Err(Trouble::Owner(code)) => code,
                    };
                    let outcome = match meaning(code) {
                        Meaning::Ended(outcome) => outcome,
                        Meaning::Result(AbortCode::VNOVOL) if doubted.is_some() && outgoing.is_whole() => {
                            if let Some(volume) = doubted.take() {
                                self.places.forget(volume);
                            }
                            Outcome::Refused
                        }
                        Meaning::Result(code) => return Some(Err(code)),
                    };
                    self.note(outcome, code, &partition, &addresses);
                    forwarding.ended(now(), (&partition, epoch), outcome, outgoing.can_go_on());
                }
            }
        }
    }

    /// Lets a call that may have been executed by another owner of this partition be served here, where its result is found.
    fn end_here(
        &self,
        passage: &Passage<'_>,
        goal: Goal<'_>,
        partition: Option<&PartitionName>,
    ) -> Option<Result<(), AbortCode>> {
        if let Goal::Volume(volume) = goal
            && self.environment.files.partition_of(volume).as_ref() != partition
        {
            return Some(Err(AbortCode::VRESTARTING));
        }
        let process = self.environment.ownership.node().1.nonce;
        passage.call.identify(CallId { process, number: passage.number });
        None
    }

    fn note(&self, outcome: Outcome, code: AbortCode, partition: &PartitionName, addresses: &[SocketAddr]) {
        count(match outcome {
            Outcome::Refused => &self.tally.refused,
            Outcome::Unknown => &self.tally.unknown,
        });
        tracing::debug!(%partition, ?addresses, %code, ?outcome, "a forwarded call was not answered");
    }

    /// Returns the beginning of a forwarded call.
    fn header(&self, passage: &Passage<'_>, to: &To<'_>) -> Bytes {
        let front = wire::node(&self.environment.ownership.node());
        let (partition, epoch, wait_ms) = (to.partition.as_str().into(), to.epoch.0, to.wait_ms());
        let (number, caller) = (passage.number, wire::caller(passage.call));
        let mut header;
        if let Some(service) = passage.service {
            let (service, opcode) = (service.into(), passage.opcode);
            header = xdr::to_vec(&cluster::FORWARD_TO);
            cluster::ForwardToRequest { service, opcode, front, partition, epoch, number, wait_ms, caller }
                .encode(&mut header);
        } else {
            header = xdr::to_vec(&cluster::FORWARD);
            cluster::ForwardRequest { front, partition, epoch, number, wait_ms, caller }.encode(&mut header);
        }
        header.into()
    }

    fn attempt(
        &self,
        passage: &Passage<'_>,
        to: &To<'_>,
        outgoing: &mut Outgoing<'_>,
    ) -> Result<(), Trouble> {
        let address = to.addresses.first().ok_or(Trouble::Owner(AbortCode(refusal::NOT_OWNER)))?;
        let links = if to.is_patient { &self.patient } else { &*self.links };
        let link = links.to(*address);
        if let Some((fetch, stream)) = outgoing.fetch() {
            match self.fetch(passage, to, &*link, (fetch, stream)) {
                // The owner is of a version that does not know such calls.
                Err(Trouble::Owner(AbortCode::RXGEN_OPCODE)) if outgoing.is_whole() => {
                    outgoing.give_up_fetch();
                }
                ended => return ended,
            }
        }
        if let Some(store) = outgoing.store().cloned()
            && let Some(ended) = self.store(passage, to, &*link, (store, outgoing))
        {
            return ended;
        }
        outgoing.send(self.header(passage, to), &*link, &self.tally.relayed_bytes)
    }

    /// Passes a store on, with its data in the bucket as far as possible. Returns `None` if it is to be forwarded as it is.
    fn store(
        &self,
        passage: &Passage<'_>,
        to: &To<'_>,
        link: &dyn ClientConnection,
        (store, outgoing): (Store, &mut Outgoing<'_>),
    ) -> Option<Result<(), Trouble>> {
        let writer = Arc::clone(&self.writers);
        if Arc::strong_count(&writer) > WRITERS_MAX + 1 {
            return None;
        }
        let request = cluster::OfferStoreRequest {
            front: wire::node(&self.environment.ownership.node()),
            partition: to.partition.as_str().into(),
            epoch: to.epoch.0,
            wait_ms: to.wait_ms(),
            caller: wire::caller(passage.call),
            arguments: xdr::to_vec(&store.request),
        };
        let reply = match cluster::offer_store(link, &request) {
            // The owner is of a version that does not know such calls.
            Err(AbortCode::RXGEN_OPCODE) => return None,
            reply => reply.map_err(Trouble::Owner),
        };
        let (objects, chunk_shift) =
            reply.as_ref().map(|reply| (reply.objects.clone(), reply.chunk_shift)).unwrap_or_default();
        let offer = match reply.and_then(Offer::parse) {
            Ok(offer) => offer?,
            Err(trouble) => return Some(Err(trouble)),
        };
        let cluster::OfferStoreRequest { front, partition, epoch, wait_ms, caller, arguments } = request;
        let number = passage.number;
        let request = cluster::StoreRequest {
            front,
            partition,
            epoch,
            number,
            wait_ms,
            caller,
            arguments,
            chunk_shift,
            objects,
        };
        Some(self.place((&request, &store), (to.partition, offer), link, outgoing))
    }

    /// Writes the data of a store to the bucket, and lets the owner execute it.
    fn place(
        &self,
        (request, store): (&cluster::StoreRequest, &Store),
        (partition, offer): (&PartitionName, Offer),
        link: &dyn ClientConnection,
        outgoing: &mut Outgoing<'_>,
    ) -> Result<(), Trouble> {
        let mut header = xdr::to_vec(&cluster::STORE);
        request.encode(&mut header);
        let mut call = link.begin().map_err(Trouble::Owner)?;
        call.write(header.into()).map_err(Trouble::Owner)?;
        // Otherwise the call would begin with the first data, for which the client may take any time.
        call.flush().map_err(Trouble::Owner)?;
        let means = (&*self.environment.data, &self.tally, self.environment.now);
        let mut data = outgoing.take_data(store.head_bytes);
        Placing::new(partition, offer, means, &mut *call).pass(&store.request, &mut data)?;
        outgoing.relay_reply(call, &self.tally.relayed_bytes)
    }

    /// Answers a fetch with the data in the bucket, as its owner describes it.
    fn fetch(
        &self,
        passage: &Passage<'_>,
        to: &To<'_>,
        link: &dyn ClientConnection,
        (fetch, stream): (&mut Fetch, &mut dyn CallStream),
    ) -> Result<(), Trouble> {
        let fs::Fid { volume, vnode, unique } = fetch.fid;
        loop {
            let part = fetch.part();
            let request = cluster::FetchRequest {
                front: wire::node(&self.environment.ownership.node()),
                partition: to.partition.as_str().into(),
                epoch: to.epoch.0,
                wait_ms: to.wait_ms(),
                caller: wire::caller(passage.call),
                volume,
                vnode,
                unique,
                position: part.position,
                length: part.length,
                names: part.names.into(),
            };
            let reply = cluster::fetch(link, &request).map_err(Trouble::Owner)?;
            let answer = fetch::parse(reply, part)?;
            let means = (&*self.environment.data, &self.tally);
            if fetch.answered((to.partition, to.epoch), &answer, means, stream)? {
                return Ok(());
            }
        }
    }

    /// Serves a call whose reply is a list, and adds the lists of the other owners.
    fn join(
        &self,
        service: u16,
        call: &CallContext<'_>,
        mut head: Bytes,
        stream: &mut dyn CallStream,
        here: &Handler<'_>,
    ) -> Result<(), AbortCode> {
        whole(&mut head, stream)?;
        let mut own = MemoryStream::new(&head, SMALL_BYTES_MAX);
        // A caller that is refused here causes no calls.
        here(&mut own)?;
        let mut replies = vec![own.outgoing];
        for owner in self.other_owners() {
            let passage = self.administration(service, call, &head)?;
            let mut reply = Gathering::new(LIST_BYTES_MAX);
            let mut outgoing = Outgoing::new(head.clone(), &mut reply);
            match self.attempt(&passage, &To::at_once(&owner), &mut outgoing) {
                Ok(()) => replies.push(reply.reply),
                Err(trouble) => tracing::debug!(?trouble, node = %owner.node, "a node is missing in a list"),
            }
        }
        let joined = administration::join(replies.iter().map(Vec::as_slice));
        stream.write(joined.ok_or(AbortCode::RXGEN_SS_MARSHAL)?.into())
    }

    /// Returns each other node that owns something, with one of its partitions.
    fn other_owners(&self) -> Vec<Owner> {
        let mut owners = self.places.owners().0;
        owners.sort_by(|a, b| a.node.cmp(&b.node));
        owners.dedup_by(|a, b| a.node == b.node);
        owners
    }

    /// Passes a call for volumes of several owners to each of them, and joins the replies.
    fn pass_bulk<'s>(
        &self,
        call: &CallContext<'_>,
        volumes: &[VolumeId],
        mut head: Bytes,
        stream: &'s mut dyn CallStream,
    ) -> Way<'s> {
        if volumes.iter().all(|volume| self.environment.files.is_here(*volume)) {
            return Way::Here(StreamSource::continuing(head, stream));
        }
        if let Err(code) = whole(&mut head, stream) {
            return Way::Ended(Err(code));
        }
        let joined = bulk::join(&head, |volume, request| self.answer(call, volume, request));
        Way::Ended(joined.and_then(|reply| stream.write(reply.into())))
    }

    /// Returns the reply to a call for a volume, wherever it is.
    fn answer(&self, call: &CallContext<'_>, volume: VolumeId, request: Bytes) -> Result<Vec<u8>, AbortCode> {
        let mut stream = Gathering::new(BULK_REPLY_BYTES_MAX);
        match self.pass(call, volume, request, &mut stream) {
            // The client does not know the codes between nodes.
            Way::Here(mut source) => self
                .environment
                .files
                .serve(call, &mut source)
                .map_err(|code| if code == LOST { AbortCode::VRESTARTING } else { code })?,
            Way::Ended(result) => result?,
        }
        Ok(stream.reply)
    }

    /// Passes a call to all other owners, then lets it be served here. Their answers do not matter: a promise that
    /// is not given up is broken or expires.
    fn pass_to_all<'s>(
        &self,
        call: &CallContext<'_>,
        mut head: Bytes,
        stream: &'s mut dyn CallStream,
    ) -> Way<'s> {
        if let Err(code) = whole(&mut head, stream) {
            return Way::Ended(Err(code));
        }
        for owner in self.other_owners() {
            let passage = self.passage(call, &head);
            let mut reply = Gathering::new(SMALL_BYTES_MAX);
            let mut outgoing = Outgoing::new(head.clone(), &mut reply);
            if let Err(trouble) = self.attempt(&passage, &To::at_once(&owner), &mut outgoing) {
                tracing::debug!(?trouble, partition = %owner.partition, "a call for all nodes has failed");
            }
        }
        Way::Here(StreamSource::continuing(head, stream))
    }
}

/// Ends a call at its owner that may have been executed.
const LOST: AbortCode = AbortCode(refusal::LOST);

/// Reads a small request to its end.
fn whole(head: &mut Bytes, stream: &mut dyn CallStream) -> Result<(), AbortCode> {
    if scope::more(head, SMALL_BYTES_MAX, stream)? {
        return Err(AbortCode::RXGEN_SS_UNMARSHAL);
    }
    Ok(())
}

/// Returns what a code with which an owner has ended a call means.
fn meaning(code: AbortCode) -> Meaning {
    match code {
        AbortCode(refusal::NOT_OWNER | refusal::OTHER_EPOCH | refusal::HELD | refusal::NO_LEASE) => {
            Meaning::Ended(Outcome::Refused)
        }
        LOST => Meaning::Ended(Outcome::Unknown),
        // The node restarts or has died.
        code if wire::is_of_rx(code) => Meaning::Ended(Outcome::Unknown),
        // The nodes do not have the same keys at present.
        code if code.is_of_rxkad() => Meaning::Ended(Outcome::Refused),
        code => Meaning::Result(wire::unshielded(code)),
    }
}

/// Prepares a call to be passed on. The whole request of a fetch is read first, and the arguments of a store.
fn outgoing<'s>(
    passage: &Passage<'_>,
    mut head: Bytes,
    stream: &'s mut dyn CallStream,
) -> Result<Outgoing<'s>, AbortCode> {
    if let Some(service) = passage.service {
        let outgoing = Outgoing::new(head, stream);
        let has_data = administration::carries_data(service, passage.opcode);
        return Ok(if has_data { outgoing } else { outgoing.without_data() });
    }
    if let Some(bytes) = Store::request_bytes(passage.opcode) {
        scope::more(&mut head, bytes, stream)?;
        let store = Store::of(&head);
        return Ok(Outgoing::of_store(head, stream, store));
    }
    let bytes = Fetch::request_bytes(passage.opcode);
    let fetch = match bytes {
        // To the end of the request, or beyond that of a fetch.
        Some(bytes) if !scope::more(&mut head, bytes + 1, stream)? => Fetch::of(&head),
        _ => None,
    };
    Ok(Outgoing::of_fetch(head, stream, fetch).without_data())
}
