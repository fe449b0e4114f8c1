//! Many clients of a file server: up to ten thousand, each with its own port, UUID and callback service,
//! which execute a mix of operations ([`mix`]).
//!
//! A run has four parts: files and directories are created ([`plan`]); clients start one after the other
//! ([`Options::warm_up`]); calls are measured; everything is removed. Each thread drives its share of the
//! clients through a [`rx::Swarm`] ([`runner`]): a client is not a thread and costs a few microseconds per
//! call, so that the server gets most of the processors.

mod client;
mod latency;
pub mod mix;
mod plan;
mod plot;
mod report;
mod runner;
mod step;
#[cfg(test)]
mod tests;

pub use latency::{Distribution, Interval, Measured};
pub use mix::Mix;
pub use plot::svg;
pub use report::{GroupReport, KindReport, Report};

use crate::files::Fid;
use crate::progress::Tally;
use crate::watch::{Watch, local_server};
use anyhow::{Context, Result};
use base::Monotonic;
use plan::Plan;
use rx::Swarm;
use rx_security::ClientSecurity;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Configuration of a run.
#[derive(Clone)]
pub struct Options {
    /// Address of the file server.
    pub server: SocketAddr,
    /// Local addresses of the clients; if empty, the system chooses one for all.
    pub sources: Vec<IpAddr>,
    /// Root directories of the volumes to work in; at least one.
    pub volumes: Vec<Fid>,
    /// Credentials of the clients; `None` for anonymous ones.
    pub security: Option<Arc<dyn ClientSecurity>>,
    /// Duration of the measurement.
    pub duration: Duration,
    /// Period before the measurement in which the clients start; `None` is two seconds plus one for each
    /// thousand clients.
    pub warm_up: Option<Duration>,
    /// Seed of the random order of operations.
    pub seed: u64,
    /// Number of generator threads.
    pub threads: usize,
    /// The server's process id, if it is on this machine; determined from its port if `None`.
    pub server_pid: Option<u32>,
    /// Lets the kernel merge received runs of datagrams (`UDP_GRO`).
    pub receive_merging: bool,
}

impl Options {
    /// Returns the address of a client, by its number and its group. Clients use the addresses in turn,
    /// except that the last of several groups has the last address exclusively, so that a server which shares
    /// its work between users distinguishes it from the others.
    fn source(&self, number: usize, group: usize, groups: usize) -> IpAddr {
        match (&self.sources[..], self.server.ip()) {
            ([], IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            ([], IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            ([rest @ .., last], _) if groups > 1 && !rest.is_empty() => {
                if group + 1 == groups {
                    *last
                } else {
                    rest[number % rest.len()]
                }
            }
            (all, _) => all[number % all.len()],
        }
    }
}

/// Times of the phases of a run.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// Clients start from this time on.
    start: Monotonic,
    /// Start of the measurement: calls that end from this time on count.
    from: Monotonic,
    /// End of the measurement: calls that end from this time on do not count.
    to: Monotonic,
}

/// Runs a mix.
pub fn run(mix: &Mix, options: &Options) -> Result<Report> {
    raise_file_limit(mix.clients() + FILES_BESIDES);
    let plan = Plan::make(mix, options).context("cannot make the files of the run")?;
    let result = measure(mix, options, &plan);
    let removed = plan.remove(options).context("cannot remove the files of the run");
    let report = result?;
    removed?;
    Ok(report)
}

fn measure(mix: &Mix, options: &Options, plan: &Plan) -> Result<Report> {
    let default = Duration::from_secs(2 + mix.clients() as u64 / 1000);
    let start = Swarm::now();
    let from = start + options.warm_up.unwrap_or(default);
    let schedule = Schedule { start, from, to: from + options.duration };
    let tally = Tally::default();
    let server = options.server_pid.or_else(|| local_server(options.server));
    std::thread::scope(|scope| {
        let shower = scope.spawn(|| tally.show(&mix.title));
        let run = || runner::run(mix, options, plan, schedule, &tally);
        let clients = scope.spawn(run);
        sleep_until(schedule.from);
        let watch = Watch::start(server);
        sleep_until(schedule.to);
        let used = watch.finish();
        let result = clients.join().map_err(|_| anyhow::anyhow!("the load generator panicked"))?;
        tally.finish();
        shower.thread().unpark();
        Ok(Report::new(mix, options, &result?, used))
    })
}

fn sleep_until(time: Monotonic) {
    std::thread::sleep(time.since(Swarm::now()));
}

/// A generous estimate of the process's open files other than the clients' sockets.
const FILES_BESIDES: usize = 200;

/// Raises the limit on open files, since each client needs one. If that fails, opening the sockets reports
/// the error.
fn raise_file_limit(files: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = files as u64;
    if limit.current.is_some_and(|current| current < wanted) {
        let most = limit.maximum.map_or(wanted, |maximum| maximum.max(wanted));
        let raised = Rlimit { current: Some(wanted), maximum: Some(most) };
        let kept = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, raised).or_else(|_| setrlimit(Resource::Nofile, kept));
    }
}
