//! Opens everything and starts the services.

use crate::authority::Authority;
use crate::background::start_background;
use crate::buckets::{self, Held, Keeper, Means, Opening, Resets};
use crate::cell_keys::CellKeys;
use crate::cluster::{Administration, Databases, Node, RosterMeans, follow, with_listed_partitions};
use crate::environment::Callbacks;
use crate::faults::FaultInjection;
use crate::log::EventLog;
use crate::metrics::Metrics;
use crate::observed::Observatory;
use crate::registration::{IsOwner, OnChange, ServiceAddresses, Shared};
use crate::running::{Leaving, Partitions, Running};
use crate::services::Services;
use crate::stores::{Meters, handle, meters_of, open_databases, open_partitions};
use crate::volume_servers::VolumeServers;
use crate::web::Page;
use crate::{cell_keys, jobs, registration, snapshots, syncing, upkeep};
use adminserver::AdminServer;
use anyhow::{Context, Result, bail};
use audit::{Program, Trail};
use base::{HostUuid, LocalAuthority, PartitionId};
use cell_client::CellClient;
use cell_client::network::{AfsNetwork, CellIdentity};
use cell_client::patience::Patience;
use cellar_config::{Role, Settings};
use events::LINES;
use fileserver::FileServer;
use parking_lot::Mutex;
use rx::{Inherited, Server};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use volserver::VolumeServer;
use volume::{VolumeOptions, Volumes};

/// Opens everything and starts serving. When it returns, all services answer.
pub fn start(settings: &Arc<Settings>) -> Result<Running> {
    start_with_faults(settings, &FaultInjection::default())
}

/// Like [`start`], with faults injected, for tests.
pub fn start_with_faults(settings: &Arc<Settings>, faults: &FaultInjection) -> Result<Running> {
    start_inheriting(settings, faults, &Arc::default(), &AtomicBool::new(false))
}

/// Like [`start_with_faults`], with sockets inherited from another process. Ends with an error soon after `interrupted`
/// is set while it waits for partitions in buckets.
pub(crate) fn start_inheriting(
    settings: &Arc<Settings>,
    faults: &FaultInjection,
    inherited: &Arc<Inherited>,
    interrupted: &AtomicBool,
) -> Result<Running> {
    let settings = &checked(settings, interrupted)?;
    let event_log = EventLog::start();
    LINES.choose(&settings.event_lines.choice, settings.event_lines.per_second);
    let metrics = settings.metrics.map(Metrics::open).transpose()?;
    let page = settings.web.as_ref().map(Page::open).transpose()?;
    let authority = Arc::new(Authority::new(settings));
    let databases = open_databases(settings)?;
    let mut starting = Starting::default();
    let ending = Arc::clone(&starting.ending);
    let (stores, later) = open_stores(settings, faults, interrupted)?;
    let trail = start_audit(settings, &authority)?;
    let observatory = new_observatory(settings, &stores, trail.as_ref());
    let keys = Arc::new(CellKeys::read(settings.key_files.clone(), settings.security.clone())?);
    let cell = Arc::new(cell_client(settings, &keys)?);
    let services = Services::new(
        settings,
        &authority,
        databases.as_deref(),
        &stores.volumes,
        &cell,
        &observatory,
        (&keys, stores.node.as_ref()),
    )?;
    let work = Work {
        settings,
        faults,
        ending: &ending,
        stores: &stores,
        cell: &cell,
        keys: &keys,
        observatory: &observatory,
        metrics: metrics.as_ref(),
        page: page.as_ref(),
        file_server: services.file_server(),
        volume_server: services.volume_server(),
        admin_server: services.admin_server(),
        shared: services.databases(),
        ways: services.ways(),
        uuid: services.uuid(),
    };
    let resets = work.expect_calls(&later);
    let servers = services.start(settings, faults, inherited)?;
    let (background, ways) = (work.begin(&servers, later, resets)?, work.ways);
    starting.is_done = true;
    Ok(Running {
        metrics,
        page,
        servers,
        recorder: observatory.recorder().clone(),
        ways,
        background,
        ending,
        node: stores.node.map(|node| Leaving { node, trail: trail.clone() }),
        trail,
        keys: (keys, cell),
        event_log: Some(event_log),
        volumes: stores.volumes,
        partitions: stores.partitions,
        databases,
        cluster_port: settings.cluster.as_ref().map(|cluster| cluster.port),
    })
}

