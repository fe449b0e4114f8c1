//! The machines, the network between them, and the clock of a history.

use crate::client::{Script, Station};
use crate::host::{Begun, Host};
use crate::hub::{Hub, Reply};
use crate::machine::{Machine, wall};
use crate::record::Report;
use crate::stream::ServedCall;
use crate::tasks::{Tasks, Wait};
use afs_idl::{cb, fs};
use base::{CallContext, Fid, HostUuid, Monotonic, UnixTime, VolumeId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sim::network::{Conditions, Datagram, Network, Parcel};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::Duration;
use xdr::{Decode, SliceSource};

pub(crate) const FILE_SERVICE: u16 = 1;
pub(crate) const CALLBACK_SERVICE: u16 = 1;
pub(crate) const LOCATION_SERVICE: u16 = 52;

const SERVERS: usize = 2;
const CLIENTS: usize = 3;
const FILES: usize = 3;

/// Number of events after which a history is considered endless.
const EVENTS_MAX: u64 = 3_000_000;

/// Maximum number of faults of a history.
const FAULTS_MAX: u32 = 30;

/// A fault planted in the servers, to prove that the checks find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    #[default]
    Nothing,
    /// Promises are not broken.
    BreaksNothing,
    /// A change is acknowledged before the breaks have arrived.
    BreaksLate,
    /// Clients are not reset when they first call a server that has restarted.
    ResetsNobody,
    /// A change is acknowledged before it is durable.
    AcknowledgesEarly,
    /// A crash loses everything.
    LosesEverything,
    /// The location service names the wrong server.
    Misleads,
}

/// Which faults the environment of a history has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mood {
    /// Whether the network loses, repeats, delays and reorders datagrams.
    pub is_lossy: bool,
    /// Whether hosts are cut off from each other for a while.
    pub has_partitions: bool,
    /// Whether server machines crash, some because their power fails while they write.
    pub has_crashes: bool,
    /// Whether wall clocks jump.
    pub has_jumps: bool,
    /// Whether clients pause for minutes and hours, so that promises expire.
    pub has_long_pauses: bool,
}

impl Mood {
    /// Returns a mood that follows from a seed. One of 16 has no faults.
    pub fn of(seed: u64) -> Mood {
        let bit = |bit: u64| (seed >> bit) & 1 == 1;
        Mood {
            has_crashes: bit(0),
            has_partitions: bit(1),
            is_lossy: bit(2),
            has_long_pauses: bit(3),
            has_jumps: bit(1) != bit(3),
        }
    }
}

/// The addresses, UUIDs and volumes of the servers.
pub(crate) struct Places {
    servers: Vec<SocketAddr>,
    volumes: BTreeMap<VolumeId, usize>,
}

impl Places {
    fn new() -> Places {
        let server = |number| SocketAddr::from((Ipv4Addr::new(10, 0, 0, number as u8 + 1), 7000));
        let volume = |number| (VolumeId(536_870_912 + 3 * number as u32), number);
        Places { servers: (0..SERVERS).map(server).collect(), volumes: (0..SERVERS).map(volume).collect() }
    }

    pub(crate) fn server(&self, number: usize) -> SocketAddr {
        self.servers[number]
    }

    pub(crate) fn location_server(&self) -> SocketAddr {
        self.server(0)
    }

    pub(crate) fn server_at(&self, address: SocketAddr) -> Option<usize> {
        self.servers.iter().position(|server| *server == address)
    }

    pub(crate) fn server_on(&self, address: Ipv4Addr) -> Option<usize> {
        self.servers.iter().position(|server| server.ip() == IpAddr::V4(address))
    }

    pub(crate) fn server_with(&self, uuid: HostUuid) -> Option<usize> {
        (0..self.servers.len()).find(|server| server_uuid(*server) == uuid)
    }

    pub(crate) fn has(&self, server: usize, volume: VolumeId) -> bool {
        self.volumes.get(&volume) == Some(&server)
    }
}

/// Returns the UUID of a server.
pub(crate) fn server_uuid(number: usize) -> HostUuid {
    HostUuid([number as u8 + 1; 16])
}

/// Returns the address of a client.
fn client_address(number: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, number as u8 + 1), 7001))
}

/// A client's machine.
struct Client {
    host: Host,
    station: Arc<Station>,
    jumped_s: Arc<AtomicI64>,
}

