//! Two endpoints on a perfect wire, step by step.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::{AbortCode, Monotonic, RecvBuffer, UnixTime};
use bytes::Bytes;
use rx_proto::ack::Reason;
use rx_proto::limits::{UNREAD_ADDRESS_BYTES_MAX, UNREAD_WINDOW};
use rx_proto::{
    CallId, ConnectOptions, ConnectionId, Endpoint, EndpointConfig, Event, Filled, PacketType, Path, Read,
    ServiceConfig,
};

const SERVICE: u16 = 5;
const DELAY: Duration = Duration::from_millis(1);

/// A client and a server, with a one-way delay of [`DELAY`].
struct Pair {
    now: Monotonic,
    ends: [Endpoint; 2],
    wire: Vec<(Monotonic, usize, Bytes)>,
    events: [Vec<Event>; 2],
    wakes: [usize; 2],
    /// Whether all further packets are lost.
    cut: bool,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn address(end: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1 + end as u8), 7000))
}

fn service() -> ServiceConfig {
    let security = vec![std::sync::Arc::new(rx_security::Null) as _];
    ServiceConfig { id: SERVICE, name: String::from("pair"), security }
}

impl Pair {
    fn new() -> Pair {
        Pair::configured(&EndpointConfig::default())
    }

    fn configured(config: &EndpointConfig) -> Pair {
        let now = Monotonic(1);
        let mut ends = [1, 2].map(|seed| Endpoint::new(config.clone(), seed, now));
        ends[SERVER].add_service(service());
        Pair { now, ends, wire: Vec::new(), events: [Vec::new(), Vec::new()], wakes: [0; 2], cut: false }
    }

    fn connect(&mut self) -> ConnectionId {
        let path = Path::to(address(SERVER));
        self.ends[CLIENT].connect(self.now, path, SERVICE, None, ConnectOptions::default()).unwrap()
    }

    /// Takes the endpoints' packets and events.
    fn drain(&mut self) {
        for end in [CLIENT, SERVER] {
            while let Some(transmit) = self.ends[end].poll_transmit(self.now) {
                let packets = transmit.datagrams().map(Bytes::from);
                self.wire.extend(packets.map(|packet| (self.now + DELAY, 1 - end, packet)));
            }
            self.events[end].extend(std::iter::from_fn(|| self.ends[end].poll_event()));
        }
    }

    /// Advances the clock by `span`.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        self.drain();
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.step();
            self.drain();
        }
        self.now = end;
    }

    fn next(&self) -> Option<Monotonic> {
        let timeouts = self.ends.iter().filter_map(Endpoint::poll_timeout);
        timeouts.chain(self.wire.iter().map(|(at, ..)| *at)).min()
    }

    fn step(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) = self.wire.drain(..).partition(|(at, ..)| *at <= self.now);
        self.wire = later;
        for (_, to, packet) in due.into_iter().filter(|_| !self.cut) {
            let path = Path { remote: address(1 - to), local: Some(address(to).ip()) };
            self.ends[to].handle_datagram(self.now, UnixTime(1), path, packet);
        }
        for (end, wakes) in self.ends.iter_mut().zip(&mut self.wakes) {
            if end.poll_timeout().is_some_and(|at| at <= self.now) {
                *wakes += 1;
                end.handle_timeout(self.now);
            }
        }
    }

    /// Makes a call that is answered, but not released by the client.
    fn answered(&mut self, connection: ConnectionId) -> CallId {
        let call = self.ends[CLIENT].open_call(self.now, connection).expect("a free channel");
        self.ends[CLIENT].write(self.now, call, &mut Bytes::from_static(b"question"));
        self.ends[CLIENT].end(self.now, call);
        self.pass(4 * DELAY);
        let served = self.arrived();
        self.ends[SERVER].reply(self.now, served, Bytes::from_static(b"answer"));
        self.pass(2 * DELAY);
        assert_eq!(self.ends[CLIENT].read(self.now, call), Read::Data(Bytes::from_static(b"answer")));
        assert_eq!(self.ends[CLIENT].read(self.now, call), Read::End);
        call
    }

    /// Makes a call whose request has arrived at the server.
    fn asked(&mut self) -> (CallId, CallId) {
        let connection = self.connect();
        let call = self.ends[CLIENT].open_call(self.now, connection).expect("a free channel");
        self.ends[CLIENT].write(self.now, call, &mut Bytes::from_static(b"question"));
        self.ends[CLIENT].end(self.now, call);
        self.pass(4 * DELAY);
        (call, self.arrived())
    }

    fn arrived(&mut self) -> CallId {
        let arrived = self.events[SERVER].drain(..).find_map(|event| match event {
            Event::CallArrived { call, .. } => Some(call),
            _ => None,
        });
        arrived.expect("a call")
    }

    /// Makes a call that has sent this many bytes and is not finished.
    fn sending(&mut self, bytes: usize) -> CallId {
        let connection = self.connect();
        let call = self.ends[CLIENT].open_call(self.now, connection).expect("a free channel");
        self.ends[CLIENT].write(self.now, call, &mut Bytes::from(vec![1; bytes]));
        self.ends[CLIENT].flush(self.now, call);
        self.pass(300 * DELAY);
        call
    }

    /// Returns the window in the server's next acknowledgement of this call.
    fn window_offered(&mut self, call: CallId) -> Option<u32> {
        self.ends[CLIENT].write(self.now, call, &mut Bytes::from(vec![1; 3000]));
        self.ends[CLIENT].flush(self.now, call);
        for _ in 0..500 {
            self.pass(DELAY / 2);
            let offered = self.wire.iter().filter(|(_, to, _)| *to == CLIENT).find_map(|(_, _, packet)| {
                let (header, body) = rx_proto::header::parse(packet).ok()?;
                let ack = rx_proto::ack::parse(body).ok().filter(|_| header.kind == PacketType::Ack)?;
                ack.trailer.window
            });
            if offered.is_some() {
                return offered;
            }
        }
        None
    }

    /// Replaces the server, without notice, by a new one after this time.
    fn restart_server(&mut self, seed: u64, away: Duration) {
        self.cut = true;
        self.pass(away);
        self.cut = false;
        self.wire.clear();
        self.replace_server(EndpointConfig::default(), seed);
    }

    /// Reads all available data of a call at the server.
    fn read_all(&mut self, call: CallId) -> Vec<u8> {
        let mut all = Vec::new();
        while let Read::Data(data) = self.ends[SERVER].read(self.now, call) {
            all.extend_from_slice(&data);
        }
        all
    }

    fn acks_sent(&self) -> u64 {
        self.ends[CLIENT].statistics().packets_sent[PacketType::Ack as usize - 1]
    }
}

