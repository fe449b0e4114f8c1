//! Paths that silently drop long packets, without ICMP messages or fragmentation.

use base::{AbortCode, Monotonic, UnixTime};
use bytes::Bytes;
use rx_proto::header::HEADER_BYTES;
use rx_proto::{
    CallId, ConnectOptions, ConnectionId, Endpoint, EndpointConfig, Event, Path, Read, ServiceConfig, Write,
};
use sim::network::{Datagram, Parcel};
use sim::{Conditions, Network};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const SERVICE: u16 = 5;
const CLIENT: usize = 0;
const SERVER: usize = 1;
const DELAY: Duration = Duration::from_millis(5);

/// A client on one of its ports, a server, and a path between them.
struct Pair {
    now: Monotonic,
    ends: [Endpoint; 2],
    port: u16,
    network: Network,
    /// Length of the longest DATA packet and of the longest packet that each end sent.
    longest: [(usize, usize); 2],
    /// Reports of short paths at the server.
    reported: Vec<(SocketAddr, usize)>,
    arrived: Vec<CallId>,
}

impl Pair {
    fn new(mtu: usize) -> Pair {
        Pair::with(mtu, &EndpointConfig::default())
    }

    fn with(mtu: usize, config: &EndpointConfig) -> Pair {
        let now = Monotonic(1_000_000_000);
        let mut ends = [1, 2].map(|seed| Endpoint::new(config.clone(), seed, now));
        let security = vec![std::sync::Arc::new(rx_security::Null) as _];
        ends[SERVER].add_service(ServiceConfig { id: SERVICE, name: String::from("short"), security });
        let network = network(mtu);
        Pair {
            now,
            ends,
            port: 7001,
            network,
            longest: [(0, 0); 2],
            reported: Vec::new(),
            arrived: Vec::new(),
        }
    }

