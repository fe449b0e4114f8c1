//! The state machine: calls arrive, promises are made, changes break them.

use crate::config::{self, CallbackConfig, PROMISE_S_MAX, SERVER_BIAS_S};
use crate::counters::Counters;
use crate::host::{Host, HostId, HostInfo, Identification};
use crate::hosts::Hosts;
use crate::numbers::ByNumber;
use crate::promises::Promises;
use base::limits::BULK_FIDS_MAX;
use base::{AbortCode, Fid, HostUuid, Monotonic, VnodeId, VolumeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

/// What to do with a call that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Answer it; the caller is this host, and nothing is owed to it.
    Ready(HostId),
    /// Do this first, report its result, and ask again.
    First(Task),
    /// Another call is doing what has to be done first: wait until something is reported
    /// ([`Callbacks::identified`] or [`Callbacks::delivered`]), then ask again.
    Wait,
    /// Fail the call.
    Refuse(Refusal),
}

/// Why a call is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The caller does not answer calls to it, so that no promise to it could be kept.
    Unreachable,
    /// There is no room for another host, or the caller's address is in dispute; later perhaps.
    Busy,
}

impl Refusal {
    /// The wire code. Clients take a negative one for "server down" and try a replica.
    pub fn abort_code(self) -> AbortCode {
        match self {
            Refusal::Unreachable => AbortCode::RX_CALL_DEAD,
            Refusal::Busy => AbortCode::VBUSY,
        }
    }
}

/// Something to say to a client before a call is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Ask `address` who it is (TellMeAboutYourself; WhoAreYou if that is an unknown opcode) and
    /// report with [`Callbacks::identified`].
    Identify {
        /// Whom to ask.
        address: SocketAddr,
        /// The connection of the call that waits.
        connection: u64,
        /// Nobody is known at the address. Who is there most likely has to forget everything before it is
        /// answered (InitCallBackState3), and may be told so while it is asked.
        may_reset: bool,
    },
    /// Send this to the caller, and report with [`Callbacks::delivered`]. If that says
    /// [`Delivered::Delayed`], refuse the call as [`Refusal::Unreachable`].
    Deliver(Delivery),
    /// Send this to another host that has to make room, and report with [`Callbacks::delivered`].
    Evict(Delivery),
}

/// What to tell a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// These promises are broken (RXAFSCB_CallBack); at most 50. Vnode 0 means a whole volume.
    Break(Vec<Fid>),
    /// All promises are void (InitCallBackState3, or InitCallBackState for a host without UUID).
    Reset,
}

/// A message on its way to one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Whom it is for.
    pub host: HostId,
    /// Where to send it.
    pub address: SocketAddr,
    /// The host's UUID.
    pub uuid: Option<HostUuid>,
    /// If set, first make sure that this very host answers there (ProbeUuid with [`Self::uuid`]).
    pub probe: bool,
    /// What to say.
    pub message: Message,
    alternates: Vec<SocketAddr>,
    sequence: u64,
    exclusive: bool,
}

/// What became of a [`Delivery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The host knows.
    Done,
    /// Send this instead: the same message to another address of the host.
    Retry(Box<Delivery>),
    /// The host is down; it will be told before its next call is answered.
    Delayed,
    /// It did not answer, and was forgotten meanwhile: if it calls again it is told to forget everything.
    Forgotten,
}

/// How long a promise is to last depends on what asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackKind {
    /// A call about one file.
    File,
    /// A call about many files at once.
    Bulk,
    /// A file in a volume that is read-only: the promise is for the whole volume.
    Volume,
}

/// A promise made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// How long the client may rely on it, in seconds from now; 0 if no promise was made.
    pub seconds: u32,
    /// Messages to send because space ran out.
    pub deliveries: Vec<Delivery>,
}

