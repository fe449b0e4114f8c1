//! A hijacker that knows everything about other clients' connections, and sends from its own address.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::{AbortCode, Monotonic, SecurityLevel, UnixTime};
use bytes::Bytes;
use rx_proto::header::parse;
use rx_proto::{
    CallId, ConnectOptions, ConnectionId, Endpoint, EndpointConfig, Event, Header, Path, Read, ServiceConfig,
    Write,
};
use rx_security::{KeyRing, KeySet, KeySource};
use sim::security::{Class, client_class, keys, server_classes, server_classes_with};
use std::sync::Arc;

const SERVICE: u16 = 5;
const WALL: UnixTime = UnixTime(1_700_000_000);
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 7000);
const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 7001);
/// Another address of the client's host.
const SECOND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)), 7001);
const HIJACKER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7001);

const CLASSES: [Class; 4] = [
    Class::Null,
    Class::Rxkad(SecurityLevel::Clear),
    Class::Rxkad(SecurityLevel::Authenticated),
    Class::Rxkad(SecurityLevel::Encrypted),
];

/// Length of each request and reply: several packets each way.
const MESSAGE_BYTES: usize = 20_000;

/// Returns the packets that an attacker could forge from an observed one.
fn forgeries(seen: &[u8]) -> Vec<Bytes> {
    let (header, body) = parse(seen).expect("a packet of an endpoint");
    let abort = AbortCode::RX_CALL_DEAD.0.to_be_bytes();
    let mut all_received = vec![0; 18];
    all_received[4..8].copy_from_slice(&1000u32.to_be_bytes());
    all_received[12..16].copy_from_slice(&header.serial.to_be_bytes());
    all_received[16] = 1;
    let bodies: [&[u8]; 5] = [body, &abort, &all_received, &[0xff; 64], &[]];
    let mut all = vec![Bytes::copy_from_slice(seen)];
    for kind in 1..=13u8 {
        for call_number in [0, header.call_number, header.call_number + 1] {
            for body in bodies {
                let header = Header { call_number, serial: header.serial + 1, ..header };
                let mut bytes = [&header.encode()[..], body].concat();
                bytes[20] = kind;
                all.push(bytes.into());
            }
        }
    }
    all
}

/// A client, a server and the packets between them, delivered within a step.
struct Line {
    server: Endpoint,
    client: Endpoint,
    connection: ConnectionId,
    call: Option<(CallId, Bytes)>,
    now: Monotonic,
    /// Source address of the client's packets.
    source: SocketAddr,
    is_attacked: bool,
    calls_done: usize,
}

impl Line {
    fn new(class: Class) -> Line {
        Line::with_keys(class, Arc::new(keys(7)))
    }

    fn with_keys(class: Class, keys: Arc<dyn KeySource>) -> Line {
        let now = Monotonic(1);
        let mut server = Endpoint::new(EndpointConfig::default(), 1, now);
        server.add_service(ServiceConfig {
            id: SERVICE,
            name: "line".into(),
            security: server_classes_with(keys),
        });
        let mut client = Endpoint::new(EndpointConfig::default(), 2, now);
        let security = client_class(class);
        let connection = client.connect(now, Path::to(SERVER), SERVICE, security, ConnectOptions::default());
        let connection = connection.expect("room");
        Line {
            server,
            client,
            connection,
            call: None,
            now,
            source: CLIENT,
            is_attacked: false,
            calls_done: 0,
        }
    }

