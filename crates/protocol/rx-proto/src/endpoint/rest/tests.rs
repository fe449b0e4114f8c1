use super::*;
use crate::ack::{Ack, Reason, Trailer};
use crate::{EndpointConfig, Event, Flags, Header, PacketType, Path, ServiceConfig, Transmit};
use base::UnixTime;
use bytes::Bytes;
use rx_security::Null;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const SERVICE: u16 = 5;
const WALL: UnixTime = UnixTime(1_700_000_000);
/// Start of the tests, so long after the proof of the client's address at time 0 that the next reply requests
/// a new proof.
const START: Monotonic = Monotonic(50_000_000_000);

struct Server(Endpoint);

impl Server {
    fn new() -> Server {
        let config = EndpointConfig { crowd_connections: 1, ..EndpointConfig::default() };
        let mut endpoint = Endpoint::new(config, 1, Monotonic(0));
        let security: Vec<Arc<dyn rx_security::ServerSecurity>> = vec![Arc::new(Null)];
        endpoint.add_service(ServiceConfig { id: SERVICE, name: "short".into(), security });
        let peer = endpoint.peer_at(Monotonic(0), client());
        endpoint.peers.all.get_mut(peer).expect("a peer").on_reached(Monotonic(0));
        Server(endpoint)
    }

    fn takes(&mut self, now: Monotonic, header: Header, body: &[u8]) {
        let path = Path::to(client());
        self.0.handle_datagram(now, WALL, path, [&header.encode(), body].concat().into());
        while let Some(event) = self.0.poll_event() {
            if let Event::CallArrived { call, .. } = event {
                self.0.read_some(now, call, 2, drop);
                self.0.reply(now, call, Bytes::from_static(b"reply"));
            }
        }
    }

    fn sends(&mut self, now: Monotonic) -> Vec<Header> {
        let sent: Vec<Transmit> = std::iter::from_fn(|| self.0.poll_transmit(now)).collect();
        let packets = sent.iter().flat_map(|transmit| &transmit.packets);
        packets.map(|packet| crate::header::parse(&packet.header).expect("a header").0).collect()
    }

    /// Makes a call and answers it. Returns the reply's header.
    fn answers(&mut self, now: Monotonic, number: u32) -> Header {
        self.takes(now, request(number), b"asks");
        let sent = self.sends(now);
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].kind, sent[0].call_number), (PacketType::Data, number));
        assert_eq!(self.resting(), 1);
        sent[0]
    }

    fn resting(&self) -> usize {
        self.0.calls.all().filter(Option::is_none).count()
    }

    fn ended(&self) -> (u64, u64) {
        (self.0.statistics.calls_ended, self.0.statistics.calls_now)
    }
}

fn client() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7001))
}

fn request(number: u32) -> Header {
    Header {
        epoch: 0x8000_0001,
        cid: 4,
        call_number: number,
        sequence: 1,
        serial: number,
        kind: PacketType::Data,
        flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
        user_status: 0,
        security_index: 0,
        checksum: 0,
        service_id: SERVICE,
    }
}

/// Returns the client's acknowledgement of a reply.
fn acknowledgement(reply: Header) -> (Header, Vec<u8>) {
    let header = Header { kind: PacketType::Ack, flags: Flags::CLIENT_INITIATED, serial: 99, ..reply };
    let (received, trailer) = (&[][..], Trailer::default());
    let (serial, reason) = (reply.serial, Reason::Requested);
    let mut body = Vec::new();
    Ack { first: 2, previous: 1, serial, reason, received, trailer, beyond: &[] }.encode(&mut body);
    (header, body)
}

#[test]
fn the_next_call_ends_resting_ones() {
    let mut server = Server::new();
    for number in 1..=2 {
        server.answers(START, number);
        assert_eq!(server.ended(), (u64::from(number) - 1, 1));
    }
    assert_eq!((server.0.replies_under_way(), server.0.spare_calls.len()), (1, 1));
}

#[test]
fn an_acknowledgement_measures_the_round_trip() {
    let mut server = Server::new();
    let reply = server.answers(START, 1);
    assert!(reply.flags.contains(Flags::REQUEST_ACK), "the proof of the client's address is old");
    let (header, body) = acknowledgement(reply);
    let later = START + Duration::from_millis(3);
    server.takes(later, header, &body);
    assert_eq!((server.resting(), server.ended()), (0, (1, 0)));
    assert_eq!(server.0.statistics.rtt_samples, 1);
    assert!(server.0.peers().0[0].rtt == Duration::from_millis(3));
    assert_eq!(server.sends(later), []);
}

#[test]
fn a_lost_reply_is_sent_again() {
    let mut server = Server::new();
    let first = server.answers(START, 1);
    let due = server.0.poll_timeout().expect("the reply is waited for");
    assert!(due > START && due <= START + Duration::from_secs(2));
    server.0.handle_timeout(due);
    let sent = server.sends(due);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].kind, sent[0].sequence, sent[0].call_number), (PacketType::Data, 1, 1));
    assert!(sent[0].serial > first.serial);
    assert_eq!((server.resting(), server.0.statistics.data_resent), (0, 1));
    let later = due + Duration::from_secs(3);
    server.takes(later, request(2), b"asks");
    assert_eq!(server.sends(later).len(), 1);
    assert_eq!((server.resting(), server.ended()), (1, (1, 1)));
}

#[test]
fn a_deadline_that_has_moved_wakes_nobody() {
    let mut server = Server::new();
    server.answers(START, 1);
    let due = server.0.poll_timeout().expect("the reply is waited for");
    let later = Monotonic(due.0 - 1);
    server.answers(later, 2);
    assert_eq!(server.0.poll_timeout(), Some(due), "where it was");
    server.0.handle_timeout(due);
    assert_eq!((server.resting(), server.sends(due)), (1, vec![]));
    assert!(server.0.poll_timeout().is_some_and(|next| next > later + Duration::from_millis(500)));
}

#[test]
fn a_request_that_comes_twice_is_acknowledged() {
    let mut server = Server::new();
    server.answers(START, 1);
    server.takes(START, request(1), b"asks");
    let sent = server.sends(START);
    assert_eq!(sent.iter().map(|header| header.kind).collect::<Vec<_>>(), [PacketType::Ack]);
    assert_eq!((server.resting(), server.ended()), (1, (0, 1)), "it rests again");
}

#[test]
fn a_failed_connection_drops_resting_calls() {
    let mut server = Server::new();
    server.answers(START, 1);
    let abort = Header { call_number: 0, sequence: 0, kind: PacketType::Abort, ..request(0) };
    server.takes(START, abort, &(-1i32).to_be_bytes());
    assert_eq!((server.resting(), server.0.calls.len(), server.0.connections.all.len()), (0, 0, 0));
}

#[test]
fn of_few_clients_none_rests() {
    let mut server = Server::new();
    server.0.config.crowd_connections = 2;
    server.takes(START, request(1), b"asks");
    assert_eq!((server.sends(START).len(), server.resting(), server.ended()), (1, 0, (0, 1)));
}
