//! The server's environment: its machine, its settings, the clocks of the cell, jobs.

use super::{Examined, FILE_PORT};
use crate::commands::Context;
use afs_format::sysid::SysId;
use afs_idl::{ClientConnection, fs};
use anyhow::{Context as _, Result};
use base::AbortCode;
use cell_client::describe::failed;
use cell_client::network::{AfsNetwork, now};
use cell_client::{CellClient, Network};
use cellar_config::announcing::Reason;
use cellar_config::{Role, Settings};
use cellar_server::neighbours::started;
use cellar_server::registration::conflicts::{Conflict, conflicts};
use doctor::{Clock, Job, Machine, Registration};
use job_runner::journal::Journal;
use load::{cpu, watch};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time limit for servers to report their time; they are asked concurrently.
const CLOCK_PATIENCE: Duration = Duration::from_secs(8);

/// Maximum number of servers whose clocks are checked.
const CLOCKS_MAX: usize = 64;

/// Number of requests per server: the one with the shortest round trip is the most precise, and the first
/// makes the server ask for this client's identity.
const CLOCK_QUESTIONS: usize = 3;

/// Service ID of the file server.
const FILE_SERVICE: u16 = 1;

/// The machine at the first sample, if the server runs on this one.
pub(super) struct Begun {
    server: Ipv4Addr,
    is_here: bool,
    at: Instant,
    busy: Option<cpu::Machine>,
    drops: u64,
}

impl Begun {
    pub(super) fn now(server: Ipv4Addr) -> Begun {
        // Only an address of this machine can be bound.
        let is_here = UdpSocket::bind((server, 0)).is_ok();
        let (busy, drops) = (processors(), watch::udp_drops_of_machine());
        Begun { server, is_here, at: Instant::now(), busy, drops }
    }

    /// Adds the environment to the examination of the server.
    pub(super) fn finish(self, context: &Context, client: &CellClient, examined: &mut Examined) {
        if self.is_here {
            examined.snapshot.machine = Some(self.machine());
        } else {
            examined.unseen.push("the server's machine: run the command there".to_owned());
        }
        let settings = context.settings().ok();
        let own = settings.as_ref().filter(|settings| self.is_own(settings));
        examined.snapshot.settings = own.map(of_settings);
        super::cluster::look(own, client, examined);
        if let Some(own) = own.filter(|own| own.roles.contains(&Role::Fs)) {
            let registration = registration(own, client);
            let absent = std::mem::take(&mut examined.snapshot.registration.absent);
            let registration = examined.seen("the server's registration", registration);
            examined.snapshot.registration = Registration { absent, ..registration };
        }
        if let Some(settings) = &settings {
            let jobs = jobs(settings);
            examined.snapshot.jobs = examined.seen("jobs", jobs);
        }
        clocks(client, self.server, examined);
        super::cell::look(client, examined);
    }

    fn is_own(&self, settings: &Settings) -> bool {
        let is_named = |addresses: &[Ipv4Addr]| addresses.contains(&self.server);
        self.is_here && (is_named(&settings.bind) || is_named(&settings.announce) || settings.bind.is_empty())
    }

    fn machine(&self) -> Machine {
        let processors_now = thread::available_parallelism().map_or(1, usize::from);
        let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
        let spent = |of: fn(&cpu::Machine) -> u64| {
            let now = processors();
            now.as_ref().zip(self.busy.as_ref()).map_or(0, |(now, then)| ms(of(now).saturating_sub(of(then))))
        };
        // The two clocks are read one after the other.
        let span = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ticks = span.saturating_mul(processors_now as u64);
        Machine {
            processors: processors_now,
            rmem_max_bytes: limit.trim().parse().unwrap_or(0),
            ticks,
            busy_ticks: (spent(|of| of.busy) + spent(|of| of.stolen)).min(ticks),
            stolen_ticks: spent(|of| of.stolen),
            udp_drops: watch::udp_drops_of_machine().saturating_sub(self.drops),
        }
    }
}

