//! Throughput of long calls over long, lossy and narrow paths, and how two of them share a path.
//!
//! `cargo test --release -p sim --test paths -- --ignored --nocapture` prints the table of
//! docs/lab/benchmarks.md.

use base::{Monotonic, UnixTime};
use bytes::Bytes;
use rx_proto::{
    CallId, ConnectOptions, Endpoint, EndpointConfig, Event, Path, Read, ServiceConfig, Statistics, Write,
};
use sim::network::{Datagram, Parcel};
use sim::{Conditions, Network};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const SERVICE: u16 = 5;
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// A piece of the endless data to send.
static DATA: [u8; 64 * 1024] = [7; 64 * 1024];

fn address(end: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1 + end as u8), 7000))
}

/// Returns a path with this rate in Mbit/s, round-trip time, loss and queueing delay.
fn path(megabits: u64, round_trip_ms: f64, loss: f64, queue_ms: u64) -> Conditions {
    let delay = Duration::from_secs_f64(round_trip_ms / 2000.0);
    let queue = Duration::from_millis(queue_ms);
    Conditions { rate: Some(megabits * 125_000), loss, queue, ..Conditions::perfect(delay) }
}

/// A client that sends endlessly in each of its calls, and a server that reads.
struct Transfer {
    now: Monotonic,
    ends: [Endpoint; 2],
    network: Network,
    sending: Vec<CallId>,
    receiving: Vec<CallId>,
    /// Bytes read of each call, in order of arrival.
    read: Vec<u64>,
}

impl Transfer {
    fn begin(configs: [&EndpointConfig; 2], conditions: Conditions, seed: u64) -> Transfer {
        let now = Monotonic(1_000_000_000);
        let mut ends =
            [CLIENT, SERVER].map(|end| Endpoint::new(configs[end].clone(), seed + end as u64, now));
        let security = vec![std::sync::Arc::new(rx_security::Null) as _];
        ends[SERVER].add_service(ServiceConfig { id: SERVICE, name: String::from("paths"), security });
        let network = Network::new(conditions, seed);
        Transfer { now, ends, network, sending: Vec::new(), receiving: Vec::new(), read: Vec::new() }
    }

    fn add_call(&mut self) {
        let client = &mut self.ends[CLIENT];
        let options = ConnectOptions::default();
        let connection = client.connect(self.now, Path::to(address(SERVER)), SERVICE, None, options).unwrap();
        self.sending.push(client.open_call(self.now, connection).unwrap());
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.work();
            let timeouts = self.ends.iter().filter_map(Endpoint::poll_timeout);
            let next = timeouts.chain(self.network.next_arrival()).min().unwrap_or(end);
            self.now = self.now.max(next).min(end);
            while let Some(parcel) = self.network.arrived(self.now) {
                let Parcel::Datagram(datagram) = parcel else { continue };
                let to = usize::from(datagram.to == address(SERVER));
                let path = Path { remote: datagram.from, local: Some(datagram.to.ip()) };
                self.ends[to].handle_datagram(self.now, UnixTime(1), path, datagram.bytes);
            }
            for end in &mut self.ends {
                if end.poll_timeout().is_some_and(|at| at <= self.now) {
                    end.handle_timeout(self.now);
                }
            }
        }
    }

    /// Runs both applications, and sends the endpoints' datagrams.
    fn work(&mut self) {
        while let Some(event) = self.ends[SERVER].poll_event() {
            if let Event::CallArrived { call, .. } = event {
                self.receiving.push(call);
                self.read.push(0);
            }
        }
        while self.ends[CLIENT].poll_event().is_some() {}
        for call in &self.sending {
            while let Write::Accepted(1..) =
                self.ends[CLIENT].write(self.now, *call, &mut Bytes::from_static(&DATA))
            {}
        }
        for (call, read) in self.receiving.iter().zip(&mut self.read) {
            while let Read::Data(data) = self.ends[SERVER].read(self.now, *call) {
                *read += data.len() as u64;
            }
        }
        for end in [CLIENT, SERVER] {
            while let Some(transmit) = self.ends[end].poll_transmit(self.now) {
                for bytes in transmit.datagrams().map(Bytes::from) {
                    let datagram = Datagram { from: address(end), to: address(1 - end), bytes };
                    self.network.send(self.now, datagram);
                }
            }
        }
    }

    fn sent(&self) -> &Statistics {
        self.ends[CLIENT].statistics()
    }
}

/// Returns a call's payload rate in Mbit/s during its first `seconds`, and the fraction of packets
/// retransmitted.
fn rate(configs: [&EndpointConfig; 2], conditions: Conditions, seed: u64, seconds: u32) -> (f64, f64) {
    let mut transfer = Transfer::begin(configs, conditions, seed);
    transfer.add_call();
    transfer.run(Duration::from_secs(seconds.into()));
    let Statistics { data_sent, data_resent, .. } = transfer.sent();
    let again = f64::from(*data_resent as u32) / f64::from(*data_sent as u32);
    (megabits(transfer.read.iter().sum(), seconds), again)
}

/// Converts bytes in a number of seconds to Mbit/s.
fn megabits(bytes: u64, seconds: u32) -> f64 {
    f64::from((bytes / 1000) as u32) * 8e-3 / f64::from(seconds)
}

