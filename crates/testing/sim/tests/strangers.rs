//! The cost to a server of packets from unproven addresses: sent bytes, memory, and other clients' calls.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::{AbortCode, Monotonic, SecurityLevel, UnixTime};
use bytes::Bytes;
use rx_proto::limits::AMPLIFICATION_MAX;
use rx_proto::{
    CallId, ConnectOptions, ConnectionId, Endpoint, EndpointConfig, Event, Flags, Header, PacketType, Path,
    Read, ServiceConfig, Standing,
};
use sim::security::{Class, client_class, server_classes};

const SERVICE: u16 = 5;
const WALL: UnixTime = UnixTime(1_700_000_000);
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 7000);
const STRANGER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7001);

fn server() -> Endpoint {
    let mut endpoint = Endpoint::new(EndpointConfig::default(), 1, Monotonic(1));
    endpoint.add_service(ServiceConfig { id: SERVICE, name: "strange".into(), security: server_classes() });
    endpoint
}

fn client(seed: u64) -> Endpoint {
    Endpoint::new(EndpointConfig::default(), seed, Monotonic(1))
}

fn header(kind: PacketType, security_index: u8) -> Header {
    Header {
        epoch: 0x8000_0001,
        cid: 0x1234_5670,
        call_number: 1,
        sequence: 1,
        serial: 1,
        kind,
        flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
        user_status: 0,
        security_index,
        checksum: 0,
        service_id: SERVICE,
    }
}

fn datagram(header: Header, body: &[u8]) -> Bytes {
    [&header.encode()[..], body].concat().into()
}

/// Returns packets of every type, including invalid ones, for calls and connections, with bodies of several
/// lengths.
fn strange_datagrams() -> Vec<Bytes> {
    let mut all = Vec::new();
    for kind in (0..=14).chain([255]) {
        for security_index in [0, 2, 9] {
            for call_number in [0, 1] {
                for flags in [0x01, 0x05, 0x03, 0x23, 0x00, 0x02] {
                    for length in [0, 1, 4, 8, 18, 65, 300, 1444] {
                        let template = header(PacketType::Data, security_index);
                        let mut bytes =
                            datagram(Header { call_number, ..template }, &vec![1; length]).to_vec();
                        (bytes[20], bytes[21]) = (kind, flags);
                        all.push(bytes.into());
                    }
                }
            }
        }
    }
    let questions = (0..=8u32).map(|kind| [kind.to_be_bytes(), 0u32.to_be_bytes()].concat());
    all.extend(questions.map(|body| datagram(header(PacketType::Debug, 0), &body)));
    let unknown = Header { service_id: 77, ..header(PacketType::Data, 0) };
    all.push(datagram(unknown, b"call"));
    all.extend((0..28).map(|length| Bytes::from(vec![1; length])));
    all
}

/// Returns the datagrams that an endpoint has to send now. Every announced call gets a long reply.
fn sent(endpoint: &mut Endpoint, now: Monotonic) -> Vec<Bytes> {
    while let Some(event) = endpoint.poll_event() {
        if let Event::CallArrived { call, .. } = event {
            endpoint.reply(now, call, vec![7; 100_000].into());
        }
    }
    let transmits: Vec<_> = std::iter::from_fn(|| endpoint.poll_transmit(now)).collect();
    transmits.iter().flat_map(|transmit| transmit.datagrams().map(Bytes::from)).collect()
}

fn bytes(datagrams: &[Bytes]) -> usize {
    datagrams.iter().map(Bytes::len).sum()
}

/// Returns the number of bytes sent within a minute.
fn sent_in_a_minute(endpoint: &mut Endpoint, from: Monotonic) -> usize {
    let (mut now, mut total) = (from, bytes(&sent(endpoint, from)));
    while let Some(next) = endpoint.poll_timeout().filter(|next| *next <= from + Duration::from_secs(60)) {
        now = now.max(next);
        endpoint.handle_timeout(now);
        total += bytes(&sent(endpoint, now));
    }
    total
}

#[test]
fn no_datagram_of_a_stranger_is_amplified() {
    for datagram in strange_datagrams() {
        for times in [1, 3] {
            let (mut server, now) = (server(), Monotonic(1_000_000_000));
            for _ in 0..times {
                server.handle_datagram(now, WALL, Path::to(STRANGER), datagram.clone());
            }
            let out = sent_in_a_minute(&mut server, now);
            let most = AMPLIFICATION_MAX * times * datagram.len();
            assert!(
                out <= most,
                "{out} bytes for {times} x {} of {:02x?}",
                datagram.len(),
                &datagram[..28.min(datagram.len())]
            );
        }
    }
}