#[test]
fn the_last_reply_is_acknowledged_while_the_next_call_is_silent() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    let call = pair.answered(connection);
    pair.ends[CLIENT].release(pair.now, call);
    let next = pair.ends[CLIENT].open_call(pair.now, connection).expect("the channel is free again");
    pair.pass(Duration::from_secs(5));
    let server = pair.ends[SERVER].statistics();
    assert_eq!((server.calls_ended, server.calls_now, server.data_resent), (1, 0, 0));
    pair.ends[CLIENT].release(pair.now, next);
}

/// The client is alive, but sends no more data or does not read the reply.
#[test]
fn a_server_respects_the_idle_timeout() {
    for (seconds, takes) in [(60, false), (600, false), (60, true), (600, true)] {
        let (server_idle_time, almost) = (Duration::from_secs(seconds), Duration::from_secs(seconds - 5));
        let mut pair = Pair::configured(&EndpointConfig { server_idle_time, ..EndpointConfig::default() });
        let served = if takes {
            let (_, served) = pair.asked();
            let mut reply = Bytes::from(vec![1; EndpointConfig::default().send_queue_bytes]);
            pair.ends[SERVER].write(pair.now, served, &mut reply);
            served
        } else {
            pair.sending(3000);
            let served = pair.arrived();
            while matches!(pair.ends[SERVER].read(pair.now, served), Read::Data(_)) {}
            served
        };
        pair.pass(almost);
        let failed = |pair: &Pair| pair.ends[SERVER].statistics().calls_failed;
        assert_eq!(failed(&pair), 0, "{seconds} s, {takes}");
        pair.pass(Duration::from_secs(20));
        assert_eq!(failed(&pair), 1, "{seconds} s, {takes}");
        let end = pair.ends[SERVER].read(pair.now, served);
        assert_eq!(end, Read::Failed(AbortCode::RX_CALL_TIMEOUT), "{seconds} s, {takes}");
    }
}

#[test]
fn a_reply_longer_than_the_send_queue_ends_the_call() {
    let mut pair = Pair::new();
    let (call, served) = pair.asked();
    let long = Bytes::from(vec![1; EndpointConfig::default().send_queue_bytes + 1]);
    pair.ends[SERVER].reply(pair.now, served, long);
    pair.pass(2 * DELAY);
    assert_eq!(pair.ends[CLIENT].read(pair.now, call), Read::Failed(AbortCode::RX_PROTOCOL_ERROR));
    let server = pair.ends[SERVER].statistics();
    assert_eq!((server.calls_failed, server.calls_now, server.packets_now), (1, 0, 0));
}

#[test]
fn a_reply_to_a_call_that_has_failed_or_is_gone_changes_nothing() {
    let mut pair = Pair::new();
    let (call, served) = pair.asked();
    pair.ends[CLIENT].abort(pair.now, call, AbortCode::RX_USER_ABORT);
    pair.pass(2 * DELAY);
    for _ in 0..2 {
        pair.ends[SERVER].reply(pair.now, served, Bytes::from_static(b"answer"));
        pair.pass(2 * DELAY);
        let server = pair.ends[SERVER].statistics();
        assert_eq!((server.calls_failed, server.calls_ended, server.calls_now), (1, 0, 0));
    }
}

#[test]
fn an_immediate_next_call_replaces_the_last_acknowledgement() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    for round in 0..10 {
        let call = pair.answered(connection);
        pair.ends[CLIENT].release(pair.now, call);
        // The first reply is a ping that verifies the client's address.
        assert_eq!(pair.acks_sent(), 1, "in round {round}");
    }
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.acks_sent(), 2);
    let server = pair.ends[SERVER].statistics();
    assert_eq!((server.calls_ended, server.data_resent), (10, 0));
}

#[test]
fn connections_are_counted_by_side_as_long_as_they_are_there() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    let call = pair.answered(connection);
    pair.ends[CLIENT].release(pair.now, call);
    let counted = |pair: &Pair| {
        let ends = pair.ends.each_ref().map(Endpoint::statistics);
        ends.map(|end| (end.client_connections_now, end.server_connections_now, end.connections_now))
    };
    assert_eq!(counted(&pair), [(1, 0, 1), (0, 1, 1)]);
    pair.ends[CLIENT].close(pair.now, connection);
    // The server is not notified, and keeps the connection for a while.
    pair.pass(EndpointConfig::default().connection_lifetime + Duration::from_secs(60));
    assert_eq!(counted(&pair), [(0, 0, 0), (0, 0, 0)]);
}

