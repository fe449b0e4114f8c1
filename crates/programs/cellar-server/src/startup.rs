//! Opens everything and starts the services.

use crate::authority::Authority;
use crate::background::start_background;
use crate::cell_keys::CellKeys;
use crate::environment::Callbacks;
use crate::faults::FaultInjection;
use crate::log::EventLog;
use crate::metrics::Metrics;
use crate::observed::Observatory;
use crate::registration::OnChange;
use crate::running::Running;
use crate::services::Services;
use crate::stores::{disk_meters, handle, open_databases, open_partitions};
use crate::volume_servers::VolumeServers;
use crate::web::Page;
use crate::{cell_keys, jobs, registration, snapshots, syncing, upkeep};
use anyhow::{Context, Result, bail};
use audit::{Program, Trail};
use base::{LocalAuthority, PartitionId};
use cell_client::CellClient;
use cell_client::network::{AfsNetwork, CellIdentity};
use cell_client::patience::Patience;
use cellar_config::{Role, Settings};
use disk::DiskMeter;
use events::LINES;
use rx::Inherited;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use volume::{VolumeOptions, Volumes};

/// Opens everything and starts serving. When it returns, all services answer.
pub fn start(settings: &Arc<Settings>) -> Result<Running> {
    start_with_faults(settings, &FaultInjection::default())
}

/// Like [`start`], with faults injected, for tests.
pub fn start_with_faults(settings: &Arc<Settings>, faults: &FaultInjection) -> Result<Running> {
    start_inheriting(settings, faults, &Arc::default())
}

/// Like [`start_with_faults`], with sockets inherited from another process.
pub(crate) fn start_inheriting(
    settings: &Arc<Settings>,
    faults: &FaultInjection,
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
    let partitions = open_partitions(settings, &meters, &faults.disk)?;
    let handle = |(id, partition): &_| (faults.partition)(handle(*id, partition));
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
    let servers = services.start(settings, faults, inherited)?;
    let ending = Arc::new(AtomicBool::new(false));
    let reclaim_pause = faults.reclaim_pause;
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
    let is_alone = has_databases && settings.bind.is_empty() && settings.other_database_servers().is_empty();
    let network = Arc::new(if is_alone { network.with_own_databases() } else { network });
    let mut servers: Vec<Ipv4Addr> = settings.database_servers.iter().map(|server| server.address).collect();
    if servers.is_empty() {
        servers.clone_from(&settings.announce);
    }
    // The server's own clients repeat their calls.
    Ok(CellClient::new(network, servers)?.with_patience(Patience::NONE, |_| ()))
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
