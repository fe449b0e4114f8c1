//! Random histories of clients that fetch, store, vanish, move and return, of releases, of attackers that answer with any
//! UUID from their own addresses, and of a server that restarts, or that another one takes over from. They check the two guarantees of this crate:
//! a reachable client never relies on an old version once a change is acknowledged, and before any of its
//! calls is executed a client has received all messages that it missed. `CELLAR_SEED_FIRST=n` sets the first seed,
//! `CELLAR_CALLBACKS_COUNT=n` the number of histories.

use base::{Fid, HostUuid, Monotonic, VnodeId, VolumeId};
use callbacks::{
    Arrival, Asked, CallbackConfig, CallbackKind, Callbacks, Check, Delivered, Delivery, Effort, HostId,
    Identification, Message, PROMISE_MAX, Probe, Promised, Task,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Debug)]
struct Client {
    uuid: Option<HostUuid>,
    /// Source address of its next call.
    address: SocketAddr,
    /// Another interface, which answers as well.
    second: Option<SocketAddr>,
    connection: u64,
    /// Addresses that it has left, and the connections there.
    former: Vec<(SocketAddr, u64)>,
    reachable: bool,
    /// Whether the server knows the client and has lost no message to it since.
    in_contact: bool,
    /// Cached versions and their expiry times.
    cache: BTreeMap<Fid, (u64, Monotonic)>,
}

impl Client {
    fn receive(&mut self, message: &Message) {
        match message {
            Message::Reset => self.cache.clear(),
            Message::Break(fids) => {
                for fid in fids {
                    self.cache.retain(|cached, _| {
                        cached != fid && !(fid.vnode.0 == 0 && cached.volume == fid.volume)
                    });
                }
            }
        }
    }
}

/// An address that answers with any identity and ignores messages.
#[derive(Debug)]
struct Attacker {
    address: SocketAddr,
    uuid: Option<HostUuid>,
    claims: Vec<SocketAddr>,
    reachable: bool,
}

struct World {
    random: StdRng,
    now: Monotonic,
    callbacks: Callbacks,
    clients: Vec<Client>,
    attackers: Vec<Attacker>,
    /// Interfaces that are currently disconnected.
    cut: BTreeSet<SocketAddr>,
    versions: BTreeMap<Fid, u64>,
    /// The durable list of hosts with promises, and the times of their last promises.
    listed: BTreeMap<SocketAddr, (Option<HostUuid>, Monotonic)>,
    /// Maximum number of hosts: the limit, or the hosts that were listed at the last takeover.
    hosts_max: usize,
    next_port: u16,
    next_connection: u64,
    answered: usize,
    /// Number of hosts that changes did not wait for, because of the limit of their address, after each change.
    postponed: usize,
}

const CLIENTS: usize = 8;
const ATTACKERS: usize = 5;
/// An address belongs to one client at least so long after its last call, and no client moves faster.
const ADDRESS_HELD: Duration = Duration::from_secs(120);
const READ_ONLY: VolumeId = VolumeId(9);