#[test]
fn closing_acknowledges_received_data() {
    for opens_another in [false, true] {
        let mut pair = Pair::new();
        let connection = pair.connect();
        let call = pair.answered(connection);
        pair.ends[CLIENT].release(pair.now, call);
        if opens_another {
            pair.ends[CLIENT].open_call(pair.now, connection).expect("the channel is free again");
        }
        pair.ends[CLIENT].close_all(pair.now);
        pair.pass(2 * DELAY);
        let server = pair.ends[SERVER].statistics();
        assert_eq!((server.calls_ended, server.calls_now), (1, 0), "{opens_another}");
        assert_eq!(pair.ends[CLIENT].connection_error(connection), Some(AbortCode::RX_CALL_DEAD));
    }
}

#[test]
fn replies_are_under_way_until_they_are_acknowledged() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    let call = pair.answered(connection);
    assert_eq!(pair.ends[SERVER].replies_under_way(), 1);
    pair.ends[CLIENT].release(pair.now, call);
    pair.pass(Duration::from_millis(200));
    assert_eq!(pair.ends[SERVER].replies_under_way(), 0);
}

/// Restarted servers start at another serial number, which is lower for about half of these seeds.
const RESTARTS: u64 = 40;

#[test]
fn unread_packets_go_to_the_next_server() {
    for seed in 100..100 + RESTARTS {
        let mut pair = Pair::new();
        // The application of the first server never reads.
        let call = pair.sending(30_000);
        assert!(pair.ends[CLIENT].statistics().packets_sent[PacketType::Data as usize - 1] > 15);
        pair.restart_server(seed, DELAY * (seed as u32 % 3) * 700);
        pair.ends[CLIENT].write(pair.now, call, &mut Bytes::from(vec![2; 3000]));
        pair.ends[CLIENT].end(pair.now, call);
        pair.pass(Duration::from_secs(20));
        let served = pair.arrived();
        let mut all = pair.read_all(served);
        pair.pass(Duration::from_secs(20));
        all.extend(pair.read_all(served));
        assert!(all == [vec![1; 30_000], vec![2; 3000]].concat(), "seed {seed}: {} bytes", all.len());
        pair.ends[SERVER].reply(pair.now, served, Bytes::from_static(b"answer"));
        pair.pass(2 * DELAY);
        assert_eq!(pair.ends[CLIENT].read(pair.now, call), Read::Data(Bytes::from_static(b"answer")));
    }
}

#[test]
fn a_partly_read_call_fails_at_the_next_server() {
    for seed in 100..100 + RESTARTS {
        let mut pair = Pair::new();
        let call = pair.sending(30_000);
        let served = pair.arrived();
        assert!(!pair.read_all(served).is_empty());
        pair.pass(100 * DELAY);
        pair.restart_server(seed, DELAY * (seed as u32 % 3) * 700);
        pair.ends[CLIENT].write(pair.now, call, &mut Bytes::from(vec![2; 3000]));
        pair.ends[CLIENT].end(pair.now, call);
        pair.pass(Duration::from_secs(5));
        // If the call has not failed yet, the server waits for its beginning, and requests it repeatedly.
        let served = pair.arrived();
        assert!(!matches!(pair.ends[SERVER].read(pair.now, served), Read::Data(_)));
        pair.pass(Duration::from_secs(6));
        let failed =
            |event: &Event| matches!(event, Event::Failed(of, AbortCode::RX_CALL_DEAD) if *of == call);
        assert!(pair.events[CLIENT].iter().any(failed), "seed {seed}: {:?}", pair.events[CLIENT]);
    }
}

/// Every wake-up must advance the clock: an endpoint that keeps requesting the same time would keep its thread
/// from sleeping.
#[test]
fn idle_endpoints_sleep() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    for _ in 0..20 {
        let call = pair.answered(connection);
        pair.ends[CLIENT].release(pair.now, call);
    }
    pair.pass(Duration::from_secs(1));
    pair.wakes = [0; 2];
    pair.pass(Duration::from_secs(3600));
    // The server drops the connection, and both drop their peer.
    assert!(pair.wakes.iter().sum::<usize>() <= 10, "{:?} wake-ups in an idle hour", pair.wakes);
    assert_eq!(pair.ends[SERVER].poll_timeout(), None);
}

/// As when a server stops: calls in every stage are ended, but never released.
#[test]
fn stopped_endpoints_sleep() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    let mut calls: Vec<CallId> =
        (0..4).map(|_| pair.ends[CLIENT].open_call(pair.now, connection).expect("a free channel")).collect();
    for call in &calls[1..] {
        pair.ends[CLIENT].write(pair.now, *call, &mut Bytes::from_static(b"question"));
    }
    pair.ends[CLIENT].end(pair.now, calls[3]);
    pair.pass(Duration::from_secs(1));
    let served = std::mem::take(&mut pair.events[SERVER]);
    for event in served {
        if let Event::CallArrived { call, .. } = event {
            pair.ends[SERVER].abort(pair.now, call, AbortCode::RX_RESTARTING);
        }
    }
    pair.ends[CLIENT].close_all(pair.now);
    pair.drain();
    pair.wakes = [0; 2];
    pair.pass(Duration::from_secs(3600));
    assert!(pair.wakes.iter().sum::<usize>() <= 12, "{:?} wake-ups in a stopped hour", pair.wakes);
    assert_eq!(pair.ends.each_ref().map(Endpoint::poll_timeout), [None; 2]);
    let failed = |call: CallId| matches!(pair.ends[CLIENT].read(pair.now, call), Read::Failed(_));
    assert!(calls.drain(..).all(failed));
}