    /// Simulates a millisecond.
    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        self.call();
        self.client.handle_timeout(self.now);
        for datagram in sent(&mut self.client, self.now) {
            self.server.handle_datagram(self.now, WALL, Path::to(self.source), datagram.clone());
            self.attack(&datagram);
        }
        self.serve();
        self.server.handle_timeout(self.now);
        for datagram in sent(&mut self.server, self.now) {
            self.client.handle_datagram(self.now, WALL, Path::to(SERVER), datagram.clone());
            self.attack(&datagram);
        }
    }

    /// Sends all forgeries of a packet to both ends from another address.
    fn attack(&mut self, seen: &[u8]) {
        if !self.is_attacked {
            return;
        }
        for forgery in forgeries(seen) {
            for end in [&mut self.server, &mut self.client] {
                end.handle_datagram(self.now, WALL, Path::to(HIJACKER), forgery.clone());
            }
        }
    }

    fn call(&mut self) {
        while let Some(event) = self.client.poll_event() {
            assert!(!matches!(event, Event::Failed(..) | Event::ConnectionFailed(..)), "{event:?}");
        }
        let now = self.now;
        let Some((call, left)) = &mut self.call else {
            let call = self.client.open_call(now, self.connection).expect("a channel");
            self.call = Some((call, Bytes::from(vec![3; MESSAGE_BYTES])));
            return;
        };
        let call = *call;
        while !left.is_empty() {
            match self.client.write(now, call, left) {
                Write::Accepted(_) if left.is_empty() => self.client.end(now, call),
                Write::Accepted(_) => {}
                Write::Blocked => return,
                Write::Failed(code) => panic!("the call fails with {code}"),
            }
        }
        loop {
            match self.client.read(now, call) {
                Read::Data(_) => {}
                Read::Blocked => return,
                Read::End => break,
                Read::Failed(code) => panic!("the call fails with {code}"),
            }
        }
        self.client.release(now, call);
        (self.call, self.calls_done) = (None, self.calls_done + 1);
    }

    fn serve(&mut self) {
        while let Some(event) = self.server.poll_event() {
            if let Event::CallArrived { call, path, .. } = event {
                assert_ne!(path.remote, HIJACKER, "a forged call");
                self.server.reply(self.now, call, Bytes::from(vec![4; MESSAGE_BYTES]));
            }
        }
    }

    fn spurious(&self) -> u64 {
        self.server.statistics().spurious + self.client.statistics().spurious
    }
}

fn sent(endpoint: &mut Endpoint, now: Monotonic) -> Vec<Bytes> {
    let transmits: Vec<_> = std::iter::from_fn(|| endpoint.poll_transmit(now)).collect();
    // Packets to the hijacker are not for the other end.
    let own = transmits.iter().filter(|transmit| transmit.path.remote != HIJACKER);
    own.flat_map(|transmit| transmit.datagrams().map(Bytes::from)).collect()
}

const STEPS: usize = 400;

#[test]
fn forgeries_from_elsewhere_change_nothing() {
    for class in CLASSES {
        let mut undisturbed = Line::new(class);
        (0..STEPS).for_each(|_| undisturbed.step());
        let mut attacked = Line::new(class);
        attacked.is_attacked = true;
        (0..STEPS).for_each(|_| attacked.step());
        assert!(undisturbed.calls_done > 20, "{class:?}: {}", undisturbed.calls_done);
        assert_eq!(attacked.calls_done, undisturbed.calls_done, "{class:?}");
        assert!(attacked.spurious() > 1000, "{class:?}: {}", attacked.spurious());
    }
}

#[test]
fn a_handshake_survives_forgeries() {
    for class in &CLASSES[1..] {
        let mut line = Line::new(*class);
        line.is_attacked = true;
        (0..20).for_each(|_| line.step());
        line.is_attacked = false;
        (0..100).for_each(|_| line.step());
        assert!(line.calls_done > 0, "{class:?}");
        assert_eq!(line.client.statistics().handshakes_failed, 0, "{class:?}");
    }
}

/// A verified client whose packets start to come from another address proves itself there, and its calls continue.
#[test]
fn a_verified_client_may_move_during_a_call() {
    for class in &CLASSES[1..] {
        let mut line = Line::new(*class);
        (0..100).for_each(|_| line.step());
        let before = line.calls_done;
        line.source = SECOND;
        (0..2000).for_each(|_| line.step());
        assert!(before > 0 && line.calls_done > before + 5, "{class:?}: {before}, then {}", line.calls_done);
    }
}