fn config() -> CallbackConfig {
    CallbackConfig {
        promises_max: 40,
        hosts_max: 10,
        hosts_per_ip_max: 4,
        hosts_per_ip_crowded: 3,
        connections_max: 12,
        host_connections_max: 3,
        identifying_per_ip_max: 3,
        identifying_per_silent_ip: 2,
        owing_per_ip_max: 1,
        delayed_max: 2,
        addresses_max: 3,
        refused_after_silence: Duration::from_secs(60),
        stranger_refused_after_silence: Duration::from_secs(60),
        probe_interval: Duration::from_secs(60),
        host_idle_max: Duration::from_secs(7_200),
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            random: StdRng::seed_from_u64(seed),
            now: Monotonic(0),
            callbacks: Callbacks::new(config()),
            clients: Vec::new(),
            attackers: Vec::new(),
            cut: BTreeSet::new(),
            versions: BTreeMap::new(),
            listed: BTreeMap::new(),
            hosts_max: config().hosts_max,
            next_port: 1_000,
            next_connection: CLIENTS as u64,
            answered: 0,
            postponed: 0,
        };
        for n in 0..CLIENTS {
            let address = world.fresh_address(n);
            let uuid = (n % 4 != 3).then(|| HostUuid([n as u8 + 1; 16]));
            let client = Client {
                uuid,
                address,
                second: uuid.filter(|_| n < 2).map(|_| SocketAddr::from(([10, 1, 0, n as u8], 7001))),
                connection: n as u64,
                former: Vec::new(),
                reachable: true,
                in_contact: false,
                cache: BTreeMap::new(),
            };
            world.clients.push(client);
        }
        for n in 0..ATTACKERS {
            // More than one at an address, so that they reach its limits.
            let address = SocketAddr::from(([10, 66, 0, n as u8 / 3], 7_000 + n as u16));
            world.attackers.push(Attacker { address, uuid: None, claims: Vec::new(), reachable: true });
        }
        world
    }

    fn fresh_address(&mut self, client: usize) -> SocketAddr {
        self.next_port += 1;
        let host = if self.random.random_bool(0.5) { client } else { client + 100 };
        SocketAddr::from(([10, 0, 0, host as u8], self.next_port))
    }

    fn fid(&mut self) -> Fid {
        let volume =
            VolumeId(if self.random.random_bool(0.1) { READ_ONLY.0 } else { self.random.random_range(1..3) });
        Fid { volume, vnode: VnodeId(self.random.random_range(1..12)), unique: 1 }
    }

    fn at(&self, address: SocketAddr) -> Option<usize> {
        self.owner(address).filter(|at| self.clients[*at].reachable && !self.cut.contains(&address))
    }

    fn owner(&self, address: SocketAddr) -> Option<usize> {
        self.clients.iter().position(|client| client.address == address || client.second == Some(address))
    }

    fn attacker_at(&self, address: SocketAddr) -> Option<&Attacker> {
        self.attackers.iter().find(|attacker| attacker.address == address && attacker.reachable)
    }

    /// Whether a client answers at `address`, with UUID `uuid` if a probe demands it.
    #[allow(clippy::option_option, reason = "any answer, one without a UUID, or one with this UUID")]
    fn answers(&self, address: SocketAddr, uuid: Option<Option<HostUuid>>) -> bool {
        let there = self.at(address).map(|at| self.clients[at].uuid);
        let there = there.or_else(|| self.attacker_at(address).map(|attacker| attacker.uuid));
        there.is_some_and(|there| uuid.is_none_or(|uuid| there == uuid))
    }

    /// Sends one delivery, with retries, to whichever client is at the address. Returns whether the host was
    /// reached. A client is out of contact if a message to its own address was lost, and none arrived at its
    /// other address.
    fn send(&mut self, mut delivery: Delivery) -> bool {
        let (mut silent, mut heard) = (BTreeSet::new(), BTreeSet::new());
        let reached = loop {
            let is_there = self.answers(delivery.address, Some(delivery.uuid));
            let answers = self.answers(delivery.address, None);
            let (received, reached) = match self.callbacks.check(self.now, &delivery) {
                Check::Unneeded => (answers, answers),
                Check::Before => (is_there, is_there),
                Check::After => (answers, is_there),
            };
            if received && let Some(at) = self.at(delivery.address) {
                self.clients[at].receive(&delivery.message);
                heard.insert(at);
            } else if !received {
                silent.extend(self.owner(delivery.address));
            }
            match self.callbacks.delivered(&delivery, reached) {
                Delivered::Done | Delivered::Forgotten => break true,
                Delivered::Retry(next) => delivery = *next,
                Delivered::Delayed => break false,
            }
        };
        for &lost in silent.difference(&heard) {
            self.clients[lost].in_contact = false;
        }
        reached
    }

    /// Sends deliveries one after the other. Now and then one is sent so late that another client has its address by then.
    fn send_in_turn(&mut self, deliveries: Vec<Delivery>) {
        for delivery in self.callbacks.in_turn(deliveries) {
            if self.random.random_bool(0.05)
                && let Some(there) = self.owner(delivery.address)
            {
                let next = self.random.random_range(0..CLIENTS);
                self.take_address_of(next, there);
            }
            self.send(delivery);
        }
    }

    fn identify(&mut self, address: SocketAddr, connection: u64, may_reset: bool) -> bool {
        // Now and then the server cannot ask.
        let cannot_ask = connection % 4 == 1;
        let resets = self.answers(address, None) && may_reset && self.random.random_bool(0.7);
        if let Some(at) = self.at(address).filter(|_| resets) {
            self.clients[at].receive(&Message::Reset);
        }
        let said = self.ask(address, cannot_ask);
        self.callbacks.identified(self.now, address, connection, said, resets).is_ok()
    }

    fn ask_twin(&mut self, twin: HostId, address: SocketAddr) {
        let cannot_ask = self.random.random_bool(0.25);
        let said = self.ask(address, cannot_ask);
        self.callbacks.twin_asked(self.now, twin, said);
    }

    /// Returns what the client or attacker at `address` says about itself.
    fn ask(&mut self, address: SocketAddr, cannot_ask: bool) -> Asked {
        let said = match (self.at(address), self.attacker_at(address)) {
            (Some(at), _) => {
                let client = &self.clients[at];
                let private = SocketAddr::from(([192, 168, 0, at as u8], address.port()));
                let addresses = client.second.into_iter().flat_map(|second| [client.address, second]);
                let addresses = addresses.chain([private]).collect();
                Asked::Known(Identification { uuid: client.uuid, addresses, capabilities: 1 })
            }
            (None, Some(Attacker { uuid, claims, .. })) => {
                Asked::Known(Identification { uuid: *uuid, addresses: claims.clone(), capabilities: 0 })
            }
            (None, None) if cannot_ask => Asked::Failed,
            (None, None) => Asked::Silent,
        };
        if said == Asked::Silent {
            self.note_silence(address);
        }
        said
    }

    /// A client is out of contact if it was silent at an address, and the server does not know it at its other one.
    fn note_silence(&mut self, silent: SocketAddr) {
        let Some(at) = self.owner(silent) else { return };
        let Client { uuid, address, second, .. } = self.clients[at];
        let is_other = |known: SocketAddr| known != silent && (known == address || Some(known) == second);
        let mut hosts = self.callbacks.hosts();
        if !hosts.any(|host| host.up && host.uuid == uuid && is_other(host.address)) {
            drop(hosts);
            self.clients[at].in_contact = false;
        }
    }

    fn probe(&mut self, probe: &Probe) {
        let answers = self.answers(probe.address, Some(Some(probe.uuid)));
        if !answers {
            self.note_silence(probe.address);
        }
        self.callbacks.probed(self.now, probe, answers);
    }

    /// Repeats the required tasks until a call can be executed.
    fn arrive_from(&mut self, address: SocketAddr, connection: u64) -> Option<HostId> {
        for _ in 0..1_000 {
            let go_on = match self.callbacks.arrive(self.now, address, connection, true) {
                Arrival::Ready(host) => return Some(host),
                Arrival::First(Task::Identify { address, connection, effort }) => {
                    self.identify(address, connection, effort == Effort::AskAndReset)
                }
                Arrival::First(Task::AskTwin { twin, address }) => {
                    self.ask_twin(twin, address);
                    true
                }
                Arrival::First(Task::Probe(probe)) => {
                    self.probe(&probe);
                    true
                }
                Arrival::First(Task::Deliver(delivery)) => self.send(delivery),
                Arrival::First(Task::Evict(delivery)) => {
                    self.send(delivery);
                    true
                }
                Arrival::Wait => panic!("nobody else is at work"),
                Arrival::Refuse(_) => false,
            };
            if !go_on {
                return None;
            }
        }
        panic!("the call is never let in");
    }

    /// Admits a call of an honest client, and checks that the client has received all messages that it
    /// missed.
    fn arrive(&mut self, client: usize) -> Option<HostId> {
        if let Some(second) = self.clients[client].second
            && self.random.random_bool(0.3)
        {
            self.clients[client].second = Some(std::mem::replace(&mut self.clients[client].address, second));
        }
        let (address, connection) = (self.clients[client].address, self.clients[client].connection);
        let host = self.arrive_from(address, connection);
        if host.is_some() {
            self.assert_fresh(client);
            self.answered += 1;
        }
        self.clients[client].in_contact = host.is_some();
        host
    }

    /// Simulates an attacker that claims any UUID and any interfaces, and makes calls like a client.
    fn attack(&mut self) {
        let number = self.random.random_range(0..ATTACKERS);
        let victim = self.random.random_range(0..CLIENTS);
        let (uuid, claim) = (self.clients[victim].uuid, self.clients[victim].address);
        let connection = self.random.random_range(0..6) + 5_000_000 * (number as u64 + 1);
        if self.random.random_bool(0.5) {
            let attacker = &mut self.attackers[number];
            (attacker.uuid, attacker.claims) = (uuid, vec![claim]);
        }
        self.attackers[number].reachable = self.random.random_bool(0.7);
        let address = self.attackers[number].address;
        let Some(host) = self.arrive_from(address, connection) else { return };
        for _ in 0..self.random.random_range(0..8) {
            let fid = self.fid();
            match self.random.random_range(0..3) {
                0 => self.callbacks.give_up(host, &[fid]),
                1 => self.callbacks.give_up_all(host),
                _ => {
                    for delivery in self.promise(host, address, fid, CallbackKind::File).deliveries {
                        self.send(delivery);
                    }
                }
            }
        }
        self.attackers[number].reachable = self.random.random_bool(0.7);
    }

    fn assert_fresh(&self, client: usize) {
        for (fid, &(version, until)) in &self.clients[client].cache {
            let current = self.versions.get(fid).copied().unwrap_or(0);
            assert!(until < self.now || version == current, "client {client} relies on an old {fid}");
        }
    }

    /// Checks the clients that are in contact. One whose reset no change waits for is not, until its next call.
    fn assert_reachable_fresh(&mut self) {
        let postponed = self.callbacks.hosts().filter(|host| host.is_postponed);
        let postponed: Vec<_> = postponed.map(|host| host.address).collect();
        self.postponed += postponed.len();
        for client in postponed.into_iter().filter_map(|address| self.owner(address)).collect::<Vec<_>>() {
            self.clients[client].in_contact = false;
        }
        for client in 0..CLIENTS {
            if self.clients[client].in_contact && self.clients[client].reachable {
                self.assert_fresh(client);
            }
        }
    }

    /// Makes a promise to a host, which is listed before.
    fn promise(&mut self, host: HostId, address: SocketAddr, fid: Fid, kind: CallbackKind) -> Promised {
        self.listed.insert(address, (self.callbacks.uuid(host), self.now));
        self.callbacks.promise(self.now, host, fid, kind)
    }

    fn fetch(&mut self, client: usize) {
        let Some(host) = self.arrive(client) else { return };
        let fid = self.fid();
        let kind = match fid.volume {
            READ_ONLY => CallbackKind::Volume,
            _ if self.random.random_bool(0.3) => CallbackKind::Bulk,
            _ => CallbackKind::File,
        };
        let promised = self.promise(host, self.clients[client].address, fid, kind);
        assert!(promised.seconds > 0);
        let until = self.now + Duration::from_secs(u64::from(promised.seconds));
        for delivery in promised.deliveries {
            self.send(delivery);
        }
        let version = self.versions.get(&fid).copied().unwrap_or(0);
        if self.callbacks.holds(host, fid) || kind == CallbackKind::Volume {
            self.clients[client].cache.insert(fid, (version, until));
        }
    }

    fn store(&mut self, client: usize) {
        let Some(host) = self.arrive(client) else { return };
        let fid = self.fid();
        *self.versions.entry(fid).or_default() += 1;
        let deliveries = if fid.volume == READ_ONLY {
            self.callbacks.break_volume(READ_ONLY)
        } else {
            self.callbacks.break_files(&[fid], Some(host))
        };
        self.send_in_turn(deliveries);
        let version = self.versions[&fid];
        if let Some(own) = self.clients[client].cache.get_mut(&fid) {
            own.0 = version;
        }
        self.assert_reachable_fresh();
    }

    /// Changes a volume without a call of a client.
    fn release(&mut self) {
        let fid = self.fid();
        *self.versions.entry(fid).or_default() += 1;
        let deliveries = self.callbacks.break_volume(fid.volume);
        self.send_in_turn(deliveries);
        self.assert_reachable_fresh();
    }

    /// Another server takes over. It knows nothing but the list.
    fn take_over(&mut self) {
        self.callbacks = Callbacks::new(config());
        let listed: Vec<_> = self.listed.iter().map(|(address, (uuid, _))| (*address, *uuid)).collect();
        self.hosts_max = config().hosts_max.max(listed.len());
        let resets = self.callbacks.owe_resets(self.now, listed);
        self.send_in_turn(resets);
        self.assert_reachable_fresh();
    }

    fn relocate(&mut self, client: usize) {
        // Calls from the old address have ended, and it may be probed again.
        self.now = self.now + ADDRESS_HELD;
        let Client { address, connection, .. } = self.clients[client];
        self.clients[client].former.push((address, connection));
        self.clients[client].address = self.fresh_address(client);
        self.clients[client].in_contact = false;
        if self.clients[client].uuid.is_none() {
            // A host without UUID is identified by its address, and starts afresh at another.
            self.clients[client].cache.clear();
        }
        if self.random.random_bool(0.7) {
            self.reconnect(client);
        }
    }

    fn reconnect(&mut self, client: usize) {
        self.clients[client].connection = self.next_connection;
        self.next_connection += 1;
    }

    /// Moves a client to an address that it had before, where its connection may still be known.
    fn come_back(&mut self, client: usize) {
        let count = self.clients[client].former.len();
        let (address, connection) =
            self.clients[client].former.swap_remove(self.random.random_range(0..count));
        if self.owner(address).is_none() {
            self.relocate(client);
            self.clients[client].address = address;
            self.clients[client].connection = connection;
        }
    }

    fn take_address_of(&mut self, client: usize, other: usize) {
        if client != other {
            let address = self.clients[other].address;
            self.relocate(other);
            self.relocate(client);
            self.clients[client].address = address;
            self.reconnect(client);
        }
    }

    fn step(&mut self) {
        let client = self.random.random_range(0..CLIENTS);
        match self.random.random_range(0..100) {
            0..40 => self.fetch(client),
            40..58 => self.store(client),
            58..62 => self.release(),
            62..72 => self.attack(),
            72..75 => {
                let interface = self.clients[client].address;
                if !self.cut.remove(&interface) {
                    self.cut.insert(interface);
                }
            }
            75..83 => {
                let reachable = !self.clients[client].reachable;
                self.clients[client].reachable = reachable;
            }
            83..85 if !self.clients[client].former.is_empty() => self.come_back(client),
            83..87 => self.relocate(client),
            87..89 => {
                let other = self.random.random_range(0..CLIENTS);
                self.take_address_of(client, other);
            }
            89..90 => {
                self.callbacks = Callbacks::new(config());
                self.clients.iter_mut().for_each(|client| client.in_contact = false);
                self.listed.clear();
                self.hosts_max = config().hosts_max;
            }
            90..92 => self.take_over(),
            92..93 => self.reconnect(client),
            93..96 => {
                if let Some(host) = self.arrive(client) {
                    self.callbacks.give_up_all(host);
                    self.clients[client].cache.clear();
                }
            }
            _ => {
                let minutes = self.random.random_range(1..120);
                self.now = self.now + Duration::from_secs(60 * minutes);
                self.callbacks.maintain(self.now);
                self.listed.retain(|address, (_, used)| {
                    let may_hold = self.callbacks.may_hold(*address);
                    may_hold.unwrap_or_else(|| self.now.since(*used) < PROMISE_MAX)
                });
            }
        }
        let counters = self.callbacks.counters();
        assert!(counters.promises <= config().promises_max as u64 + 2 * 6, "{counters:?}");
        assert!(counters.hosts <= self.hosts_max as u64 + 1, "{counters:?}");
        assert_eq!(counters.deliveries_under_way, 0);
    }
}

/// Number of histories.
const COUNT: u64 = 6_000;

#[test]
fn no_reachable_client_relies_on_an_old_version() {
    let count = std::env::var("CELLAR_CALLBACKS_COUNT").map_or(COUNT, |text| text.parse().expect("a number"));
    let (mut answered, mut postponed) = (0, 0);
    seeds::play(count, |seed| {
        let mut world = World::new(seed);
        for _ in 0..600 {
            world.step();
        }
        answered += world.answered;
        postponed += world.postponed;
    });
    assert!(answered as u64 > 30 * count, "only {answered} calls got through: the histories test nothing");
    let least = count / 50;
    assert!(
        postponed as u64 >= least,
        "{postponed} hosts were beyond the limit of resets that changes wait for"
    );
}