/// All hosts and promises of one server.
///
/// For each call: [`arrive`](Self::arrive) until it says [`Arrival::Ready`]; then
/// [`promise`](Self::promise) *before* the status that the promise covers is read; after a change and
/// before its reply, [`break_files`](Self::break_files) and send what it returns, reporting each
/// delivery with [`delivered`](Self::delivered). Now and then call [`maintain`](Self::maintain).
#[derive(Debug)]
pub struct Callbacks {
    config: CallbackConfig,
    hosts: Hosts,
    by_address: BTreeMap<SocketAddr, HostId>,
    by_uuid: BTreeMap<HostUuid, HostId>,
    /// Whose connections are whose, and in which order they were learnt.
    connections: ByNumber<Connection, HostId>,
    connection_order: VecDeque<Connection>,
    identifying: BTreeSet<SocketAddr>,
    /// Addresses where nobody said who it is, and until when they are refused.
    silent: BTreeMap<SocketAddr, Monotonic>,
    promises: Promises,
    /// Whose calls come next, and what they are about; kept for its memory.
    foreseen: Vec<(HostId, Option<Fid>)>,
    delayed: usize,
    /// Hosts that are up, hold nothing in our memory, and have not been told so yet.
    owing_reset: BTreeSet<HostId>,
    sequence: u64,
    counters: Counters,
}

/// A client's connection, by the number that the server gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection {
    number: u64,
    peer: SocketAddr,
}

impl Hash for Connection {
    /// The number tells nearly all.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.number);
    }
}

fn seconds(now: Monotonic) -> u64 {
    now.0 / 1_000_000_000
}

/// The fid that stands for all of `volume` in promises and messages.
fn whole(volume: VolumeId) -> Fid {
    Fid { volume, vnode: VnodeId(0), unique: 0 }
}

/// Arriving calls.
impl Callbacks {
    /// Knows nobody and promises nothing.
    pub fn new(config: CallbackConfig) -> Callbacks {
        Callbacks {
            config,
            hosts: Hosts::default(),
            by_address: BTreeMap::new(),
            by_uuid: BTreeMap::new(),
            connections: ByNumber::default(),
            connection_order: VecDeque::new(),
            identifying: BTreeSet::new(),
            silent: BTreeMap::new(),
            promises: Promises::default(),
            foreseen: Vec::new(),
            delayed: 0,
            owing_reset: BTreeSet::new(),
            sequence: 0,
            counters: Counters::default(),
        }
    }

    /// A call has come from `peer` on `connection`. `active` is false for calls that say nothing
    /// about use of files (GetTime, GetStatistics, GetCapabilities).
    pub fn arrive(&mut self, now: Monotonic, peer: SocketAddr, connection: u64, active: bool) -> Arrival {
        match self.known(peer, connection) {
            Some(host) => self.admit(now, host, peer, active),
            None => self.ask_who(now, peer, connection),
        }
    }

    /// Whether [`Callbacks::arrive`] would let this call in at once.
    pub fn is_ready(&self, peer: SocketAddr, connection: u64) -> bool {
        let host = self.known(peer, connection).and_then(|id| self.hosts.get(id));
        host.is_some_and(Host::is_owed_nothing)
    }

    /// [`Callbacks::arrive`] of a call that uses files, if that lets it in at once: who calls, and what it can
    /// (as [`Callbacks::capabilities`] says). `None` has changed nothing.
    pub fn arrive_at_once(
        &mut self,
        now: Monotonic,
        peer: SocketAddr,
        connection: u64,
    ) -> Option<(HostId, u32)> {
        let id = self.known(peer, connection)?;
        // A host that is back may be owed something that is found out only then.
        let host = self.hosts.get_mut(id).filter(|host| host.up && host.is_owed_nothing())?;
        host.on_call(now, peer, true, self.sequence);
        Some((id, host.capabilities))
    }

    /// Reads a little of what is known of callers, their hosts and their promises on a file: of thousands of them nothing is
    /// in a processor's caches, and what is looked at here one after the other is fetched from memory at a time. What
    /// comes of it means nothing.
    pub fn look_ahead(&mut self, calls: impl Iterator<Item = (SocketAddr, u64, Option<Fid>)>) -> u64 {
        let mut found = std::mem::take(&mut self.foreseen);
        let known = |(peer, number, fid)| Some((*self.connections.get(&Connection { number, peer })?, fid));
        found.extend(calls.filter_map(known));
        let hosts = found.iter().filter_map(|(id, _)| self.hosts.get(*id));
        let mut seen = hosts.clone().fold(0, |seen, host| seen ^ host.look());
        for (id, fid) in &found {
            seen ^= fid.map_or(0, |fid| self.promises.look(fid, *id));
        }
        seen ^= hosts.fold(0, |seen, host| seen ^ host.look_at_addresses());
        found.clear();
        self.foreseen = found;
        seen
    }

