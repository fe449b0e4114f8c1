//! A server machine: its disk, its metadata, and the services that run on it until it crashes.

use crate::host::{Begun, Host};
use crate::hub::{Hub, Reply};
use crate::stream::{Line, Loss, ServedCall};
use crate::tasks::{self, Wait};
use crate::world::{CALLBACK_SERVICE, FILE_SERVICE, LOCATION_SERVICE, Places, Sabotage, server_uuid};
use afs_idl::{ClientConnection, cb};
use base::{
    AbortCode, CallContext, Caller, Fid, LocalAuthority, Monotonic, PartitionId, Principal, Rights, UnixTime,
    UserId, VolumeId, VolumeType,
};
use bytes::Bytes;
use disk::{Disk, FaultyDisk, Garbling, Torn};
use fileserver::{
    CallbackNetwork, Clock, Environment, FileServer, FileServerConfig, Membership, Reports, Subject,
    TransportFigures,
};
use rand::Rng;
use rand::rngs::SmallRng;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use store::{FileData, HookedMeta, MemoryMeta, MetaStep, MetaStore, Reserve, SegmentConfig, SegmentStore};
use vldb::Locations;
use vlserver::{Settings, VlService};
use volume::{
    Actor, NewVolume, PartitionHandle, Pending, SetStatus, Space, VolumeError, VolumeOptions, Volumes,
};

const FOLDER: &str = "/segments";

/// Wall-clock time at the start of a world.
pub(crate) const DAWN_S: i64 = 1_700_000_000;

/// Maximum durations of a sync of metadata: each machine has one of them.
const SYNC_TIMES_MAX: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(30), Duration::from_millis(1500)];

/// Fraction of syncs during which the machine crashes, if machines crash at all.
const CRASHES_IN_SYNC: f64 = 0.01;

/// The time on one machine: monotonic since its start, and a wall clock that may jump.
pub(crate) struct MachineClock {
    hub: Arc<Hub>,
    start: Monotonic,
    jumped_s: Arc<AtomicI64>,
}

impl Clock for MachineClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic(1) + self.hub.now().since(self.start)
    }

    fn wall(&self) -> Duration {
        wall(self.hub.now(), &self.jumped_s)
    }
}

/// Returns the time since 1970 on a machine with a clock that has jumped by `jumped_s` seconds.
pub(crate) fn wall(now: Monotonic, jumped_s: &AtomicI64) -> Duration {
    let dawn_s = (DAWN_S + jumped_s.load(SeqCst)).max(0) as u64;
    Duration::from_secs(dawn_s) + Duration::from_nanos(now.0)
}

/// Reports between the calls of a simulated server.
struct TurnReports {
    hub: Arc<Hub>,
    count: Arc<AtomicU64>,
}

impl Reports for TurnReports {
    fn count(&self) -> u64 {
        self.count.load(SeqCst)
    }

    fn wait(&self, seen: u64, limit: Duration) -> bool {
        let until = self.hub.now() + limit;
        let result = tasks::wait(Wait::Reports { count: Arc::clone(&self.count), seen, until });
        result.is_ok() && self.count() > seen
    }

    fn report(&self) {
        self.count.fetch_add(1, SeqCst);
    }
}

/// The way to clients' callback services.
struct Clients {
    hub: Arc<Hub>,
    host: usize,
    loss: Option<Loss>,
}

impl CallbackNetwork for Clients {
    fn connection(&self, peer: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
        Arc::new(Line {
            hub: Arc::clone(&self.hub),
            from: self.host,
            to: peer,
            service: CALLBACK_SERVICE,
            patience: Some(patience),
            loss: self.loss,
        })
    }
}

/// Everyone is an administrator: rights are not what is tested here.
struct Everyone;

impl Membership for Everyone {
    fn subject(&self, _: &Caller) -> Result<Subject, AbortCode> {
        Ok(Subject {
            user: UserId(1),
            groups: vec![UserId(1), UserId::ANYUSER],
            host_groups: Vec::new(),
            administrator: true,
            superuser: true,
            is_partial: false,
        })
    }