#[test]
fn a_sequence_of_packets_is_not_amplified() {
    let all = strange_datagrams();
    for start in 0..200 {
        let (mut server, mut now) = (server(), Monotonic(1_000_000_000));
        let (mut received, mut out) = (0, 0);
        for step in 0..40 {
            let datagram = all[(start * 7919 + step * 104_729) % all.len()].clone();
            received += datagram.len();
            server.handle_datagram(now, WALL, Path::to(STRANGER), datagram);
            out += bytes(&sent(&mut server, now));
            assert!(out <= AMPLIFICATION_MAX * received, "start {start}, step {step}: {out} for {received}");
            now = now + Duration::from_millis(130);
            server.handle_timeout(now);
            out += bytes(&sent(&mut server, now));
            assert!(out <= AMPLIFICATION_MAX * received, "start {start}, step {step}: {out} for {received}");
        }
        out += sent_in_a_minute(&mut server, now);
        assert!(out <= AMPLIFICATION_MAX * received, "start {start}: {out} for {received}");
    }
}

#[test]
fn a_challenge_is_sent_only_in_answer() {
    let (mut server, now) = (server(), Monotonic(1_000_000_000));
    server.handle_datagram(now, WALL, Path::to(STRANGER), datagram(header(PacketType::Data, 2), b"call"));
    let first = sent(&mut server, now);
    assert_eq!((first.len(), first[0][20]), (1, PacketType::Challenge as u8));
    assert_eq!(sent_in_a_minute(&mut server, now), 0);
    assert_eq!(server.statistics().connections_now, 0);
}

#[test]
fn no_call_of_an_unproven_address_is_announced() {
    for index in [0, 2] {
        let (mut server, now) = (server(), Monotonic(1_000_000_000));
        for number in 1..=4 {
            let call = Header { call_number: number, ..header(PacketType::Data, index) };
            server.handle_datagram(now, WALL, Path::to(STRANGER), datagram(call, b"call"));
            // Acknowledges serial numbers that were not sent.
            let mut ack = vec![0; 18];
            ack[12..16].copy_from_slice(&number.to_be_bytes());
            ack[16] = 7;
            let ack_header = Header { call_number: number, ..header(PacketType::Ack, index) };
            server.handle_datagram(now, WALL, Path::to(STRANGER), datagram(ack_header, &ack));
        }
        let arrived = std::iter::from_fn(|| server.poll_event()).count();
        assert_eq!((arrived, server.statistics().calls_by_standing[1..].iter().sum::<u64>()), (0, 0));
    }
}

/// A client whose datagrams arrive immediately unless they are lost.
struct Caller {
    endpoint: Endpoint,
    address: SocketAddr,
    connection: ConnectionId,
    call: Option<CallId>,
    done: usize,
    failed: usize,
}

impl Caller {
    fn new(number: u8, class: Class, now: Monotonic) -> Caller {
        let mut endpoint = client(u64::from(number) + 10);
        let options = ConnectOptions::default();
        let connection = endpoint.connect(now, Path::to(SERVER), SERVICE, client_class(class), options);
        let address = SocketAddr::from((Ipv4Addr::new(10, 0, 1, number), 7001));
        Caller { endpoint, address, connection: connection.expect("room"), call: None, done: 0, failed: 0 }
    }

    /// Starts a call if none is in progress, or reads its reply.
    fn work(&mut self, now: Monotonic) {
        while self.endpoint.poll_event().is_some() {}
        let Some(call) = self.call else {
            let call = self.endpoint.open_call(now, self.connection).expect("a channel");
            self.endpoint.write(now, call, &mut Bytes::from_static(b"question"));
            self.endpoint.end(now, call);
            self.call = Some(call);
            return;
        };
        loop {
            match self.endpoint.read(now, call) {
                Read::Data(_) => {}
                Read::Blocked => return,
                Read::End => break,
                Read::Failed(_) => {
                    self.failed += 1;
                    break;
                }
            }
        }
        self.endpoint.release(now, call);
        self.call = None;
        self.done += 1;
    }
}

/// A server and its honest clients, simulated in steps of a millisecond.
struct Town {
    server: Endpoint,
    callers: Vec<Caller>,
    now: Monotonic,
    random: u64,
    loss_percent: u64,
}

impl Town {
    fn new(config: EndpointConfig, classes: &[Class]) -> Town {
        let now = Monotonic(1);
        let mut server = Endpoint::new(config, 1, now);
        let security = server_classes();
        server.add_service(ServiceConfig { id: SERVICE, name: "town".into(), security });
        let callers = (0..).zip(classes).map(|(number, class)| Caller::new(number, *class, now)).collect();
        Town { server, callers, now, random: 1, loss_percent: 0 }
    }

