//! `cellar serve`: opens the stores, starts the services, and shuts them down cleanly.

mod admission;
pub mod authority;
pub mod cell_keys;
mod clock;
mod destinations;
mod dispatcher;
pub mod environment;
mod exposed;
mod hindrances;
mod holdings;
mod jobs;
mod jobs_service;
pub mod locator;
pub mod log;
pub mod membership;
pub mod metrics;
pub mod neighbours;
pub mod observed;
pub mod offline;
pub mod overseer;
mod refusals;
pub mod registration;
pub mod services;
pub mod snapshots;
pub mod sockets;
mod syncing;
mod tickets;
pub mod transport;
mod upkeep;
pub mod volume_servers;
pub mod web;

use crate::sockets::{Keepers, Sources, Successor};
use anyhow::{Context, Result, anyhow, bail};
use audit::{Program, Trail};
use authority::Authority;
use base::{LocalAuthority, PartitionId};
use cell_client::CellClient;
use cell_client::network::{AfsNetwork, CellIdentity};
use cell_keys::CellKeys;
use cellar_config::encryption::KeySource;
use cellar_config::{PartitionSettings, Role, Settings};
use disk::{Disk, DiskMeter, MeteredDisk};
use environment::{Callbacks, SystemClock};
use events::LINES;
use fileserver::{Clock as _, FileServer};
pub use hindrances::Hindrances;
use log::EventLog;
use metrics::Metrics;
use observe::Recorder;
use observed::Observatory;
use registration::OnChange;
use rx::{Inherited, KeptSocket, Server};
use services::Services;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::{Database, Partition, PartitionConfig, SegmentConfig};
use volserver::VolumeServer;
use volume::{PartitionHandle, Space, VolumeOptions, Volumes};
use volume_servers::VolumeServers;
use web::Page;

/// Pause between two steps of the purger while there is something to remove.
const PURGE_PAUSE: Duration = Duration::from_millis(5);
/// Pause of background threads while there is nothing to do.
const IDLE_PAUSE: Duration = Duration::from_millis(500);
/// Interval at which expired callback promises, locks and volume transactions are removed.
const MAINTENANCE_PERIOD: Duration = Duration::from_secs(30);

/// Interval at which the cell's databases are checked for failure.
const DATABASES_PERIOD: Duration = Duration::from_secs(1);

/// Time limit for active calls when another process takes over. New calls wait meanwhile, and Linux gives up
/// a call after 20 seconds of silence.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Interval at which [`Running::drain`] checks.
const DRAIN_LOOK: Duration = Duration::from_millis(2);

/// A running server. Dropping it stops it; [`Running::stop`] also reports errors.
pub struct Running {
    metrics: Option<Metrics>,
    page: Option<Page>,
    servers: Vec<Arc<Server>>,
    recorder: Arc<Recorder>,
    /// Connections from the ports to other hosts, which keep the ports' services alive.
    ways: (Arc<Callbacks>, Arc<VolumeServers>),
    background: Vec<JoinHandle<()>>,
    ending: Arc<AtomicBool>,
    trail: Option<Arc<Trail>>,
    keys: (Arc<CellKeys>, Arc<CellClient>),
    /// Dropped last of the threads, when there are no more events.
    event_log: Option<EventLog>,
    volumes: Arc<Volumes>,
    // Kept as long as their stores are used; dropped last.
    _partitions: Vec<(PartitionId, Arc<Partition>)>,
    databases: Option<Arc<Database>>,
}

/// Opens everything and starts serving. When it returns, all services answer.
pub fn start(settings: &Arc<Settings>) -> Result<Running> {
    start_hindered(settings, &Hindrances::default())
}

/// Like [`start`], with faults injected, for tests.
pub fn start_hindered(settings: &Arc<Settings>, hindrances: &Hindrances) -> Result<Running> {
    start_inheriting(settings, hindrances, &Arc::default())
}