    fn address(&self, end: usize) -> SocketAddr {
        let port = if end == CLIENT { self.port } else { 7000 };
        SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1 + end as u8), port))
    }

    /// Replaces the client by another process on the same host.
    fn new_client(&mut self, seed: u64) {
        self.port += 1;
        self.ends[CLIENT] = Endpoint::new(EndpointConfig::default(), seed, self.now);
    }

    fn connect(&mut self) -> ConnectionId {
        let path = Path::to(self.address(SERVER));
        self.ends[CLIENT].connect(self.now, path, SERVICE, None, ConnectOptions::default()).unwrap()
    }

    fn run(&mut self, span: Duration, mut work: impl FnMut(&mut Pair) -> bool) -> bool {
        let end = self.now + span;
        loop {
            let done = work(self);
            self.drain();
            let timeouts = self.ends.iter().filter_map(Endpoint::poll_timeout);
            let next = timeouts.chain(self.network.next_arrival()).min().filter(|next| *next <= end);
            let (Some(next), false) = (next, done) else {
                self.now = if done { self.now } else { end };
                return done;
            };
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn step(&mut self) {
        while let Some(parcel) = self.network.arrived(self.now) {
            let Parcel::Datagram(datagram) = parcel else { continue };
            let Some(to) = [CLIENT, SERVER].into_iter().find(|end| self.address(*end) == datagram.to) else {
                continue;
            };
            let path = Path { remote: datagram.from, local: Some(datagram.to.ip()) };
            self.ends[to].handle_datagram(self.now, UnixTime(1), path, datagram.bytes);
        }
        for end in &mut self.ends {
            if end.poll_timeout().is_some_and(|at| at <= self.now) {
                end.handle_timeout(self.now);
            }
        }
    }

    fn drain(&mut self) {
        for end in [CLIENT, SERVER] {
            while let Some(transmit) = self.ends[end].poll_transmit(self.now) {
                for bytes in transmit.datagrams().map(Bytes::from) {
                    let is_data = bytes[20] == 1;
                    let (data, all) = &mut self.longest[end];
                    *data = (*data).max(if is_data { bytes.len() } else { 0 });
                    *all = (*all).max(bytes.len());
                    let datagram = Datagram { from: self.address(end), to: self.address(1 - end), bytes };
                    self.network.send(self.now, datagram);
                }
            }
            while let Some(event) = self.ends[end].poll_event() {
                match event {
                    Event::CallArrived { call, .. } => self.arrived.push(call),
                    Event::PathIsShort { remote, packet_bytes } => self.reported.push((remote, packet_bytes)),
                    _ => {}
                }
            }
        }
    }

    /// Makes a call with a request and a reply of these lengths. Returns its result and its duration.
    fn call(&mut self, on: ConnectionId, request: usize, reply: usize) -> (Result<(), AbortCode>, Duration) {
        let began = self.now;
        let call = self.ends[CLIENT].open_call(self.now, on).expect("a free channel");
        let mut asked = Bytes::from(vec![1; request]);
        let mut answer = Bytes::from((0..reply).map(|at| at as u8).collect::<Vec<u8>>());
        let (mut heard, mut result, mut received) = (0, None, Vec::new());
        let mut is_over = false;
        self.run(Duration::from_secs(300), |pair| {
            let now = pair.now;
            let [client, server] = &mut pair.ends;
            write_all(client, now, call, &mut asked);
            if let Some(served) = pair.arrived.first().copied() {
                while let Read::Data(data) = server.read(now, served) {
                    heard += data.len();
                }
                if heard == request {
                    write_all(server, now, served, &mut answer);
                }
            }
            loop {
                match client.read(now, call) {
                    Read::Data(data) => received.extend_from_slice(&data),
                    Read::Blocked => break,
                    Read::End => result = Some(Ok(())),
                    Read::Failed(code) => result = Some(Err(code)),
                }
                is_over = result.is_some();
                if is_over {
                    break;
                }
            }
            is_over
        });
        let result = result.unwrap_or(Err(AbortCode(0)));
        if result.is_ok() {
            assert!(
                received.len() == reply && received.iter().zip(0_usize..).all(|(byte, at)| *byte == at as u8)
            );
        }
        self.ends[CLIENT].release(self.now, call);
        for served in self.arrived.drain(..) {
            self.ends[SERVER].release(self.now, served);
        }
        (result, self.now.since(began))
    }
}

fn network(mtu: usize) -> Network {
    Network::new(Conditions { mtu, ..Conditions::perfect(DELAY) }, 1)
}

fn write_all(end: &mut Endpoint, now: Monotonic, call: CallId, data: &mut Bytes) {
    while !data.is_empty() && matches!(end.write(now, call, data), Write::Accepted(1..)) {}
    if data.is_empty() {
        end.end(now, call);
    }
}

#[test]
fn a_usual_path_soon_has_full_packets() {
    let mut pair = Pair::new(1500);
    let connection = pair.connect();
    let (result, time) = pair.call(connection, 100, 1_000_000);
    assert!(result.is_ok() && time < Duration::from_secs(2), "{result:?} {time:?}");
    assert_eq!((pair.longest[SERVER].0, pair.reported.len()), (1472, 0));
    pair.longest = [(0, 0); 2];
    assert!(pair.call(connection, 100, 2000).0.is_ok());
    assert_eq!(pair.longest[SERVER].0, 1472, "the path is known");
    assert!(pair.call(connection, 1_000_000, 100).0.is_ok());
    assert_eq!(pair.longest[CLIENT].0, 1472);
}

#[test]
fn nothing_waits_for_a_path_of_1300_bytes() {
    for (request, reply) in [(100, 5000), (100, 1_000_000), (1_000_000, 100), (100, 200)] {
        let mut pair = Pair::new(1300);
        let connection = pair.connect();
        for _ in 0..3 {
            let (result, time) = pair.call(connection, request, reply);
            assert!(
                result.is_ok() && time < Duration::from_secs(2),
                "{request} {reply}: {result:?} {time:?}"
            );
        }
        assert!(pair.longest.iter().all(|(data, _)| *data <= 1272), "{:?}", pair.longest);
    }
}

#[test]
fn a_short_path_is_reported_once_per_host() {
    let mut pair = Pair::new(1300);
    for seed in 10..16 {
        pair.new_client(seed);
        let connection = pair.connect();
        for _ in 0..8 {
            assert!(pair.call(connection, 100, 40_000).0.is_ok());
            pair.run(Duration::from_secs(1), |_| false);
        }
    }
    assert_eq!(pair.reported.len(), 1, "{:?}", pair.reported);
    assert_eq!((pair.reported[0].0.ip(), pair.reported[0].1), (pair.address(CLIENT).ip(), 1252));
    pair.longest = [(0, 0); 2];
    pair.new_client(99);
    let connection = pair.connect();
    assert!(pair.call(connection, 100, 40_000).0.is_ok());
    assert!(pair.longest[SERVER].1 <= 1272, "the host is known: no long ping either");
}

/// Numbered packets cannot be split again, so one call ends with a code after which clients retry.
#[test]
fn a_path_that_becomes_short_costs_one_call() {
    let mut pair = Pair::new(1500);
    let connection = pair.connect();
    assert!(pair.call(connection, 100, 100_000).0.is_ok());
    pair.network = network(1300);
    let (result, time) = pair.call(connection, 100, 100_000);
    assert_eq!(result, Err(AbortCode::VBUSY));
    assert!(time < Duration::from_secs(30), "{time:?}");
    let (result, time) = pair.call(connection, 100, 100_000);
    assert!(result.is_ok() && time < Duration::from_secs(2), "{result:?} {time:?}");
}

#[test]
fn very_short_paths_are_reached_in_steps() {
    for mtu in [1100, 600] {
        let mut pair = Pair::new(mtu);
        let connection = pair.connect();
        let tries = (1..=4).find(|_| pair.call(connection, 100, 100_000).0.is_ok());
        assert!(tries.is_some_and(|tries| tries <= 3), "{mtu}: {tries:?}");
        pair.longest = [(0, 0); 2];
        assert!(pair.call(connection, 100, 100_000).0.is_ok());
        assert!(pair.longest[SERVER].0 + 28 <= mtu, "{mtu}: {:?}", pair.longest);
    }
}

#[test]
fn a_configured_length_is_never_exceeded() {
    let config = EndpointConfig { packet_bytes: 1000, packet_bytes_max: 1000, ..EndpointConfig::default() };
    let mut pair = Pair::with(1028, &config);
    let connection = pair.connect();
    assert!(pair.call(connection, 100_000, 100_000).0.is_ok());
    assert_eq!(pair.longest, [(1000, 1000); 2]);
    assert!(pair.longest[0].0 > HEADER_BYTES);
}
