//! Seeded histories of the protocol's simulator, with loss: the observed traffic matches what the endpoints
//! report as sent.

use crate::{Filter, Limits, Link, Report, Sniffer, frame};
use base::{AbortCode, Monotonic};
use rx_proto::{EndpointConfig, PacketType, Statistics};
use sim::client::{Outcome, Plan};
use sim::pattern::{Manner, Request};
use sim::security::Class;
use sim::server::REFUSAL;
use sim::{Conditions, World};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(5);
const SEEDS: u64 = 40;

/// A world in which two clients call host 0, and the report of its traffic.
struct History {
    world: World,
    report: Report,
    plans: Vec<Plan>,
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    let SocketAddr::V4(address) = address else { panic!("{address} is not IPv4") };
    address
}

fn live(seed: u64, conditions: Conditions) -> History {
    let mut world = World::new(3, &EndpointConfig::default(), conditions, seed);
    world.tapped = Some(Vec::new());
    let plans: Vec<Plan> = (0..12).map(|place| plan(seed, place)).collect();
    for (place, some) in plans.chunks(6).enumerate() {
        let now = world.now;
        let host = &mut world.hosts[place + 1];
        let calls = some.to_vec().into();
        host.application.client.add(now, &mut host.endpoint, World::address(0), Class::Null, calls, now);
    }
    world.start();
    let end = world.now + Duration::from_secs(1200);
    world.run(end, World::is_idle);
    assert!(world.is_idle(), "seed {seed}: calls never end");
    for place in 0..world.hosts.len() {
        let now = world.now;
        let host = &mut world.hosts[place];
        host.application.client.close(now, &mut host.endpoint);
    }
    world.start();
    world.run(end + Duration::from_secs(3600), |_| false);
    let report = sniff(world.tapped.take().unwrap_or_default());
    History { world, report, plans }
}

fn plan(seed: u64, place: u64) -> Plan {
    let manner = if place == 5 { Manner::Refuse } else { Manner::Plain };
    let (length, reply_length) = match (seed + place) % 4 {
        0 => (0, 0),
        1 => (100, 70_000),
        2 => (50_000, 10),
        _ => (3000, 3000),
    };
    let request = Request { seed: seed << 16 | place, length, reply_length, manner, think_ms: 3 };
    Plan { request, give_up_at: None }
}

fn sniff(tapped: Vec<(Monotonic, sim::network::Datagram)>) -> Report {
    let mut sniffer = Sniffer::new(Filter::default(), Limits::default());
    for (at, datagram) in tapped {
        let bytes = &datagram.bytes;
        let packet = frame::encode(v4(datagram.from), v4(datagram.to), bytes, bytes.len());
        sniffer.frame(at.0, Link::Raw, &packet);
    }
    sniffer.report()
}

fn outcomes(history: &History) -> Vec<Outcome> {
    let clients = history.world.hosts.iter().map(|host| &host.application.client.outcomes);
    clients.flat_map(|outcomes| outcomes.values().copied()).collect()
}

/// Compares packets by type, and data packets by kind, with the endpoints' counts.
fn check_packets(seed: u64, history: &History) {
    let report = &history.report;
    let mut sent = Statistics::default();
    history.world.hosts.iter().for_each(|host| sent += host.endpoint.statistics());
    let of = |kind: PacketType| sent.packets_sent[kind.index()];
    let seen = |name: &str| report.packets.get(name).copied().unwrap_or(0);
    let types = [
        ("data", PacketType::Data),
        ("ack", PacketType::Ack),
        ("abort", PacketType::Abort),
        ("busy", PacketType::Busy),
    ];
    for (name, kind) in types {
        assert_eq!(seen(name), of(kind), "seed {seed}: {name}");
    }
    let (client, server) = (report.total.from_client, report.total.from_server);
    assert_eq!(client.data + server.data, sent.data_sent + sent.data_resent, "seed {seed}");
    assert_eq!(client.retransmitted + server.retransmitted, sent.data_resent, "seed {seed}");
    assert_eq!((client.repeated, server.repeated), (0, 0), "seed {seed}");
    assert_eq!(client.acks + server.acks, of(PacketType::Ack), "seed {seed}");
}

/// Compares calls, their results and their bytes with the clients' counts.
fn check_calls(seed: u64, history: &History) {
    let report = &history.report;
    let total = report.total.calls;
    let outcomes = outcomes(history);
    let count = |is: &dyn Fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count() as u64;
    assert_eq!((total.calls, report.open), (history.plans.len() as u64, 0), "seed {seed}");
    assert_eq!(count(&|outcome| *outcome == Outcome::Replied), total.calls - total.aborted, "seed {seed}");
    let refused = count(&|outcome| *outcome == Outcome::Failed(REFUSAL));
    let aborts: Vec<_> = report.aborts.iter().map(|row| (AbortCode(row.code), row.calls)).collect();
    assert_eq!(aborts, [(REFUSAL, refused)], "seed {seed}");
    let requests: usize =
        history.plans.iter().map(|plan| sim::pattern::REQUEST_BYTES + plan.request.length).sum();
    let replied = history.plans.iter().filter(|plan| plan.request.manner == Manner::Plain);
    let replies: usize = replied.map(|plan| plan.request.reply_length).sum();
    assert_eq!((total.request_bytes, total.reply_bytes), (requests as u64, replies as u64), "seed {seed}");
    assert_eq!(total.missing, 0, "seed {seed}");
}

/// Checks that the rows of each table sum up to the total.
fn check_tables(seed: u64, report: &Report) {
    let total = report.total.calls.calls;
    let sums = [
        report.calls.iter().map(|row| row.counts.calls).sum::<u64>(),
        report.servers.iter().map(|row| row.traffic.calls.calls).sum(),
        report.clients.iter().map(|row| row.traffic.calls.calls).sum(),
        report.clients.iter().flat_map(|row| row.kinds.values()).sum(),
    ];
    assert_eq!(sums, [total; 4], "seed {seed}");
    assert_eq!((report.servers.len(), report.clients.len()), (1, 2), "seed {seed}");
}

#[test]
fn the_sniffer_sees_all_sent_data() {
    for seed in 1..=SEEDS {
        let mut conditions = Conditions::perfect(DELAY);
        if seed % 4 != 0 {
            conditions.loss = 0.05;
            conditions.reordering = 0.05;
            conditions.duplication = 0.02;
        }
        let history = live(seed, conditions);
        check_packets(seed, &history);
        check_calls(seed, &history);
        check_tables(seed, &history.report);
    }
}

#[test]
fn times_are_those_of_the_network_and_the_server() {
    let history = live(4, Conditions::perfect(DELAY));
    assert_eq!(history.report.total.from_client.retransmitted, 0);
    for row in &history.report.calls {
        // Captured at the sender, the latency includes the request's way to the server and the server's
        // processing time. A long request has not arrived completely when processing starts.
        let first = row.first;
        assert!(first.p50_us >= 8000 && first.max_us < 100_000, "{}: {first:?}", row.kind);
    }
    let trips = history.report.total.from_server;
    assert!(trips.round_trips_us >= 5000 * trips.round_trips, "{trips:?}");
}
