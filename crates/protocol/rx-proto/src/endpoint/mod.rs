//! The endpoint: all connections and calls behind one UDP port.

mod accept;
mod data;
mod finish;
mod input;
mod inspect;
mod origin;
mod output;
mod prefetch;
mod proof;
mod rest;
mod run;
mod takeover;
mod time;
mod unreachable;
pub(crate) mod unread;
mod user;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base::{AbortCode, Monotonic, RecvBuffer, UnixTime};
use bytes::{Bytes, BytesMut};
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use rx_security::ClientSecurity;

use crate::bucket::TokenBucket;
use crate::call::{Call, State};
use crate::calls::Calls;
use crate::connection::{Connection, ConnectionKey, EPOCH_ANY_ADDRESS};
use crate::connection_ids::ConnectionIds;
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
    CallId, ConnectOptions, ConnectionId, EndpointConfig, Event, Filled, Inquiry, Outgoing, Path, Read,
    ServiceConfig, Statistics, Transmit, Write,
};

/// Maximum rate of verified responses of evicted connections, per second; each costs the decryption of a
/// ticket.
const LATE_RESPONSES_PER_SECOND: u32 = 1000;

/// Maximum number of allocations of transmits, and of calls, that are kept for reuse.
pub(super) const SPARE_MAX: usize = 64;

/// The Rx endpoint of one UDP port, both server and client.
///
/// An endpoint performs no I/O. The application drives it:
///
/// 1. [`Endpoint::handle_datagram`] for every received datagram (all that are available before the
///    next step, because acknowledgements are generated per batch);
/// 2. [`Endpoint::handle_timeout`] when the time returned by [`Endpoint::poll_timeout`] has come;
/// 3. [`Endpoint::poll_event`] until it returns `None`;
/// 4. [`Endpoint::poll_transmit`] until it returns `None`, sending each transmit;
/// 5. [`Endpoint::poll_timeout`], which returns the time of the next step 2.
///
/// Steps 3 to 5 also follow every other `&mut self` method, in particular [`Endpoint::read`] (it opens the
/// peer's window), [`Endpoint::write`], [`Endpoint::end`] and [`Endpoint::abort`].
///
/// The times passed must not decrease.
///
/// # Life of a server call
///
/// [`Event::CallArrived`]; `read` until [`Read::End`] (or as far as the service needs: unread data is dropped
/// once the service writes or ends); `write`; `end`; then [`Event::Ended`] when the client has received
/// everything. `release` may be called at any time after `end` or `abort`, without waiting.
///
/// # Life of a client call
///
/// [`Endpoint::connect`] once per server, service and identity; [`Endpoint::open_call`]; `write`; `end`;
/// `read` until [`Read::End`]; `release`. A call that is released before its end is aborted with
/// `RX_USER_ABORT`.
///
/// # Blocking
///
/// After `Blocked`, exactly one event follows: [`Event::Readable`], [`Event::Writable`], [`Event::Failed`] or
/// [`Event::ChannelFree`]. Without a blocked operation there are no such events, except that a failure is
/// always reported once.
pub struct Endpoint {
    config: EndpointConfig,
    statistics: Statistics,
    /// Time since which this endpoint serves what another process has served: its start, or [`Endpoint::succeed`].
    succeeded: Monotonic,
    /// Where new calls are held: see [`Endpoint::hold_new_calls`].
    holding: takeover::Holding,
    suspects: takeover::Suspects,
    random: ChaCha12Rng,
    /// Epoch of this endpoint's client connections.
    epoch: u32,
    services: SeededMap<u16, ServiceConfig>,
    peers: Peers,
    connections: Connections,
    cookies: Cookies,
    late_responses: TokenBucket,
    calls: Calls,
    timers: Timers,
    /// Timer entries being processed; the allocation is kept for reuse.
    due: Vec<Timed>,
    /// Calls whose deadlines may have changed.
    unarmed: Vec<Key>,
    output: Output,
    events: VecDeque<Event>,
    /// Cleared calls whose allocations are kept for reuse.
    #[allow(clippy::vec_box, reason = "they go back to the others as they are")]
    spare_calls: Vec<Box<Call>>,
    inquiries: Inquiries,
    /// Number of calls that receive much data.
    bulk_calls: usize,
}

/// The peers with connections, and those that had one recently.
struct Peers {
    all: Slab<Peer>,
    index: SeededMap<SocketAddr, Key>,
    /// Accumulated counters of removed peers.
    forgotten: PeerCounters,
    short_paths: ShortPaths,
}