/// Returns settings that can be served. Waits for the list of a cluster's partitions until `interrupted`.
fn checked(settings: &Arc<Settings>, interrupted: &AtomicBool) -> Result<Arc<Settings>> {
    if let Some(refusal) = settings.roles_refusal() {
        bail!("{}, `server.roles`: {refusal}", settings.source);
    }
    with_listed_partitions(settings, interrupted)
}

/// The open partitions, and what opens the others.
struct Stores {
    node: Option<Arc<Node>>,
    /// Meters of the partitions' disks.
    meters: Vec<(PartitionId, Meters)>,
    volumes: Arc<Volumes>,
    partitions: Partitions,
}

/// Opens the partitions that can be opened soon, with their volumes, and begins to open the others.
fn open_stores(
    settings: &Settings,
    faults: &FaultInjection,
    interrupted: &AtomicBool,
) -> Result<(Stores, Vec<Opening>)> {
    let meters = meters_of(settings);
    let node = Node::start(settings)?;
    let (partitions, later) = open_all(settings, &meters, faults, node.as_ref(), interrupted)?;
    let volumes = Arc::new(open_volumes(settings, faults, &partitions)?);
    Ok((Stores { node, meters, volumes, partitions: Arc::new(Mutex::new(partitions)) }, later))
}

/// State of the background threads.
struct Work<'a> {
    settings: &'a Arc<Settings>,
    faults: &'a FaultInjection,
    ending: &'a Arc<AtomicBool>,
    stores: &'a Stores,
    cell: &'a Arc<CellClient>,
    keys: &'a Arc<CellKeys>,
    observatory: &'a Arc<Observatory>,
    metrics: Option<&'a Metrics>,
    page: Option<&'a Page>,
    file_server: Option<Arc<FileServer>>,
    volume_server: Option<Arc<VolumeServer>>,
    admin_server: Option<Arc<AdminServer>>,
    /// The cell's databases, if they are in the bucket of a cluster.
    shared: Option<Arc<Databases>>,
    ways: (Arc<Callbacks>, Arc<VolumeServers>),
    uuid: HostUuid,
}