/// A wrong response is answered with an abort, but the client's own response still counts.
#[test]
fn a_wrong_response_ends_nothing() {
    let mut line = Line::new(Class::Rxkad(SecurityLevel::Clear));
    let now = line.now;
    line.call();
    line.call();
    let requests = sent(&mut line.client, now);
    for datagram in requests {
        line.server.handle_datagram(now, WALL, Path::to(CLIENT), datagram);
    }
    let challenges = sent(&mut line.server, now);
    assert_eq!(challenges[0][20], rx_proto::PacketType::Challenge as u8);
    line.client.handle_datagram(now, WALL, Path::to(SERVER), challenges[0].clone());
    let answers = sent(&mut line.client, now);
    let response = answers.iter().find(|answer| answer[20] == rx_proto::PacketType::Response as u8).unwrap();
    for at in [40, 60, response.len() - 1] {
        let mut wrong = response.to_vec();
        wrong[at] ^= 1;
        line.server.handle_datagram(now, WALL, Path::to(CLIENT), wrong.into());
    }
    let answered = sent(&mut line.server, now);
    assert!(answered.iter().any(|packet| packet[20] == rx_proto::PacketType::Abort as u8), "it is answered");
    assert!(line.server.statistics().handshakes_failed >= 2);
    for answer in answers {
        line.server.handle_datagram(now, WALL, Path::to(CLIENT), answer);
    }
    (0..100).for_each(|_| line.step());
    assert!(line.calls_done > 0);
}

fn numbers_shown_to(asker: SocketAddr, hosts: &[std::net::IpAddr]) -> (u32, u32) {
    let mut line = Line::new(Class::Null);
    let config = EndpointConfig { own_hosts: hosts.to_vec(), ..EndpointConfig::default() };
    line.server = Endpoint::new(config, 1, line.now);
    line.server.add_service(ServiceConfig { id: SERVICE, name: "line".into(), security: server_classes() });
    (0..20).for_each(|_| line.step());
    let question = Header {
        epoch: 0,
        cid: 0,
        call_number: 1,
        sequence: 0,
        serial: 0,
        kind: rx_proto::PacketType::Debug,
        flags: rx_proto::Flags::CLIENT_INITIATED,
        user_status: 0,
        security_index: 0,
        checksum: 0,
        service_id: 0,
    };
    // Asks for the first connection. The packet is padded, since unproven addresses get at most three times
    // the bytes that they send.
    let body = [&3u32.to_be_bytes()[..], &0u32.to_be_bytes(), &[0; 200]].concat();
    let datagram = Bytes::from([&question.encode()[..], &body].concat());
    line.server.handle_datagram(line.now, WALL, Path::to(asker), datagram);
    let answer = sent(&mut line.server, line.now).pop().expect("an answer");
    let shown = rx_proto::answers::Connection::parse(&answer[28..]).flatten().expect("a connection");
    (shown.epoch, shown.id)
}

#[test]
fn strangers_are_not_shown_numbers_of_connections() {
    let asker = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 7), 4000));
    assert_eq!(numbers_shown_to(asker, &[]), (0, 0));
    let (epoch, id) = numbers_shown_to(asker, &[asker.ip()]);
    assert!(epoch != 0 && id != 0);
    let (epoch, id) = numbers_shown_to(SocketAddr::from((Ipv4Addr::LOCALHOST, 4000)), &[]);
    assert!(epoch != 0 && id != 0);
}

/// No call can start on a verified connection after its key is removed.
#[test]
fn a_connection_does_not_outlive_its_key() {
    let ring = Arc::new(KeyRing::new(keys(7)));
    let mut line =
        Line::with_keys(Class::Rxkad(SecurityLevel::Clear), Arc::clone(&ring) as Arc<dyn KeySource>);
    (0..50).for_each(|_| line.step());
    let mut both = keys(7);
    both.insert(4, rx_security::ServiceKey::new(18, &[8; 32]).unwrap());
    ring.replace(both);
    let before = line.calls_done;
    (0..50).for_each(|_| line.step());
    assert!(before > 0 && line.calls_done > before, "another key changes nothing");
    while line.call.is_some() {
        line.step();
    }
    ring.replace(KeySet::new());
    line.call();
    line.call();
    for datagram in sent(&mut line.client, line.now) {
        line.server.handle_datagram(line.now, WALL, Path::to(CLIENT), datagram);
    }
    for datagram in sent(&mut line.server, line.now) {
        line.client.handle_datagram(line.now, WALL, Path::to(SERVER), datagram);
    }
    let failed = std::iter::from_fn(|| line.client.poll_event())
        .any(|event| matches!(event, Event::ConnectionFailed(_, AbortCode::RXKADUNKNOWNKEY)));
    assert!(failed, "the call is refused");
}