    /// Whether so many promises more can be made without taking any from others.
    pub fn has_room(&self, promises: usize) -> bool {
        self.used() + promises <= self.config.promises_max
    }

    fn known(&self, peer: SocketAddr, connection: u64) -> Option<HostId> {
        let id = *self.connections.get(&Connection { number: connection, peer })?;
        // As `by_address` has it: all addresses of a host lead to it.
        self.hosts.get(id)?.addresses.contains(&peer).then_some(id)
    }

    fn admit(&mut self, now: Monotonic, id: HostId, peer: SocketAddr, active: bool) -> Arrival {
        let host = self.hosts.get_mut(id).expect("an address leads to a host that exists");
        host.on_call(now, peer, active, self.sequence);
        if host.busy {
            return Arrival::Wait;
        }
        let message = if host.needs_reset.is_some() {
            Message::Reset
        } else if host.delayed.is_empty() {
            host.up = true;
            return Arrival::Ready(id);
        } else {
            Message::Break(host.delayed.keys().take(BULK_FIDS_MAX).copied().collect())
        };
        host.busy = true;
        let delivery = Delivery { exclusive: true, ..self.delivery(id, message) };
        Arrival::First(Task::Deliver(delivery))
    }

    fn ask_who(&mut self, now: Monotonic, peer: SocketAddr, connection: u64) -> Arrival {
        if self.silent.get(&peer).is_some_and(|until| now < *until) {
            return Arrival::Refuse(Refusal::Unreachable);
        }
        if !self.by_address.contains_key(&peer)
            && self.hosts.len() >= self.config.hosts_max
            && let Some(arrival) = self.make_host_room()
        {
            return arrival;
        }
        if self.identifying.insert(peer) {
            let may_reset = !self.by_address.contains_key(&peer);
            Arrival::First(Task::Identify { address: peer, connection, may_reset })
        } else {
            Arrival::Wait
        }
    }

    /// Drops the host that has been silent longest; one that holds promises must first be told.
    fn make_host_room(&mut self) -> Option<Arrival> {
        let idle = self.hosts.iter().filter(|(_, host)| !host.busy).min_by_key(|(_, host)| host.last_call);
        let Some((id, host)) = idle else { return Some(Arrival::Refuse(Refusal::Busy)) };
        if !host.up || !self.promises.has_any(id) && !self.owing_reset.contains(&id) {
            self.drop_host(id);
            return None;
        }
        self.clear_host(id);
        self.hosts.get_mut(id)?.busy = true;
        let delivery = Delivery { exclusive: true, ..self.delivery(id, Message::Reset) };
        Some(Arrival::First(Task::Evict(delivery)))
    }

    /// The answer to [`Task::Identify`]; `None` if there was none. `was_reset`: before it said who it is, or while
    /// it did, the client has forgotten everything.
    pub fn identified(
        &mut self,
        now: Monotonic,
        address: SocketAddr,
        connection: u64,
        said: Option<Identification>,
        was_reset: bool,
    ) -> Result<(), Refusal> {
        self.identifying.remove(&address);
        let Some(said) = said else {
            self.remember_silence(now, address);
            return Err(self.no_identity(address));
        };
        self.silent.remove(&address);
        let is_known = said.uuid.is_none_or(|uuid| self.by_uuid.contains_key(&uuid));
        let id = match said.uuid {
            Some(uuid) => self.host_with_uuid(now, address, uuid),
            None => self.host_without_uuid(now, address),
        };
        let host = self.hosts.get_mut(id).expect("just found or made");
        if was_reset && !is_known {
            // It has been answered nothing since then: whoever else is at this address waits, too.
            host.needs_reset = None;
        }
        host.learn(&self.config, &said);
        host.last_call = now;
        self.remember_connection(connection, address, id);
        Ok(())
    }