/// Makes a call whose request has been received and is not answered yet. Also returns the client's packets on
/// the wire.
fn asked(pair: &mut Pair) -> (CallId, Vec<Bytes>) {
    let connection = pair.connect();
    let call = pair.ends[CLIENT].open_call(pair.now, connection).expect("a free channel");
    pair.ends[CLIENT].write(pair.now, call, &mut Bytes::from_static(b"question"));
    pair.ends[CLIENT].end(pair.now, call);
    pair.drain();
    let sent = pair.wire.iter().map(|(_, _, packet)| packet.clone()).collect();
    pair.pass(Duration::from_millis(500));
    (call, sent)
}

const DEAD: Read = Read::Failed(AbortCode::RX_CALL_DEAD);

#[test]
fn a_call_to_a_dead_peer_ends_after_the_notice() {
    let mut pair = Pair::new();
    let (call, sent) = asked(&mut pair);
    pair.cut = true;
    pair.ends[CLIENT].handle_unreachable(pair.now, address(SERVER), &sent[0]);
    assert_eq!(pair.ends[CLIENT].read(pair.now, call), Read::Blocked);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.ends[CLIENT].read(pair.now, call), DEAD);
    assert_eq!(pair.ends[CLIENT].statistics().unreachable, 1);
}

#[test]
fn notices_end_other_calls_that_have_sent_something() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    let calls = [(); 3].map(|()| pair.ends[CLIENT].open_call(pair.now, connection).expect("a channel"));
    for call in &calls[..2] {
        pair.ends[CLIENT].write(pair.now, *call, &mut Bytes::from_static(b"question"));
        pair.ends[CLIENT].end(pair.now, *call);
    }
    pair.drain();
    let quote = pair.wire[0].2.clone();
    pair.cut = true;
    pair.ends[CLIENT].handle_unreachable(pair.now, address(SERVER), &quote);
    pair.pass(Duration::from_secs(1));
    let found = calls.map(|call| pair.ends[CLIENT].read(pair.now, call));
    assert_eq!(found, [DEAD, DEAD, Read::Blocked]);
}

#[test]
fn a_responding_peer_survives_false_notices() {
    let mut pair = Pair::new();
    let (call, sent) = asked(&mut pair);
    let acks = pair.acks_sent();
    for round in 1..=50 {
        // Twice, since a call that is in doubt already needs no second check.
        pair.ends[CLIENT].handle_unreachable(pair.now, address(SERVER), &sent[0]);
        pair.ends[CLIENT].handle_unreachable(pair.now, address(SERVER), &sent[0]);
        pair.pass(Duration::from_secs(1));
        assert_eq!(pair.ends[CLIENT].read(pair.now, call), Read::Blocked);
        assert!(pair.acks_sent() - acks <= round, "more than one ping per doubt");
    }
    let served = pair.arrived();
    pair.ends[SERVER].write(pair.now, served, &mut Bytes::from_static(b"answer"));
    pair.ends[SERVER].end(pair.now, served);
    pair.pass(2 * DELAY);
    assert_eq!(pair.ends[CLIENT].read(pair.now, call), Read::Data(Bytes::from_static(b"answer")));
}

/// A forger's change to a packet that it has not seen.
type Change = Box<dyn Fn(&mut Vec<u8>)>;

#[test]
fn notices_that_quote_nothing_of_ours_are_not_believed() {
    let with = |at: usize, change: u8| move |quote: &mut Vec<u8>| quote[at] ^= change;
    let serial = |to: fn(u32) -> u32| {
        move |quote: &mut Vec<u8>| {
            let field: &mut [u8; 4] = (&mut quote[16..20]).try_into().unwrap();
            *field = to(u32::from_be_bytes(*field)).to_be_bytes();
        }
    };
    let forgeries: [(&str, Change); 12] = [
        ("nothing", Box::new(Vec::clear)),
        ("too little", Box::new(|quote| quote.truncate(27))),
        ("another epoch", Box::new(with(3, 1))),
        ("another connection", Box::new(with(5, 1))),
        ("another channel", Box::new(with(7, 1))),
        ("another call", Box::new(with(11, 3))),
        ("no call", Box::new(with(11, 1))),
        ("a serial to come", Box::new(serial(|it| it + 1000))),
        ("a serial long gone", Box::new(serial(|it| it.wrapping_sub(5000)))),
        ("serial 0", Box::new(serial(|_| 0))),
        ("the server's", Box::new(with(21, 1))),
        ("no such type", Box::new(with(20, 0x80))),
    ];
    let mut pair = Pair::new();
    let (call, sent) = asked(&mut pair);
    pair.cut = true;
    for (what, change) in &forgeries {
        let mut quote = sent[0].to_vec();
        change(&mut quote);
        pair.ends[CLIENT].handle_unreachable(pair.now, address(SERVER), &quote);
        pair.pass(Duration::from_secs(1));
        assert_eq!(pair.ends[CLIENT].read(pair.now, call), Read::Blocked, "{what}");
    }
    pair.ends[CLIENT].handle_unreachable(pair.now, address(CLIENT), &sent[0]);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.ends[CLIENT].read(pair.now, call), Read::Blocked);
    assert_eq!(pair.ends[CLIENT].statistics().unreachable_ignored, forgeries.len() as u64 + 1);
    assert!(pair.ends[CLIENT].has_sent(address(SERVER), &sent[0]));
}

#[test]
fn no_notice_ends_a_clients_call_at_the_server() {
    let mut pair = Pair::new();
    let (_call, _) = asked(&mut pair);
    let served = pair.arrived();
    pair.ends[SERVER].write(pair.now, served, &mut Bytes::from_static(b"answer"));
    pair.ends[SERVER].end(pair.now, served);
    pair.drain();
    let quote = pair.wire[0].2.clone();
    assert!(pair.ends[SERVER].has_sent(address(CLIENT), &quote));
    pair.cut = true;
    pair.ends[SERVER].handle_unreachable(pair.now, address(CLIENT), &quote);
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.ends[SERVER].statistics().calls_failed, 0);
    pair.cut = false;
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.ends[SERVER].statistics().calls_ended, 1);
}