/// The connections in both directions.
struct Connections {
    all: Slab<Connection>,
    index: SeededMap<ConnectionKey, Key>,
    /// Ids of this endpoint's client connections.
    ids: ConnectionIds,
    /// Connections whose peers have proved nothing.
    unproven: Unproven,
    /// Time at which an unproven connection was last dropped.
    unproven_dropped_at: Option<Monotonic>,
    /// Connections and channels to prefetch; the allocation is kept for reuse.
    prefetched: Vec<(Key, usize)>,
}

/// What is to be sent, and the memory for it.
struct Output {
    /// Queue of calls that have something to send.
    ready: VecDeque<Key>,
    /// Queued aborts and other packets outside of the calls' queue.
    control: VecDeque<(Path, [u8; HEADER_BYTES], Bytes)>,
    /// Buffer from which the bodies of ACK packets are cut.
    arena: BytesMut,
    spare: Vec<SpareTransmit>,
}

/// State for replies to rxdebug.
struct Inquiries {
    /// Limits the rate of replies.
    limit: TokenBucket,
    cursors: inspect::Cursors,
    waiting_calls: usize,
    waited_calls: u64,
    idle_workers: usize,
}

/// The allocations of a sent transmit.
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
    /// Creates an endpoint without services. `seed` determines all its random choices (connection ids,
    /// epochs, nonces). It must be unpredictable in production and fixed in a simulation.
    pub fn new(config: EndpointConfig, seed: impl Into<Seed>, now: Monotonic) -> Endpoint {
        let mut random = seed.into().generator();
        let state = SeededState::new(random.random(), random.random());
        let unproven_max = config.unproven_connections_max;
        let peers = Peers {
            all: Slab::new(),
            index: SeededMap::with_hasher(state),
            forgotten: PeerCounters::default(),
            short_paths: ShortPaths::new(state),
        };
        let connections = Connections {
            all: Slab::new(),
            index: SeededMap::with_hasher(state),
            ids: ConnectionIds::new(&mut random),
            unproven: Unproven::new(unproven_max, state),
            unproven_dropped_at: None,
            prefetched: Vec::new(),
        };
        let output = Output {
            ready: VecDeque::new(),
            control: VecDeque::new(),
            arena: BytesMut::with_capacity(1 << 16),
            spare: Vec::new(),
        };
        let inquiries = Inquiries {
            limit: TokenBucket::new(config.rxdebug_per_second, now),
            cursors: inspect::Cursors::default(),
            waiting_calls: 0,
            waited_calls: 0,
            idle_workers: 0,
        };
        Endpoint {
            config,
            statistics: Statistics::default(),
            succeeded: now,
            holding: takeover::Holding::default(),
            suspects: takeover::Suspects::new(state),
            epoch: random.random::<u32>() | EPOCH_ANY_ADDRESS,
            cookies: Cookies::new(random.random()),
            late_responses: TokenBucket::new(LATE_RESPONSES_PER_SECOND, now),
            random,
            services: SeededMap::with_hasher(state),
            peers,
            connections,
            calls: Calls::new(),
            timers: Timers::default(),
            due: Vec::new(),
            unarmed: Vec::new(),
            output,
            events: VecDeque::new(),
            spare_calls: Vec::new(),
            inquiries,
            bulk_calls: 0,
        }
    }

    /// Adds a service, or replaces the one with the same id.
    pub fn add_service(&mut self, service: ServiceConfig) {
        self.services.insert(service.id, service);
    }

    /// Processes a received datagram. `wall` is the time of day, used for tickets. Packets keep slices of
    /// `datagram` until they are read.
    pub fn handle_datagram(&mut self, now: Monotonic, wall: UnixTime, path: Path, datagram: Bytes) {
        self.input(now, wall, path, datagram);
    }

    /// Whether there are so many connections that they do not fit into the processor's caches.
    pub fn is_crowded(&self) -> bool {
        self.connections.all.len() >= self.config.crowd_connections
    }

    /// Prefetches the state needed for these datagrams, which will be handled next. With a large number of
    /// clients this fetches from memory concurrently. Optional, and without visible effect.
    pub fn prefetch<'a>(&mut self, datagrams: impl Iterator<Item = (&'a Path, &'a [u8])>) {
        self.prefetch_state(datagrams);
    }

    /// Processes consecutive datagrams of one path, all of length `segment_bytes` except the last, which may
    /// be shorter. Equivalent to [`Endpoint::handle_datagram`] for each, but the effects on a call whose data
    /// they carry are applied once for all.
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

    /// Processes all deadlines that have expired.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        self.run_timers(now);
    }

    /// Returns the time of the next call to [`Endpoint::handle_timeout`]. That call may find nothing to do.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        self.timers.next()
    }

    /// Returns the next datagrams to send.
    pub fn poll_transmit(&mut self, now: Monotonic) -> Option<Transmit> {
        self.next_transmit(now)
    }

    /// Returns a sent [`Transmit`] to the endpoint, which reuses its allocations. Optional.
    pub fn recycle(&mut self, mut transmit: Transmit) {
        if self.output.spare.len() < SPARE_MAX {
            transmit.packets.clear();
            transmit.bodies.clear();
            self.output.spare.push(SpareTransmit { packets: transmit.packets, bodies: transmit.bodies });
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the next piece of the peer's data.
    pub fn read(&mut self, now: Monotonic, call: CallId) -> Read {
        self.read_call(now, call.0)
    }

    /// Passes up to `packets_max` pieces of the peer's data to `data`. Returns `None` if it passed that many,
    /// otherwise the result after the last piece, which is never [`Read::Data`].
    pub fn read_some(
        &mut self,
        now: Monotonic,
        call: CallId,
        packets_max: usize,
        data: impl FnMut(Bytes),
    ) -> Option<Read> {
        self.read_packets(now, call.0, packets_max, data)
    }

    /// Provides a receive buffer for the next data, after those provided before. Data is copied into it on
    /// arrival. Until [`Endpoint::landed`] has returned all buffers, no other read is possible.
    pub fn post_buffer(&mut self, now: Monotonic, call: CallId, room: RecvBuffer) {
        self.post_receive_buffer(now, call.0, room);
    }

    /// Returns the receive buffer that was provided first, if it is full or no more data will come.
    pub fn take_filled(&mut self, now: Monotonic, call: CallId) -> Filled {
        self.take_room(now, call.0)
    }

    /// Takes bytes off the front of `data` to send them, as many as the send queue has room for. They are
    /// held by reference, not copied.
    pub fn write(&mut self, now: Monotonic, call: CallId, data: &mut Bytes) -> Write {
        self.write_call(now, call.0, data)
    }

    /// Sends the data written so far even if it does not fill a packet. Rarely needed, because
    /// [`Endpoint::end`] does so too.
    pub fn flush(&mut self, now: Monotonic, call: CallId) {
        if let Some(call) = self.calls.get_mut(call.0) {
            call.send.flush();
        }
        self.settle(now, call.0);
    }

    /// Ends the data that this side sends.
    pub fn end(&mut self, now: Monotonic, call: CallId) {
        self.end_call(now, call.0);
    }

    /// Writes the complete reply of a server, then ends and releases the call. Equivalent to
    /// [`Endpoint::write`], [`Endpoint::end`] and [`Endpoint::release`] in one step. If the send queue has no
    /// room for the reply, the call is aborted with `RX_PROTOCOL_ERROR`.
    pub fn reply(&mut self, now: Monotonic, call: CallId, reply: Bytes) {
        self.reply_call(now, call.0, reply);
    }

    /// Ends the call with an error that is sent to the peer, without an [`Event::Failed`]. Has no effect if
    /// the call has already ended.
    pub fn abort(&mut self, now: Monotonic, call: CallId, code: AbortCode) {
        self.abort_call(now, call.0, code);
    }

    /// Releases the call; the handle becomes invalid. On a server, data that remains to be sent after
    /// [`Endpoint::end`] is still sent. A call in any other unfinished state is aborted with `RX_USER_ABORT`.
    pub fn release(&mut self, now: Monotonic, call: CallId) {
        self.release_call(now, call.0);
    }

    /// Creates a connection to a service without sending anything yet. If `security` is `None`, the null
    /// class is used.
    ///
    /// # Errors
    /// The code of the security class if it cannot start, or `RX_RESTARTING` at the limit on connections: the peer was
    /// not asked.
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

    /// Starts a call. Returns `None` if all four channels are in use (then [`Event::ChannelFree`] follows
    /// when one becomes free), if the endpoint has too many calls, or if the connection has failed or is
    /// closed (see [`Endpoint::connection_error`]).
    pub fn open_call(&mut self, now: Monotonic, connection: ConnectionId) -> Option<CallId> {
        self.new_call(now, connection.0).map(CallId)
    }

    /// Returns the code with which a connection failed, or `RX_CALL_DEAD` if the connection does not exist.
    pub fn connection_error(&self, connection: ConnectionId) -> Option<AbortCode> {
        self.connections.all.get(connection.0).map_or(Some(AbortCode::RX_CALL_DEAD), |it| it.error)
    }

    /// Returns when a packet for a call has arrived last, or one that has ended its connection; `None` if none has since the call
    /// began. It is also known of a call that has failed, until that is released.
    pub fn heard_at(&self, call: CallId) -> Option<Monotonic> {
        let clocks = self.calls.get(call.0)?.clocks;
        (clocks.received > clocks.started).then_some(clocks.received)
    }

    /// Removes a client connection and aborts its calls.
    pub fn close(&mut self, now: Monotonic, connection: ConnectionId) {
        self.close_connection(now, connection.0);
    }

    /// Removes all client connections and aborts their calls.
    pub fn close_all(&mut self, now: Monotonic) {
        for key in self.connections.all.keys() {
            self.close_connection(now, key);
        }
    }

    /// Returns the number of released server calls whose replies have not been acknowledged completely.
    pub fn replies_under_way(&self) -> usize {
        // All resting calls count.
        self.calls.all().filter(|call| call.is_none_or(|call| call.state == State::Replying)).count()
    }

    /// Processes an ICMP notice that a packet to `remote` could not be delivered, because no program listens
    /// there or no route exists (destination unreachable, as in OpenAFS's `rxi_ProcessNetError`). `quote` is
    /// the beginning of that packet, 28 bytes or more. A notice that does not quote a recently sent packet
    /// has no effect.
    ///
    /// Client calls on the packet's connection end with `RX_CALL_DEAD` unless a packet from the peer arrives
    /// soon after; calls from clients are not affected.
    pub fn handle_unreachable(&mut self, now: Monotonic, remote: SocketAddr, quote: &[u8]) {
        self.on_unreachable(now, remote, quote);
    }

    /// Processes the loss of the local address `local`. Servers would continue to send replies there, and
    /// these would never arrive. Client connections that use the address, and their calls, therefore fail
    /// with `RX_RESTARTING`, which does not mean that the peer is silent.
    pub fn handle_source_gone(&mut self, now: Monotonic, local: IpAddr) {
        self.on_source_gone(now, local);
    }

    /// Whether `quote`, as quoted by an ICMP notice, is the beginning of a packet recently sent to `remote`.
    pub fn has_sent(&self, remote: SocketAddr, quote: &[u8]) -> bool {
        self.find_sent(remote, quote).is_some()
    }

    /// Processes a notice that datagrams longer than `packet_bytes` (Rx header included) do not reach this
    /// peer. Only notices about packets for which [`Endpoint::has_sent`] is true should be passed.
    pub fn handle_packet_too_big(&mut self, path: Path, packet_bytes: usize) {
        let peer = self.peers.index.get(&path.remote).and_then(|key| self.peers.all.get_mut(*key));
        if let Some(peer) = peer {
            peer.mtu.too_big(packet_bytes);
        }
    }

    /// Sets the number of calls that have arrived and are waiting for a worker, in all endpoints that share
    /// the workers. Used for rxdebug only, like the next two values: which calls may wait is decided by the
    /// queue in front of the workers, which knows the callers.
    pub fn set_waiting_calls(&mut self, waiting: usize) {
        self.inquiries.waiting_calls = waiting;
    }

    /// Sets the total number of calls that have had to wait for a worker.
    pub fn set_waited_calls(&mut self, waited: u64) {
        self.inquiries.waited_calls = waited;
    }

    /// Sets the number of idle workers.
    pub fn set_idle_workers(&mut self, idle: usize) {
        self.inquiries.idle_workers = idle;
    }

    /// Starts the processing of a DEBUG packet (see [`crate::debug::is_question`]) in a server of several
    /// endpoints, without answering it. Returns `None` if no answer is to be sent.
    pub fn inquire(&mut self, now: Monotonic, path: Path, datagram: Bytes) -> Option<Inquiry> {
        let packet = self.take_in(path, datagram)?;
        self.begin_inquiry(now, &packet)
    }

    /// Adds this endpoint's part to an answer. The state of the server's workers should have been set just
    /// before.
    pub fn examine(&mut self, now: Monotonic, inquiry: &mut Inquiry) {
        self.add_to(now, inquiry);
    }

    /// Sends the answer to an rxdebug request.
    pub fn answer(&mut self, inquiry: &Inquiry) {
        self.send_answer(inquiry.path, inquiry.header, inquiry.body());
    }

    /// Returns the counters of the endpoint.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Returns the remembered peers, and the accumulated counters of all removed ones, so that totals are
    /// complete.
    pub fn peers(&self) -> (Vec<PeerReport>, PeerCounters) {
        let peers = (0..self.peers.all.places()).filter_map(|place| self.peers.all.at(place));
        (peers.map(|(_, peer)| peer.report()).collect(), self.peers.forgotten)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }
}