    fn random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    fn is_lost(&mut self) -> bool {
        self.random() % 100 < self.loss_percent
    }

    /// Simulates a millisecond, the time of each one-way trip.
    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        let now = self.now;
        let mut requests = Vec::new();
        for caller in &mut self.callers {
            caller.work(now);
            if caller.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                caller.endpoint.handle_timeout(now);
            }
            while let Some(transmit) = caller.endpoint.poll_transmit(now) {
                requests.extend(transmit.datagrams().map(|bytes| (caller.address, Bytes::from(bytes))));
            }
        }
        for (from, bytes) in requests {
            if !self.is_lost() {
                self.server.handle_datagram(now, WALL, Path::to(from), bytes);
                self.serve();
            }
        }
        self.serve();
    }

    fn serve(&mut self) {
        let now = self.now;
        if self.server.poll_timeout().is_some_and(|at| at <= now) {
            self.server.handle_timeout(now);
        }
        while let Some(event) = self.server.poll_event() {
            if let Event::CallArrived { call, standing, caller, .. } = event {
                assert_ne!(standing, Standing::Unproven);
                assert_eq!(standing == Standing::Verified, caller.identity != base::Identity::Anonymous);
                self.server.reply(now, call, Bytes::from_static(b"answer"));
            }
        }
        while let Some(transmit) = self.server.poll_transmit(now) {
            for bytes in transmit.datagrams().map(Bytes::from).collect::<Vec<_>>() {
                let lost = self.is_lost();
                let to = self.callers.iter_mut().find(|caller| caller.address == transmit.path.remote);
                if let Some(caller) = to.filter(|_| !lost) {
                    caller.endpoint.handle_datagram(now, WALL, Path::to(SERVER), bytes);
                }
            }
            self.server.recycle(transmit);
        }
    }

    /// Sends a millisecond's share of 50,000 packets per second from unproven addresses chosen by `source`.
    fn flood(&mut self, source: impl Fn(u64) -> SocketAddr) {
        for _ in 0..50 {
            let (place, cid, what) = (self.random(), self.random() as u32, self.random());
            let kind = if what % 8 == 0 { PacketType::Response } else { PacketType::Data };
            let index = [0, 2][(what / 8 % 2) as usize];
            let call_number = u32::from(kind == PacketType::Data);
            let sequence = (what / 16 % 16) as u32 + 1;
            let header = Header {
                epoch: 0x8000_0000 | self.random() as u32,
                cid: cid & !3,
                call_number,
                sequence,
                ..header(kind, index)
            };
            let bytes = datagram(header, &[0; 4]);
            self.server.handle_datagram(self.now, WALL, Path::to(source(place)), bytes);
        }
        self.serve();
    }

    fn check_bounds(&self) {
        let (statistics, config) = (self.server.statistics(), self.server.config());
        let connections = statistics.connections_by_standing[0] as usize;
        assert!(connections <= config.unproven_connections_max, "{connections} connections");
        assert!(statistics.calls_by_standing[0] as usize <= 4 * config.unproven_connections_max);
        assert!(statistics.packets_by_standing[0] as usize <= config.unproven_packets_max);
        let peers = statistics.peers_now as usize;
        assert!(peers <= config.unproven_connections_max + self.callers.len(), "{peers} peers");
    }

    /// Returns the number of successful calls of each client.
    fn done(&self) -> Vec<usize> {
        self.callers.iter().map(|caller| caller.done - caller.failed).collect()
    }
}

fn anywhere(place: u64) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0x0c00_0000 | (place as u32 & 0xff_ffff)), 7001))
}

fn one_host(place: u64) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, 66), place as u16 | 1024))
}

const RXKAD: Class = Class::Rxkad(SecurityLevel::Clear);

/// Returns limits that would be exhausted immediately if unproven addresses counted.
fn small() -> EndpointConfig {
    EndpointConfig {
        connections_max: 40,
        calls_max: 40,
        packets_max: 40,
        anonymous_packets_max: 20,
        unproven_connections_max: 64,
        unproven_packets_max: 128,
        ..EndpointConfig::default()
    }
}

#[test]
fn verified_clients_do_not_notice_a_flood() {
    for source in [anywhere as fn(u64) -> SocketAddr, one_host] {
        let mut town = Town::new(small(), &[RXKAD; 8]);
        (0..100).for_each(|_| town.step());
        let before = town.done();
        for _ in 0..2000 {
            town.flood(source);
            town.step();
            town.check_bounds();
        }
        for (before, after) in before.into_iter().zip(town.done()) {
            assert!(after - before >= 900, "{before} calls, then {after}");
        }
        assert_eq!(town.server.statistics().calls_refused, 0);
        assert!(town.callers.iter().all(|caller| caller.failed == 0));
        assert!(town.server.statistics().unproven_dropped > 10_000);
    }
}

