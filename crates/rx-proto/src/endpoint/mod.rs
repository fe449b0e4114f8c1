//! The endpoint: all connections and calls behind one UDP port.

mod accept;
mod data;
mod finish;
mod input;
mod inspect;
mod look_ahead;
mod origin;
mod output;
mod proof;
mod rest;
mod run;
mod takeover;
mod time;
mod unreachable;
mod user;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base::{AbortCode, Monotonic, Room, UnixTime};
use bytes::{Bytes, BytesMut};
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use rx_security::ClientSecurity;

use crate::bucket::TokenBucket;
use crate::call::Call;
use crate::calls::Calls;
use crate::connection::{Connection, ConnectionKey, EPOCH_ANY_ADDRESS};
use crate::cookie::Cookies;
use crate::hash::{SeededMap, SeededState};
use crate::header::HEADER_BYTES;
use crate::packet_length::ShortPaths;
use crate::peer::{Peer, PeerCounters, PeerReport};
use crate::seed::Seed;
use crate::slab::{Key, Slab};
use crate::timers::{Timed, Timers};
use crate::unproven::Unproven;
use crate::{
    CallId, ConnectOptions, ConnectionId, EndpointConfig, Event, Inquiry, Landed, Outgoing, Path, Read,
    ServiceConfig, Statistics, Transmit, Write,
};

/// Responses of connections that were forgotten which are checked in a second: each costs the opening of a ticket.
const LATE_RESPONSES_PER_SECOND: u32 = 1000;

/// Lists of packets kept for the next transmits, and calls for the next ones.
pub(super) const SPARE_MAX: usize = 64;

/// One UDP port's worth of Rx: server and client at once.
///
/// An endpoint does nothing by itself. Its user drives it:
///
/// 1. [`Endpoint::handle_datagram`] for every datagram received (as many as there are, before the
///    next step: acknowledgements are made per batch);
/// 2. [`Endpoint::handle_timeout`] when the time of [`Endpoint::poll_timeout`] has come;
/// 3. [`Endpoint::poll_event`] until it gives `None`;
/// 4. [`Endpoint::poll_transmit`] until it gives `None`, sending each;
/// 5. [`Endpoint::poll_timeout`] says when to come back at the latest.
///
/// Steps 3 to 5 also follow every other `&mut self` method, in particular [`Endpoint::read`] (it
/// opens the peer's window), [`Endpoint::write`], [`Endpoint::end`] and [`Endpoint::abort`].
///
/// Times given must not decrease.
///
/// # Life of a server call
///
/// [`Event::CallArrived`]; `read` until [`Read::End`] (or as far as the service wants: what it does
/// not read is dropped once it writes or ends); `write`; `end`; then [`Event::Ended`] when the
/// client has it all. `release` may be called at any time after `end` or `abort`, without waiting.
///
/// # Life of a client call
///
/// [`Endpoint::connect`] once per server, service and identity; [`Endpoint::open_call`]; `write`;
/// `end`; `read` until [`Read::End`]; `release`. A call that is released before its end is aborted
/// with `RX_USER_ABORT`.
///
/// # Blocking
///
/// `Blocked` promises one event: [`Event::Readable`], [`Event::Writable`], [`Event::Failed`] or
/// [`Event::ChannelFree`]. Without a blocked operation there are no such events (but a failure is
/// always told once).
pub struct Endpoint {
    config: EndpointConfig,
    statistics: Statistics,
    started: Monotonic,
    /// See [`Endpoint::hold_new_calls`].
    holds_new_calls: bool,
    suspects: takeover::Suspects,
    random: ChaCha12Rng,
    /// Of the connections made here.
    epoch: u32,
    services: SeededMap<u16, ServiceConfig>,
    peers: Slab<Peer>,
    peer_index: SeededMap<SocketAddr, Key>,
    /// What peers did that are forgotten.
    forgotten: PeerCounters,
    short_paths: ShortPaths,
    connections: Slab<Connection>,
    index: SeededMap<ConnectionKey, Key>,
    /// Connections and channels that are about to be used; kept for its memory.
    foreseen: Vec<(Key, usize)>,
    /// Connections whose peers have proved nothing.
    unproven: Unproven,
    /// When one of them was dropped to make room.
    unproven_dropped_at: Option<Monotonic>,
    cookies: Cookies,
    late_responses: TokenBucket,
    questions: TokenBucket,
    calls: Calls,
    timers: Timers,
    /// Kept for its memory.
    due: Vec<Timed>,
    /// Calls that have something to send, in turn.
    ready: VecDeque<Key>,
    /// Calls whose deadlines may have changed.
    unarmed: Vec<Key>,
    /// Packets outside of calls, and aborts.
    control: VecDeque<(Path, [u8; HEADER_BYTES], Bytes)>,
    events: VecDeque<Event>,
    /// Bodies of ACK packets are cut from it.
    arena: BytesMut,
    spare: Vec<SpareTransmit>,
    /// Over and empty, for their memory.
    #[allow(clippy::vec_box, reason = "they go back to the others as they are")]
    spare_calls: Vec<Box<Call>>,
    cursors: inspect::Cursors,
    /// Calls that receive much.
    bulk_calls: usize,
    waiting_calls: usize,
    waited_calls: u64,
    idle_workers: usize,
}