/// Like [`start_hindered`], with sockets inherited from another process.
fn start_inheriting(
    settings: &Arc<Settings>,
    hindrances: &Hindrances,
    inherited: &Arc<Inherited>,
) -> Result<Running> {
    if let Some(refusal) = settings.roles_refusal() {
        bail!("{}, `server.roles`: {refusal}", settings.source);
    }
    let event_log = EventLog::start();
    LINES.choose(&settings.event_lines.choice, settings.event_lines.per_second);
    let metrics = settings.metrics.map(Metrics::open).transpose()?;
    let page = settings.web.as_ref().map(Page::open).transpose()?;
    let authority = Arc::new(Authority::new(settings));
    let databases = open_databases(settings)?;
    let meters = disk_meters(settings);
    let partitions = open_partitions(settings, &meters, &hindrances.disk)?;
    let handle = |(id, partition): &_| (hindrances.partition)(handle(*id, partition));
    let handles = partitions.iter().map(handle).collect();
    let volumes = Volumes::open(handles, volume_options(settings)).context("cannot open the volumes")?;
    let volumes = Arc::new(volumes);
    let trail = start_audit(settings, &authority)?;
    let observatory = new_observatory(settings, meters, &volumes, trail.as_ref());
    let keys = Arc::new(CellKeys::read(settings.key_files.clone(), settings.security.clone())?);
    let cell = Arc::new(cell_client(settings, &keys)?);
    let services =
        Services::new(settings, &authority, databases.as_deref(), &volumes, &cell, &observatory, &keys)?;
    let (file_server, volume_server, uuid) =
        (services.file_server(), services.volume_server(), services.uuid());
    let admin_server = services.admin_server();
    let ways = services.ways();
    let servers = services.start(settings, hindrances, inherited)?;
    let ending = Arc::new(AtomicBool::new(false));
    let reclaim_pause = hindrances.reclaim_pause;
    let mut background =
        start_background(&ending, &volumes, file_server, volume_server.clone(), reclaim_pause);
    background.extend(admin_server.clone().map(|server| snapshots::start(&ending, server)));
    if let Some(period) = settings.tuning.durability.period {
        background.extend(syncing::start(&ending, &volumes, period));
    }
    background.push(cell_keys::follow(&ending, &keys, &cell));
    background.push(observatory.begin_periods(&ending));
    background.extend(upkeep::start(&ending, &volumes, settings.tuning.upkeep));
    if settings.roles.contains(&Role::Fs) {
        background.extend(jobs::start(&ending, settings, &cell, admin_server.as_deref()));
        let on_change = follow_addresses(&ways, &cell);
        background.push(registration::register(settings, &cell, uuid, on_change, ending.clone()));
    }
    if let Some(metrics) = &metrics {
        metrics.ready(&observatory);
    }
    background.extend(
        page.as_ref()
            .map(|page| page.begin(&ending, settings, &observatory, &volumes, volume_server.clone())),
    );
    Ok(Running {
        metrics,
        page,
        servers,
        recorder: observatory.recorder().clone(),
        ways,
        background,
        ending,
        trail,
        keys: (keys, cell),
        event_log: Some(event_log),
        volumes,
        _partitions: partitions,
        databases,
    })
}

/// Creates the recorder of calls and the observer of stores, as configured.
fn new_observatory(
    settings: &Settings,
    meters: Vec<(PartitionId, Arc<DiskMeter>)>,
    volumes: &Arc<Volumes>,
    trail: Option<&Arc<Trail>>,
) -> Arc<Observatory> {
    let observatory =
        Arc::new(Observatory::new(meters, volumes, trail.cloned(), settings.probe_history.clone()));
    observatory.recorder().count(settings.count_calls);
    observatory.recorder().remember_slow(settings.slow_call_ms.saturating_mul(1_000_000));
    observatory
}

/// Starts the threads of the audit, if one is configured.
fn start_audit(settings: &Settings, authority: &Arc<Authority>) -> Result<Option<Arc<Trail>>> {
    if settings.audit.is_empty() {
        return Ok(None);
    }
    let authority: Arc<dyn LocalAuthority> = authority.clone();
    let program = |role| match role {
        Role::Pt => Some(Program::Protection),
        Role::Vol => Some(Program::Volumes),
        _ => None,
    };
    let programs: Vec<Program> = settings.roles.iter().copied().filter_map(program).collect();
    let trail = Trail::start(&settings.audit, &programs, &authority, rx::now);
    let trail = trail.context("cannot start the audit")?;
    Ok(Some(Arc::new(trail)))
}

fn volume_options(settings: &Settings) -> VolumeOptions {
    VolumeOptions {
        durability: settings.tuning.durability.durability,
        codec: settings.tuning.compression,
        loaded_volumes_max: settings.tuning.loaded_volumes,
        cached_status_bytes: settings.tuning.caches.status,
        cached_directory_bytes: settings.tuning.caches.directories,
        ..VolumeOptions::default()
    }
}

