//! The endpoint: all connections and calls behind one UDP port.

use std::sync::Arc;

use base::{AbortCode, Monotonic, UnixTime};
use bytes::Bytes;
use rx_security::ClientSecurity;

use crate::{
    CallId, ConnectOptions, ConnectionId, EndpointConfig, Event, Path, Read, ServiceConfig, Statistics,
    Transmit, Write,
};

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
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    statistics: Statistics,
}

impl Endpoint {
    /// An endpoint without services. `seed` decides all its random choices (connection ids, epochs,
    /// nonces): it must be unpredictable in production and fixed in a simulation.
    pub fn new(config: EndpointConfig, seed: u64, now: Monotonic) -> Endpoint {
        let _ = (seed, now);
        Endpoint { config, statistics: Statistics::default() }
    }

    /// Answers for one more service. Replaces one with the same id.
    pub fn add_service(&mut self, service: ServiceConfig) {
        let _ = service;
    }

    /// Takes in one datagram. `wall` is the time of day, for tickets. Packets keep slices of
    /// `datagram` until they are read.
    pub fn handle_datagram(&mut self, now: Monotonic, wall: UnixTime, path: Path, datagram: Bytes) {
        let _ = (now, wall, path, datagram);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        let _ = now;
    }

    /// When [`Endpoint::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        None
    }

    /// The next datagrams to send.
    pub fn poll_transmit(&mut self, now: Monotonic) -> Option<Transmit> {
        let _ = now;
        None
    }

    /// Gives a sent [`Transmit`] back, so that its memory is used again. Optional.
    pub fn recycle(&mut self, transmit: Transmit) {
        let _ = transmit;
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// The next piece of the peer's data.
    pub fn read(&mut self, now: Monotonic, call: CallId) -> Read {
        let _ = (now, call);
        Read::Failed(AbortCode::RX_CALL_DEAD)
    }

    /// Takes bytes off the front of `data` to send them, as many as the send queue has room for. They
    /// are kept by reference, not copied.
    pub fn write(&mut self, now: Monotonic, call: CallId, data: &mut Bytes) -> Write {
        let _ = (now, call, data);
        Write::Failed(AbortCode::RX_CALL_DEAD)
    }

    /// Sends what has been written even if it does not fill a packet. Rarely needed:
    /// [`Endpoint::end`] does it too.
    pub fn flush(&mut self, now: Monotonic, call: CallId) {
        let _ = (now, call);
    }

    /// There will be no more data from here.
    pub fn end(&mut self, now: Monotonic, call: CallId) {
        let _ = (now, call);
    }

    /// Ends the call with an error that the peer is told. Nothing happens if it has ended already.
    pub fn abort(&mut self, now: Monotonic, call: CallId, code: AbortCode) {
        let _ = (now, call, code);
    }

    /// The user is done with the call; `call` becomes invalid. Data still to be sent after
    /// [`Endpoint::end`] on a server is sent nevertheless. A call in any other unfinished state is
    /// aborted with `RX_USER_ABORT`.
    pub fn release(&mut self, now: Monotonic, call: CallId) {
        let _ = (now, call);
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
        let _ = (now, path, service_id, security, options);
        Err(AbortCode::RX_CALL_DEAD)
    }

    /// Begins a call. `None` if all four channels are taken (then [`Event::ChannelFree`] follows
    /// when one is free), if the endpoint has too many calls, or if the connection has failed or
    /// is closed (see [`Endpoint::connection_error`]).
    pub fn open_call(&mut self, now: Monotonic, connection: ConnectionId) -> Option<CallId> {
        let _ = (now, connection);
        None
    }

    /// Why a connection is unusable: what it failed with, or `RX_CALL_DEAD` if there is no such
    /// connection.
    pub fn connection_error(&self, connection: ConnectionId) -> Option<AbortCode> {
        let _ = connection;
        Some(AbortCode::RX_CALL_DEAD)
    }

    /// Forgets a client connection; its calls are aborted.
    pub fn close(&mut self, now: Monotonic, connection: ConnectionId) {
        let _ = (now, connection);
    }

    /// The network said that datagrams of more than `packet_bytes` (Rx header included) do not get
    /// through to this peer.
    pub fn handle_packet_too_big(&mut self, path: Path, packet_bytes: usize) {
        let _ = (path, packet_bytes);
    }

    /// The number of calls that have arrived and wait for a worker.
    pub fn set_waiting_calls(&mut self, waiting: usize) {
        let _ = waiting;
    }

    /// The number of calls that ever had to wait for a worker.
    pub fn set_waited_calls(&mut self, waited: u64) {
        let _ = waited;
    }

    /// The number of workers that have nothing to do.
    pub fn set_idle_workers(&mut self, idle: usize) {
        let _ = idle;
    }

    /// What has been counted.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The configuration.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }
}