/// The memory of a transmit that was sent.
#[derive(Default)]
struct SpareTransmit {
    packets: Vec<Outgoing>,
    bodies: Vec<Bytes>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("statistics", &self.statistics).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// An endpoint without services. `seed` decides all its random choices (connection ids, epochs,
    /// nonces): it must be unpredictable in production and fixed in a simulation.
    pub fn new(config: EndpointConfig, seed: impl Into<Seed>, now: Monotonic) -> Endpoint {
        let mut random = seed.into().generator();
        let state = SeededState::new(random.random(), random.random());
        let unproven_max = config.unproven_connections_max;
        let questions = TokenBucket::new(config.rxdebug_per_second, now);
        Endpoint {
            config,
            statistics: Statistics::default(),
            started: now,
            holds_new_calls: false,
            suspects: takeover::Suspects::new(state),
            epoch: random.random::<u32>() | EPOCH_ANY_ADDRESS,
            cookies: Cookies::new(random.random()),
            unproven: Unproven::new(unproven_max, state),
            unproven_dropped_at: None,
            late_responses: TokenBucket::new(LATE_RESPONSES_PER_SECOND, now),
            questions,
            random,
            services: SeededMap::with_hasher(state),
            peers: Slab::new(),
            forgotten: PeerCounters::default(),
            peer_index: SeededMap::with_hasher(state),
            short_paths: ShortPaths::new(state),
            connections: Slab::new(),
            index: SeededMap::with_hasher(state),
            foreseen: Vec::new(),
            calls: Calls::new(),
            timers: Timers::default(),
            due: Vec::new(),
            ready: VecDeque::new(),
            unarmed: Vec::new(),
            control: VecDeque::new(),
            events: VecDeque::new(),
            arena: BytesMut::with_capacity(1 << 16),
            spare: Vec::new(),
            spare_calls: Vec::new(),
            cursors: inspect::Cursors::default(),
            bulk_calls: 0,
            waiting_calls: 0,
            waited_calls: 0,
            idle_workers: 0,
        }
    }

    /// Answers for one more service. Replaces one with the same id.
    pub fn add_service(&mut self, service: ServiceConfig) {
        self.services.insert(service.id, service);
    }

    /// Takes in one datagram. `wall` is the time of day, for tickets. Packets keep slices of
    /// `datagram` until they are read.
    pub fn handle_datagram(&mut self, now: Monotonic, wall: UnixTime, path: Path, datagram: Bytes) {
        self.input(now, wall, path, datagram);
    }

    /// Whether there are so many connections that a processor's caches do not hold them.
    pub fn is_crowded(&self) -> bool {
        self.connections.len() >= self.config.crowd_connections
    }

