//! Registers the file server's addresses in the location database (VL_RegisterAddrs, 532).
//!
//! The server registers at start, until it succeeds; then every hour, because a location database may be
//! restored from a backup; and soon after the machine's addresses have changed, unless the configuration
//! lists them. Registering the same addresses again changes nothing. Connections from addresses that the
//! machine has lost are closed, so that calls use one that it has.
//!
//! The addresses of servers that would take over follow its own: clients try them when it has died. All nodes of a cluster
//! are one server, and each registers the addresses of all in ascending order: `vos` knows a server by the first one, which
//! must not depend on the node that registered last. A node that is stopped stays registered for ten minutes, and one that
//! starts does not know all others yet: it leaves those that are registered and have a lease, and waits for others, so that
//! it does not ask for a shorter list, which the location server refuses. If the cluster has service addresses, only those
//! are registered, since survivors have them at once.

pub mod conflicts;

use crate::buckets::{Others, Standbys};
use afs_format::sysid::SysId;
use afs_idl::vl;
use anyhow::{Context, Result};
use base::limits::SERVER_ADDRESSES_MAX;
use base::{AbortCode, HostUuid};
use cell_client::describe::describe;
use cell_client::{CellClient, Interface};
use cellar_config::Settings;
use cellar_config::announcing::{Chosen, Reason};
use conflicts::{Conflict, conflicts, foreign, registered};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause before the first retry; it doubles with each.
const RETRY_MIN: Duration = Duration::from_secs(5);
/// Maximum pause between retries: clients find a server that started before the database servers soon after
/// those are up.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Interval at which the registration is repeated.
const REPEAT: Duration = Duration::from_secs(3600);
/// Interval at which a server that other processes can be compares its entry with what it has registered: one that has lost
/// the partitions may have registered its own view last.
const CONFIRM: Duration = Duration::from_secs(30);
/// Pause while it is not known whether there are service addresses, or the partitions are not this process's.
const UNKNOWN: Duration = Duration::from_millis(500);
/// Interval at which the machine's addresses are checked.
const LOOK: Duration = Duration::from_secs(5);

/// How long a node waits at its start for the other nodes that are registered. Leases are read every ten seconds.
const MEETING: Duration = Duration::from_secs(30);

/// Called when the machine's addresses have changed, with the lost and the present ones.
pub type OnChange = Box<dyn Fn(&[Ipv4Addr], &[Ipv4Addr]) + Send>;

/// Returns the service addresses, none if the servers' own addresses are to be registered; `None` while that is not known.
pub(crate) type ServiceAddresses = Box<dyn Fn() -> Option<Vec<Ipv4Addr>> + Send>;

/// Whether this process is the server that is registered: other processes may be, which have its UUID.
pub(crate) type IsOwner = Box<dyn Fn() -> bool + Send>;

/// What the registration of a server depends on that other processes can be.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) standbys: Option<Standbys>,
    pub(crate) service: Option<ServiceAddresses>,
    /// `None` if every process with the server's UUID may register, as the nodes of a cluster do.
    pub(crate) is_owner: Option<IsOwner>,
}

/// Returns the UUID in the sysid file, which is created if missing.
pub fn server_uuid(settings: &Settings) -> Result<HostUuid> {
    let path = &settings.sysid_path;
    if let Some(uuid) = read_sysid(path)? {
        return Ok(uuid);
    }
    let uuid = HostUuid(*uuid::Uuid::new_v4().as_bytes());
    write_sysid(path, uuid, &settings.announce)?;
    Ok(uuid)
}

