//! Random histories of clients that fetch, store, vanish, move and return, and of a server that
//! restarts, against the two promises of this crate: while a client can be reached it never relies
//! on an old version once a change is acknowledged; and before any of its calls is answered it has
//! been told all that it missed.

use base::{Fid, HostUuid, Monotonic, VnodeId, VolumeId};
use callbacks::{
    Arrival, CallbackConfig, CallbackKind, Callbacks, Delivered, Delivery, HostId, Identification, Message,
    Task,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Debug)]
struct Client {
    uuid: Option<HostUuid>,
    address: SocketAddr,
    connection: u64,
    reachable: bool,
    /// The server has heard of it and has lost no message to it since.
    in_contact: bool,
    /// Cached versions and until when they may be used.
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

struct World {
    random: StdRng,
    now: Monotonic,
    callbacks: Callbacks,
    clients: Vec<Client>,
    versions: BTreeMap<Fid, u64>,
    next_port: u16,
    next_connection: u64,
    refused: usize,
    answered: usize,
}

const CLIENTS: usize = 8;
const READ_ONLY: VolumeId = VolumeId(9);

fn config() -> CallbackConfig {
    CallbackConfig {
        promises_max: 40,
        hosts_max: 6,
        connections_max: 12,
        delayed_max: 2,
        addresses_max: 3,
        refused_after_silence: Duration::from_secs(60),
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
            versions: BTreeMap::new(),
            next_port: 1_000,
            next_connection: 1,
            refused: 0,
            answered: 0,
        };
        for n in 0..CLIENTS {
            let address = world.fresh_address(n);
            let uuid = (n % 4 != 3).then(|| HostUuid([n as u8 + 1; 16]));
            let client = Client {
                uuid,
                address,
                connection: 0,
                reachable: true,
                in_contact: false,
                cache: BTreeMap::new(),
            };
            world.clients.push(client);
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
        self.clients.iter().position(|client| client.address == address && client.reachable)
    }

    /// Sends one delivery, with retries, to whoever is at the address. True if the host was reached.
    fn send(&mut self, mut delivery: Delivery) -> bool {
        loop {
            let there = self.at(delivery.address);
            let there = there.filter(|at| !delivery.probe || self.clients[*at].uuid == delivery.uuid);
            if let Some(at) = there {
                self.clients[at].receive(&delivery.message);
            }
            let meant = self
                .clients
                .iter()
                .position(|c| c.uuid == delivery.uuid && (c.uuid.is_some() || c.address == delivery.address));
            match self.callbacks.delivered(&delivery, there.is_some()) {
                Delivered::Done | Delivered::Forgotten => return true,
                Delivered::Retry(next) => delivery = *next,
                Delivered::Delayed => {
                    if let Some(at) = meant {
                        self.clients[at].in_contact = false;
                    }
                    return false;
                }
            }
        }
    }

    fn identify(&mut self, address: SocketAddr, connection: u64, may_reset: bool) -> bool {
        let there = self.at(address);
        let resets = may_reset && self.random.random_bool(0.7);
        if let Some(at) = there.filter(|_| resets) {
            self.clients[at].receive(&Message::Reset);
        }
        let said = self.at(address).map(|at| Identification {
            uuid: self.clients[at].uuid,
            addresses: vec![SocketAddr::from(([192, 168, 0, at as u8], address.port()))],
            capabilities: 1,
        });
        self.callbacks.identified(self.now, address, connection, said, resets && there.is_some()).is_ok()
    }

    /// Brings a call of `client` to the point where it is executed.
    fn arrive(&mut self, client: usize) -> Option<HostId> {
        let (address, connection) = (self.clients[client].address, self.clients[client].connection);
        for _ in 0..1_000 {
            let go_on = match self.callbacks.arrive(self.now, address, connection, true) {
                Arrival::Ready(host) => {
                    self.assert_fresh(client);
                    self.clients[client].in_contact = true;
                    self.answered += 1;
                    return Some(host);
                }
                Arrival::First(Task::Identify { address, connection, may_reset }) => {
                    self.identify(address, connection, may_reset)
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
                self.refused += 1;
                self.clients[client].in_contact = false;
                return None;
            }
        }
        panic!("the call is never let in");
    }

    fn assert_fresh(&self, client: usize) {
        for (fid, &(version, until)) in &self.clients[client].cache {
            let current = self.versions.get(fid).copied().unwrap_or(0);
            assert!(until < self.now || version == current, "client {client} relies on an old {fid}");
        }
    }

    fn fetch(&mut self, client: usize) {
        let Some(host) = self.arrive(client) else { return };
        let fid = self.fid();
        let kind = match fid.volume {
            READ_ONLY => CallbackKind::Volume,
            _ if self.random.random_bool(0.3) => CallbackKind::Bulk,
            _ => CallbackKind::File,
        };
        let promised = self.callbacks.promise(self.now, host, fid, kind);
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
        for delivery in deliveries {
            self.send(delivery);
        }
        let version = self.versions[&fid];
        if let Some(own) = self.clients[client].cache.get_mut(&fid) {
            own.0 = version;
        }
        for other in 0..CLIENTS {
            if self.clients[other].in_contact && self.clients[other].reachable {
                self.assert_fresh(other);
            }
        }
    }

    fn relocate(&mut self, client: usize) {
        self.clients[client].address = self.fresh_address(client);
        self.clients[client].in_contact = false;
        if self.clients[client].uuid.is_none() {
            // A host without UUID is its address: at another one it has to start anew.
            self.clients[client].cache.clear();
        }
        self.clients[client].connection = self.next_connection;
        self.next_connection += 1;
    }

    fn take_address_of(&mut self, client: usize, other: usize) {
        if client != other {
            let address = self.clients[other].address;
            self.relocate(other);
            self.relocate(client);
            self.clients[client].address = address;
        }
    }

    fn step(&mut self) {
        let client = self.random.random_range(0..CLIENTS);
        match self.random.random_range(0..100) {
            0..50 => self.fetch(client),
            50..75 => self.store(client),
            75..83 => {
                let reachable = !self.clients[client].reachable;
                self.clients[client].reachable = reachable;
            }
            83..87 => self.relocate(client),
            87..89 => {
                let other = self.random.random_range(0..CLIENTS);
                self.take_address_of(client, other);
            }
            89..90 => {
                self.callbacks = Callbacks::new(config());
                self.clients.iter_mut().for_each(|client| client.in_contact = false);
            }
            90..93 => self.clients[client].connection = self.next_connection + 1_000_000,
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
            }
        }
        let counters = self.callbacks.counters();
        assert!(counters.promises <= config().promises_max as u64 + 2 * 6, "{counters:?}");
        assert!(counters.hosts <= config().hosts_max as u64 + 1, "{counters:?}");
        assert_eq!(counters.deliveries_under_way, 0);
    }
}

#[test]
fn no_reachable_client_relies_on_an_old_version() {
    let mut answered = 0;
    for seed in 0..300 {
        let history = std::panic::AssertUnwindSafe(|| {
            let mut world = World::new(seed);
            for _ in 0..600 {
                world.step();
            }
            (world.answered, world.refused)
        });
        match std::panic::catch_unwind(history) {
            Ok((good, _)) => answered += good,
            Err(panic) => {
                eprintln!("replay with seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(answered > 10_000, "only {answered} calls got through: the histories test nothing");
}
