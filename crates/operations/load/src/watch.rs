//! Resource usage of a run, and its bottleneck.

use crate::cpu::{self, Machine, Usage};
use rx::ports;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

/// Observes this process, the server's (if it is on this machine) and the machine during a run.
pub struct Watch {
    begin: Instant,
    server: Option<u32>,
    at_begin: Sample,
}

struct Sample {
    client: Usage,
    server: Usage,
    machine: Machine,
    drops: u64,
}

/// Resources used during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Used {
    /// Duration of the run.
    pub seconds: f64,
    /// Number of processors available to this process.
    pub cores: usize,
    /// CPU seconds of this process.
    pub client_cpu: f64,
    /// CPU seconds of this process's busiest thread.
    pub client_thread_cpu: f64,
    /// CPU seconds of the server, if it is a known process on this machine.
    pub server_cpu: Option<f64>,
    /// CPU seconds of the server's busiest thread.
    pub server_thread_cpu: Option<f64>,
    /// CPU seconds of the whole machine, including the kernel.
    pub machine_cpu: f64,
    /// CPU seconds that the hypervisor gave to other guests.
    pub stolen_cpu: f64,
    /// Datagrams that this network namespace dropped for lack of buffer space.
    pub drops: u64,
}

/// The bottleneck of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// All processors were busy.
    Processors,
    /// A thread of the load generator was busy.
    ClientThread,
    /// A thread of the server was busy.
    ServerThread,
    /// Datagrams were dropped for lack of buffer space.
    Drops,
    /// Nothing was busy: calls waited for each other, the disk or the network.
    Waiting,
}

impl Watch {
    /// Starts the observation. `server` is the process whose CPU time is counted as the server's.
    pub fn start(server: Option<u32>) -> Watch {
        Watch { begin: Instant::now(), server, at_begin: Sample::take(server) }
    }

    /// Ends the observation.
    pub fn finish(&self) -> Used {
        let seconds = self.begin.elapsed().as_secs_f64();
        let (before, after) = (&self.at_begin, Sample::take(self.server));
        let since = |after: u64, before: u64| cpu::seconds(after.saturating_sub(before));
        let server = |seconds: f64| self.server.map(|_| seconds);
        Used {
            seconds,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            client_cpu: since(after.client.ticks, before.client.ticks),
            client_thread_cpu: cpu::seconds(after.client.busiest_thread_since(&before.client)),
            server_cpu: server(since(after.server.ticks, before.server.ticks)),
            server_thread_cpu: server(cpu::seconds(after.server.busiest_thread_since(&before.server))),
            machine_cpu: since(after.machine.busy, before.machine.busy),
            stolen_cpu: since(after.machine.stolen, before.machine.stolen),
            drops: after.drops.saturating_sub(before.drops),
        }
    }
}

impl Sample {
    fn take(server: Option<u32>) -> Sample {
        Sample {
            client: Usage::of_self(),
            server: server.and_then(Usage::of).unwrap_or_default(),
            machine: cpu::machine_now(),
            drops: udp_drops_of_machine(),
        }
    }
}

impl Used {
    /// Determines the bottleneck.
    pub fn limit(&self) -> Limit {
        let is_full = |cpu: f64, cores: f64| cpu + self.stolen_cpu >= BUSY_SHARE * self.seconds * cores;
        if is_full(self.machine_cpu, self.cores as f64) {
            Limit::Processors
        } else if is_full(self.server_thread_cpu.unwrap_or(0.0), 1.0) {
            Limit::ServerThread
        } else if is_full(self.client_thread_cpu, 1.0) {
            Limit::ClientThread
        } else if self.drops > 0 {
            Limit::Drops
        } else {
            Limit::Waiting
        }
    }
}

/// Fraction of the time above which a processor or thread counts as busy.
const BUSY_SHARE: f64 = 0.9;

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |cpu: f64| cpu / self.seconds.max(1e-9) * 100.0;
        write!(f, "client {:.2} CPU s ({:.0} %)", self.client_cpu, share(self.client_cpu))?;
        match self.server_cpu {
            Some(cpu) => write!(f, ", server {cpu:.2} CPU s ({:.0} %)", share(cpu))?,
            None => write!(f, ", server not measured")?,
        }
        write!(f, ", machine {:.0} % of {} cores", share(self.machine_cpu), self.cores)?;
        if self.stolen_cpu >= 0.01 {
            write!(f, ", stolen {:.2} s", self.stolen_cpu)?;
        }
        write!(f, ", {} datagrams dropped", self.drops)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Processors => "all processors were busy",
            Limit::ClientThread => "a thread of the client was always busy",
            Limit::ServerThread => "a thread of the server was always busy",
            Limit::Drops => {
                "datagrams were dropped for lack of buffer space (a larger net.core.rmem_max, or -u, may \
                help)"
            }
            Limit::Waiting => {
                "nothing was saturated: calls waited for each other, for the network or the \
                disk"
            }
        })
    }
}

/// Returns the number of datagrams that the kernel has dropped for lack of buffer space, over all sockets of
/// the machine (or of its network namespace).
pub fn udp_drops_of_machine() -> u64 {
    udp_drops(&std::fs::read_to_string("/proc/net/snmp").unwrap_or_default())
}

/// Returns RcvbufErrors and SndbufErrors from the two `Udp:` lines of /proc/net/snmp, of which the first has
/// the names.
fn udp_drops(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    let wanted = pairs.filter(|(name, _)| ["RcvbufErrors", "SndbufErrors"].contains(name));
    wanted.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
}

/// Returns the process on this machine (and in this process namespace) that has the UDP port of `server`
/// open. Processes of other users are visible only to root.
pub fn local_server(server: SocketAddr) -> Option<u32> {
    let own = std::process::id();
    let holders = ports::holders(ports::Transport::Udp, server);
    holders.into_iter().filter_map(|holder| holder.process).map(|(pid, _)| pid).find(|pid| *pid != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let used = |machine, client, server: f64, drops| Used {
            seconds: 10.0,
            cores: 2,
            machine_cpu: machine,
            client_thread_cpu: client,
            server_thread_cpu: (server > 0.0).then_some(server),
            drops,
            ..Used::default()
        };
        for (used, limit) in [
            (used(19.0, 9.9, 9.9, 5), Limit::Processors),
            (used(15.0, 5.0, 9.5, 5), Limit::ServerThread),
            (used(15.0, 9.5, 0.0, 0), Limit::ClientThread),
            (used(5.0, 2.0, 2.0, 5), Limit::Drops),
            (used(5.0, 2.0, 2.0, 0), Limit::Waiting),
        ] {
            assert_eq!(used.limit(), limit, "{used:?}");
            assert!(!limit.to_string().is_empty() && !used.to_string().is_empty());
        }
    }

    #[test]
    fn dropped_datagrams() {
        let text = "Ip: A\nIp: 1\nUdp: InDatagrams NoPorts RcvbufErrors SndbufErrors\nUdp: 9 1 30 4\n";
        assert_eq!(udp_drops(text), 34);
        assert_eq!(udp_drops("Udp: A B\n"), 0);
        assert_eq!(udp_drops("Udp: RcvbufErrors\nUdp: x\n"), 0);
    }

    #[test]
    fn a_socket_of_another_process_is_not_ours() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(local_server(socket.local_addr().unwrap()), None, "this process is not a server");
    }

    #[test]
    fn time_passes() {
        let used = Watch::start(None).finish();
        assert!(used.seconds < 60.0 && used.cores > 0 && used.server_cpu.is_none());
    }
}