/// A planned event of the environment.
#[derive(Clone, Copy, Debug)]
enum Planned {
    /// The next fault.
    Fault,
    Crash(usize),
    Restart(usize),
    Maintain(usize),
    Join(SocketAddr, SocketAddr),
}

/// A cell and its clients. The first hosts are servers, the others are clients.
pub(crate) struct World {
    hub: Arc<Hub>,
    places: Arc<Places>,
    random: SmallRng,
    mood: Mood,
    machines: Vec<Machine>,
    clients: Vec<Client>,
    network: Network,
    /// Pairs of hosts that are cut off from each other.
    cut: BTreeSet<(SocketAddr, SocketAddr)>,
    planned: BTreeMap<(Monotonic, u64), Planned>,
    plans: u64,
    faults: u32,
    fault_interval: Duration,
    tasks: Tasks,
    never_off: Arc<AtomicBool>,
    scripts: Arc<AtomicI64>,
    events: u64,
}

fn conditions(mood: Mood, random: &mut SmallRng) -> Conditions {
    let mut conditions = Conditions::perfect(Duration::from_micros(random.random_range(50..30_000)));
    if mood.is_lossy {
        conditions.loss = random.random_range(0.0..0.2);
        conditions.duplication = random.random_range(0.0..0.2);
        conditions.reordering = random.random_range(0.0..0.2);
        conditions.jitter = Duration::from_millis(random.random_range(0..40));
    }
    conditions
}

impl World {
    pub(crate) fn new(seed: u64, mood: Mood, sabotage: Sabotage) -> World {
        let mut random = SmallRng::seed_from_u64(seed);
        let (hub, places) = (Arc::new(Hub::new(random.random())), Arc::new(Places::new()));
        let network = Network::new(conditions(mood, &mut random), random.random());
        let mut machine = |number| {
            let (hub, places) = (Arc::clone(&hub), Arc::clone(&places));
            Machine::new(number, hub, places, sabotage, &mut random)
        };
        let machines: Vec<Machine> = (0..SERVERS).map(&mut machine).collect();
        let client = |number| {
            let (address, seed) = (client_address(number), random.random());
            let station = Station::new(number, Arc::clone(&hub), Arc::clone(&places));
            Client {
                host: Host::new(address, &[CALLBACK_SERVICE], true, seed, hub.now()),
                station: Arc::new(station),
                jumped_s: Arc::default(),
            }
        };
        let clients = (0..CLIENTS).map(client).collect();
        let fault_interval = Duration::from_secs(random.random_range(2..90));
        let mut world = World {
            hub,
            places,
            random,
            mood,
            machines,
            clients,
            network,
            cut: BTreeSet::new(),
            planned: BTreeMap::new(),
            plans: 0,
            faults: 0,
            fault_interval,
            tasks: Tasks::default(),
            never_off: Arc::default(),
            scripts: Arc::default(),
            events: 0,
        };
        world.set_up(sabotage);
        world
    }

    fn set_up(&mut self, sabotage: Sabotage) {
        let places = Arc::clone(&self.places);
        for (&volume, &number) in &places.volumes {
            self.machines[number].start(self.random.random());
            self.machines[number].create_volume(volume, FILES);
            let named = if sabotage == Sabotage::Misleads { SERVERS - 1 - number } else { number };
            self.machines[0].add_location(volume, named);
            self.plan(Duration::from_secs(30), Planned::Maintain(number));
        }
        self.plan(self.fault_interval, Planned::Fault);
    }

    fn plan(&mut self, after: Duration, planned: Planned) {
        self.plans += 1;
        self.planned.insert((self.hub.now() + after, self.plans), planned);
    }

    /// Lets every client do `steps` things, then repairs everything and reads all files.
    pub(crate) fn run(&mut self, steps: u32) {
        for number in 0..CLIENTS {
            let script = self.script(number);
            self.start_script(format!("client {number}"), move || script.run(steps));
        }
        self.go();
        self.repair();
        let script = self.script(0);
        self.start_script("the audit".into(), move || script.audit());
        self.go();
    }