#[test]
fn a_notice_about_a_call_that_is_over_changes_nothing() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    let call = pair.ends[CLIENT].open_call(pair.now, connection).expect("a free channel");
    pair.ends[CLIENT].write(pair.now, call, &mut Bytes::from_static(b"question"));
    pair.ends[CLIENT].end(pair.now, call);
    pair.drain();
    let quote = pair.wire[0].2.clone();
    pair.ends[CLIENT].release(pair.now, call);
    let next = pair.ends[CLIENT].open_call(pair.now, connection).expect("a free channel");
    pair.ends[CLIENT].write(pair.now, next, &mut Bytes::from_static(b"question"));
    pair.ends[CLIENT].end(pair.now, next);
    pair.cut = true;
    pair.ends[CLIENT].handle_unreachable(pair.now, address(SERVER), &quote);
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.ends[CLIENT].read(pair.now, next), Read::Blocked);
}

/// Returns the server's ACKs on the wire: the first unacknowledged packet, and the reason.
fn server_acks(pair: &Pair) -> Vec<(u32, Reason)> {
    let to_client = pair.wire.iter().filter(|(_, to, _)| *to == CLIENT);
    let ack = |packet: &Bytes| {
        let (header, body) = rx_proto::header::parse(packet).ok()?;
        let ack = rx_proto::ack::parse(body).ok().filter(|_| header.kind == PacketType::Ack)?;
        Some((ack.first, ack.reason))
    };
    to_client.filter_map(|(_, _, packet)| ack(packet)).collect()
}

/// Every ACK sent before the reader has read would double the work of server and sender.
#[test]
fn a_waiting_reader_acknowledges_after_reading() {
    let mut pair = Pair::new();
    let call = pair.sending(200_000);
    let served = pair.arrived();
    let read_all = |pair: &mut Pair| {
        let mut packets = 0;
        while let Read::Data(_) = pair.ends[SERVER].read(pair.now, served) {
            packets += 1;
        }
        pair.drain();
        packets
    };
    while read_all(&mut pair) > 0 {
        pair.pass(300 * DELAY);
    }
    for comes_in_time in [true, false, true] {
        let before = pair.ends[SERVER].statistics().data_received;
        pair.ends[CLIENT].write(pair.now, call, &mut Bytes::from(vec![1; 40_000]));
        pair.ends[CLIENT].flush(pair.now, call);
        pair.drain();
        // Until the data has arrived, but no ACK.
        pair.pass(DELAY + DELAY / 2);
        assert!(pair.ends[SERVER].statistics().data_received > before + 16);
        assert_eq!(server_acks(&pair), []);
        if !comes_in_time {
            pair.now = pair.now + 2 * DELAY;
            pair.step();
            pair.drain();
            assert_eq!(server_acks(&pair).len(), 1, "the reader does not come");
        }
        let packets = read_all(&mut pair);
        assert!(packets > 16);
        assert_eq!(server_acks(&pair).len(), if comes_in_time { 1 } else { 2 });
        let reported = server_acks(&pair).pop().unwrap();
        let reason = if comes_in_time { Reason::Requested } else { Reason::Delay };
        assert_eq!(reported, (pair.ends[SERVER].statistics().data_received as u32 + 1, reason));
        while read_all(&mut pair) > 0 {
            pair.pass(300 * DELAY);
        }
        pair.pass(300 * DELAY);
    }
}

/// Data that fits into the provided buffers is acknowledged like data that was read. Data that does not fit
/// is acknowledged when there is space again, in one ACK for all of it.
#[test]
fn packets_with_room_are_acknowledged_and_others_wait() {
    const ROOM_BYTES: usize = 60_000;
    let mut pair = Pair::new();
    let call = pair.sending(40_000);
    let served = pair.arrived();
    let post_buffer = |pair: &mut Pair| {
        pair.ends[SERVER].post_buffer(pair.now, served, RecvBuffer::new(vec![0; ROOM_BYTES], 0..ROOM_BYTES));
        pair.drain();
    };
    let send = |pair: &mut Pair, bytes: usize| {
        let before = pair.ends[SERVER].statistics().data_received;
        pair.ends[CLIENT].write(pair.now, call, &mut Bytes::from(vec![1; bytes]));
        pair.ends[CLIENT].flush(pair.now, call);
        pair.drain();
        pair.pass(DELAY + DELAY / 2);
        assert!(pair.ends[SERVER].statistics().data_received > before + 6);
    };
    post_buffer(&mut pair);
    pair.pass(300 * DELAY);
    assert!(matches!(pair.ends[SERVER].take_filled(pair.now, served), Filled::Blocked));
    send(&mut pair, 10_000);
    let received = pair.ends[SERVER].statistics().data_received as u32;
    assert_eq!(server_acks(&pair), [(received + 1, Reason::Requested)], "it has found room");
    assert_eq!(pair.ends[SERVER].statistics().packets_now, 0);
    send(&mut pair, 10_000);
    pair.pass(300 * DELAY);
    send(&mut pair, 10_000);
    assert_eq!(server_acks(&pair), [], "nothing is told of what has no room");
    assert!(pair.ends[SERVER].statistics().packets_now > 6);
    let Filled::RecvBuffer(room) = pair.ends[SERVER].take_filled(pair.now, served) else {
        panic!("it is full")
    };
    assert_eq!((room.left(), room.filled()[ROOM_BYTES - 1]), (0, 1));
    post_buffer(&mut pair);
    let received = pair.ends[SERVER].statistics().data_received as u32;
    assert_eq!(server_acks(&pair), [(received + 1, Reason::Requested)]);
    assert_eq!(pair.ends[SERVER].statistics().packets_now, 0);
    assert!(matches!(pair.ends[SERVER].take_filled(pair.now, served), Filled::Blocked));
    pair.ends[CLIENT].end(pair.now, call);
    pair.drain();
    pair.pass(300 * DELAY);
    let Filled::RecvBuffer(room) = pair.ends[SERVER].take_filled(pair.now, served) else {
        panic!("nothing will come")
    };
    assert_eq!(room.filled().len(), 70_000 - ROOM_BYTES);
}

