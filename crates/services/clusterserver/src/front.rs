//! The step before the file service's own handlers: a call for a volume of another node is passed on.

use crate::bulk;
use crate::counters::{Counters, Tally, count};
use crate::environment::Environment;
use crate::links::Links;
use crate::outgoing::{Outgoing, Trouble};
use crate::places::{Found, Places};
use crate::scope::{self, Scope};
use crate::wire;
use afs_idl::cluster::{self, refusal};
use afs_idl::{CallStream, MemoryStream, StreamSource};
use base::{AbortCode, CallContext, VolumeId};
use bytes::Bytes;
use cluster_proto::{Epoch, Forwarding, Outcome, PartitionName, Route, Step};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use xdr::Encode;

/// Maximum size of a request that is passed to several nodes, which has at most 50 FIDs.
const SMALL_REQUEST_BYTES_MAX: usize = 4096;

/// How long an owner may hold a call that is passed to all of them.
const NO_WAIT: Duration = Duration::ZERO;

/// What happened to a call.
pub enum Way<'s> {
    /// It is to be served here, from this stream.
    Here(StreamSource<'s>),
    /// It was answered by another node, or given up.
    Ended(Result<(), AbortCode>),
}

/// Passes calls of clients to the owners of their volumes.
///
/// For each call of the file service call [`route`](Self::route) first. For a volume that is here it costs a look at the
/// list of volumes. No handler of the cluster's service uses a front, so a forwarded call is never forwarded again.
pub struct Front {
    environment: Environment,
    links: Arc<Links>,
    places: Places,
    tally: Tally,
    /// Number of the next call.
    next: AtomicU64,
}

/// A call on its way.
struct Passage<'c> {
    call: &'c CallContext<'c>,
    number: u64,
    opcode: u32,
}

/// What an owner's abort code means.
enum Meaning {
    /// It is the result of the call.
    Result,
    Ended(Outcome),
}

impl Front {
    /// Creates a front.
    pub fn new(environment: Environment) -> Front {
        let links = Arc::new(Links::new(environment.nodes.clone()));
        let places = Places::new(environment.clone(), links.clone());
        Front { environment, links, places, tally: Tally::default(), next: AtomicU64::new(1) }
    }

    /// Returns the counts of forwarded calls.
    pub fn counters(&self) -> Counters {
        self.tally.counters()
    }

    /// Answers a call if its volume belongs to another node.
    pub fn route<'s>(&self, call: &CallContext<'_>, stream: &'s mut dyn CallStream) -> Way<'s> {
        let mut head = Bytes::new();
        let scope = loop {
            let needed = match Scope::of(&head) {
                Ok(scope) => break scope,
                Err(needed) => needed,
            };
            match scope::more(&mut head, needed, stream) {
                Ok(true) => {}
                // The handler's decoder reports it.
                Ok(false) => break Scope::Here,
                Err(code) => return Way::Ended(Err(code)),
            }
        };
        match scope {
            Scope::Here => Way::Here(StreamSource::continuing(head, stream)),
            Scope::Volume(volume) => self.pass(call, volume, head, stream),
            Scope::Volumes(volumes) => self.pass_bulk(call, &volumes, head, stream),
            Scope::Everywhere => self.pass_to_all(call, head, stream),
        }
    }

    fn passage<'c>(&self, call: &'c CallContext<'c>, head: &[u8]) -> Passage<'c> {
        Passage { call, number: self.next.fetch_add(1, Relaxed), opcode: scope::opcode(head) }
    }