/// Returns a client of the cell's database servers with the cell's key.
fn cell_client(settings: &Settings, keys: &CellKeys) -> Result<CellClient> {
    let security = Arc::new(CellIdentity::new(keys.ring(), settings.security.own_calls)?);
    let network = AfsNetwork::start_with(Some(security), settings.tuning.packet_bytes_max)?.impatient();
    let has_databases = [Role::Vl, Role::Pt].iter().all(|role| settings.roles.contains(role));
    let is_alone = has_databases && settings.bind.is_empty() && settings.other_database_servers().is_empty();
    let network = Arc::new(if is_alone { network.with_own_databases() } else { network });
    let mut servers: Vec<Ipv4Addr> = settings.database_servers.iter().map(|server| server.address).collect();
    if servers.is_empty() {
        servers.clone_from(&settings.announce);
    }
    CellClient::new(network, servers)
}

/// Returns a callback that closes connections from addresses that the machine has lost, on all ports that
/// call others.
fn follow_addresses(ways: &(Arc<Callbacks>, Arc<VolumeServers>), cell: &Arc<CellClient>) -> OnChange {
    let ((callbacks, volume_servers), cell) = (ways.clone(), cell.clone());
    Box::new(move |lost, own| {
        cell.on_addresses_changed(lost, own);
        for connector in [callbacks.way.get(), volume_servers.way.get()].into_iter().flatten() {
            for address in lost {
                connector.forget_source(IpAddr::V4(*address));
            }
        }
    })
}

fn open_databases(settings: &Settings) -> Result<Option<Arc<Database>>> {
    if !settings.roles.contains(&Role::Vl) && !settings.roles.contains(&Role::Pt) {
        return Ok(None);
    }
    let path = &settings.database_path;
    Database::open(path)
        .map(|databases| Some(Arc::new(databases)))
        .with_context(|| format!("cannot open the cell's databases in {}", path.display()))
}

/// Opens the partitions in parallel. A broken one keeps only its own volumes offline; it is an error if none
/// can be opened.
fn open_partitions(
    settings: &Settings,
    meters: &[(PartitionId, Arc<DiskMeter>)],
    disk: &Arc<dyn Disk>,
) -> Result<Vec<(PartitionId, Arc<Partition>)>> {
    let config = partition_config(settings);
    let open = |partition: &PartitionSettings, meter: &Arc<DiskMeter>| {
        let disk: Arc<dyn Disk> = Arc::new(MeteredDisk::new(disk.clone(), meter.clone()));
        open_partition(partition, &config, &disk)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> = settings
            .partitions
            .iter()
            .zip(meters)
            .map(|(partition, (_, meter))| (partition, scope.spawn(move || open(partition, meter))))
            .collect();
        opening.into_iter().map(|(partition, thread)| (partition, thread.join())).collect()
    });
    let mut opened = Vec::new();
    for (partition, result) in results {
        match result {
            Ok(Ok(store)) => opened.push((partition.id, Arc::new(store))),
            Ok(Err(error)) => {
                let error = format!("{error:#}");
                tracing::error!(partition = %partition.id, path = %partition.path.display(), error,
                    "the partition cannot be opened; its volumes are offline");
            }
            Err(_) => tracing::error!(partition = %partition.id, "opening the partition panicked"),
        }
    }
    if opened.is_empty() && !settings.partitions.is_empty() {
        bail!("no partition could be opened; the messages above say why");
    }
    Ok(opened)
}

/// Returns a meter for each partition, in order.
fn disk_meters(settings: &Settings) -> Vec<(PartitionId, Arc<DiskMeter>)> {
    settings.partitions.iter().map(|partition| (partition.id, Arc::default())).collect()
}

fn partition_config(settings: &Settings) -> PartitionConfig {
    PartitionConfig {
        segments: SegmentConfig {
            cache_bytes: settings.tuning.caches.chunks / settings.partitions.len().max(1) as u64,
            ..SegmentConfig::default()
        },
        chunk_of: Some(volume::chunk_of),
        ..PartitionConfig::default()
    }
}

fn open_partition(
    partition: &PartitionSettings,
    config: &PartitionConfig,
    disk: &Arc<dyn Disk>,
) -> Result<Partition> {
    let key = partition.key.as_ref().map(KeySource::load).transpose()?;
    let opened = Partition::open_with(disk, &partition.path, config, key.as_ref());
    // The error already names its cause.
    opened.map_err(|error| anyhow!("{error}"))
}