/// Packets in flight to a server are queued in its socket buffer, which all senders share.
#[test]
fn windows_shrink_while_many_calls_receive() {
    let mut pair = Pair::new();
    let first = pair.sending(40_000);
    let served = pair.arrived();
    assert!(pair.read_all(served).len() > 30_000);
    let alone = pair.window_offered(first).unwrap();
    assert!(alone > 4096 / 100, "{alone}");
    let others: Vec<CallId> = (0..99).map(|_| pair.sending(40_000)).collect();
    assert_eq!(pair.window_offered(first), Some(4096 / 100));
    for call in others {
        pair.ends[CLIENT].abort(pair.now, call, AbortCode(7));
    }
    pair.pass(20 * DELAY);
    for served in pair.events[SERVER].drain(..).collect::<Vec<_>>() {
        if let Event::Failed(call, _) = served {
            pair.ends[SERVER].release(pair.now, call);
        }
    }
    pair.pass(20 * DELAY);
    assert_eq!(pair.window_offered(first), Some(alone));
}

/// A call that waits for a worker holds as many packets as in OpenAFS, and its caller may send more as it is
/// read.
#[test]
fn windows_of_anonymous_callers_grow_as_they_are_read() {
    let mut pair = Pair::new();
    let call = pair.sending(400_000);
    let served = pair.arrived();
    let kept = |pair: &Pair| pair.ends[SERVER].statistics().packets_now;
    assert_eq!(kept(&pair), u64::from(UNREAD_WINDOW));
    let mut read = 0;
    let mut most = 0;
    while read < 400_000 {
        let more = pair.read_all(served).len();
        assert!(more > 0, "nothing more comes after {read} bytes");
        read += more;
        pair.ends[CLIENT].flush(pair.now, call);
        pair.pass(50 * DELAY);
        most = most.max(kept(&pair));
    }
    assert!(most >= 2 * u64::from(UNREAD_WINDOW), "{most}");
}

/// Many unread calls stay within the limit for anonymous callers, and each can still be served.
#[test]
fn unread_calls_of_anonymous_callers_share_a_bound() {
    let config = EndpointConfig { anonymous_packets_max: 200, ..EndpointConfig::default() };
    let mut pair = Pair::configured(&config);
    let calls: Vec<CallId> = (0..40).map(|_| pair.sending(40_000)).collect();
    let kept = pair.ends[SERVER].statistics().packets_now;
    assert!(kept <= 200 + 40, "{kept}");
    let arrived = pair.events[SERVER].drain(..).filter_map(|event| match event {
        Event::CallArrived { call, .. } => Some(call),
        _ => None,
    });
    let arrived: Vec<CallId> = arrived.collect();
    assert_eq!(arrived.len(), calls.len());
    for served in arrived {
        let mut read = 0;
        for _ in 0..1000 {
            read += pair.read_all(served).len();
            pair.pass(50 * DELAY);
        }
        assert_eq!(read, 40_000);
    }
}

#[test]
fn calls_from_a_lost_address_fail_immediately() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    let answered = pair.answered(connection);
    pair.ends[CLIENT].release(pair.now, answered);
    let asked = pair.ends[CLIENT].open_call(pair.now, connection).expect("a free channel");
    pair.ends[CLIENT].write(pair.now, asked, &mut Bytes::from_static(b"question"));
    pair.ends[CLIENT].end(pair.now, asked);
    pair.pass(4 * DELAY);
    let served = pair.arrived();
    let other = std::net::IpAddr::from([10, 0, 0, 9]);
    for (end, local) in [(CLIENT, other), (SERVER, address(SERVER).ip())] {
        pair.ends[end].handle_source_gone(pair.now, local);
        pair.pass(DELAY);
        assert_eq!(pair.ends[CLIENT].connection_error(connection), None, "another's address, or a server's");
    }
    pair.ends[CLIENT].handle_source_gone(pair.now, address(CLIENT).ip());
    pair.drain();
    assert_eq!(pair.ends[CLIENT].read(pair.now, asked), Read::Failed(AbortCode::RX_RESTARTING));
    assert_eq!(pair.ends[CLIENT].connection_error(connection), Some(AbortCode::RX_RESTARTING));
    let event = Event::ConnectionFailed(connection, AbortCode::RX_RESTARTING);
    assert!(pair.events[CLIENT].iter().any(|reported| format!("{reported:?}") == format!("{event:?}")));
    let next = pair.connect();
    pair.answered(next);
    let question = Read::Data(Bytes::from_static(b"question"));
    assert_eq!(pair.ends[SERVER].read(pair.now, served), question, "calls of clients go on");
}

/// Returns a configuration that remembers its predecessor for longer than the tests take.
fn successor() -> EndpointConfig {
    EndpointConfig { predecessor_memory: Duration::from_secs(60), ..EndpointConfig::default() }
}

impl Pair {
    /// Replaces the server by another process on the same port.
    fn replace_server(&mut self, config: EndpointConfig, seed: u64) {
        self.ends[SERVER] = Endpoint::new(config, seed, self.now);
        self.ends[SERVER].add_service(service());
        self.events[SERVER].clear();
    }