    fn script(&mut self, number: usize) -> Script {
        let (hub, places) = (Arc::clone(&self.hub), Arc::clone(&self.places));
        let station = Arc::clone(&self.clients[number].station);
        let long_pauses = if self.mood.has_long_pauses { 0.05 } else { 0.0 };
        Script::new(hub, station, places, SERVERS + number, self.random.random(), long_pauses)
    }

    fn start_script(&mut self, name: String, script: impl FnOnce() + Send + 'static) {
        let scripts = Arc::clone(&self.scripts);
        scripts.fetch_add(1, SeqCst);
        let body = move || {
            script();
            scripts.fetch_sub(1, SeqCst);
        };
        self.tasks.start(name, Arc::clone(&self.never_off), body);
    }

    /// Crashes and restarts all servers, and makes the network perfect.
    fn repair(&mut self) {
        self.planned.clear();
        self.cut.clear();
        self.network.set_conditions(Conditions::perfect(Duration::from_millis(1)));
        for number in 0..SERVERS {
            if self.mood.has_crashes {
                self.crash(number);
            }
            if self.machines[number].running.is_none() {
                self.machines[number].start(self.random.random());
            }
        }
    }

    /// Runs until all scripts have ended or a promise was not kept.
    fn go(&mut self) {
        while self.scripts.load(SeqCst) > 0 && self.hub.record().violation().is_none() {
            self.events += 1;
            let next = if self.run_tasks() || self.exchange() { None } else { Some(self.next_time()) };
            if let Some(next) = next {
                let next = next.filter(|_| self.events < EVENTS_MAX);
                let next = next
                    .unwrap_or_else(|| panic!("no end at {:?}: {:#?}", self.hub.now(), self.tasks.waiting()));
                self.hub.set_now(next.max(self.hub.now()));
                self.hub.record().set_now(self.hub.now());
                self.arrive();
            }
        }
    }

    fn next_time(&self) -> Option<Monotonic> {
        let servers = self.machines.iter().filter_map(|machine| machine.running.as_ref()?.host.next_time());
        let clients = self.clients.iter().filter_map(|client| client.host.next_time());
        let others = [
            self.tasks.next_time(),
            self.network.next_arrival(),
            self.planned.keys().next().map(|key| key.0),
        ];
        servers.chain(clients).chain(others.into_iter().flatten()).min()
    }

    /// Gives one thread that can continue its turn.
    fn run_tasks(&mut self) -> bool {
        let now = self.hub.now();
        let ready = self.tasks.ready(|wait| match wait {
            Wait::Turn => true,
            Wait::Call(number) => self.hub.has_ended(*number),
            Wait::Until(until) => *until <= now,
            Wait::Data(incoming) => incoming.is_readable(),
            Wait::Reports { count, seen, until } => count.load(SeqCst) > *seen || *until <= now,
        });
        if ready.is_empty() {
            return false;
        }
        self.hub.record().report.turns += 1;
        let number = ready[self.random.random_range(0..ready.len())];
        self.tasks.run(number);
        true
    }

    /// Moves calls between threads and endpoints, and datagrams to the network. Returns whether anything moved.
    fn exchange(&mut self) -> bool {
        let now = self.hub.now();
        for server in self.hub.crashes() {
            if self.mood.has_crashes {
                let after = Duration::from_micros(self.random.random_range(0..1_500_000));
                self.plan(after, Planned::Crash(server));
            }
        }
        let has_calls = self.move_calls(now);
        let mut sent = Vec::new();
        let has_begun = self.pump(now, &mut sent);
        let has_sent = !sent.is_empty();
        for datagram in sent {
            if !self.cut.contains(&pair(datagram.from, datagram.to)) {
                self.network.send(now, datagram);
            }
        }
        has_calls || has_begun || has_sent
    }

    /// Passes calls and replies of threads to the endpoints. Returns whether there are any.
    fn move_calls(&mut self, now: Monotonic) -> bool {
        let (replies, outgoing) = (self.hub.replies(), self.hub.begun());
        let has_any = !replies.is_empty() || !outgoing.is_empty();
        for reply in replies {
            self.answer(now, reply);
        }
        for call in outgoing {
            if let Some(client) = call.from.checked_sub(SERVERS) {
                self.clients[client].host.make(call);
            } else if let Some(running) = &mut self.machines[call.from].running {
                running.host.make(call);
            }
        }
        has_any
    }