    fn remember_silence(&mut self, now: Monotonic, address: SocketAddr) {
        const SILENT_MAX: usize = 10_000;
        if self.silent.len() >= SILENT_MAX {
            self.silent.clear();
        }
        self.silent.insert(address, now + self.config.refused_after_silence);
    }

    /// Nobody answers at `address`: the host that has it as its main one is down, another host just
    /// does not have it any more.
    fn no_identity(&mut self, address: SocketAddr) -> Refusal {
        let Some(&id) = self.by_address.get(&address) else { return Refusal::Unreachable };
        if self.hosts[id].primary != address {
            self.remove_address(id, address);
            return Refusal::Busy;
        }
        self.mark_down(id);
        Refusal::Unreachable
    }

    fn host_with_uuid(&mut self, now: Monotonic, address: SocketAddr, uuid: HostUuid) -> HostId {
        if let Some(&there) = self.by_address.get(&address) {
            if self.hosts[there].uuid == Some(uuid) {
                let host = self.hosts.get_mut(there).expect("address leads to it");
                host.set_primary(address, self.sequence);
                return there;
            }
            self.remove_address(there, address);
        }
        match self.by_uuid.get(&uuid) {
            Some(&id) => {
                self.move_host(id, address);
                id
            }
            None => self.add_host(now, address, Some(uuid)),
        }
    }

    /// A host without UUID is its address; whoever else had that address is gone from there.
    fn host_without_uuid(&mut self, now: Monotonic, address: SocketAddr) -> HostId {
        if let Some(&there) = self.by_address.get(&address) {
            if self.hosts[there].uuid.is_none() {
                return there;
            }
            self.remove_address(there, address);
        }
        self.add_host(now, address, None)
    }

    /// A known host called from a new address. Another port of the same address is an address
    /// translator's doing: the old one leads nowhere now.
    fn move_host(&mut self, id: HostId, address: SocketAddr) {
        let host = self.hosts.get_mut(id).expect("a UUID leads to a host that exists");
        host.set_primary(address, self.sequence);
        let mut gone = Vec::new();
        host.addresses.retain(|old| {
            let stays = old.ip() != address.ip();
            if !stays {
                gone.push(*old);
            }
            stays
        });
        if host.addresses.len() >= self.config.addresses_max {
            gone.push(host.addresses.remove(0));
        }
        host.addresses.push(address);
        for old in gone {
            self.by_address.remove(&old);
        }
        self.by_address.insert(address, id);
    }

    fn add_host(&mut self, now: Monotonic, address: SocketAddr, uuid: Option<HostUuid>) -> HostId {
        let id = self.hosts.add(Host::new(now, address, uuid, self.sequence));
        self.by_address.insert(address, id);
        if let Some(uuid) = uuid {
            self.by_uuid.insert(uuid, id);
        }
        id
    }

    fn remove_address(&mut self, id: HostId, address: SocketAddr) {
        self.by_address.remove(&address);
        let Some(host) = self.hosts.get_mut(id) else { return };
        host.addresses.retain(|other| *other != address);
        match host.addresses.last() {
            None => self.drop_host(id),
            Some(&other) if host.primary == address => host.set_primary(other, self.sequence),
            Some(_) => {}
        }
    }

    /// Forgets a host altogether. When it calls again it is new, and is told to forget everything.
    fn drop_host(&mut self, id: HostId) {
        self.promises.remove_host(id, u64::MAX);
        self.owing_reset.remove(&id);
        let Some(host) = self.hosts.remove(id) else { return };
        self.delayed -= host.delayed.len();
        for address in &host.addresses {
            self.by_address.remove(address);
        }
        if let Some(uuid) = host.uuid {
            self.by_uuid.remove(&uuid);
        }
    }

    fn remember_connection(&mut self, connection: u64, address: SocketAddr, id: HostId) {
        let connection = Connection { number: connection, peer: address };
        if self.connections.insert(connection, id).is_none() {
            self.connection_order.push_back(connection);
        }
        if self.connection_order.len() > self.config.connections_max
            && let Some(oldest) = self.connection_order.pop_front()
        {
            self.connections.remove(&oldest);
        }
    }
}

