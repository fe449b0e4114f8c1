//! Many clients of a file server: up to ten thousand, each with a port, a UUID and a callback service
//! of its own, doing what a mix says ([`mix`]).
//!
//! A run has four parts: files and directories are made ([`plan`]); clients begin one after the
//! other ([`Options::warm_up`]); the clock runs; what was made is removed. Each thread drives its
//! share of the clients through a [`rx::Swarm`] ([`runner`]): a client is no thread and costs some
//! microseconds per call, so that the server gets most of the processors.

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

/// How a run is made.
#[derive(Clone)]
pub struct Options {
    /// The file server.
    pub server: SocketAddr,
    /// Addresses of this machine that the clients have; none lets the system choose one for all.
    pub sources: Vec<IpAddr>,
    /// The root directories of the volumes that are worked in; one at least.
    pub volumes: Vec<Fid>,
    /// As whom; `None` is nobody.
    pub security: Option<Arc<dyn ClientSecurity>>,
    /// How long the clock runs.
    pub duration: Duration,
    /// Time in which the clients begin, before the clock runs; `None` is two seconds and one more for
    /// each thousand clients.
    pub warm_up: Option<Duration>,
    /// Decides what clients do in which order.
    pub seed: u64,
    /// Threads of the generator.
    pub threads: usize,
    /// The server's process, if it is on this machine; found by its port if not said.
    pub server_pid: Option<u32>,
    /// Let the kernel hand on runs of received datagrams as one (`UDP_GRO`).
    pub receive_merging: bool,
}

impl Options {
    /// The address of a client, by its number and its group: they take turns, but of several groups the last
    /// has the last address for itself. So a server that shares its work between users tells it from the rest.
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

/// When the clock runs.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// Clients begin from here on.
    start: Monotonic,
    /// What ends from here on counts.
    from: Monotonic,
    /// What ends from here on does not.
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

/// Files that the process has open besides the clients' sockets, generously.
const FILES_BESIDES: usize = 200;

/// Each client is an open file. Where the limit cannot be raised, opening the sockets says so.
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
