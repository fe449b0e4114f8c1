//! Compares Cellar with servers of other network file systems, all with user-space clients: large and small
//! files, listings, status.
//!
//! Each server runs in its own namespaces (`tools/peer-host`). A load generator in the same namespaces drives
//! the clients (`tools/peer-client`). docs/lab/benchmarks.md lists the differences
//! between the settings.

mod drive;
mod report;

pub(crate) use drive::{DriveOptions, drive};

use crate::machine::{Machine, package_version};
use crate::order::Order;
use crate::side::{Generator, Side};
use crate::workload::{self, Kind, LIST_FILES, Workload};
use anyhow::{Context, Result, bail};
use interop::cell::{Cell, Server};
use interop::means::Means;
use report::{Report, Row};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PeersOptions {
    /// How often to run each workload against each server
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each run of small operations takes, in seconds
    #[arg(long, default_value_t = 2.0, value_parser = crate::seconds)]
    seconds: f64,
    /// MiB moved by each run with large files
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1024))]
    size: u64,
    /// Run only workloads whose names contain this (repeatable)
    #[arg(long, value_name = "WORKLOAD")]
    only: Vec<String>,
}

/// A protocol with its server and client from Debian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// NFSv3: NFS-Ganesha and libnfs.
    Nfs,
    /// SMB 3.1.1: Samba and libsmbclient.
    Smb,
}

impl Protocol {
    /// Returns the name of the protocol in arguments of the tools.
    fn name(self) -> &'static str {
        match self {
            Protocol::Nfs => "nfs",
            Protocol::Smb => "smb",
        }
    }
}

/// A server to compare Cellar with.
#[derive(Clone, Copy, Debug)]
struct Peer {
    name: &'static str,
    protocol: Protocol,
    /// Whether a reply to any change means that it is on disk; otherwise it is configured as Debian does it.
    is_durable: bool,
}

/// The peers in the order of the tables' columns; the durable ones first.
const PEERS: [Peer; 4] = [
    Peer { name: "NFS-Ganesha", protocol: Protocol::Nfs, is_durable: true },
    Peer { name: "Samba", protocol: Protocol::Smb, is_durable: true },
    Peer { name: "NFS-Ganesha as packaged", protocol: Protocol::Nfs, is_durable: false },
    Peer { name: "Samba as packaged", protocol: Protocol::Smb, is_durable: false },
];

/// Debian's packages of the servers, their clients and the tools that run them.
const PACKAGES: [&str; 7] =
    ["nfs-ganesha", "nfs-ganesha-vfs", "samba", "libnfs13", "libsmbclient", "python3", "e2fsprogs"];

/// Number of clients of each server: as many as a workload has.
const CLIENTS: usize = 16;

/// Measures and prints the tables.
pub(crate) fn run(options: &PeersOptions) -> Result<()> {
    let workloads = workload::select(workload::OF_PEERS, &options.only)?;
    if let Err(missing) = Means::Netns.check() {
        bail!("{missing}");
    }
    let versions = versions(PACKAGES)?;
    let _alone = crate::alone()?;
    let machine = Machine::here();
    let cell = Cell::start_with(Server::Cellar, "benchcel", "10.99.1.4", &[]).context("Cellar")?;
    // In the cell's folder, so that they are on the same file system and are removed with it.
    let folder = cell.path().join("peers");
    let mut cellar = Side::in_cell(Server::Cellar, cell).context("Cellar")?;
    let start = |peer: &Peer| start(peer, &folder).with_context(|| peer.name);
    let mut peers = PEERS.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut rows: Vec<Row> = workloads.into_iter().map(Row::new).collect();
    for round in 0..options.rounds as usize {
        for row in &mut rows {
            let workload = row.workload;
            let order = Order::once(workload.name, (options.seconds * 1e3) as u64, options.size << 20);
            let servers = row.runs.len();
            for turn in 0..servers {
                let which = (turn + round) % servers;
                let name = which.checked_sub(1).map_or("Cellar", |peer| PEERS[peer].name);
                eprintln!("bench: round {} of {}, {}, {name}", round + 1, options.rounds, workload.name);
                let outcome = match which.checked_sub(1) {
                    None => cellar.run(&order),
                    Some(peer) => peers[peer].run(&order),
                };
                row.runs[which].push(outcome.with_context(|| format!("{} against {name}", workload.name))?);
            }
        }
    }
    let PeersOptions { rounds, seconds, size, .. } = *options;
    let report = Report { machine, versions, rounds, seconds, bytes: size << 20, rows };
    println!("{}", report.text());
    Ok(())
}

/// Whether servers that are not durable make a difference.
fn is_change(workload: &Workload) -> bool {
    matches!(workload.kind, Kind::Store { .. } | Kind::Files)
}

/// Returns each package with its version.
///
/// # Errors
/// If one is not installed.
fn versions<const N: usize>(packages: [&'static str; N]) -> Result<[(&'static str, String); N]> {
    let mut versions = packages.map(|name| (name, String::new()));
    for (name, version) in &mut versions {
        let Some(found) = package_version(name) else {
            bail!("the package {name} is not installed; `scripts/install-deps bench` installs it");
        };
        *version = found;
    }
    Ok(versions)
}

/// Starts a server and its load generator.
fn start(peer: &Peer, folder: &Path) -> Result<Generator> {
    let durability = if peer.is_durable { "durable" } else { "packaged" };
    let folder = folder.join(format!("{}-{durability}", peer.protocol.name()));
    let export = folder.join("export");
    fill(&export).with_context(|| export.display().to_string())?;
    let mut command = Command::new(tool("peer-host"));
    command.args([peer.protocol.name(), durability]).arg(&folder);
    command.arg(std::env::current_exe()?).args(["drive", "--protocol", peer.protocol.name()]);
    Generator::start(command.arg("--export").arg(&export))
}

/// Creates the directories that clients expect, before the server runs and directories are synchronous.
fn fill(export: &Path) -> std::io::Result<()> {
    for client in 0..CLIENTS {
        std::fs::create_dir_all(export.join(format!("client-{client}")))?;
    }
    let big = export.join("big");
    std::fs::create_dir(&big)?;
    (0..LIST_FILES).try_for_each(|name| std::fs::write(big.join(name.to_string()), ""))
}

fn tool(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_package_is_named() {
        let error = versions(["no-such-package"]).unwrap_err().to_string();
        assert!(error.contains("no-such-package is not installed; `scripts/install-deps bench`"), "{error}");
    }

    #[test]
    fn there_are_enough_clients_and_files() {
        assert!(workload::OF_PEERS.iter().all(|workload| workload.clients * workload.threads <= CLIENTS));
        let folder = std::env::temp_dir().join(format!("bench-peers-{}", std::process::id()));
        fill(&folder).unwrap();
        let count = |name: &str| std::fs::read_dir(folder.join(name)).unwrap().count();
        assert_eq!((count("."), count("big")), (CLIENTS + 1, LIST_FILES as usize));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
