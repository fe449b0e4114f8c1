//! Two endpoints and a perfect wire, step by step.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::{AbortCode, Monotonic, UnixTime};
use bytes::Bytes;
use rx_proto::{
    CallId, ConnectOptions, ConnectionId, Endpoint, EndpointConfig, Event, PacketType, Path, Read,
    ServiceConfig,
};

const SERVICE: u16 = 5;
const DELAY: Duration = Duration::from_millis(1);

/// A client and a server. What one sends the other gets after [`DELAY`].
struct Pair {
    now: Monotonic,
    ends: [Endpoint; 2],
    wire: Vec<(Monotonic, usize, Bytes)>,
    events: [Vec<Event>; 2],
    wakes: [usize; 2],
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn address(end: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1 + end as u8), 7000))
}

impl Pair {
    fn new() -> Pair {
        let now = Monotonic(1);
        let config = EndpointConfig::default();
        let mut ends = [1, 2].map(|seed| Endpoint::new(config.clone(), seed, now));
        let security = vec![std::sync::Arc::new(rx_security::Null) as _];
        ends[SERVER].add_service(ServiceConfig { id: SERVICE, name: String::from("pair"), security });
        Pair { now, ends, wire: Vec::new(), events: [Vec::new(), Vec::new()], wakes: [0; 2] }
    }

    fn connect(&mut self) -> ConnectionId {
        let path = Path::to(address(SERVER));
        self.ends[CLIENT].connect(self.now, path, SERVICE, None, ConnectOptions::default()).unwrap()
    }

    /// Takes what the endpoints have to say.
    fn drain(&mut self) {
        for end in [CLIENT, SERVER] {
            while let Some(transmit) = self.ends[end].poll_transmit(self.now) {
                let packets = transmit.packets.iter().map(|packet| Bytes::from(packet.to_vec()));
                self.wire.extend(packets.map(|packet| (self.now + DELAY, 1 - end, packet)));
            }
            self.events[end].extend(std::iter::from_fn(|| self.ends[end].poll_event()));
        }
    }

    /// Lets time pass.
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
        for (_, to, packet) in due {
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

    /// A call that has been answered; not released by the client.
    fn answered(&mut self, connection: ConnectionId) -> CallId {
        let call = self.ends[CLIENT].open_call(self.now, connection).expect("a free channel");
        self.ends[CLIENT].write(self.now, call, &mut Bytes::from_static(b"question"));
        self.ends[CLIENT].end(self.now, call);
        self.pass(2 * DELAY);
        let served = self.arrived();
        self.ends[SERVER].write(self.now, served, &mut Bytes::from_static(b"answer"));
        self.ends[SERVER].end(self.now, served);
        self.ends[SERVER].release(self.now, served);
        self.pass(2 * DELAY);
        assert_eq!(self.ends[CLIENT].read(self.now, call), Read::Data(Bytes::from_static(b"answer")));
        assert_eq!(self.ends[CLIENT].read(self.now, call), Read::End);
        call
    }

    fn arrived(&mut self) -> CallId {
        let arrived = self.events[SERVER].drain(..).find_map(|event| match event {
            Event::CallArrived { call, .. } => Some(call),
            _ => None,
        });
        arrived.expect("a call")
    }

    fn acks_sent(&self) -> u64 {
        self.ends[CLIENT].statistics().packets_sent[PacketType::Ack as usize - 1]
    }
}

#[test]
fn the_last_reply_is_acknowledged_in_time_though_the_next_call_has_nothing_to_say_yet() {
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

#[test]
fn a_next_call_that_speaks_at_once_makes_the_last_acknowledgement_superfluous() {
    let mut pair = Pair::new();
    let connection = pair.connect();
    for round in 0..10 {
        let call = pair.answered(connection);
        pair.ends[CLIENT].release(pair.now, call);
        // The first reply of all asks whether the client is where it says.
        assert_eq!(pair.acks_sent(), 1, "in round {round}");
    }
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.acks_sent(), 2);
    let server = pair.ends[SERVER].statistics();
    assert_eq!((server.calls_ended, server.data_resent), (10, 0));
}

#[test]
fn closing_acknowledges_what_has_been_received() {
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
    let first = pair.answered(connection);
    pair.ends[CLIENT].release(pair.now, first);
    assert_eq!(pair.ends[SERVER].replies_under_way(), 0, "the first reply is acknowledged at once");
    let call = pair.answered(connection);
    assert_eq!(pair.ends[SERVER].replies_under_way(), 1);
    pair.ends[CLIENT].release(pair.now, call);
    pair.pass(Duration::from_millis(200));
    assert_eq!(pair.ends[SERVER].replies_under_way(), 0);
}

/// Every wake-up must move time on: an endpoint that asked for the same moment again and again once
/// kept its thread from sleeping.
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
    // The server forgets the connection, and both forget their peer.
    assert!(pair.wakes.iter().sum::<usize>() <= 10, "{:?} wake-ups in an idle hour", pair.wakes);
    assert_eq!(pair.ends[SERVER].poll_timeout(), None);
}

/// As when a server stops: calls in every stage are ended, and nobody comes to release them.
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
