//! Packet headers, and whole conversations with an endpoint.

use crate::frames::{Fields, frames};
use crate::security;
use base::{AbortCode, Monotonic, SecurityLevel};
use bytes::Bytes;
use rx_proto::{
    CallId, ConnectOptions, ConnectionId, Endpoint, EndpointConfig, Event, Path, Read, ServiceConfig,
    Transmit, ack, debug, header as packets,
};
use rx_security::{ClientSecurity, Null};
use std::net::SocketAddr;
use std::sync::Arc;

/// Exercises packet headers, and bodies of ACK and DEBUG packets.
pub fn header(data: &[u8]) {
    if let Ok((header, body)) = packets::parse(data) {
        let again = [&header.encode()[..], body].concat();
        assert_eq!(packets::parse(&again), Ok((header, body)));
        let _ = debug::Question::parse(body);
        acknowledgement(body);
    }
    acknowledgement(data);
}

fn acknowledgement(body: &[u8]) {
    if let Ok(ack) = ack::parse(body) {
        let mut again = Vec::new();
        ack.encode(&mut again);
        assert_eq!(ack::parse(&again), Ok(ack));
    }
}

/// Exercises a conversation with an endpoint. The first byte selects a server (0) or a client; the rest are
/// steps for [`Machine::step`].
pub fn endpoint(data: &[u8]) {
    let Some((role, data)) = data.split_first() else { return };
    let mut machine = if role & 1 == 0 { Machine::server() } else { Machine::client() };
    for frame in frames(data) {
        machine.step(frame);
    }
    machine.finish();
}

/// Kind of a step, given by its first byte.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Step {
    /// The rest is a datagram from the first peer.
    Datagram = 0,
    /// The rest is a datagram from another peer.
    Elsewhere = 1,
    /// Time passes: a number of milliseconds in two bytes.
    Pass = 2,
    /// Time passes until the endpoint's next timeout.
    Timeout = 3,
    /// A client starts a call: one byte for the level (3: no security); the rest is the request.
    Call = 4,
    /// The first call is aborted.
    Abort = 5,
    /// The network reports that datagrams of a certain size, in two bytes, do not get through.
    TooBig = 6,
    /// The network reports that the packet that follows was not delivered; without one, the last packet.
    Unreachable = 7,
}

/// Id of the only service.
pub const SERVICE: u16 = 1;
/// Reply to each request.
const REPLY: &[u8] = &[0x52; 6000];
/// Maximum number of steps until a conversation must be idle.
const ROUNDS_MAX: usize = 10_000;
/// Maximum number of datagrams that one input may make an endpoint send.
const SENT_MAX: usize = 1_000_000;

/// An endpoint with an application that answers calls. Its behaviour depends only on its input, so that
/// recorded conversations can be replayed.
pub struct Machine {
    endpoint: Endpoint,
    now: Monotonic,
    calls: Vec<CallId>,
    connections: Vec<(u8, ConnectionId)>,
    sent: usize,
    last: Vec<u8>,
}

fn config() -> EndpointConfig {
    EndpointConfig { connections_max: 64, calls_max: 64, packets_max: 1024, ..EndpointConfig::default() }
}

/// Returns the addresses of a peer.
fn path(elsewhere: bool) -> Path {
    Path::to(SocketAddr::from(if elsewhere { ([10, 0, 0, 9], 9000) } else { ([10, 0, 0, 2], 7000) }))
}

impl Machine {
    /// Creates a server that accepts rxnull and rxkad.
    pub fn server() -> Machine {
        let mut machine = Machine::new(1);
        machine.endpoint.add_service(ServiceConfig {
            id: SERVICE,
            name: String::from("test"),
            security: vec![Arc::new(Null), Arc::new(security::server())],
        });
        machine
    }

    /// Creates a client.
    pub fn client() -> Machine {
        Machine::new(2)
    }

    fn new(seed: u64) -> Machine {
        Machine {
            endpoint: Endpoint::new(config(), seed, Monotonic(0)),
            now: Monotonic(0),
            calls: Vec::new(),
            connections: Vec::new(),
            sent: 0,
            last: Vec::new(),
        }
    }

    /// Performs one step and returns the datagrams that the endpoint sends in response.
    pub fn step(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let mut fields = Fields(frame);
        let what = fields.byte();
        match what {
            2 => self.pass(Monotonic(self.now.0 + u64::from(fields.half()) * 1_000_000)),
            3 => {
                let next = self.endpoint.poll_timeout().unwrap_or(self.now);
                self.pass(next);
            }
            4 => self.begin(fields.byte() & 3, fields.0),
            5 => self.abort(),
            6 => self.endpoint.handle_packet_too_big(path(false), fields.half().into()),
            7 => self.unreachable(fields.0),
            _ => {
                let datagram = Bytes::copy_from_slice(fields.0);
                self.endpoint.handle_datagram(self.now, security::NOW, path(what == 1), datagram);
            }
        }
        self.settle()
    }

