//! Hosts, a network, and a virtual clock.

use std::net::{Ipv4Addr, SocketAddr};

use base::{Monotonic, UnixTime};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rx_proto::limits::AMPLIFICATION_MAX;
use rx_proto::{Endpoint, EndpointConfig, Flags, Path, ServiceConfig};

use crate::application::Application;
use crate::client::SERVICE;
use crate::hijackers::{Forgery, Hijackers, is_attacker};
use crate::network::{Conditions, Datagram, Network, Notice, Parcel};
use crate::security;

/// Maximum number of steps at the same time before the simulation is considered stuck.
const ROUNDS_MAX: u32 = 100_000;

/// Wall-clock time at the start of a world.
const DAWN: u32 = 1_700_000_000;

/// A simulated host.
#[derive(Debug)]
pub struct Host {
    /// Address of the host.
    pub address: SocketAddr,
    /// Another address of the host, at which it receives as well.
    second: SocketAddr,
    /// Whether requests with a security class leave from the second address.
    moved: bool,
    /// Bytes that may still be sent to attackers: three times what came from them.
    attackers_credit_bytes: i64,
    /// The host's Rx endpoint.
    pub endpoint: Endpoint,
    /// The application on the host.
    pub application: Application,
    /// Number of times that the endpoint's timer expired.
    pub timer_wakes: u64,
    traced: bool,
}

/// The simulated world.
#[derive(Debug)]
pub struct World {
    /// Current time.
    pub now: Monotonic,
    /// The hosts; host n has address 10.0.0.(n + 1).
    pub hosts: Vec<Host>,
    /// Every sent datagram with its time, before the network changes it. Recorded only if not `None`.
    pub tapped: Option<Vec<(Monotonic, Datagram)>>,
    /// Attackers who see all datagrams between the hosts.
    pub hijackers: Option<Hijackers>,
    /// When hosts begin to send requests from their second addresses, or return to the first ones.
    pub moves: Vec<(Monotonic, usize)>,
    network: Network,
    rounds: u32,
}

impl World {
    /// Creates idle hosts that offer [`SERVICE`].
    pub fn new(hosts: usize, config: &EndpointConfig, conditions: Conditions, seed: u64) -> World {
        let mut random = SmallRng::seed_from_u64(seed);
        let now = Monotonic(1);
        let hosts = (0..hosts).map(|place| Host::new(place, config, random.random(), now)).collect();
        let network = Network::new(conditions, random.random());
        World { now, hosts, tapped: None, hijackers: None, moves: Vec::new(), network, rounds: 0 }
    }

    /// Returns the wall-clock time.
    fn wall(&self) -> UnixTime {
        UnixTime(DAWN + (self.now.0 / 1_000_000_000) as u32)
    }

