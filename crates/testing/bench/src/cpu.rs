//! CPU time from /proc.

use crate::order::CpuSeconds;
use anyhow::{Context, Result};
use load::cpu::{Machine, parse_machine, parse_process, seconds};
use std::collections::HashMap;
use std::path::Path;

/// Names of server programs of OpenAFS, Cellar and the peers, truncated to 15 bytes as in /proc.
const SERVERS: &[&str] = &[
    "dafileserver",
    "davolserver",
    "salvageserver",
    "fileserver",
    "volserver",
    "vlserver",
    "ptserver",
    "bosserver",
    "cellar",
    "ganesha.nfsd",
    "rpcbind",
    "smbd",
    "smbd-notifyd",
    "cleanupd",
];

/// Name of the program that is a client of another kind of server, on behalf of the load generator.
const CLIENT: &str = "peer-client";

/// CPU time used since boot or since a process started, in clock ticks unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    server: Servers,
    generator: u64,
    machine: Machine,
}

/// CPU time of the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Servers {
    /// All their processes, including ended threads.
    ticks: u64,
    /// Existing threads, in nanoseconds: a tick is a hundredth of a second, and short runs take only a few.
    threads_ns: HashMap<u64, u64>,
}

impl Servers {
    /// Returns the time since `earlier` in seconds: the sum over threads, or clock ticks if a thread that
    /// existed then has ended.
    fn since(&self, earlier: &Servers) -> f64 {
        if self.threads_ns.is_empty() || earlier.threads_ns.keys().any(|id| !self.threads_ns.contains_key(id))
        {
            return seconds(self.ticks.saturating_sub(earlier.ticks));
        }
        let used =
            |(id, ns): (&u64, &u64)| ns.saturating_sub(earlier.threads_ns.get(id).copied().unwrap_or(0));
        self.threads_ns.iter().map(used).sum::<u64>() as f64 / 1e9
    }
}

impl Reading {
    /// Reads the current CPU times in this process namespace.
    pub(crate) fn now() -> Result<Reading> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| path.to_owned());
        let own = parse_process(&read("/proc/self/stat")?).context("/proc/self/stat")?.ticks;
        let machine = parse_machine(&read("/proc/stat")?).context("/proc/stat")?;
        let (server, clients) = processes()?;
        Ok(Reading { server, generator: own + clients, machine })
    }

    /// Returns the CPU time between `earlier` and this reading.
    pub(crate) fn since(&self, earlier: &Reading) -> CpuSeconds {
        let server_ticks = self.server.ticks.saturating_sub(earlier.server.ticks);
        let generator = self.generator.saturating_sub(earlier.generator);
        let busy = self.machine.busy.saturating_sub(earlier.machine.busy);
        CpuSeconds {
            server: self.server.since(&earlier.server),
            generator: seconds(generator),
            other: seconds(busy.saturating_sub(server_ticks + generator)),
            stolen: seconds(self.machine.stolen.saturating_sub(earlier.machine.stolen)),
        }
    }
}

/// Returns user and system time of all servers in this process namespace, and the ticks of all clients. A
/// cell's namespace contains no other cell's servers.
fn processes() -> Result<(Servers, u64)> {
    let (mut all, mut clients) = (Servers::default(), 0);
    for entry in std::fs::read_dir("/proc").context("/proc")? {
        let path = entry?.path();
        // A process that ends between listing and reading is skipped.
        let Ok(text) = std::fs::read_to_string(path.join("stat")) else { continue };
        let Some(process) = parse_process(&text) else { continue };
        if process.name == CLIENT {
            clients += process.ticks;
        } else if SERVERS.contains(&process.name) {
            all.ticks += process.ticks;
            all.threads_ns.extend(threads_of(&path));
        }
    }
    Ok((all, clients))
}

/// Returns a process's threads: `/proc/PID/task/TID/schedstat` starts with the nanoseconds that it ran.
fn threads_of(process: &Path) -> Vec<(u64, u64)> {
    let tasks = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let one = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let ns = text.split_ascii_whitespace().next()?.parse().ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, ns))
    };
    tasks.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_readings() {
        let ticks = rustix::param::clock_ticks_per_second();
        let server = |ticks| Servers { ticks, ..Servers::default() };
        let earlier = Reading { server: server(5), generator: 5, machine: Machine { busy: 100, stolen: 0 } };
        let later = Reading {
            server: server(5 + ticks),
            generator: 5 + 2 * ticks,
            machine: Machine { busy: 100 + 7 * ticks, stolen: 3 * ticks },
        };
        let expected = CpuSeconds { server: 1.0, generator: 2.0, other: 4.0, stolen: 3.0 };
        assert_eq!(later.since(&earlier), expected);
        assert_eq!(earlier.since(&later), CpuSeconds::default(), "readings that go back count as nothing");
    }

    #[test]
    fn thread_times_are_reported_until_one_ends() {
        let ticks = rustix::param::clock_ticks_per_second();
        let servers =
            |ticks, threads: &[(u64, u64)]| Servers { ticks, threads_ns: threads.iter().copied().collect() };
        let close = |seconds: f64, expected: f64| (seconds - expected).abs() < 1e-12;
        let earlier = servers(0, &[(7, 1_000), (8, 5_000)]);
        // One thread has started since.
        let later = servers(ticks, &[(7, 1_500), (8, 5_000), (9, 250)]);
        assert!(close(later.since(&earlier), 750e-9), "{}", later.since(&earlier));
        let one_ended = servers(ticks, &[(7, 1_500), (9, 250)]);
        assert!(close(one_ended.since(&earlier), 1.0), "{}", one_ended.since(&earlier));
    }

    #[test]
    fn this_process_is_seen() {
        assert!(!threads_of(Path::new("/proc/self")).is_empty());
        assert!(Reading::now().unwrap().machine.busy > 0);
    }
}