    /// Returns the code with which a call of the client failed.
    fn failure(&self, call: CallId) -> Option<AbortCode> {
        self.events[CLIENT].iter().find_map(|event| match event {
            Event::Failed(failed, code) if *failed == call => Some(*code),
            _ => None,
        })
    }
}

#[test]
fn a_held_call_is_served_by_the_next_process() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    let (under_way, served) = pair.asked();
    pair.pass(500 * DELAY);
    pair.ends[SERVER].hold_new_calls();
    let held = [connection, pair.connect()].map(|connection| {
        let call = pair.ends[CLIENT].open_call(pair.now, connection).unwrap();
        pair.ends[CLIENT].write(pair.now, call, &mut Bytes::from_static(b"question"));
        pair.ends[CLIENT].end(pair.now, call);
        call
    });
    pair.events[SERVER].clear();
    pair.pass(Duration::from_secs(1));
    pair.ends[SERVER].reply(pair.now, served, Bytes::from_static(b"answer"));
    pair.pass(4 * DELAY);
    assert_eq!(pair.ends[CLIENT].read(pair.now, under_way), Read::Data(Bytes::from_static(b"answer")));
    assert!(pair.ends[SERVER].statistics().calls_held > 0);
    assert!(!pair.events[SERVER].iter().any(|event| matches!(event, Event::CallArrived { .. })));
    pair.replace_server(successor(), 3);
    pair.pass(Duration::from_secs(10));
    let arrived = pair.events[SERVER].iter().filter(|event| matches!(event, Event::CallArrived { .. }));
    assert_eq!(arrived.count(), 2);
    assert_eq!(held.map(|call| pair.failure(call)), [None; 2]);
}

/// An address is given up while calls run there: they end, new ones wait for the host that has the address next.
#[test]
fn calls_are_held_at_one_address_only() {
    let (here, elsewhere) = (address(SERVER).ip(), address(CLIENT).ip());
    let mut pair = Pair::new();
    pair.ends[SERVER].hold_new_calls_at(elsewhere);
    let (under_way, served) = pair.asked();
    pair.ends[SERVER].hold_new_calls_at(here);
    let calls = |pair: &Pair| [here, elsewhere].map(|at| pair.ends[SERVER].calls_at(at));
    let connection = pair.connect();
    let held = pair.ends[CLIENT].open_call(pair.now, connection).unwrap();
    pair.ends[CLIENT].write(pair.now, held, &mut Bytes::from_static(b"question"));
    pair.ends[CLIENT].end(pair.now, held);
    pair.pass(Duration::from_secs(1));
    assert!(pair.events[SERVER].is_empty(), "{:?}", pair.events[SERVER]);
    assert_eq!(calls(&pair), [1, 0]);
    pair.ends[SERVER].reply(pair.now, served, Bytes::from_static(b"answer"));
    assert_eq!(calls(&pair), [1, 0], "the client has not acknowledged the reply");
    pair.pass(4 * DELAY);
    assert_eq!(pair.ends[CLIENT].read(pair.now, under_way), Read::Data(Bytes::from_static(b"answer")));
    pair.pass(Duration::from_secs(1));
    assert_eq!(calls(&pair), [0, 0]);
    assert!(pair.ends[SERVER].statistics().calls_held > 0);
    // The client has neither been answered nor given up.
    pair.ends[SERVER].succeed(pair.now, here);
    pair.pass(Duration::from_secs(5));
    let served = pair.arrived();
    pair.ends[SERVER].reply(pair.now, served, Bytes::from_static(b"later"));
    pair.pass(4 * DELAY);
    assert_eq!(pair.ends[CLIENT].read(pair.now, held), Read::Data(Bytes::from_static(b"later")));
    assert_eq!(pair.ends[SERVER].statistics().calls_orphaned, 0);
}

/// A host that gets an address back still holds the calls at those that it has given up.
#[test]
fn an_address_that_comes_back_is_the_only_one_served() {
    let mut pair = Pair::new();
    let here = address(SERVER).ip();
    pair.ends[SERVER].hold_new_calls_at(here);
    pair.ends[SERVER].succeed(pair.now, address(CLIENT).ip());
    let connection = pair.connect();
    let call = pair.ends[CLIENT].open_call(pair.now, connection).unwrap();
    pair.ends[CLIENT].end(pair.now, call);
    pair.pass(Duration::from_secs(1));
    assert!(pair.events[SERVER].is_empty() && pair.failure(call).is_none());
}

#[test]
fn a_call_of_a_process_that_is_gone_is_ended_soon() {
    for bytes in [8, 20_000, 2_000_000] {
        let mut pair = Pair::new();
        let connection = pair.connect();
        let call = pair.ends[CLIENT].open_call(pair.now, connection).unwrap();
        let mut request = Bytes::from(vec![1; bytes]);
        pair.ends[CLIENT].write(pair.now, call, &mut request);
        pair.ends[CLIENT].end(pair.now, call);
        pair.pass(6 * DELAY);
        // Lets acknowledged packets be dropped, while a part of a long request is still pending.
        let served = pair.arrived();
        pair.read_all(served);
        pair.pass(500 * DELAY);
        pair.replace_server(successor(), 3);
        pair.pass(Duration::from_secs(10));
        assert_eq!(pair.failure(call), Some(AbortCode::RX_RESTARTING), "{bytes} bytes");
        assert_eq!(pair.ends[SERVER].statistics().calls_orphaned, 1);
    }
}