    /// Advances the time until nothing is left to do.
    pub fn finish(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let Some(next) = self.endpoint.poll_timeout() else { return };
            // Timers of idle connections run for twelve minutes.
            self.pass(next.max(Monotonic(self.now.0 + 1_000_000)));
            self.settle();
            if self.now.0 > 10_000_000_000_000 {
                return;
            }
        }
        panic!("the endpoint still has timers after {ROUNDS_MAX} have fired");
    }

    fn pass(&mut self, to: Monotonic) {
        self.now = self.now.max(to);
        self.endpoint.handle_timeout(self.now);
    }

    fn begin(&mut self, level: u8, request: &[u8]) {
        let known = self.connections.iter().find(|(known, _)| *known == level).map(|(_, known)| *known);
        let connection = known.unwrap_or_else(|| self.connect(level));
        let Some(call) = self.endpoint.open_call(self.now, connection) else { return };
        let mut request = Bytes::copy_from_slice(request);
        self.endpoint.write(self.now, call, &mut request);
        self.endpoint.end(self.now, call);
        self.calls.push(call);
    }

    fn connect(&mut self, level: u8) -> ConnectionId {
        let levels = [SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted];
        let rxkad = levels.get(usize::from(level)).map(|level| security::client(*level));
        let security = rxkad.map(|client| Arc::new(client) as Arc<dyn ClientSecurity>);
        let options = ConnectOptions::default();
        let made = self.endpoint.connect(self.now, path(false), SERVICE, security, options);
        let connection = made.expect("an endpoint with few connections");
        self.connections.push((level, connection));
        connection
    }

    fn abort(&mut self) {
        if let Some(call) = self.calls.first() {
            self.endpoint.abort(self.now, *call, AbortCode(-3));
        }
    }

    fn unreachable(&mut self, quote: &[u8]) {
        let quote = if quote.is_empty() { &self.last } else { quote };
        let remote = path(false).remote;
        if self.endpoint.has_sent(remote, quote) {
            assert!(quote.len() >= 28, "a packet has a header");
        }
        self.endpoint.handle_unreachable(self.now, remote, quote);
    }

    /// Handles events and sends datagrams until there are none left.
    fn settle(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let mut rest = true;
            while let Some(event) = self.endpoint.poll_event() {
                self.handle(&event);
                rest = false;
            }
            while let Some(transmit) = self.endpoint.poll_transmit(self.now) {
                self.send(transmit, &mut out);
                rest = false;
            }
            if rest {
                return out;
            }
        }
        panic!("the endpoint does not become idle");
    }

    fn send(&mut self, transmit: Transmit, out: &mut Vec<Vec<u8>>) {
        self.sent += transmit.packets.len();
        assert!(self.sent < SENT_MAX, "the endpoint does not stop sending");
        out.extend(transmit.datagrams());
        if let Some(last) = out.last() {
            self.last.clone_from(last);
        }
        self.endpoint.recycle(transmit);
    }

    fn handle(&mut self, event: &Event) {
        match *event {
            Event::CallArrived { call, .. } => {
                self.calls.push(call);
                self.read(call);
            }
            Event::Readable(call) => self.read(call),
            Event::Failed(call, _) => self.release(call),
            Event::Ended(call) => {
                self.read(call);
                self.release(call);
            }
            Event::ConnectionFailed(connection, _) => {
                self.endpoint.close(self.now, connection);
                self.connections.retain(|(_, known)| *known != connection);
            }
            Event::Writable(_) | Event::ChannelFree(_) | Event::PathIsShort { .. } => {}
        }
    }

    /// Reads the data of a call received so far; answers a complete request.
    fn read(&mut self, call: CallId) {
        loop {
            match self.endpoint.read(self.now, call) {
                Read::Data(data) => assert!(!data.is_empty()),
                Read::Blocked => return,
                Read::End => break,
                Read::Failed(_) => return self.release(call),
            }
        }
        if self.connections.is_empty() {
            self.endpoint.write(self.now, call, &mut Bytes::from_static(REPLY));
            self.endpoint.end(self.now, call);
        }
        self.release(call);
    }

    fn release(&mut self, call: CallId) {
        self.endpoint.release(self.now, call);
        self.calls.retain(|known| *known != call);
    }
}