fn default_rate(conditions: Conditions) -> (f64, f64) {
    let config = EndpointConfig::default();
    rate([&config, &config], conditions, 1, 4)
}

#[test]
fn a_long_path_is_filled() {
    let (rate, again) = default_rate(path(400, 20.0, 0.0, 20));
    assert!(rate > 300.0 && again < 0.03, "{rate} {again}");
}

#[test]
fn losses_do_not_empty_a_far_path() {
    let (rate, again) = default_rate(path(400, 20.0, 0.01, 20));
    assert!(rate > 200.0 && again < 0.04, "{rate} {again}");
}

/// Without pacing, filling a gap releases a burst that overflows the path. And if new round-trip measurements
/// replaced the oldest ones, no round trip would ever be measured, and the path would appear full forever.
#[test]
fn no_seed_keeps_a_far_path_empty() {
    let config = EndpointConfig::default();
    for seed in 1..=3 {
        let (rate, again) = rate([&config, &config], path(200, 100.0, 0.005, 40), seed, 8);
        assert!(rate > 100.0 && again < 0.03, "{seed}: {rate} {again}");
    }
}

#[test]
fn nothing_is_lost_by_a_short_path() {
    let (rate, again) = default_rate(path(200, 0.2, 0.0, 50));
    assert!(rate > 190.0 && again == 0.0, "{rate} {again}");
}

#[test]
fn a_path_with_little_room_is_used_and_not_flooded() {
    let (rate, again) = default_rate(path(50, 20.0, 0.0, 4));
    assert!(rate > 40.0 && again < 0.01, "{rate} {again}");
}

/// A window of 255 packets of 1,444 bytes per 20 ms is 147 Mbit/s.
#[test]
fn a_peer_with_a_smaller_window_has_it() {
    let old = EndpointConfig { receive_window_packets: 255, ..EndpointConfig::default() };
    let mut transfer = Transfer::begin([&EndpointConfig::default(), &old], path(400, 20.0, 0.0, 20), 1);
    transfer.add_call();
    transfer.run(Duration::from_secs(4));
    let rate = megabits(transfer.read[0], 4);
    assert!((135.0..148.0).contains(&rate), "{rate}");
    assert_eq!(transfer.ends[SERVER].statistics().data_beyond_window, 0);
    // The window is full before the first packets of a round trip are acknowledged, about 200 times.
    let [sender, receiver] = [CLIENT, SERVER].map(|end| transfer.ends[end].peers().0[0].counters);
    assert!(sender.stalls > 100 && sender.stalls <= sender.sent, "{sender:?}");
    assert_eq!((receiver.stalls, sender.resent), (0, 0));
}

#[test]
fn a_large_window_rarely_holds_data_back() {
    let config = EndpointConfig::default();
    let mut transfer = Transfer::begin([&config, &config], path(50, 1.0, 0.0, 20), 1);
    transfer.add_call();
    transfer.run(Duration::from_secs(1));
    assert!(transfer.read[0] > 1 << 20);
    // Until the sender knows the window, and while packets behind a lost one fill it.
    let counters = transfer.ends[CLIENT].peers().0[0].counters;
    assert!(counters.stalls < 50 && counters.sent > 1000, "{counters:?}");
}

#[test]
fn a_late_flow_gets_a_share() {
    let config = EndpointConfig::default();
    let mut transfer = Transfer::begin([&config, &config], path(200, 20.0, 0.0, 40), 1);
    transfer.add_call();
    transfer.run(Duration::from_secs(4));
    transfer.add_call();
    transfer.run(Duration::from_secs(4));
    let before = transfer.read.clone();
    transfer.run(Duration::from_secs(4));
    let read = [0, 1].map(|call| megabits(transfer.read[call] - before[call], 4));
    assert!(read.iter().sum::<f64>() > 170.0 && read[1] > 50.0 && read[0] > 50.0, "{read:?}");
}

#[test]
#[ignore = "prints a table, for minutes"]
fn print_the_rates_of_paths() {
    println!("| Mbit/s, round trip, queue | loss | Mbit/s of payload | sent again |");
    println!("|---|---|---|---|");
    for (rate_max, round_trip_ms, queue_ms) in
        [(1000, 0.2, 5), (1000, 20.0, 20), (200, 230.0, 100), (100, 20.0, 2), (20, 230.0, 20)]
    {
        for loss in [0.0, 0.001, 0.01] {
            let config = EndpointConfig::default();
            let conditions = path(rate_max, round_trip_ms, loss, queue_ms);
            let tries = [1, 2, 3].map(|seed| rate([&config, &config], conditions.clone(), seed, 20));
            let [mut rates, mut again] = [tries.map(|(rate, _)| rate), tries.map(|(_, again)| again)];
            rates.sort_by(f64::total_cmp);
            again.sort_by(f64::total_cmp);
            println!(
                "| {rate_max}, {round_trip_ms} ms, {queue_ms} ms | {loss} | {:.1} ({:.1}..{:.1}) | {:.2} % |",
                rates[1],
                rates[0],
                rates[2],
                again[1] * 100.0
            );
        }
    }
}