/// Promises and breaks.
impl Callbacks {
    /// Promises `host` to tell it before `fid` changes. Call it before reading what the host is to
    /// cache: a change in between then breaks the promise, instead of escaping it.
    pub fn promise(&mut self, now: Monotonic, host: HostId, fid: Fid, kind: CallbackKind) -> Promised {
        if !self.hosts.contains(host) {
            return Promised::default();
        }
        let fid = if kind == CallbackKind::Volume { whole(fid.volume) } else { fid };
        self.sequence += 1;
        self.counters.promises_made += 1;
        let mut lasts_s = 0;
        self.promises.put(fid, host, self.sequence, |users| {
            lasts_s = match kind {
                CallbackKind::File => config::promise_s(users),
                CallbackKind::Bulk => config::promise_s(users + config::BULK_USERS),
                CallbackKind::Volume => config::VOLUME_PROMISE_S,
            };
            seconds(now) + lasts_s + SERVER_BIAS_S
        });
        Promised { seconds: lasts_s as u32, deliveries: self.make_room(now, host) }
    }

    /// `fids` have changed through `except`: messages for everybody else who holds promises on them.
    /// Send all of them, and report each, before the change is acknowledged.
    pub fn break_files(&mut self, fids: &[Fid], except: Option<HostId>) -> Vec<Delivery> {
        let mut broken: BTreeMap<HostId, Vec<Fid>> = BTreeMap::new();
        for &fid in fids {
            for holder in self.promises.holders(fid).filter(|holder| Some(*holder) != except) {
                broken.entry(holder).or_default().push(fid);
            }
        }
        self.break_promises(broken, except)
    }

    /// All of `volume` may have changed or gone: messages for everybody who holds promises in it.
    pub fn break_volume(&mut self, volume: VolumeId) -> Vec<Delivery> {
        let holders = self.promises.volume_holders(volume);
        self.break_promises(holders.into_iter().map(|host| (host, vec![whole(volume)])).collect(), None)
    }

    fn break_promises(
        &mut self,
        broken: BTreeMap<HostId, Vec<Fid>>,
        except: Option<HostId>,
    ) -> Vec<Delivery> {
        self.counters.breaks += 1;
        self.sequence += 1;
        let mut deliveries = self.resets_owed(except);
        for (id, fids) in broken {
            if self.hosts[id].up {
                for part in fids.chunks(BULK_FIDS_MAX) {
                    deliveries.push(self.delivery(id, Message::Break(part.to_vec())));
                }
            } else {
                self.delay(id, &fids, self.sequence);
            }
        }
        deliveries
    }

    fn resets_owed(&mut self, except: Option<HostId>) -> Vec<Delivery> {
        let owing: Vec<HostId> = self.owing_reset.iter().filter(|id| Some(**id) != except).copied().collect();
        owing.into_iter().map(|id| self.delivery(id, Message::Reset)).collect()
    }

    fn delivery(&mut self, id: HostId, message: Message) -> Delivery {
        self.counters.deliveries_under_way += 1;
        let host = &self.hosts[id];
        Delivery {
            host: id,
            address: host.primary,
            uuid: host.uuid,
            probe: false,
            message,
            alternates: host.alternates(),
            sequence: self.sequence,
            exclusive: false,
        }
    }

    /// Reports whether a delivery reached its host.
    pub fn delivered(&mut self, delivery: &Delivery, reached: bool) -> Delivered {
        if !reached
            && self.hosts.contains(delivery.host)
            && let Some(retry) = next_address(delivery)
        {
            return Delivered::Retry(Box::new(retry));
        }
        self.counters.deliveries_under_way = self.counters.deliveries_under_way.saturating_sub(1);
        let count =
            if reached { &mut self.counters.breaks_delivered } else { &mut self.counters.breaks_failed };
        *count += 1;
        let Some(host) = self.hosts.get_mut(delivery.host) else {
            return if reached { Delivered::Done } else { Delivered::Forgotten };
        };
        if delivery.exclusive {
            host.busy = false;
            host.up = reached;
        }
        if !reached {
            self.missed(delivery);
            return Delivered::Delayed;
        }
        if delivery.probe {
            host.set_primary(delivery.address, self.sequence);
        }
        host.unconfirmed = !delivery.probe;
        self.reached(delivery);
        Delivered::Done
    }