    /// Tells that these datagrams will be handled next: of very many clients, what each needs is then fetched from
    /// memory at a time. Optional, and changes nothing.
    pub fn look_ahead<'a>(&mut self, datagrams: impl Iterator<Item = (&'a Path, &'a [u8])>) {
        self.foresee(datagrams);
    }

    /// Takes in datagrams of one path that stand one after the other: all of `segment_bytes`, but the last,
    /// which may be shorter. As [`Endpoint::handle_datagram`] of each, but what concerns a call whose data
    /// they carry is done once for all.
    pub fn handle_run(
        &mut self,
        now: Monotonic,
        wall: UnixTime,
        path: Path,
        datagrams: Bytes,
        segment_bytes: usize,
    ) {
        self.input_run(now, wall, path, datagrams, segment_bytes);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        self.run_timers(now);
    }

    /// When [`Endpoint::handle_timeout`] wants to be called next. It may turn out that there is
    /// nothing to do then.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        self.timers.next()
    }

    /// The next datagrams to send.
    pub fn poll_transmit(&mut self, now: Monotonic) -> Option<Transmit> {
        self.next_transmit(now)
    }

    /// Gives a sent [`Transmit`] back, so that its memory is used again. Optional.
    pub fn recycle(&mut self, mut transmit: Transmit) {
        if self.spare.len() < SPARE_MAX {
            transmit.packets.clear();
            transmit.bodies.clear();
            self.spare.push(SpareTransmit { packets: transmit.packets, bodies: transmit.bodies });
        }
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next piece of the peer's data.
    pub fn read(&mut self, now: Monotonic, call: CallId) -> Read {
        self.read_call(now, call.0)
    }

    /// Reads up to `packets_max` pieces of the peer's data, and gives them to `data`. Tells what came after
    /// them, which is never [`Read::Data`]; `None` if so many have been read.
    pub fn read_some(
        &mut self,
        now: Monotonic,
        call: CallId,
        packets_max: usize,
        data: impl FnMut(Bytes),
    ) -> Option<Read> {
        self.read_packets(now, call.0, packets_max, data)
    }

    /// Lends room for what the reader wants next, behind the rooms that were lent before: the data are put there as they
    /// come. Until all have come back from [`Endpoint::landed`] nothing is read in another way.
    pub fn lend(&mut self, now: Monotonic, call: CallId, room: Room) {
        self.lend_room(now, call.0, room);
    }

    /// Takes back the room that was lent first, if it is full or nothing more will come.
    pub fn landed(&mut self, now: Monotonic, call: CallId) -> Landed {
        self.take_room(now, call.0)
    }

    /// Takes bytes off the front of `data` to send them, as many as the send queue has room for. They
    /// are kept by reference, not copied.
    pub fn write(&mut self, now: Monotonic, call: CallId, data: &mut Bytes) -> Write {
        self.write_call(now, call.0, data)
    }

    /// Sends what has been written even if it does not fill a packet. Rarely needed:
    /// [`Endpoint::end`] does it too.
    pub fn flush(&mut self, now: Monotonic, call: CallId) {
        if let Some(call) = self.calls.get_mut(call.0) {
            call.send.flush();
        }
        self.settle(now, call.0);
    }

    /// There will be no more data from here.
    pub fn end(&mut self, now: Monotonic, call: CallId) {
        self.end_call(now, call.0);
    }

    /// Writes a whole reply of a server, ends and releases the call: what [`Endpoint::write`], [`Endpoint::end`] and
    /// [`Endpoint::release`] do one after the other, at once. A reply that the send queue has no room for is aborted with
    /// `RX_PROTOCOL_ERROR`.
    pub fn reply(&mut self, now: Monotonic, call: CallId, reply: Bytes) {
        self.reply_call(now, call.0, reply);
    }

    /// Ends the call with an error that the peer is told. Nothing happens if it has ended already.
    /// There is no [`Event::Failed`] for it.
    pub fn abort(&mut self, now: Monotonic, call: CallId, code: AbortCode) {
        self.abort_call(now, call.0, code);
    }

    /// The user is done with the call; `call` becomes invalid. Data still to be sent after
    /// [`Endpoint::end`] on a server is sent nevertheless. A call in any other unfinished state is
    /// aborted with `RX_USER_ABORT`.
    pub fn release(&mut self, now: Monotonic, call: CallId) {
        self.release_call(now, call.0);
    }

    /// Makes a connection to a service; nothing is sent yet. `None` for security is the null class.
    ///
    /// # Errors
    /// The code of the security class if it cannot start, or `RX_CALL_DEAD` at the limit on
    /// connections.
    pub fn connect(
        &mut self,
        now: Monotonic,
        path: Path,
        service_id: u16,
        security: Option<Arc<dyn ClientSecurity>>,
        options: ConnectOptions,
    ) -> Result<ConnectionId, AbortCode> {
        self.new_connection(now, path, service_id, security, options).map(ConnectionId)
    }

    /// Begins a call. `None` if all four channels are taken (then [`Event::ChannelFree`] follows
    /// when one is free), if the endpoint has too many calls, or if the connection has failed or
    /// is closed (see [`Endpoint::connection_error`]).
    pub fn open_call(&mut self, now: Monotonic, connection: ConnectionId) -> Option<CallId> {
        self.new_call(now, connection.0).map(CallId)
    }

    /// Why a connection is unusable: what it failed with, or `RX_CALL_DEAD` if there is no such
    /// connection.
    pub fn connection_error(&self, connection: ConnectionId) -> Option<AbortCode> {
        self.connections.get(connection.0).map_or(Some(AbortCode::RX_CALL_DEAD), |it| it.error)
    }

    /// Forgets a client connection; its calls are aborted.
    pub fn close(&mut self, now: Monotonic, connection: ConnectionId) {
        self.close_connection(now, connection.0);
    }

    /// Forgets all client connections; their calls are aborted.
    pub fn close_all(&mut self, now: Monotonic) {
        for key in self.connections.keys() {
            self.close_connection(now, key);
        }
    }

    /// Server calls that are released but whose replies have not been acknowledged to their end.
    pub fn replies_under_way(&self) -> usize {
        // All that rest are.
        self.calls.all().filter(|call| call.is_none_or(|call| call.released && call.is_running())).count()
    }

    /// The network said that a packet to `remote` could not be delivered: nobody listens there, or
    /// there is no way (ICMP destination unreachable, as OpenAFS's `rxi_ProcessNetError` has it).
    /// `quote` is the beginning of that packet, 28 bytes or more. A notice that does not quote a
    /// packet sent lately changes nothing.
    ///
    /// Client calls of the packet's connection end with `RX_CALL_DEAD` unless the peer is heard of
    /// soon after; calls from clients are not affected.
    pub fn handle_unreachable(&mut self, now: Monotonic, remote: SocketAddr, quote: &[u8]) {
        self.on_unreachable(now, remote, quote);
    }

    /// This host no longer has the address `local`. Replies to it never arrive, and servers go on sending them there:
    /// client connections that use it fail with `RX_CALL_DEAD`, and so do their calls.
    pub fn handle_source_gone(&mut self, now: Monotonic, local: IpAddr) {
        self.on_source_gone(now, local);
    }

    /// Whether `quote`, as a notice of the network repeats it, is the beginning of a packet that was
    /// sent to `remote` lately.
    pub fn has_sent(&self, remote: SocketAddr, quote: &[u8]) -> bool {
        self.find_sent(remote, quote).is_some()
    }

    /// The network said that datagrams of more than `packet_bytes` (Rx header included) do not get
    /// through to this peer. Believe it only of notices about packets that we [`Endpoint::has_sent`].
    pub fn handle_packet_too_big(&mut self, path: Path, packet_bytes: usize) {
        let peer = self.peer_index.get(&path.remote).and_then(|key| self.peers.get_mut(*key));
        if let Some(peer) = peer {
            peer.mtu.too_big(packet_bytes);
        }
    }

    /// The number of calls that have arrived and wait for a worker, of this and of all endpoints that
    /// share the workers; so the next two. They are for rxdebug: whose calls may wait is decided by the
    /// queue before the workers, which knows the callers.
    pub fn set_waiting_calls(&mut self, waiting: usize) {
        self.waiting_calls = waiting;
    }

    /// The number of calls that ever had to wait for a worker.
    pub fn set_waited_calls(&mut self, waited: u64) {
        self.waited_calls = waited;
    }

    /// The number of workers that have nothing to do.
    pub fn set_idle_workers(&mut self, idle: usize) {
        self.idle_workers = idle;
    }

    /// Takes in a DEBUG packet (see [`crate::debug::is_question`]) without answering it: for servers
    /// of several endpoints. `None` if there is nothing to answer.
    pub fn inquire(&mut self, now: Monotonic, path: Path, datagram: Bytes) -> Option<Inquiry> {
        let packet = self.take_in(path, datagram)?;
        self.begin_inquiry(now, &packet)
    }

    /// Adds what this endpoint knows to an answer. What a server's workers are doing should have
    /// been told just before.
    pub fn examine(&mut self, now: Monotonic, inquiry: &mut Inquiry) {
        self.add_to(now, inquiry);
    }

    /// Sends the answer to a question.
    pub fn answer(&mut self, inquiry: &Inquiry) {
        self.send_answer(inquiry.path, inquiry.header, inquiry.body());
    }

    /// What has been counted.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The peers that are remembered, and what all those did together that are forgotten: nobody is
    /// lost from the sums.
    pub fn peers(&self) -> (Vec<PeerReport>, PeerCounters) {
        let peers = (0..self.peers.places()).filter_map(|place| self.peers.at(place));
        (peers.map(|(_, peer)| peer.report()).collect(), self.forgotten)
    }

    /// The configuration.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }
}
