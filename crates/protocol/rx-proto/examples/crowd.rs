//! Measures the cost of a short call in a server's endpoint for different numbers of clients:
//!
//!     cargo run --release -p rx-proto --example crowd -- [CALLS [BATCH [CLIENTS...]]]
//!
//! All clients have called before. They call in no particular order, in batches like those in which a lane
//! passes datagrams to its endpoint. The measurement covers the endpoint and its memory accesses, without a
//! kernel and without a service.

use base::{Monotonic, UnixTime};
use bytes::Bytes;
use rx_proto::ack::{Ack, Reason, Trailer};
use rx_proto::header::parse;
use rx_proto::{CallId, Endpoint, EndpointConfig, Event, Flags, Header, PacketType, Path, ServiceConfig};
use rx_security::Null;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SERVICE: u16 = 7;
const REQUEST_BYTES: usize = 16;
const REPLY_BYTES: usize = 120;
const WALL: UnixTime = UnixTime(1_700_000_000);

/// Transmits per poll, as in a lane.
const TRANSMITS: usize = 16;

/// Approximate duration of a call with its service and the kernel, and therefore the interval at which timers
/// are checked.
const CALL_TIME: Duration = Duration::from_micros(11);

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Result<Vec<u32>, _> = std::env::args().skip(1).map(|text| text.parse()).collect();
    let numbers = numbers?;
    let calls = numbers.first().copied().unwrap_or(2_000_000);
    let batch = numbers.get(1).copied().unwrap_or(32);
    let clients = numbers.get(2..).filter(|clients| !clients.is_empty()).unwrap_or(&[10, 1_000, 10_000]);
    for &clients in clients {
        let mut crowd = Crowd::new(clients);
        (0..clients).for_each(|client| crowd.call(std::iter::once(client)));
        let start = Instant::now();
        crowd.call_some(calls, batch);
        let each_ns = start.elapsed().as_nanos() / u128::from(calls);
        println!("{clients:>6} clients, {batch} at a time: {each_ns} ns a call");
    }
    Ok(())
}

/// A server and the datagrams that its clients have sent.
struct Crowd {
    endpoint: Endpoint,
    /// Number of calls made by each client.
    made: Vec<u32>,
    now: Monotonic,
    datagrams: Vec<(Path, Bytes)>,
    arrived: Vec<CallId>,
}

impl Crowd {
    fn new(clients: u32) -> Crowd {
        let mut endpoint = Endpoint::new(EndpointConfig::default(), 1, Monotonic(0));
        endpoint.add_service(ServiceConfig {
            id: SERVICE,
            name: "crowd".into(),
            security: vec![Arc::new(Null)],
        });
        let made = vec![0; clients as usize];
        Crowd { endpoint, made, now: Monotonic(1), datagrams: Vec::new(), arrived: Vec::new() }
    }

    /// Makes `calls` calls, `batch` at a time.
    fn call_some(&mut self, calls: u32, batch: u32) {
        // No client occurs twice in a batch, because a client waits for its reply.
        const STRIDE: u64 = 7919;
        let clients = self.made.len() as u64;
        let nth = |n: u32| (u64::from(n) * STRIDE % clients) as u32;
        let batch = batch.min(clients as u32);
        for first in (0..calls).step_by(batch as usize) {
            self.call((first..calls.min(first + batch)).map(nth));
        }
    }

    /// Makes one call for each of these clients.
    fn call(&mut self, clients: impl Iterator<Item = u32>) {
        for client in clients {
            self.now = self.now + CALL_TIME;
            self.made[client as usize] += 1;
            self.datagrams.push((path(client), request(client, self.made[client as usize])));
        }
        let (endpoint, now) = (&mut self.endpoint, self.now);
        endpoint.prefetch(self.datagrams.iter().map(|(path, datagram)| (path, &**datagram)));
        for (path, datagram) in self.datagrams.drain(..) {
            endpoint.handle_datagram(now, WALL, path, datagram);
        }
        if endpoint.poll_timeout().is_some_and(|at| at <= now) {
            endpoint.handle_timeout(now);
        }
        while let Some(event) = endpoint.poll_event() {
            if let Event::CallArrived { call, .. } = event {
                endpoint.read_some(now, call, 2, drop);
                self.arrived.push(call);
            }
        }
        for call in self.arrived.drain(..) {
            endpoint.reply(now, call, vec![1; REPLY_BYTES].into());
        }
        self.send();
    }

    fn send(&mut self) {
        loop {
            let (endpoint, now) = (&mut self.endpoint, self.now);
            let mut sent: Vec<_> =
                std::iter::from_fn(|| endpoint.poll_transmit(now)).take(TRANSMITS).collect();
            if sent.is_empty() {
                return;
            }
            for transmit in sent.drain(..) {
                let (header, _) = parse(&transmit.packets[0].header).expect("a header");
                if header.flags.contains(Flags::REQUEST_ACK) {
                    endpoint.handle_datagram(now, WALL, transmit.path, acknowledgement(header));
                }
                endpoint.recycle(transmit);
            }
        }
    }
}

fn path(client: u32) -> Path {
    let [_, high, middle, low] = client.to_be_bytes();
    Path::to(SocketAddr::from(([10, high, middle, low], 7001)))
}

/// Returns the client's acknowledgement of a reply, which also proves the client's address.
fn acknowledgement(of: Header) -> Bytes {
    let header = Header { kind: PacketType::Ack, flags: Flags::CLIENT_INITIATED, ..of };
    let (serial, reason, trailer) = (of.serial, Reason::Requested, Trailer::default());
    let ack = Ack {
        first: of.sequence + 1,
        previous: of.sequence,
        serial,
        reason,
        received: &[],
        trailer,
        beyond: &[],
    };
    let mut datagram = header.encode().to_vec();
    ack.encode(&mut datagram);
    datagram.into()
}

/// Returns the client's call with this number, whose packet also acknowledges the reply to the previous call.
fn request(client: u32, number: u32) -> Bytes {
    let header = Header {
        epoch: 0x8000_0000 | client,
        cid: client << 2,
        call_number: number,
        sequence: 1,
        serial: number,
        kind: PacketType::Data,
        flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
        user_status: 0,
        security_index: 0,
        checksum: 0,
        service_id: SERVICE,
    };
    [&header.encode()[..], &[0; REQUEST_BYTES]].concat().into()
}