/// Returns what a volume needs of a partition: its metadata, its chunks and its free space.
pub fn handle(id: PartitionId, partition: &Arc<Partition>) -> PartitionHandle {
    let measured = partition.clone();
    let space = move || {
        let room = measured.room().unwrap_or_default();
        Space { total_kib: room.total_bytes >> 10, free_kib: room.usable_bytes >> 10 }
    };
    PartitionHandle { id, meta: partition.meta(), chunks: partition.chunks(), space: Arc::new(space) }
}

fn start_background(
    ending: &Arc<AtomicBool>,
    volumes: &Arc<Volumes>,
    file_server: Option<Arc<FileServer>>,
    volume_server: Option<Arc<VolumeServer>>,
    reclaim_pause: Duration,
) -> Vec<JoinHandle<()>> {
    let (purge_ending, purge_volumes) = (ending.clone(), volumes.clone());
    let ending = ending.clone();
    let maintain = move || {
        let mut watch = clock::ClockWatch::default();
        let mut observe = || watch.observe(SystemClock.monotonic(), SystemClock.wall());
        observe();
        while wait(&ending, MAINTENANCE_PERIOD) {
            observe().into_iter().for_each(clock::log);
            if let Some(server) = &file_server {
                server.maintain();
            }
            if let Some(server) = &volume_server {
                server.expire_transactions();
            }
        }
    };
    let purge = move || purge(&purge_ending, &purge_volumes, reclaim_pause);
    vec![thread("purge", purge), thread("maintain", maintain)]
}

fn purge(ending: &AtomicBool, volumes: &Volumes, pause_min: Duration) {
    let mut pause = IDLE_PAUSE;
    while wait(ending, pause.max(pause_min)) {
        count(volumes);
        pause = match volumes.purge_step() {
            Ok(true) => PURGE_PAUSE,
            Ok(false) => IDLE_PAUSE,
            Err(error) => {
                tracing::error!(%error, "cannot reclaim space");
                IDLE_PAUSE * 20
            }
        };
    }
}

/// Computes the directory totals of a volume that has none.
fn count(volumes: &Volumes) {
    if let Err(error) = volumes.count_step() {
        tracing::error!(%error, "cannot count what a volume's directories hold");
    }
}

/// Starts a named thread, for `top -H`, debuggers and traces, which show 15 bytes of the name. Panics like
/// [`std::thread::spawn`] if the system has no more threads.
fn thread(name: impl Into<String>, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let spawned = std::thread::Builder::new().name(name.into()).spawn(work);
    spawned.unwrap_or_else(|error| panic!("cannot start a thread: {error}"))
}

/// Sleeps in short intervals; returns false if the server is ending.
fn wait(ending: &AtomicBool, span: Duration) -> bool {
    let mut left = span;
    while !left.is_zero() && !ending.load(Ordering::Relaxed) {
        let nap = left.min(Duration::from_millis(200));
        std::thread::sleep(nap);
        left -= nap;
    }
    !ending.load(Ordering::Relaxed)
}

impl Running {
    /// Returns the address of the metrics port, if enabled.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Metrics::address)
    }

    /// Returns the address of the web page, if enabled.
    pub fn page_address(&self) -> Option<SocketAddr> {
        self.page.as_ref().map(Page::address)
    }

    /// Returns the recorder of calls, which can be switched to measure the cost of counting.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Returns the audit, if configured.
    pub fn trail(&self) -> Option<&Trail> {
        self.trail.as_deref()
    }

    /// Returns the number of calls on all ports that Rx has completed since the start, even if counting is
    /// off.
    pub fn calls_ended(&self) -> u64 {
        let endpoints = self.servers.iter().flat_map(|server| server.statistics().endpoints);
        endpoints.map(|endpoint| endpoint.calls_ended).sum()
    }

    /// Calls `failed` with the error once the cell's databases accept no more writes.
    fn watch_databases(&mut self, failed: impl FnOnce(String) + Send + 'static) {
        let Some(databases) = self.databases.clone() else { return };
        let ending = self.ending.clone();
        self.background.push(thread("databases", move || {
            while wait(&ending, DATABASES_PERIOD) {
                if let Some(error) = databases.failure() {
                    return failed(error);
                }
            }
        }));
    }

    /// Reopens the audit files, which may have been renamed, and reads the cell's keys if their files have
    /// changed.
    pub fn reopen(&self) {
        self.keys.0.look(&self.keys.1);
        self.trail.iter().for_each(|trail| trail.reopen());
    }

    /// Returns descriptors of the sockets of all ports, for a successor process.
    pub fn sockets(&self) -> Result<Vec<KeptSocket>> {
        let mut all = Vec::new();
        for server in &self.servers {
            all.extend(server.sockets().context("cannot duplicate the sockets")?);
        }
        Ok(all)
    }

    /// Leaves new calls to the successor process, and waits a few seconds for active ones.
    fn drain(&self) {
        self.servers.iter().for_each(|server| server.hold_new_calls());
        let end = Instant::now() + DRAIN_MAX;
        while Instant::now() < end && !self.servers.iter().all(|server| server.is_idle()) {
            std::thread::sleep(DRAIN_LOOK);
        }
    }

    /// Ends all calls and threads and makes everything durable.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        self.volumes.sync().context("cannot make the last changes durable")
    }

    fn end(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.ending();
        }
        self.ending.store(true, Ordering::Relaxed);
        self.trail.iter().for_each(|trail| trail.ending());
        for server in self.servers.drain(..) {
            server.stop();
        }
        for thread in self.background.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
        self.ways.0.way.close();
        self.ways.1.way.close();
        self.trail.iter().for_each(|trail| trail.stop());
        self.event_log.take();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves until SIGINT or SIGTERM, or until another process takes over. SIGHUP reopens the audit files and