#[test]
fn new_clients_get_in_during_a_flood() {
    for (class, patience_ms) in [(RXKAD, 2500), (Class::Null, 2500)] {
        for source in [anywhere as fn(u64) -> SocketAddr, one_host] {
            let mut town = Town::new(small(), &[]);
            (0..100).for_each(|_| town.flood(source));
            town.callers = (0..8).map(|number| Caller::new(number, class, town.now)).collect();
            for _ in 0..patience_ms {
                // The round trip is so long that each client is forgotten before it can answer.
                town.flood(source);
                town.step();
                town.check_bounds();
            }
            assert!(town.done().iter().all(|done| *done > 0), "{class:?}: {:?}", town.done());
        }
    }
}

#[test]
fn a_forgotten_handshake_is_completed() {
    let config = EndpointConfig { unproven_connections_max: 1, ..EndpointConfig::default() };
    for class in [RXKAD, Class::Null] {
        let mut town = Town::new(config.clone(), &[class; 4]);
        // Each new connection evicts the previous one, so only the numbers in the packets themselves can
        // identify it.
        (0..3000).for_each(|_| town.step());
        assert!(town.done().iter().all(|done| *done > 0), "{class:?}: {:?}", town.done());
        assert!(town.server.statistics().unproven_dropped > 0);
    }
}

#[test]
fn honest_clients_get_through_losses() {
    for (loss_percent, shut_out_max) in [(5, 0), (20, 4)] {
        for class in [RXKAD, Class::Null] {
            let mut shut_out = 0;
            for seed in 0..20 {
                let mut town = Town::new(EndpointConfig::default(), &[class; 4]);
                (town.loss_percent, town.random) = (loss_percent, seed);
                (0..30_000).for_each(|_| town.step());
                shut_out += town.done().iter().filter(|done| **done == 0).count();
            }
            // Of 80 clients: at 20 % loss two of five exchanges fail, and senders back off after each.
            assert!(shut_out <= shut_out_max, "{loss_percent} %, {class:?}: {shut_out}");
        }
    }
}

#[test]
fn a_first_call_takes_one_more_round_trip() {
    for class in [RXKAD, Class::Null] {
        let mut town = Town::new(EndpointConfig::default(), &[class]);
        let steps = (1..100).find(|_| {
            town.step();
            town.done() == [1]
        });
        assert!(steps <= Some(4), "{class:?}: {steps:?}");
        assert_eq!(town.callers[0].endpoint.statistics().data_resent, 0);
    }
}

#[test]
fn a_server_that_is_called_has_proved_its_address() {
    let now = Monotonic(1);
    let mut town = Town::new(EndpointConfig::default(), &[Class::Null]);
    (0..10).for_each(|_| town.step());
    assert!(town.done()[0] > 1);
    // The caller's own endpoint needs no ping for the call back, because it has called the server itself.
    let caller = &mut town.callers[0].endpoint;
    let pings = caller.statistics().pings_sent;
    caller.add_service(ServiceConfig {
        id: SERVICE,
        name: "back".into(),
        security: vec![Arc::new(rx_security::Null)],
    });
    let connection =
        town.server.connect(now, Path::to(town.callers[0].address), SERVICE, None, ConnectOptions::default());
    let call = town.server.open_call(town.now, connection.expect("room")).expect("a channel");
    town.server.write(town.now, call, &mut Bytes::from_static(b"back"));
    town.server.end(town.now, call);
    let sent = sent(&mut town.server, town.now);
    let caller = &mut town.callers[0].endpoint;
    for bytes in sent {
        caller.handle_datagram(town.now, WALL, Path::to(SERVER), bytes);
    }
    let arrived = std::iter::from_fn(|| caller.poll_event())
        .any(|event| matches!(event, Event::CallArrived { standing: Standing::Reachable, .. }));
    assert!(arrived);
    assert_eq!(caller.statistics().pings_sent, pings);
}

#[test]
fn a_full_endpoint_does_not_call_its_peer_silent() {
    let config = EndpointConfig { connections_max: 1, ..EndpointConfig::default() };
    let mut endpoint = Endpoint::new(config, 1, Monotonic(1));
    let path = Path::to(STRANGER);
    let mut connect =
        || endpoint.connect(Monotonic(1), path, SERVICE, None, ConnectOptions::default()).map(drop);
    assert_eq!((connect(), connect()), (Ok(()), Err(AbortCode::RX_RESTARTING)));
}