impl Work<'_> {
    /// Prepares the file server for calls, also to volumes of partitions that are opened `later`; those of a cluster wait for
    /// their owner. Returns the resets that clients are owed.
    fn expect_calls(&self, later: &[Opening]) -> Vec<Resets> {
        let server = self.file_server.as_ref();
        if let Some(server) = server.filter(|_| self.stores.node.is_none()) {
            for opening in later {
                server.await_partition(opening.id);
            }
        }
        owe_resets(&self.stores.partitions, server)
    }

    /// Starts the threads behind the open ports, also those of the partitions that are opened `later`.
    fn begin(
        &self,
        servers: &[Arc<Server>],
        later: Vec<Opening>,
        resets: Vec<Resets>,
    ) -> Result<Vec<JoinHandle<()>>> {
        let Work { settings, ending, stores, cell, .. } = *self;
        let (files, volumes) = (self.file_server.clone(), self.volume_server.clone());
        let mut background =
            start_background(ending, &stores.volumes, files, volumes.clone(), self.faults.reclaim_pause);
        background.extend(resets.into_iter().map(Resets::send));
        background.extend(self.admin_server.clone().map(|server| snapshots::start(ending, server)));
        background.push(cell_keys::follow(ending, self.keys, cell));
        background.push(self.observatory.begin_periods(ending));
        if let (Some(node), Some(server)) = (&stores.node, &self.admin_server) {
            server.set_cluster(Box::new(Administration { node: node.clone(), ending: ending.clone() }));
        }
        background.extend(self.shared.iter().map(|databases| databases.start(ending)));
        background.extend(self.keep_partitions(later)?);
        if let Some(node) = &stores.node {
            background.extend(node.begin_audit(self.observatory.trail(), ending));
            background.extend(node.begin_addresses(settings, ending, servers)?);
            if let Some(peers) = self.ways.0.peers.get() {
                background.extend(node.begin_isolation(peers, settings, ending)?);
            }
        }
        if settings.roles.contains(&Role::Fs) {
            let service =
                stores.node.clone().map(|node| -> ServiceAddresses { Box::new(move || node.registered()) });
            background.extend(jobs::start(ending, settings, cell, self.admin_server.as_deref()));
            background.push(registration::register(
                settings,
                cell,
                self.uuid,
                follow_addresses(&self.ways, cell, stores.node.as_ref()),
                Shared { standbys: buckets::standbys(settings)?, service, is_owner: self.is_owner() },
                ending.clone(),
            ));
        }
        if let Some(metrics) = self.metrics {
            metrics.ready(self.observatory);
        }
        background.extend(
            self.page.map(|page| page.begin(ending, settings, self.observatory, &stores.volumes, volumes)),
        );
        Ok(background)
    }

    /// Returns what finds out whether this process has the partitions of a server that others can be.
    fn is_owner(&self) -> Option<IsOwner> {
        let stores = self.stores;
        let is_shared = stores.node.is_none() && self.settings.has_buckets_only();
        let partitions = Arc::clone(&stores.partitions);
        is_shared.then(|| -> IsOwner { Box::new(move || partitions.lock().iter().any(Held::may_answer)) })
    }

    /// Starts the threads of the partitions. A node follows which partitions its cluster has.
    fn keep_partitions(&self, later: Vec<Opening>) -> Result<Vec<JoinHandle<()>>> {
        let keeper = Arc::new(self.keeper());
        let (mut threads, keeping) = keeper.start(&self.stores.meters, later);
        match &self.stores.node {
            Some(node) => {
                let (settings, observatory) = (Arc::clone(self.settings), Arc::clone(self.observatory));
                let means = RosterMeans { node: node.clone(), settings, keeper, observatory };
                threads.push(follow(means, keeping, self.ending)?);
            }
            None => threads.extend(keeping.into_iter().map(|(_, thread)| thread)),
        }
        Ok(threads)
    }

    /// Returns what starts the threads of the partitions.
    fn keeper(&self) -> Keeper {
        Keeper {
            settings: Arc::clone(self.settings),
            disk: Arc::clone(&self.faults.disk),
            ending: Arc::clone(self.ending),
            volumes: Arc::clone(&self.stores.volumes),
            partitions: Arc::clone(&self.stores.partitions),
            file_server: self.file_server.clone(),
            volume_server: self.volume_server.clone(),
            node: self.stores.node.clone(),
        }
    }
}

/// Ends the threads that open partitions if the start fails.
#[derive(Default)]
struct Starting {
    ending: Arc<AtomicBool>,
    is_done: bool,
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.ending.fetch_or(!self.is_done, Ordering::Relaxed);
    }
}

/// Opens the partitions: those on local disks, and those in buckets that can be opened soon. The others are opened
/// later, as all of a node: it serves other nodes' partitions meanwhile.
fn open_all(
    settings: &Settings,
    meters: &[(PartitionId, Meters)],
    faults: &FaultInjection,
    node: Option<&Arc<Node>>,
    interrupted: &AtomicBool,
) -> Result<(Vec<Held>, Vec<Opening>)> {
    let openings = buckets::begin(settings, meters, Means { disk: &faults.disk, node })?;
    if node.is_some() {
        buckets::share_uuid(settings, interrupted)?;
        return Ok((Vec::new(), openings));
    }
    let local = open_partitions(settings, meters, &faults.disk)?;
    let (has_buckets, has_local) = (!openings.is_empty(), !local.is_empty());
    let (open, later) = buckets::wait(openings, has_local, interrupted)?;
    if has_buckets {
        buckets::share_uuid(settings, interrupted)?;
    }
    let local = local.into_iter().map(|(id, partition)| Held::local(id, partition));
    Ok((local.chain(open).collect(), later))
}