    fn reached(&mut self, delivery: &Delivery) {
        let id = delivery.host;
        match &delivery.message {
            Message::Break(fids) => {
                for &fid in fids {
                    self.end_promise(id, fid, delivery.sequence);
                    self.forget_delayed(id, fid, delivery.sequence);
                }
            }
            Message::Reset => {
                self.promises.remove_host(id, delivery.sequence);
                self.forget_reset(id, delivery.sequence);
            }
        }
    }

    fn end_promise(&mut self, id: HostId, fid: Fid, sequence: u64) {
        if fid.vnode == VnodeId(0) {
            self.promises.remove_volume(fid.volume, id, sequence);
        } else {
            self.promises.remove(fid, id, sequence);
        }
    }

    fn forget_delayed(&mut self, id: HostId, fid: Fid, sequence: u64) {
        let Some(host) = self.hosts.get_mut(id) else { return };
        if host.delayed.get(&fid).is_some_and(|since| *since <= sequence) {
            host.delayed.remove(&fid);
            self.delayed -= 1;
        }
    }

    fn forget_reset(&mut self, id: HostId, sequence: u64) {
        let Some(host) = self.hosts.get_mut(id) else { return };
        let before = host.delayed.len();
        host.delayed.retain(|_, since| *since > sequence);
        self.delayed -= before - host.delayed.len();
        if host.needs_reset.is_some_and(|since| since <= sequence) {
            host.needs_reset = None;
            self.owing_reset.remove(&id);
        }
    }

    fn missed(&mut self, delivery: &Delivery) {
        self.mark_down(delivery.host);
        // That a host needs a reset is known from before the reset was sent.
        if let Message::Break(fids) = &delivery.message {
            self.delay(delivery.host, fids, delivery.sequence);
        }
    }

    fn mark_down(&mut self, id: HostId) {
        if let Some(host) = self.hosts.get_mut(id) {
            host.up = false;
        }
        self.owing_reset.remove(&id);
    }

    /// Turns promises of a host that is down into breaks that it gets later.
    fn delay(&mut self, id: HostId, fids: &[Fid], sequence: u64) {
        for &fid in fids {
            self.end_promise(id, fid, sequence);
            let Some(host) = self.hosts.get_mut(id) else { return };
            if host.delayed.len() >= self.config.delayed_max {
                self.clear_host(id);
                return;
            }
            if host.delayed.insert(fid, sequence).is_none() {
                self.delayed += 1;
                self.counters.breaks_delayed += 1;
            }
        }
    }

    /// Drops all that a host holds; it must be told to forget everything.
    fn clear_host(&mut self, id: HostId) {
        self.counters.hosts_cleared += 1;
        self.sequence += 1;
        self.promises.remove_host(id, u64::MAX);
        let Some(host) = self.hosts.get_mut(id) else { return };
        self.delayed -= host.delayed.len();
        host.delayed.clear();
        host.needs_reset = Some(self.sequence);
        if host.up {
            self.owing_reset.insert(id);
        }
    }