    /// Runs until `end`, until no events are left, or until `done` returns true. Returns the time at which it
    /// stopped.
    pub fn run(&mut self, end: Monotonic, done: impl Fn(&World) -> bool) -> Monotonic {
        while !done(self) {
            let next = self.next();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.rounds = if next > self.now { 0 } else { self.rounds + 1 };
            assert!(self.rounds < ROUNDS_MAX, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            self.step();
        }
        self.now
    }

    fn next(&self) -> Option<Monotonic> {
        let hosts =
            self.hosts.iter().flat_map(|host| [host.endpoint.poll_timeout(), host.application.next_wake()]);
        let moves = self.moves.iter().map(|(at, _)| *at).min();
        hosts.chain([self.network.next_arrival(), moves]).flatten().min()
    }

    fn step(&mut self) {
        let (now, wall) = (self.now, self.wall());
        self.apply_moves(now);
        let mut run: Vec<Datagram> = Vec::new();
        while let Some(parcel) = self.network.arrived(now) {
            match parcel {
                Parcel::Datagram(datagram) => {
                    if !follows(&run, &datagram) {
                        self.deliver(now, wall, std::mem::take(&mut run));
                    }
                    run.push(datagram);
                }
                Parcel::Notice(Notice { to, about, quote }) => {
                    self.deliver(now, wall, std::mem::take(&mut run));
                    if let Some(host) = self.hosts.iter_mut().find(|host| host.is_at(to)) {
                        host.endpoint.handle_unreachable(now, about, &quote);
                    }
                }
            }
        }
        self.deliver(now, wall, run);
        for host in &mut self.hosts {
            host.run_timers(now);
            if host.application.next_wake().is_some_and(|at| at <= now) {
                host.application.wake(now, &mut host.endpoint);
            }
            let mut wire =
                Wire { network: &mut self.network, tapped: &mut self.tapped, hijackers: &mut self.hijackers };
            host.drain(now, &mut wire);
            host.check_timeout(now, &mut wire);
        }
    }

    /// Delivers consecutive datagrams from one host to another. Every other host has a kernel that merges
    /// them.
    fn deliver(&mut self, now: Monotonic, wall: UnixTime, run: Vec<Datagram>) {
        let Some(first) = run.first() else { return };
        let host = self.hosts.iter_mut().enumerate().find(|(_, host)| host.is_at(first.to));
        let Some((place, host)) = host else {
            for datagram in &run {
                self.network.refuse(now, datagram);
            }
            return;
        };
        let path = Path { remote: first.from, local: Some(host.address.ip()) };
        if is_attacker(first.from) {
            let bytes: usize = run.iter().map(|datagram| datagram.bytes.len()).sum();
            host.attackers_credit_bytes += AMPLIFICATION_MAX as i64 * bytes as i64;
        }
        host.endpoint.prefetch(run.iter().map(|datagram| (&path, &*datagram.bytes)));
        if place % 2 == 1 && run.len() > 1 {
            let all: Vec<u8> = run.iter().flat_map(|datagram| &datagram.bytes[..]).copied().collect();
            host.endpoint.handle_run(now, wall, path, all.into(), first.bytes.len());
            return;
        }
        for datagram in run {
            host.endpoint.handle_datagram(now, wall, path, datagram.bytes);
        }
    }

    /// Returns the address of host n. Addresses beyond the last host are closed.
    pub fn address(place: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(10, 0, 0, place as u8 + 1), 7000))
    }

    /// Returns the second address of host n.
    fn second_address(place: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(10, 9, 0, place as u8 + 1), 7000))
    }

    fn apply_moves(&mut self, now: Monotonic) {
        for (_, place) in self.moves.extract_if(.., |(at, _)| *at <= now) {
            self.hosts[place].moved = !self.hosts[place].moved;
        }
    }

    /// Starts the calls planned since the last step.
    pub fn start(&mut self) {
        for host in &mut self.hosts {
            host.application.wake(self.now, &mut host.endpoint);
            host.drain(
                self.now,
                &mut Wire {
                    network: &mut self.network,
                    tapped: &mut self.tapped,
                    hijackers: &mut self.hijackers,
                },
            );
        }
    }

    /// Whether every planned call has ended.
    pub fn is_idle(&self) -> bool {
        self.hosts.iter().all(|host| host.application.client.is_idle())
    }
}

/// Whether a kernel may merge a datagram with the previous ones.
fn follows(run: &[Datagram], datagram: &Datagram) -> bool {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return true };
    let (bytes, most) = (datagram.bytes.len(), first.bytes.len());
    (first.from, first.to) == (datagram.from, datagram.to)
        && last.bytes.len() == most
        && (1..=most).contains(&bytes)
}

/// The network that hosts send to.
struct Wire<'a> {
    network: &'a mut Network,
    tapped: &'a mut Option<Vec<(Monotonic, Datagram)>>,
    hijackers: &'a mut Option<Hijackers>,
}

impl Wire<'_> {
    fn send(&mut self, now: Monotonic, datagram: Datagram) {
        if let Some(tapped) = self.tapped {
            tapped.push((now, datagram.clone()));
        }
        let forgeries = self.hijackers.as_mut().map(|hijackers| hijackers.observe(&datagram));
        self.network.send(now, datagram);
        for Forgery { datagram, overtakes } in forgeries.into_iter().flatten() {
            if overtakes {
                self.network.overtake(now, datagram);
            } else {
                self.network.send(now, datagram);
            }
        }
    }
}

impl Host {
    fn new(place: usize, config: &EndpointConfig, seed: u64, now: Monotonic) -> Host {
        let mut endpoint = Endpoint::new(config.clone(), seed, now);
        let name = String::from("simulated");
        endpoint.add_service(ServiceConfig { id: SERVICE, name, security: security::server_classes() });
        Host {
            address: World::address(place),
            second: World::second_address(place),
            moved: false,
            attackers_credit_bytes: 0,
            endpoint,
            application: Application::new(seed.wrapping_add(1)),
            timer_wakes: 0,
            traced: std::env::var_os("CELLAR_SIM_TRACE").is_some(),
        }
    }