/// reads the cell's keys.
pub fn run(settings: Settings, sources: Sources) -> Result<()> {
    run_then(settings, sources, |_| Ok(()))
}

/// Serves until SIGINT or SIGTERM, or until another process takes over; calls `then` once all services
/// answer.
///
/// # Errors
/// If it could not start, or the cell's databases failed; in that case it was shut down cleanly.
pub fn run_then(
    settings: Settings,
    sources: Sources,
    then: impl FnOnce(&Settings) -> Result<()>,
) -> Result<()> {
    log::start(&settings.log_path)?;
    let (instructions, received) = channel();
    follow_signals(instructions.clone())?;
    let roles: Vec<&str> = settings.roles.iter().map(|role| role.instance()).collect();
    tracing::info!(cell = %settings.cell, from = settings.source, ?roles, "starting");
    let settings = Arc::new(settings);
    let path = settings.handover_path();
    let (mut keepers, inherited) = Keepers::find(sources, &path)?;
    let mut running = start_inheriting(&settings, &Hindrances::default(), &inherited)?;
    let sockets = running.sockets()?;
    keepers.keep(&inherited, &sockets);
    let failed = instructions.clone();
    running.watch_databases(move |error| _ = failed.send(Instruction::Fail(error)));
    sockets::await_successor(&path, sockets, move |successor| {
        let _ = instructions.send(Instruction::Replace(successor));
    });
    tracing::info!("serving");
    then(&settings)?;
    let end = wait_for_end(&running, &received)?;
    keepers.stopping();
    if matches!(end, End::Replaced(_)) || keepers.is_any() {
        running.drain();
    }
    let stopped = running.stop();
    match end {
        End::Signal => {}
        End::Replaced(successor) => successor.wait_for_process_end(),
        End::Failed(error) => {
            let path = settings.database_path.display();
            bail!(
                "stopped: the cell's databases in {path} take no more writes: {error}; repair their file system first"
            );
        }
    }
    stopped?;
    tracing::info!("stopped");
    Ok(())
}

/// Instruction to a running server.
enum Instruction {
    Reopen,
    Replace(Successor),
    /// End, because of this signal.
    End(i32),
    /// The cell's databases failed with this error.
    Fail(String),
}

/// Reason why a server ends.
enum End {
    Signal,
    Replaced(Successor),
    Failed(String),
}

/// Handles instructions until the server is to end.
fn wait_for_end(running: &Running, received: &Receiver<Instruction>) -> Result<End> {
    loop {
        match received.recv()? {
            Instruction::Reopen => running.reopen(),
            Instruction::Replace(successor) => {
                tracing::info!("stopping: another process takes over");
                return Ok(End::Replaced(successor));
            }
            Instruction::End(signal) => {
                tracing::info!(signal = signal_name(signal), "stopping");
                return Ok(End::Signal);
            }
            Instruction::Fail(error) => {
                tracing::error!(error, "stopping: the cell's databases take no more writes");
                return Ok(End::Failed(error));
            }
        }
    }
}

fn follow_signals(instructions: Sender<Instruction>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let follow = move || {
        for signal in signals.forever() {
            let instruction = if signal == SIGHUP { Instruction::Reopen } else { Instruction::End(signal) };
            if instructions.send(instruction).is_err() {
                return;
            }
        }
    };
    thread("signals", follow);
    Ok(())
}

#[cfg(test)]
mod tests;