/// Opens the volumes of the open partitions.
fn open_volumes(settings: &Settings, faults: &FaultInjection, partitions: &[Held]) -> Result<Volumes> {
    let handle = |held: &Held| (faults.partition)(handle(held.id, &held.partition));
    let handles = partitions.iter().map(handle).collect();
    let volumes = Volumes::open(handles, volume_options(settings)).context("cannot open the volumes")?;
    for held in partitions {
        if let Some(permit) = held.permit() {
            volumes.limit(held.id, permit).context("cannot limit a partition to its lease")?;
        }
        held.begin();
    }
    Ok(volumes)
}

/// Requires resets of the clients that may hold promises of the last owners of partitions, and restores locks. To be called
/// before their calls can come.
fn owe_resets(partitions: &Partitions, file_server: Option<&Arc<FileServer>>) -> Vec<Resets> {
    let partitions = partitions.lock();
    partitions.iter().for_each(|held| held.restore_locks(file_server));
    partitions.iter().filter_map(|held| held.owe_resets(file_server)).collect()
}

/// Starts the threads that a partition needs. They go on when it is closed and opened again.
pub(crate) fn tend(
    settings: &Settings,
    ending: &Arc<AtomicBool>,
    volumes: &Arc<Volumes>,
    partition: PartitionId,
) -> Vec<JoinHandle<()>> {
    let mut threads = upkeep::start(ending, volumes, partition, settings.tuning.upkeep);
    let period = settings.tuning.durability.period;
    threads.extend(period.map(|period| syncing::start(ending, volumes, partition, period)));
    threads
}

/// Creates the recorder of calls and the observer of stores, as configured.
fn new_observatory(settings: &Settings, stores: &Stores, trail: Option<&Arc<Trail>>) -> Arc<Observatory> {
    let (meters, history) = (stores.meters.clone(), settings.probe_history.clone());
    let observatory = Arc::new(Observatory::new(meters, &stores.volumes, trail.cloned(), history));
    if let Some(node) = &stores.node {
        observatory.set_node(node);
    }
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

pub(crate) fn volume_options(settings: &Settings) -> VolumeOptions {
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
    // The other nodes of a cluster answer from the same databases.
    let is_shared = settings.shares_databases();
    let has_all = is_shared || settings.other_database_servers().is_empty();
    let is_alone = has_databases && settings.bind.is_empty() && has_all;
    let network = Arc::new(if is_alone { network.with_own_databases() } else { network });
    let mut servers: Vec<Ipv4Addr> = settings.database_servers.iter().map(|server| server.address).collect();
    if is_shared {
        servers.truncate(1);
    }
    if servers.is_empty() {
        servers.clone_from(&settings.announce);
    }
    // The server's own clients repeat their calls.
    Ok(CellClient::new(network, servers)?.with_patience(Patience::NONE, |_| ()))
}

/// Returns a callback that closes connections from addresses that the machine has lost, on all ports that
/// call others.
fn follow_addresses(
    ways: &(Arc<Callbacks>, Arc<VolumeServers>),
    cell: &Arc<CellClient>,
    node: Option<&Arc<Node>>,
) -> OnChange {
    let ((callbacks, volume_servers), cell, node) = (ways.clone(), cell.clone(), node.cloned());
    Box::new(move |lost, own| {
        cell.on_addresses_changed(lost, own);
        let of_node = node.as_ref().and_then(|node| node.way.get());
        for connector in [callbacks.way.get(), volume_servers.way.get(), of_node].into_iter().flatten() {
            for address in lost {
                connector.forget_source(IpAddr::V4(*address));
            }
        }
    })
}