/// Returns the UUID in a sysid file, if there is one.
pub(crate) fn read_sysid(path: &Path) -> Result<Option<HostUuid>> {
    match std::fs::read(path) {
        Ok(bytes) => {
            let sysid = SysId::parse(&bytes).with_context(|| format!("{} is damaged", path.display()))?;
            Ok(Some(sysid.uuid))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

pub(crate) fn write_sysid(path: &Path, uuid: HostUuid, addresses: &[Ipv4Addr]) -> Result<()> {
    let sysid = SysId { uuid, addresses: addresses.to_vec() };
    cellar_config::files::replace(path, &sysid.to_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Starts a thread that keeps the server registered until `ending`.
pub(crate) fn register(
    settings: &Arc<Settings>,
    cell: &Arc<CellClient>,
    uuid: HostUuid,
    on_change: OnChange,
    shared: Shared,
    ending: Arc<AtomicBool>,
) -> JoinHandle<()> {
    let mut registrar = Registrar::new(settings, cell, uuid, on_change);
    registrar.standbys = shared.standbys;
    registrar.service_now = shared.service;
    registrar.is_owner = shared.is_owner;
    registrar.meeting =
        settings.cluster.is_some().then(|| Meeting { until: Instant::now() + MEETING, missed: Vec::new() });
    registrar.note_left_out(settings.announced_now().as_ref());
    registrar.note_service();
    registrar.note_standbys();
    registrar.attempt();
    crate::threads::thread("register", move || {
        while crate::threads::wait(&ending, LOOK.min(registrar.pause())) {
            registrar.look();
        }
    })
}

/// The first time of a node, in which it waits for the others.
struct Meeting {
    until: Instant,
    /// Their addresses as last logged.
    missed: Vec<Ipv4Addr>,
}

/// State of the registration.
struct Registrar {
    settings: Arc<Settings>,
    cell: Arc<CellClient>,
    uuid: HostUuid,
    on_change: OnChange,
    addresses: Vec<Ipv4Addr>,
    standbys: Option<Standbys>,
    /// The addresses of the servers on standby, without the own ones.
    others: Others,
    service_now: Option<ServiceAddresses>,
    is_owner: Option<IsOwner>,
    /// What was registered last.
    registered: Vec<Ipv4Addr>,
    /// When that was last compared with the entry.
    confirmed: Instant,
    /// The service addresses; `None` while they are not known.
    service: Option<Vec<Ipv4Addr>>,
    /// Of a node of a cluster.
    meeting: Option<Meeting>,
    /// Unregistered addresses as last logged.
    left_out: Vec<(Ipv4Addr, Reason)>,
    failures: u32,
    next: Instant,
}

impl Registrar {
    fn new(
        settings: &Arc<Settings>,
        cell: &Arc<CellClient>,
        uuid: HostUuid,
        on_change: OnChange,
    ) -> Registrar {
        let addresses = settings.announce.clone();
        let (settings, cell) = (Arc::clone(settings), Arc::clone(cell));
        Registrar {
            settings,
            cell,
            uuid,
            on_change,
            left_out: Vec::new(),
            addresses,
            standbys: None,
            others: Others::default(),
            service_now: None,
            is_owner: None,
            registered: Vec::new(),
            confirmed: Instant::now(),
            service: Some(Vec::new()),
            meeting: None,
            failures: 0,
            next: Instant::now(),
        }
    }

    /// Returns the time until the next registration is due.
    fn pause(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Registers if it is due or the addresses have changed.
    fn look(&mut self) {
        self.note_service();
        self.note_standbys();
        let mut now = self.settings.announced_now();
        if let (Some(now), Some(service)) = (&mut now, &self.service) {
            // They come and go, and are registered anyway.
            now.addresses.retain(|address| !service.contains(address));
        }
        self.note_left_out(now.as_ref());
        let now = now.map(|now| now.addresses).filter(|now| !now.is_empty());
        self.look_at(now.filter(|now| *now != self.addresses));
    }

    /// Makes a registration due if the service addresses are others than before.
    fn note_service(&mut self) {
        let Some(service) = self.service_now.as_ref().map(|now| now()) else { return };
        if service != self.service {
            if let (Some(before), Some(now)) = (&self.service, &service) {
                tracing::info!(?before, ?now, "the service addresses to register");
            }
            (self.service, self.failures, self.next) = (service, 0, Instant::now());
        }
    }

    /// Makes a registration due if other servers are on standby than before.
    fn note_standbys(&mut self) {
        let Some(standbys) = &mut self.standbys else { return };
        let mut others = standbys();
        let (own, service) = (&self.addresses, self.service.as_deref().unwrap_or_default());
        for list in [&mut others.known, &mut others.unseen] {
            list.retain(|address| !service.contains(address) && !own.contains(address));
            list.sort_unstable();
            list.dedup();
        }
        let Others { known, unseen } = &mut others;
        unseen.retain(|address| !known.contains(address));
        if others != self.others {
            tracing::info!(before = ?self.others, now = ?others, "other servers are on standby");
            (self.others, self.failures, self.next) = (others, 0, Instant::now());
        }
    }

    /// Returns the addresses to register, and those that are too many: the service addresses if there are any; else all
    /// servers' own, with `kept`. Those of this server come first, unless it is a node.
    fn chosen(&self, kept: &[Ipv4Addr]) -> (Vec<Ipv4Addr>, Vec<Ipv4Addr>) {
        if let Some(service) = self.service.as_ref().filter(|service| !service.is_empty()) {
            return (service.clone(), Vec::new());
        }
        let mut all = [&self.addresses[..], &self.others.known, kept].concat();
        if self.meeting.is_some() {
            all.sort_unstable();
            all.dedup();
        }
        let beyond = all.split_off(all.len().min(SERVER_ADDRESSES_MAX));
        (all, beyond)
    }

    /// Returns the addresses of nodes that were not seen to run yet, and are registered.
    fn kept(&self) -> Result<Vec<Ipv4Addr>, AbortCode> {
        if self.others.unseen.is_empty() {
            return Ok(Vec::new());
        }
        let registered = registered(&self.cell, self.uuid)?;
        let unseen = self.others.unseen.iter().copied();
        Ok(unseen.filter(|address| registered.contains(address)).collect())
    }

    /// Logs which addresses are not registered and why, if that has changed.
    fn note_left_out(&mut self, now: Option<&Chosen>) {
        let Some(now) = now.filter(|now| now.left_out != self.left_out) else { return };
        for (address, reason) in &now.left_out {
            tracing::warn!(%address, "not registered: {reason}");
        }
        self.left_out.clone_from(&now.left_out);
    }

    /// Registers if it is due; `changed` are the machine's new addresses.
    fn look_at(&mut self, changed: Option<Vec<Ipv4Addr>>) {
        if let Some(addresses) = changed {
            tracing::info!(before = ?self.addresses, now = ?addresses, "the machine's addresses have \
                changed");
            let lost: Vec<Ipv4Addr> =
                self.addresses.iter().copied().filter(|address| !addresses.contains(address)).collect();
            (self.on_change)(&lost, &addresses);
            (self.addresses, self.failures, self.next) = (addresses, 0, Instant::now());
        }
        if self.pause().is_zero() || self.is_overwritten() {
            self.attempt();
        }
    }

    /// Whether another process has registered other addresses for this server.
    fn is_overwritten(&mut self) -> bool {
        if self.standbys.is_none() || self.failures > 0 || self.confirmed.elapsed() < CONFIRM {
            return false;
        }
        self.confirmed = Instant::now();
        let Ok(mut now) = registered(&self.cell, self.uuid) else { return false };
        let mut own = self.registered.clone();
        for list in [&mut own, &mut now] {
            list.sort_unstable();
            list.dedup();
        }
        let is_overwritten = now != own;
        if is_overwritten {
            tracing::warn!(registered = ?now, expected = ?own, "another process has changed this server's entry; \
                registering again");
        }
        is_overwritten
    }

    /// Whether other nodes are registered that may not be known yet.
    fn has_to_wait(&mut self) -> bool {
        if self.service.as_ref().is_some_and(|service| !service.is_empty()) {
            return false;
        }
        let known = self.chosen(&self.others.unseen).0;
        let Some(meeting) = self.meeting.as_mut().filter(|meeting| Instant::now() < meeting.until) else {
            return false;
        };
        let missed = foreign(&self.cell, self.uuid, &known);
        if !missed.is_empty() && missed != meeting.missed {
            tracing::info!(addresses = ?missed, "waiting for the leases of other nodes, which are registered");
        }
        meeting.missed = missed;
        !meeting.missed.is_empty()
    }

    fn attempt(&mut self) {
        // A process that slept past its lease has lost the partitions, and does not know that yet.
        let is_owner = self.is_owner.as_ref().is_none_or(|is_owner| is_owner());
        if self.service.is_none() || !is_owner {
            self.next = Instant::now() + UNKNOWN;
            return;
        }
        if self.has_to_wait() {
            self.next = Instant::now() + LOOK;
            return;
        }
        let pause = match self.request() {
            Ok((registered, beyond)) => {
                self.registered(&registered, &beyond);
                REPEAT
            }
            Err(code) => {
                let pause = (RETRY_MIN * 2_u32.saturating_pow(self.failures.min(16))).min(RETRY_MAX);
                self.failures = self.failures.saturating_add(1);
                tracing::error!(addresses = ?self.addresses, retry_s = pause.as_secs(), "{}", refusal(code, self.uuid, self.meeting.is_some()));
                if code == AbortCode::VL_MULTIPADDR {
                    self.explain();
                }
                pause
            }
        };
        self.next = Instant::now() + pause;
    }

    /// Asks for the registration. Returns the registered addresses, and those that are too many.
    fn request(&self) -> Result<(Vec<Ipv4Addr>, Vec<Ipv4Addr>), AbortCode> {
        let (chosen, beyond) = self.chosen(&self.kept()?);
        let addresses = chosen.iter().copied().map(u32::from).collect();
        let request = vl::RegisterAddrsRequest { uuid: self.uuid, spare1: 0, addresses };
        self.cell.database(Interface::Locations, |vl| vl::register_addrs(vl, &request))?;
        Ok((chosen, beyond))
    }

    /// Logs the servers that have these addresses, and the addresses registered under this UUID.
    fn explain(&self) {
        let known = if self.meeting.is_some() { self.chosen(&[]).0 } else { self.addresses.clone() };
        for conflict in conflicts(&self.cell, self.uuid, &known) {
            match conflict {
                Conflict::Uuid { addresses, .. } if self.meeting.is_some() => tracing::error!(
                    "the server of this cluster is registered with addresses of no node that renews its lease, \
                    {addresses:?}, and a server answers there: if it is a node, it has to reach the bucket; if it \
                    has left the cluster, `vos changeaddr OLD -remove` removes its address"
                ),
                conflict => tracing::error!("{conflict}"),
            }
        }
    }

    fn registered(&mut self, registered: &[Ipv4Addr], beyond: &[Ipv4Addr]) {
        self.failures = 0;
        (self.registered, self.confirmed) = (registered.to_vec(), Instant::now());
        tracing::info!(uuid = %self.uuid, addresses = ?registered, "registered in the location database");
        if !beyond.is_empty() {
            tracing::warn!(addresses = ?beyond, "not registered: a server has at most \
                {SERVER_ADDRESSES_MAX} addresses");
        }
        if let Err(error) = write_sysid(&self.settings.sysid_path, self.uuid, &self.addresses) {
            tracing::warn!("{error:#}");
        }
    }
}

/// Explains a failure and suggests a remedy. The nodes of a cluster have one UUID.
fn refusal(code: AbortCode, uuid: HostUuid, is_node: bool) -> String {
    let why = match code {
        AbortCode::VL_MULTIPADDR if is_node => {
            "another server's entry has one of the addresses, or a server answers at an address that this list lacks \
            (the location server's log says which): `vos listaddrs -printuuid` shows the entries"
                .into()
        }
        AbortCode::VL_MULTIPADDR => format!(
            "another server's entry has one of the addresses (the location server's log says which): \
             `vos listaddrs -printuuid` shows the entries, `vos changeaddr OLD -remove` or \
             `vos remaddrs` frees the address; a copied sysid file with the other server's UUID \
             {uuid} must be removed"
        ),
        AbortCode::VL_PERM => {
            "the location server does not accept this cell key as a server's: do both servers have the same \
            key files?"
                .into()
        }
        _ => describe(code),
    };
    format!("cannot register in the location database, clients will not find this server: {why}")
}

#[cfg(test)]
pub(crate) mod tests;