    /// Passes a call to the owner of its volume.
    pub(crate) fn pass<'s>(
        &self,
        call: &CallContext<'_>,
        volume: VolumeId,
        head: Bytes,
        stream: &'s mut dyn CallStream,
    ) -> Way<'s> {
        if self.environment.files.is_here(volume) {
            return Way::Here(StreamSource::continuing(head, stream));
        }
        call.note_volume(volume);
        let passage = self.passage(call, &head);
        let mut outgoing = Outgoing::new(head, stream);
        match self.settle(&passage, volume, &mut outgoing) {
            Some(result) => {
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
        volume: VolumeId,
        outgoing: &mut Outgoing<'_>,
    ) -> Option<Result<(), AbortCode>> {
        let (ownership, now) = (&self.environment.ownership, self.environment.now);
        let (kind, repeat) = (scope::kind(passage.opcode), scope::repeat(passage.opcode));
        let mut forwarding = Forwarding::new(now(), repeat, ownership.hold_limit());
        let mut has_looked_again = false;
        loop {
            let (route, partition) = match self.places.find(volume) {
                Found::Nowhere if outgoing.is_whole() => return None,
                Found::Nowhere => return Some(Err(AbortCode::VRESTARTING)),
                Found::Unknown => (Route::Hold, None),
                Found::In(partition) => {
                    (ownership.route(&partition, kind, forwarding.age(now())), Some(partition))
                }
            };
            match (forwarding.step(now(), route), partition) {
                (Step::Hold(pause), _) => (self.environment.pause)(pause),
                (Step::Fail(code), _) => return Some(Err(code)),
                (Step::Local, _) if !has_looked_again && !self.environment.files.is_here(volume) => {
                    // It may have moved to another partition since it was found.
                    has_looked_again = true;
                    self.places.forget(volume);
                }
                (Step::Local, _) | (Step::Send { .. }, None) => return None,
                (Step::Send { epoch, addresses, wait, .. }, Some(partition)) => {
                    let header = self.header(passage, &partition, epoch, wait);
                    let code = match self.attempt(header, &addresses, outgoing) {
                        Ok(()) => return Some(Ok(())),
                        Err(Trouble::Client(code)) => return Some(Err(code)),
                        Err(Trouble::Owner(code)) => code,
                    };
                    let is_stale = code == AbortCode::VNOVOL && !has_looked_again && outgoing.is_whole();
                    let outcome = match meaning(code) {
                        Meaning::Result if !is_stale => return Some(Err(code)),
                        Meaning::Result => Outcome::Refused,
                        Meaning::Ended(outcome) => outcome,
                    };
                    if is_stale {
                        // It may have moved to another partition since it was found.
                        has_looked_again = true;
                        self.places.forget(volume);
                    }
                    self.note(outcome, code, &partition, &addresses);
                    forwarding.ended(now(), epoch, outcome, outgoing.is_whole());
                }
            }
        }
    }

    fn note(&self, outcome: Outcome, code: AbortCode, partition: &PartitionName, addresses: &[SocketAddr]) {
        count(match outcome {
            Outcome::Refused => &self.tally.refused,
            Outcome::Unknown => &self.tally.unknown,
        });
        tracing::debug!(%partition, ?addresses, %code, ?outcome, "a forwarded call was not answered");
    }

    /// Returns the beginning of a forwarded call.
    fn header(
        &self,
        passage: &Passage<'_>,
        partition: &PartitionName,
        epoch: Epoch,
        wait: Duration,
    ) -> Bytes {
        let request = cluster::ForwardRequest {
            front: wire::node(&self.environment.ownership.node()),
            partition: partition.as_str().into(),
            epoch: epoch.0,
            number: passage.number,
            wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
            caller: wire::caller(passage.call),
        };
        let mut header = xdr::to_vec(&cluster::FORWARD);
        request.encode(&mut header);
        header.into()
    }

    fn attempt(
        &self,
        header: Bytes,
        addresses: &[SocketAddr],
        outgoing: &mut Outgoing<'_>,
    ) -> Result<(), Trouble> {
        let address = addresses.first().ok_or(Trouble::Owner(AbortCode(refusal::NOT_OWNER)))?;
        outgoing.send(header, &*self.links.to(*address))
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
        let mut stream = MemoryStream::default();
        match self.pass(call, volume, request, &mut stream) {
            Way::Here(mut source) => self.environment.files.serve(call, &mut source)?,
            Way::Ended(result) => result?,
        }
        Ok(stream.outgoing)
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
        let mut owners = self.places.owners().0;
        owners.sort_by(|a, b| a.node.cmp(&b.node));
        owners.dedup_by(|a, b| a.node == b.node);
        for owner in owners {
            let passage = self.passage(call, &head);
            let header = self.header(&passage, &owner.partition, Epoch(owner.epoch), NO_WAIT);
            let mut reply = MemoryStream::default();
            let mut outgoing = Outgoing::new(head.clone(), &mut reply);
            if let Err(trouble) = self.attempt(header, &owner.addresses, &mut outgoing) {
                tracing::debug!(?trouble, partition = %owner.partition, "a call for all nodes has failed");
            }
        }
        Way::Here(StreamSource::continuing(head, stream))
    }
}

/// Reads a small request to its end.
fn whole(head: &mut Bytes, stream: &mut dyn CallStream) -> Result<(), AbortCode> {
    if scope::more(head, SMALL_REQUEST_BYTES_MAX, stream)? {
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
        // The negative ones are Rx's: the node restarts or has died.
        AbortCode(refusal::LOST | -9..=-1 | -100) => Meaning::Ended(Outcome::Unknown),
        code if is_of_keys(code) => Meaning::Ended(Outcome::Refused),
        _ => Meaning::Result,
    }
}

/// Whether the connection was refused, because the nodes do not have the same keys at present.
fn is_of_keys(code: AbortCode) -> bool {
    (AbortCode::RXKADINCONSISTENCY.0..=AbortCode::RXKADILLEGALLEVEL.0).contains(&code.0)
}