    /// Moves the calls of all endpoints forward, and serves those that begin. Returns whether there are any.
    fn pump(&mut self, now: Monotonic, sent: &mut Vec<Datagram>) -> bool {
        let mut has_begun = false;
        for number in 0..SERVERS {
            let Some(running) = &mut self.machines[number].running else { continue };
            for begun in running.host.pump(now, &self.hub, sent) {
                has_begun = true;
                self.serve(now, number, begun);
            }
        }
        for client in &mut self.clients {
            for begun in client.host.pump(now, &self.hub, sent) {
                has_begun = true;
                let mut stream = ServedCall::new(begun.incoming);
                let result = cb::dispatch(&*client.station, &CallContext::new(&begun.caller), &mut stream);
                client.host.answer(now, begun.call, result.map(|()| stream.reply.into()));
            }
        }
        has_begun
    }

    /// Serves a call of a server: at once, if it need not wait, or on a thread.
    fn serve(&mut self, now: Monotonic, number: usize, begun: Begun) {
        let machine = &mut self.machines[number];
        let Some(running) = &mut machine.running else { return };
        if begun.service == FILE_SERVICE
            && self.hub.chance(0.7)
            && let Some(request) = begun.incoming.whole()
            && let Some(answer) = running.files.try_answer(&CallContext::new(&begun.caller), &request)
        {
            self.hub.record().report.at_once += 1;
            running.host.answer(now, begun.call, Ok(answer.reply));
            return;
        }
        let is_off = Arc::clone(&running.is_off);
        let name = format!("server {number}, call {}", begun.call.number());
        if let Some(body) = machine.serving(begun) {
            self.tasks.start(name, is_off, body);
        }
    }

    fn answer(&mut self, now: Monotonic, reply: Reply) {
        let machine = &mut self.machines[reply.host];
        if machine.incarnation != reply.incarnation {
            return;
        }
        let Some(running) = &mut machine.running else { return };
        if let Some((fid, version)) = change(&reply) {
            let is_down = |(number, client): (usize, &Client)| {
                let address = client.host.address();
                let host = running.files.client_hosts().into_iter().find(|host| host.address == address);
                host.is_some_and(|host| !host.up).then_some(number)
            };
            let down = self.clients.iter().enumerate().filter_map(is_down).collect();
            let client = self.clients.iter().position(|client| client.host.address() == reply.caller);
            let client = client.unwrap_or(usize::MAX);
            self.hub.record().acknowledged(reply.host, reply.incarnation, fid, version, client, down);
        }
        running.host.answer(now, reply.call, reply.result);
    }

    /// Handles everything that happens at the current time.
    fn arrive(&mut self) {
        let now = self.hub.now();
        while let Some(entry) = self.planned.first_entry().filter(|entry| entry.key().0 <= now) {
            let planned = entry.remove();
            self.happen(planned);
        }
        while let Some(parcel) = self.network.arrived(now) {
            let Parcel::Datagram(datagram) = parcel else { continue };
            self.deliver(now, datagram);
        }
        for machine in &mut self.machines {
            if let Some(running) = &mut machine.running {
                running.host.run_timers(now);
            }
        }
        for client in &mut self.clients {
            client.host.run_timers(now);
        }
    }

    fn deliver(&mut self, now: Monotonic, datagram: Datagram) {
        if let Some(server) = self.places.server_at(datagram.to) {
            let wall = self.machines[server].wall();
            if let Some(running) = &mut self.machines[server].running {
                running.host.deliver(now, wall, datagram);
            }
        } else if let Some(client) =
            self.clients.iter_mut().find(|client| client.host.address() == datagram.to)
        {
            let wall = UnixTime(wall(now, &client.jumped_s).as_secs() as u32);
            client.host.deliver(now, wall, datagram);
        }
    }

    fn happen(&mut self, planned: Planned) {
        match planned {
            Planned::Fault => self.fault(),
            Planned::Crash(number) => self.crash_for_a_while(number),
            Planned::Restart(number) => {
                if self.machines[number].running.is_none() {
                    self.machines[number].start(self.random.random());
                }
            }
            Planned::Maintain(number) => {
                self.machines[number].maintain();
                let after = Duration::from_secs(self.random.random_range(5..300));
                self.plan(after, Planned::Maintain(number));
            }
            Planned::Join(one, other) => {
                self.cut.remove(&pair(one, other));
                self.hub.record().log(&format!("{one} and {other} are connected again"));
            }
        }
    }