    /// Brings the number of promises under its limit by clearing the least recently active hosts.
    fn make_room(&mut self, now: Monotonic, asking: HostId) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        if self.used() <= self.config.promises_max {
            return deliveries;
        }
        self.counters.space_searches += 1;
        if self.expire(now) > 0 && self.used() <= self.config.promises_max {
            self.counters.cleared_expired += 1;
            return deliveries;
        }
        let enough = self.config.promises_max - self.config.promises_max / 16;
        while self.used() > enough {
            let Some(id) = self.least_active(asking) else { break };
            self.clear_host(id);
            if self.hosts[id].up {
                deliveries.push(self.delivery(id, Message::Reset));
            }
        }
        deliveries
    }

    fn used(&self) -> usize {
        self.promises.len() + self.delayed
    }

    /// The host to clear: the one longest without activity, the asking one only if there is no other.
    fn least_active(&mut self, asking: HostId) -> Option<HostId> {
        let holds = |id: HostId, host: &Host| !host.delayed.is_empty() || self.promises.has_any(id);
        let others = self.hosts.iter().filter(|(id, host)| *id != asking && holds(*id, host));
        if let Some((id, _)) = others.min_by_key(|(_, host)| host.last_active) {
            self.counters.cleared_idle_host += 1;
            return Some(id);
        }
        let own = self.hosts.get(asking).is_some_and(|host| holds(asking, host));
        self.counters.cleared_asking_host += u64::from(own);
        own.then_some(asking)
    }

    /// A host does not want these promises any more (RXAFS_GiveUpCallBacks).
    pub fn give_up(&mut self, host: HostId, fids: &[Fid]) {
        for &fid in fids {
            self.counters.promises_deleted += 1;
            self.promises.remove(fid, host, u64::MAX);
        }
    }

    /// A host gives up all promises (RXAFS_GiveUpAllCallBacks).
    pub fn give_up_all(&mut self, host: HostId) {
        self.counters.hosts_cleared += 1;
        self.promises.remove_host(host, u64::MAX);
    }

    /// A file is gone: its promises end unbroken, since nobody can reach it any more.
    pub fn forget_file(&mut self, fid: Fid) {
        self.counters.files_deleted += 1;
        self.promises.remove_file(fid);
    }

    fn expire(&mut self, now: Monotonic) -> usize {
        let count = self.promises.expire(seconds(now));
        self.counters.expired += count as u64;
        count
    }

    /// Ends expired promises and forgets hosts that are gone. Call it every few minutes.
    pub fn maintain(&mut self, now: Monotonic) {
        self.expire(now);
        self.silent.retain(|_, until| now < *until);
        let idle_max = self.config.host_idle_max;
        let gone = |id: HostId, host: &Host| {
            let silent = now.since(host.last_call);
            let holds_nothing = host.delayed.is_empty() && !self.promises.has_any(id);
            let down_for_good = !host.up && silent > Duration::from_secs(PROMISE_S_MAX);
            !host.busy && (silent > idle_max && holds_nothing || down_for_good)
        };
        let gone: Vec<HostId> = self.hosts.iter().filter(|(id, h)| gone(*id, h)).map(|(id, _)| id).collect();
        for id in gone {
            self.drop_host(id);
        }
    }
}

/// The same message to the next address, to be used only if the host itself answers there.
fn next_address(delivery: &Delivery) -> Option<Delivery> {
    let mut retry = delivery.clone();
    if retry.alternates.is_empty() {
        return None;
    }
    retry.address = retry.alternates.remove(0);
    retry.probe = true;
    Some(retry)
}

/// Questions.
impl Callbacks {
    /// Counts and present sizes.
    pub fn counters(&self) -> Counters {
        Counters {
            files: self.promises.files() as u64,
            promises: self.used() as u64,
            promises_max: self.config.promises_max as u64,
            hosts: self.hosts.len() as u64,
            hosts_down: self.hosts.iter().filter(|(_, host)| !host.up).count() as u64,
            ..self.counters
        }
    }

    /// Hosts that have used files since `since`.
    pub fn active_hosts(&self, since: Monotonic) -> usize {
        self.hosts.iter().filter(|(_, host)| host.last_active >= since).count()
    }

    /// What a host said it can (CLIENT_CAPABILITY_*); 0 for an unknown host.
    pub fn capabilities(&self, host: HostId) -> u32 {
        self.hosts.get(host).map_or(0, |host| host.capabilities)
    }

    /// Whether `host` holds a promise on `fid` (a whole volume's with vnode 0).
    pub fn holds(&self, host: HostId, fid: Fid) -> bool {
        self.promises.holds(fid, host)
    }

    /// Every host, for tables.
    pub fn hosts(&self) -> impl Iterator<Item = HostInfo> + '_ {
        self.hosts.iter().map(|(id, host)| HostInfo {
            id,
            uuid: host.uuid,
            primary: host.primary,
            addresses: host.addresses.clone(),
            up: host.up,
            promises: self.promises.count_of(id),
            delayed: host.delayed.len(),
            last_call: host.last_call,
        })
    }
}

#[cfg(test)]
mod tests;