/// A process that has run for long gets an address of another one, whose call a client waits for.
#[test]
fn a_call_at_an_address_that_has_moved_is_ended_soon() {
    for is_told in [false, true] {
        let mut pair = Pair::new();
        let mut heir = Endpoint::new(successor(), 3, pair.now);
        heir.add_service(service());
        pair.pass(Duration::from_secs(100));
        let (call, _) = pair.asked();
        pair.pass(500 * DELAY);
        if is_told {
            heir.succeed(pair.now, address(SERVER).ip());
        }
        pair.ends[SERVER] = heir;
        pair.events[SERVER].clear();
        pair.pass(Duration::from_secs(10));
        assert_eq!(pair.failure(call), is_told.then_some(AbortCode::RX_RESTARTING));
    }
}

/// A client's ping does not end the call if its first packet was lost.
#[test]
fn a_call_whose_first_packet_is_lost_is_no_orphan() {
    let mut pair = Pair::new();
    pair.replace_server(successor(), 3);
    // The first packet is retransmitted late without round-trip samples, and soon with them. Pings are
    // earlier in both cases.
    for (dead_seconds, is_known) in [(3, false), (1, true)] {
        let options = ConnectOptions {
            dead_time: Some(Duration::from_secs(dead_seconds)),
            ..ConnectOptions::default()
        };
        let path = Path::to(address(SERVER));
        let connection = pair.ends[CLIENT].connect(pair.now, path, SERVICE, None, options).unwrap();
        if is_known {
            pair.answered(connection);
        }
        let call = pair.ends[CLIENT].open_call(pair.now, connection).unwrap();
        pair.ends[CLIENT].write(pair.now, call, &mut Bytes::from_static(b"question"));
        pair.ends[CLIENT].end(pair.now, call);
        pair.drain();
        assert!(!pair.wire.is_empty());
        pair.wire.clear();
        let pings = pair.ends[CLIENT].statistics().pings_sent;
        pair.pass(Duration::from_secs(dead_seconds).mul_f32(0.9));
        assert!(pair.ends[CLIENT].statistics().pings_sent > pings, "no ping before the packet is sent again");
        assert_eq!(pair.failure(call), None);
        let served = pair.arrived();
        pair.ends[SERVER].reply(pair.now, served, Bytes::from_static(b"answer"));
        pair.pass(4 * DELAY);
        assert_eq!(pair.ends[CLIENT].read(pair.now, call), Read::Data(Bytes::from_static(b"answer")));
    }
    assert_eq!(pair.ends[SERVER].statistics().calls_orphaned, 0);
}

#[test]
fn pings_for_unknown_calls_are_not_answered_later() {
    let mut pair = Pair::new();
    let (call, _) = pair.asked();
    pair.pass(500 * DELAY);
    pair.replace_server(EndpointConfig::default(), 3);
    pair.pass(Duration::from_secs(20));
    assert_eq!(pair.failure(call), None);
    pair.pass(Duration::from_secs(20));
    assert_eq!(pair.failure(call), Some(AbortCode::RX_CALL_DEAD));
}

/// Asks for a reply of this length on a new connection, and lets the server write all of it. Returns whether the
/// server accepted the call.
fn ask_for(pair: &mut Pair, bytes: usize) -> bool {
    let connection = pair.connect();
    let call = pair.ends[CLIENT].open_call(pair.now, connection).expect("a free channel");
    pair.ends[CLIENT].write(pair.now, call, &mut Bytes::from_static(b"question"));
    pair.ends[CLIENT].end(pair.now, call);
    pair.cut = false;
    pair.pass(4 * DELAY);
    let arrived = pair.events[SERVER].drain(..).find_map(|event| match event {
        Event::CallArrived { call, .. } => Some(call),
        _ => None,
    });
    // From now on the client hears nothing, and acknowledges nothing.
    pair.cut = true;
    if let Some(served) = arrived {
        pair.ends[SERVER].reply(pair.now, served, Bytes::from(vec![1; bytes]));
    }
    pair.drain();
    pair.wire.clear();
    arrived.is_some()
}

#[test]
fn replies_that_are_not_acknowledged_are_bounded() {
    let bytes = EndpointConfig::default().send_queue_bytes;
    let mut pair = Pair::new();
    let most = UNREAD_ADDRESS_BYTES_MAX[1] as usize / bytes;
    let accepted = (0..2 * most).take_while(|_| ask_for(&mut pair, bytes)).count();
    assert_eq!(accepted, most);
    let server = pair.ends[SERVER].statistics();
    assert_eq!(server.unread_bytes_by_standing, [0, UNREAD_ADDRESS_BYTES_MAX[1], 0]);
    assert!(server.calls_refused > 0);
    // The client is considered dead after a while, and may call again.
    pair.pass(EndpointConfig::default().dead_time * 2);
    assert_eq!(pair.ends[SERVER].statistics().unread_bytes_by_standing, [0; 3]);
    pair.wire.clear();
    pair.events[SERVER].clear();
    assert!(ask_for(&mut pair, bytes));
}

#[test]
fn acknowledged_replies_do_not_count() {
    let bytes = EndpointConfig::default().send_queue_bytes;
    let mut pair = Pair::new();
    for _ in 0..3 * UNREAD_ADDRESS_BYTES_MAX[1] as usize / bytes {
        let (call, served) = pair.asked();
        pair.ends[SERVER].reply(pair.now, served, Bytes::from(vec![1; bytes]));
        let mut received = 0;
        while received < bytes {
            pair.pass(2 * DELAY);
            while let Read::Data(data) = pair.ends[CLIENT].read(pair.now, call) {
                received += data.len();
            }
        }
        pair.ends[CLIENT].release(pair.now, call);
        pair.pass(Duration::from_secs(1));
    }
    assert_eq!(pair.ends[SERVER].statistics().unread_bytes_by_standing, [0; 3]);
    assert_eq!(pair.ends[SERVER].statistics().calls_refused, 0);
}