    fn fault(&mut self) {
        self.faults += 1;
        if self.faults < FAULTS_MAX {
            let after = self.fault_interval.mul_f64(self.random.random_range(0.1..2.0));
            self.plan(after, Planned::Fault);
        }
        let Mood { has_crashes, has_partitions, has_jumps, .. } = self.mood;
        match self.random.random_range(0..4) {
            0 if has_crashes => {
                let server = self.random.random_range(0..SERVERS);
                self.crash_for_a_while(server);
            }
            1 if has_crashes => {
                let server = self.random.random_range(0..SERVERS);
                if self.machines[server].running.is_none() {
                    return;
                }
                self.hub.record().log(&format!("the power of server {server} is about to fail"));
                self.machines[server].cut_power_soon(&mut self.random);
                let after = Duration::from_millis(self.random.random_range(1..3000));
                self.plan(after, Planned::Crash(server));
            }
            2 if has_partitions => self.partition(),
            3 if has_jumps => self.jump(),
            _ => {}
        }
    }

    fn crash(&mut self, number: usize) {
        let lost = self.machines[number].crash(&mut self.random);
        let mut record = self.hub.record();
        record.report.crashes += 1;
        record.report.lost_commits += lost;
        record.log(&format!("server {number} crashes and loses {lost} commits"));
        drop(record);
        self.tasks.run_crashed();
    }

    fn crash_for_a_while(&mut self, number: usize) {
        if self.machines[number].running.is_some() {
            self.crash(number);
            let seconds = if self.random.random() { 2.0 } else { 60.0 };
            let after = Duration::from_secs_f64(self.random.random_range(0.0..seconds));
            self.plan(after, Planned::Restart(number));
        }
    }

    fn partition(&mut self) {
        let server = self.places.server(self.random.random_range(0..SERVERS));
        let client = client_address(self.random.random_range(0..CLIENTS));
        self.hub.record().report.partitions += 1;
        self.hub.record().log(&format!("{server} and {client} are cut off from each other"));
        self.cut.insert(pair(server, client));
        let seconds = if self.random.random() { 10.0 } else { 200.0 };
        let after = Duration::from_secs_f64(self.random.random_range(0.0..seconds));
        self.plan(after, Planned::Join(server, client));
    }

    fn jump(&mut self) {
        let seconds = self.random.random_range(-100_000..100_000);
        let host = self.random.random_range(0..SERVERS + CLIENTS);
        let clock = match host.checked_sub(SERVERS) {
            Some(client) => &self.clients[client].jumped_s,
            None => &self.machines[host].jumped_s,
        };
        clock.fetch_add(seconds, SeqCst);
        self.hub.record().report.jumps += 1;
        self.hub.record().log(&format!("the clock of host {host} jumps by {seconds} s"));
    }

    /// Returns what the history covered, or the promise that was not kept.
    pub(crate) fn result(&self) -> Result<(Report, u64), String> {
        let record = self.hub.record();
        match record.violation() {
            Some(violation) => Err(violation.to_owned()),
            None => Ok((record.report, record.hash())),
        }
    }
}

/// Returns two hosts in a fixed order.
fn pair(one: SocketAddr, other: SocketAddr) -> (SocketAddr, SocketAddr) {
    (one.min(other), one.max(other))
}

/// Returns the vnode that an acknowledged call has changed, with its new version.
fn change(reply: &Reply) -> Option<(Fid, u64)> {
    let bytes = reply.result.as_ref().ok()?;
    let mut head = SliceSource::new(&reply.head);
    let opcode = u32::decode(&mut head).ok()?;
    let fid = Fid::from(fs::Fid::decode(&mut head).ok()?);
    let status = match opcode {
        fs::STORE_DATA64 => xdr::from_slice::<fs::StoreData64Reply>(bytes).ok()?.new_status,
        fs::CREATE_FILE => xdr::from_slice::<fs::CreateFileReply>(bytes).ok()?.directory_status,
        fs::REMOVE_FILE => xdr::from_slice::<fs::RemoveFileReply>(bytes).ok()?.directory_status,
        _ => return None,
    };
    Some((fid, u64::from(status.data_version_high) << 32 | u64::from(status.data_version)))
}