    fn is_at(&self, address: SocketAddr) -> bool {
        self.address == address || self.second == address
    }

    /// Returns the address that a datagram leaves from.
    fn source(&self, bytes: &[u8]) -> SocketAddr {
        let moves = rx_proto::header::parse(bytes).is_ok_and(|(header, _)| {
            header.flags.contains(Flags::CLIENT_INITIATED) && header.security_index != 0
        });
        if self.moved && moves { self.second } else { self.address }
    }

    fn run_timers(&mut self, now: Monotonic) -> bool {
        let due = self.endpoint.poll_timeout().is_some_and(|at| at <= now);
        if due {
            self.timer_wakes += 1;
            self.endpoint.handle_timeout(now);
        }
        due
    }

    /// Checks that the timer makes progress. It may expire without effect (timers are moved lazily), but not
    /// repeatedly at the same time, or a driver would never sleep.
    fn check_timeout(&mut self, now: Monotonic, wire: &mut Wire<'_>) {
        if self.run_timers(now) {
            self.drain(now, wire);
        }
        let next = self.endpoint.poll_timeout();
        assert!(next.is_none_or(|at| at > now), "at {now:?} a timer is due again at {next:?}");
    }

    /// Passes events to the application and packets to the network until there are none.
    fn drain(&mut self, now: Monotonic, wire: &mut Wire<'_>) {
        loop {
            let mut idle = true;
            while let Some(event) = self.endpoint.poll_event() {
                self.application.handle(now, &mut self.endpoint, &event);
                idle = false;
            }
            while let Some(transmit) = self.endpoint.poll_transmit(now) {
                self.send(now, &transmit, wire);
                self.endpoint.recycle(transmit);
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    fn send(&mut self, now: Monotonic, transmit: &rx_proto::Transmit, wire: &mut Wire<'_>) {
        check_segments(transmit);
        for datagram in transmit.datagrams() {
            let bytes: bytes::Bytes = datagram.into();
            if self.traced {
                trace(now, self.address, &bytes);
            }
            if is_attacker(transmit.path.remote) {
                self.attackers_credit_bytes -= bytes.len() as i64;
                assert!(self.attackers_credit_bytes >= 0, "an attacker's datagrams are amplified");
            }
            wire.send(now, Datagram { from: self.source(&bytes), to: transmit.path.remote, bytes });
        }
    }
}

/// Prints a packet when a history is replayed with `CELLAR_SIM_TRACE=1`.
fn trace(now: Monotonic, from: SocketAddr, bytes: &[u8]) {
    let Ok((header, body)) = rx_proto::header::parse(bytes) else { return };
    let rx_proto::Header { cid, call_number, sequence, serial, kind, flags, .. } = header;
    let (seconds, micros) = (now.0 / 1_000_000_000, now.0 / 1000 % 1_000_000);
    let ip = from.ip();
    print!(
        "{seconds:3}.{micros:06} {ip} {cid:08x}/{call_number} {kind:?} #{sequence} s{serial} f{:02x}",
        flags.0
    );
    match rx_proto::ack::parse(body) {
        Ok(ack) if kind == rx_proto::PacketType::Ack => {
            let bits: String = ack.received.iter().map(|bit| if bit & 1 == 1 { '+' } else { '-' }).collect();
            println!(
                " {:?} of s{} from {} {bits} w{:?}",
                ack.reason, ack.serial, ack.first, ack.trailer.window
            );
        }
        _ => println!(" {} bytes", body.len()),
    }
}

/// Checks that a transmit can be sent with one `UDP_SEGMENT`.
fn check_segments(transmit: &rx_proto::Transmit) {
    let lengths: Vec<usize> = transmit.packets.iter().map(rx_proto::Outgoing::len_bytes).collect();
    let first = *lengths.first().expect("a transmit has packets");
    let (last, others) = lengths.split_last().expect("a transmit has packets");
    assert!(others.iter().all(|length| *length == first) && *last <= first, "unequal segments: {lengths:?}");
    assert!(lengths.iter().sum::<usize>() <= rx_proto::limits::TRANSMIT_BYTES_MAX);
}