fn processors() -> Option<cpu::Machine> {
    cpu::parse_machine(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn ms(ticks: u64) -> u64 {
    #[allow(clippy::cast_sign_loss, reason = "ticks are not negative")]
    let ms = (cpu::seconds(ticks) * 1000.0) as u64;
    ms
}

fn of_settings(settings: &Settings) -> doctor::Settings {
    doctor::Settings {
        lanes: settings.tuning.lanes,
        workers: settings.tuning.workers,
        user_percent: settings.tuning.fairness.user_share_percent,
    }
}

/// Finds problems with the registration of this machine's server.
fn registration(settings: &Settings, client: &CellClient) -> Result<Registration> {
    let mut found = Registration::default();
    let chosen = settings.announced_now().unwrap_or_default();
    let beyond = chosen.left_out.iter().filter(|(_, reason)| *reason == Reason::Beyond);
    found.left_out = beyond.map(|(address, reason)| format!("{address}: {reason}")).collect();
    let path = &settings.sysid_path;
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let uuid = SysId::parse(&bytes).with_context(|| format!("{} is damaged", path.display()))?.uuid;
    let addresses = if chosen.addresses.is_empty() { &settings.announce } else { &chosen.addresses };
    for conflict in conflicts(client, uuid, addresses) {
        match &conflict {
            Conflict::Address { .. } => found.taken.push(conflict.to_string()),
            Conflict::Uuid { addresses, .. } => {
                let alive = addresses.iter().filter(|address| started(**address).is_some());
                found.copied.extend(alive.map(|address| format!("{address} answers; {conflict}")));
            }
        }
    }
    Ok(found)
}

/// Returns the unfinished jobs of this machine's server, or the user's own if there is no server.
fn jobs(settings: &Settings) -> Result<Vec<Job>> {
    let servers = settings.jobs_path();
    let journal =
        if servers.is_dir() { Journal::open(servers)? } else { Journal::of_user(settings.cell.as_str())? };
    let time = now().0;
    let shown = |job: jobs::Job| {
        let last = job.events.last().map_or(time, |event| event.at);
        let latest = job.failure().unwrap_or_else(|| job.latest()).to_owned();
        Job { id: job.id, title: job.title(), latest, silent_seconds: time.saturating_sub(last).into() }
    };
    let jobs = journal.all().context("cannot read the journal of jobs")?;
    Ok(jobs.into_iter().filter(|job| !job.is_over()).map(shown).collect())
}

/// Compares the clocks of the server and of the cell's other file servers with this machine's.
fn clocks(client: &CellClient, server: Ipv4Addr, examined: &mut Examined) {
    let others = client.file_servers().map_err(failed("list the file servers of the cell"));
    let others = examined.seen("clocks of other servers", others);
    let mut servers = vec![server];
    servers.extend(others);
    servers.sort_unstable();
    servers.dedup();
    servers.truncate(CLOCKS_MAX);
    let reported = AfsNetwork::start(None).map(|network| times(&network, &servers));
    let reported = examined.seen("clocks", reported);
    for server in servers {
        if !reported.iter().any(|clock| clock.server == server.to_string()) {
            examined.unseen.push(format!("the clock of {server}, which does not report it"));
        }
    }
    examined.snapshot.clocks = reported;
}

/// Returns the times received within the limit. Requests to servers that do not answer continue until the
/// network is dropped.
fn times(network: &AfsNetwork, servers: &[Ipv4Addr]) -> Vec<Clock> {
    let (reported, answers) = mpsc::channel();
    for server in servers {
        let connection = network.connect(SocketAddr::from((*server, FILE_PORT)), FILE_SERVICE);
        let (reported, server) = (reported.clone(), server.to_string());
        thread::spawn(move || {
            if let Ok(clock) = time_of(&*connection, &server) {
                // The receiver may be gone.
                let _ = reported.send(clock);
            }
        });
    }
    drop(reported);
    let deadline = Instant::now() + CLOCK_PATIENCE;
    let next = || answers.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).collect()
}

/// Takes the fastest answer of a few requests; half its round trip is the uncertainty.
fn time_of(connection: &dyn ClientConnection, server: &str) -> Result<Clock, AbortCode> {
    let mut best: Option<Clock> = None;
    for _ in 0..CLOCK_QUESTIONS {
        let (wall, begun) = (wall_ms(), Instant::now());
        let reported = fs::get_time(connection, &fs::GetTimeRequest)?;
        let trip_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let theirs = i64::from(reported.seconds) * 1000 + i64::from(reported.microseconds / 1000);
        let ahead_ms = theirs - wall - (trip_ms / 2) as i64;
        if best.as_ref().is_none_or(|best| trip_ms / 2 < best.error_ms) {
            best = Some(Clock { server: server.to_owned(), ahead_ms, error_ms: trip_ms / 2 });
        }
    }
    best.ok_or(AbortCode::RX_CALL_DEAD)
}

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