    fn names(&self, ids: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode> {
        Ok(ids.iter().map(|id| id.0.to_string().into_bytes()).collect())
    }

    fn ids(&self, names: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode> {
        Ok(vec![None; names.len()])
    }
}

impl LocalAuthority for Everyone {
    fn is_superuser(&self, _: &Caller) -> bool {
        true
    }

    fn is_local_realm(&self, _: &Principal) -> bool {
        true
    }
}

/// The services of a machine that runs.
pub(crate) struct Running {
    pub(crate) host: Host,
    pub(crate) files: Arc<FileServer>,
    volumes: Arc<Volumes>,
    segments: Arc<SegmentStore>,
    locations: Option<Arc<VlService>>,
    /// Set when the machine crashes.
    pub(crate) is_off: Arc<AtomicBool>,
}

/// A server machine.
pub(crate) struct Machine {
    pub(crate) number: usize,
    /// Number of crashes so far.
    pub(crate) incarnation: u32,
    pub(crate) jumped_s: Arc<AtomicI64>,
    /// `None` after a crash.
    pub(crate) running: Option<Running>,
    hub: Arc<Hub>,
    places: Arc<Places>,
    sabotage: Sabotage,
    disk: FaultyDisk,
    meta: Arc<MemoryMeta>,
    locations: Arc<MemoryMeta>,
    segments: SegmentConfig,
    sync_time_max: Duration,
}

fn actor() -> Actor {
    Actor {
        user: UserId(1),
        privileged: true,
        in_transaction: false,
        call: None,
        now: UnixTime(DAWN_S as u32),
    }
}

/// Returns the name of a volume.
pub(crate) fn volume_name(id: VolumeId) -> String {
    format!("volume.{id}")
}

fn partition() -> PartitionId {
    PartitionId::from_index(0).expect("a partition")
}

impl Machine {
    /// Creates a machine with an empty disk that does not run yet.
    pub(crate) fn new(
        number: usize,
        hub: Arc<Hub>,
        places: Arc<Places>,
        sabotage: Sabotage,
        random: &mut SmallRng,
    ) -> Machine {
        let torn = if random.random() { Torn::Sector } else { Torn::Byte };
        let garbling = Garbling { torn, noise: random.random(), short: random.random() };
        let disk = FaultyDisk::new(random.random(), garbling);
        disk.create_dir(Path::new(FOLDER)).expect("a folder");
        disk.sync_dir(Path::new("/")).expect("a sync");
        let segments = SegmentConfig {
            segment_bytes: random.random_range(10_000..100_000),
            cache_bytes: random.random_range(0..20_000),
            open_files_max: 4,
            reserve: Reserve { bytes: 0, permille: 0 },
            unsynced_bytes_max: 1 << 20,
            aligned_bytes_min: if random.random() { 64 << 10 } else { random.random_range(0..3000) },
        };
        Machine {
            number,
            incarnation: 0,
            jumped_s: Arc::default(),
            running: None,
            hub,
            places,
            sabotage,
            disk,
            meta: Arc::default(),
            locations: Arc::default(),
            segments,
            sync_time_max: SYNC_TIMES_MAX[random.random_range(0..SYNC_TIMES_MAX.len())],
        }
    }

    /// Starts the services.
    pub(crate) fn start(&mut self, seed: u64) {
        let now = self.hub.now();
        let (volumes, segments) = self.open();
        let clock = Arc::new(MachineClock {
            hub: Arc::clone(&self.hub),
            start: now,
            jumped_s: Arc::clone(&self.jumped_s),
        });
        let clients = Clients { hub: Arc::clone(&self.hub), host: self.number, loss: self.sabotage.loss() };
        let environment = Environment {
            volumes: Arc::clone(&volumes),
            membership: Arc::new(Everyone),
            network: Arc::new(clients),
            clock: Arc::clone(&clock) as _,
            locator: None,
            transport: Arc::new(TransportFigures::default),
            process_kib: Arc::new(|| 0),
        };
        let config = FileServerConfig {
            uuid: server_uuid(self.number),
            implicit_admin_rights: Rights::ALL,
            break_threads_max: 1,
            ..FileServerConfig::default()
        };
        let reports = TurnReports { hub: Arc::clone(&self.hub), count: Arc::default() };
        let files = FileServer::new(config, environment).with_reports(Arc::new(reports));
        let locations = (self.number == 0).then(|| {
            let locations = Locations::open(Arc::clone(&self.locations) as _).expect("a location database");
            let clock = Arc::new(move || clock.unix());
            let service = VlService::new(Arc::new(locations), Arc::new(Everyone), Settings::default(), clock);
            Arc::new(service)
        });
        let address = self.places.server(self.number);
        let host = Host::new(address, &[FILE_SERVICE, LOCATION_SERVICE], false, seed, now);
        let is_off = Arc::default();
        self.running = Some(Running { host, files: Arc::new(files), volumes, segments, locations, is_off });
        self.hub.record().started(self.number);
    }

    fn open(&self) -> (Arc<Volumes>, Arc<SegmentStore>) {
        let disk = Arc::new(self.disk.clone());
        let meta = Arc::clone(&self.meta);
        let store = SegmentStore::open(disk, Path::new(FOLDER), Arc::clone(&meta) as _, self.segments)
            .expect("segments that a crash leaves can be opened");
        let recount = store.recount(&*meta.snapshot(), volume::CHUNK_NAMES, &mut || true);
        let recount = recount.expect("a recount");
        assert!(recount.is_none_or(|found| found.missing == 0), "a crash loses no chunk that has a name");
        let segments = Arc::new(store);
        let (hub, number, time_max) = (Arc::clone(&self.hub), self.number, self.sync_time_max);
        // The time that a sync takes. Others run meanwhile, and the machine may crash.
        let slow = move |step| {
            if step == MetaStep::Sync && tasks::is_task() {
                if hub.chance(CRASHES_IN_SYNC) {
                    hub.ask_for_crash(number);
                }
                _ = tasks::wait(Wait::Until(hub.soon(time_max)));
            }
        };
        let handle = PartitionHandle {
            id: partition(),
            meta: Arc::new(HookedMeta::new(meta, slow)),
            chunks: Arc::clone(&segments) as _,
            space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
        };
        let options = VolumeOptions {
            append_threads: 0,
            read_threads: 0,
            chunk_shift: 12,
            inline_bytes_max: 100,
            ..VolumeOptions::default()
        };
        (Arc::new(Volumes::open(vec![handle], options).expect("volumes that a crash leaves")), segments)
    }

    /// Creates a volume with empty files. The machine must run.
    pub(crate) fn create_volume(&self, id: VolumeId, files: usize) {
        let running = self.running.as_ref().expect("a machine that runs");
        let new = NewVolume {
            id,
            name: volume_name(id).parse().expect("a name"),
            kind: VolumeType::ReadWrite,
            parent: id,
            quota_max_kib: 0,
            with_root: true,
            in_service: true,
            destroy_me: 0,
            now: UnixTime(DAWN_S as u32),
        };
        let volume = running.volumes.create(partition(), &new).expect("a volume");
        let nothing = SetStatus { mode: None, owner: None, group: None, client_modified: None };
        for number in 0..files {
            let name = format!("file-{number}");
            let made =
                volume.create_file(&actor(), volume.root(), name.as_bytes(), &nothing).expect("a file");
            let (fid, version) = (made.status.fid(id), made.status.data_version);
            self.hub.record().add(self.number, fid, version, Some(crate::record::hash(&[])));
        }
        let root = volume.status(volume.root()).expect("a root directory");
        self.hub.record().add(self.number, Fid::root(id), root.data_version, None);
        running.volumes.sync().expect("a sync");
    }

    /// Adds a volume to the location database. The machine must run it.
    pub(crate) fn add_location(&self, volume: VolumeId, server: usize) {
        let running = self.running.as_ref().expect("a machine that runs");
        let locations = running.locations.as_ref().expect("the location service");
        let mut entry = afs_idl::vl::NVldbEntry {
            name: volume_name(volume).as_str().into(),
            server_count: 1,
            volume_id: [volume.0, 0, 0],
            flags: 0x1000,
            ..afs_idl::vl::NVldbEntry::default()
        };
        let std::net::IpAddr::V4(address) = self.places.server(server).ip() else {
            unreachable!("IPv4 only")
        };
        entry.server_number[0] = address.into();
        entry.server_flags[0] = 4;
        let caller = Caller {
            identity: base::Identity::Anonymous,
            level: base::SecurityLevel::Clear,
            peer: self.places.server(server),
            local: self.places.server(self.number).ip(),
            connection: base::Connection::new(),
        };
        let request = afs_idl::vl::CreateEntryNRequest { new_entry: entry };
        afs_idl::vl::Server::create_entry_n(&**locations, &CallContext::new(&caller), request)
            .expect("a new entry");
    }

    /// Crashes: what was not synced may be lost, and nothing that still runs has an effect. Returns the number
    /// of lost commits. The threads that served calls must run until they have ended.
    pub(crate) fn crash(&mut self, random: &mut SmallRng) -> u64 {
        let Some(running) = self.running.take() else { return 0 };
        running.is_off.store(true, SeqCst);
        self.incarnation += 1;
        let pending = self.meta.unsynced_commits();
        let kept = random.random_range(0..=pending);
        let mut meta = self.meta.taken_over(kept);
        if self.sabotage == Sabotage::LosesEverything {
            meta = MemoryMeta::new().taken_over(0);
        }
        self.meta = Arc::new(meta);
        self.locations = Arc::new(self.locations.taken_over(0));
        let disk = self.disk.crash();
        self.disk.cut_power_at(0);
        self.disk = disk;
        (pending - kept) as u64
    }

    /// Lets the disk fail from one of its next operations on, as when the power fails.
    pub(crate) fn cut_power_soon(&self, random: &mut SmallRng) {
        assert!(self.running.is_some(), "nothing else fails then");
        self.disk.cut_power_at(self.disk.operations() + random.random_range(0..40));
    }

    /// Does the periodic work of a server.
    pub(crate) fn maintain(&self) {
        let Some(running) = &self.running else { return };
        running.files.maintain();
        // The disk may fail because its power is cut.
        _ = running.volumes.sync();
        _ = running.segments.maintain();
        _ = running.volumes.purge_step();
    }

    /// Returns the wall-clock time.
    pub(crate) fn wall(&self) -> UnixTime {
        UnixTime(wall(self.hub.now(), &self.jumped_s).as_secs() as u32)
    }

    /// Returns what serves a call, on a thread of its own.
    pub(crate) fn serving(&self, begun: Begun) -> Option<Box<dyn FnOnce() + Send>> {
        let running = self.running.as_ref()?;
        let Begun { call, service, caller, incoming } = begun;
        let (hub, host, incarnation) = (Arc::clone(&self.hub), self.number, self.incarnation);
        let early = self.sabotage == Sabotage::AcknowledgesEarly;
        let files = Arc::clone(&running.files);
        let locations = running.locations.clone();
        Some(Box::new(move || {
            let mut stream = ServedCall::new(Arc::clone(&incoming));
            let peer = caller.peer;
            let reply = move |result| {
                hub.reply(Reply { host, incarnation, call, caller: peer, head: incoming.head(), result });
            };
            if service == LOCATION_SERVICE {
                let Some(locations) = locations else { return reply(Err(AbortCode::RX_INVALID_OPERATION)) };
                let result = afs_idl::vl::dispatch(&*locations, &CallContext::new(&caller), &mut stream);
                return reply(result.map(|()| stream.reply.into()));
            }
            let served =
                files.serve(|call| afs_idl::fs::dispatch(call, &CallContext::new(&caller), &mut stream));
            let (result, durable) = served.into_parts();
            let result = result.map(|()| Bytes::from(stream.reply));
            end_when_durable(durable, early, result, reply);
        }))
    }
}

/// Answers a call as the server's dispatcher does: when its changes are durable, on the thread that made them so.
fn end_when_durable(
    durable: Pending<()>,
    early: bool,
    result: Result<Bytes, AbortCode>,
    reply: impl FnOnce(Result<Bytes, AbortCode>) + Send + 'static,
) {
    let end =
        |durable: Result<(), VolumeError>, result| durable.map_err(|error| error.abort_code()).and(result);
    let durable = match durable.into_ready() {
        Ok(()) => return reply(result),
        Err(_) if early => return reply(result),
        Err(durable) => durable,
    };
    if result.is_err() {
        return reply(end(durable.wait(), result));
    }
    durable.when_durable(move |durable| reply(end(durable, result)));
}

impl Sabotage {
    fn loss(self) -> Option<Loss> {
        match self {
            Sabotage::BreaksNothing => Some(Loss { opcode: cb::CALL_BACK, is_late: false }),
            Sabotage::BreaksLate => Some(Loss { opcode: cb::CALL_BACK, is_late: true }),
            Sabotage::ResetsNobody => Some(Loss { opcode: cb::INIT_CALL_BACK_STATE3, is_late: false }),
            _ => None,
        }
    }
}
