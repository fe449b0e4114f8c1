//! Compares Cellar with OpenAFS on this machine.
//!
//! Starts a cell of each in separate namespaces, and runs each workload against both alternately, in several
//! rounds. A load generator runs in each cell's namespaces, so that all traffic is on a loopback device. It
//! compares every byte with what was stored, and a workload with wrong bytes fails. docs/lab/benchmarks.md
//! explains the figures.
#![allow(clippy::cast_precision_loss, reason = "rates and times are printed with three digits")]

mod bucket;
mod cluster;
mod copies;
mod cpu;
mod disturbed;
mod generator;
mod machine;
mod observing;
mod order;
mod peers;
mod record;
mod report;
mod rxperf;
mod side;
mod statistics;
mod store;
mod tree;
mod volumes;
mod workload;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use interop::cell::Server;
use interop::means::Means;
use machine::Machine;
use order::Order;
use report::{Report, Row};
use rustix::fs::FlockOperation;
use side::Side;
use std::process::ExitCode;

/// Compares Cellar with OpenAFS on this machine; needs root and Debian's OpenAFS packages
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    /// How often to run each workload against each server
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long each run of small calls takes, in seconds
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// MiB moved by each bulk run
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// Run only workloads whose names contain this (repeatable)
    #[arg(long, value_name = "WORKLOAD")]
    only: Vec<String>,
    /// Arguments of OpenAFS's file server
    #[arg(long, default_value = "-L", value_name = "ARGUMENTS", allow_hyphen_values = true)]
    openafs: String,
    /// Print every run as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// List the workloads
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Generates load in a cell; started by this program
    #[command(hide = true)]
    Generate(generator::GeneratorOptions),
    /// Creates or lists a tree of files in a cell; started by this program
    #[command(hide = true)]
    Tree(tree::TreeOptions),
    /// Generates load for another kind of server; started by this program
    #[command(hide = true)]
    Drive(peers::DriveOptions),
    /// Measures the store: durable small operations with each policy, many files created, listed, cloned and
    /// removed, and the bytes written for them
    Store(store::StoreOptions),
    /// Generates load in a mounted file system; started by this program
    #[command(hide = true)]
    Mounted(bucket::MountedOptions),
    /// Creates many volumes in a partition, or waits for one of them; started by this program
    #[command(hide = true)]
    ManyVolumes(bucket::ManyVolumesOptions),
    /// Compares partitions in a bucket and in a folder as a bucket with one on a local disk, and with JuiceFS: small and
    /// large files, cold reads, a tree of files, a start with many volumes, requests to the bucket
    Bucket(bucket::BucketOptions),
    /// Stores or fetches a large file through one node of a cluster; started by this program
    #[command(hide = true)]
    Bulk(cluster::BulkOptions),
    /// Creates files through one node of a cluster; started by this program
    #[command(hide = true)]
    Pulse(cluster::PulseOptions),
    /// Measures a cluster of three nodes: walks over a tree of files by its owner and by another node, large files stored and
    /// fetched through both, and how long clients
    /// wait when the owner is killed or stopped
    Cluster(cluster::ClusterOptions),
    /// Measures operations on whole volumes: dump, restore, release, move
    Volumes(volumes::VolumesOptions),
    /// Measures `cellar cp` of many small files, into a cell and out of it
    Copies(copies::CopiesOptions),
    /// Measures what counting, the audit and a profile cost a server under full load
    Observing(observing::ObservingOptions),
    /// Measures Rx alone: `rxperf` with few and many streams over several paths
    Rxperf(rxperf::RxperfOptions),
    /// Compares Cellar with NFS-Ganesha and Samba: large and small files, a listing, status
    Peers(peers::PeersOptions),
    /// Prints its input and replaces a block of a document with it
    Record(record::RecordOptions),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // In a cell or another namespace there are no processes to clean up.
    let is_inside = matches!(
        arguments.role,
        Some(
            Role::Generate(_)
                | Role::Tree(_)
                | Role::Drive(_)
                | Role::Mounted(_)
                | Role::ManyVolumes(_)
                | Role::Bulk(_)
                | Role::Pulse(_)
        )
    );
    if !is_inside && let Err(error) = interop::ending::on_signal() {
        eprintln!("bench: {error:#}");
        return ExitCode::FAILURE;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.role {
        Some(Role::Generate(options)) => return generator::serve(options),
        Some(Role::Tree(options)) => return tree::run(options),
        Some(Role::Mounted(options)) => return bucket::mounted(options),
        Some(Role::ManyVolumes(options)) => return bucket::many_volumes(options),
        Some(Role::Bulk(options)) => return cluster::bulk(options),
        Some(Role::Pulse(options)) => return cluster::pulse(options),
        Some(Role::Cluster(options)) => return cluster::run(options),
        Some(Role::Bucket(options)) => return bucket::run(options),
        Some(Role::Store(options)) => return store::run(options),
        Some(Role::Volumes(options)) => return volumes::run(options),
        Some(Role::Copies(options)) => return copies::run(options),
        Some(Role::Observing(options)) => return observing::run(options),
        Some(Role::Peers(options)) => return peers::run(options),
        Some(Role::Drive(options)) => return peers::drive(options),
        Some(Role::Rxperf(options)) => return rxperf::run(options),
        Some(Role::Record(options)) => return record::run(options),
        None => {}
    }
    if arguments.list {
        for workload in workload::ALL {
            println!("{:<14} {}", workload.name, workload.text);
        }
        return Ok(());
    }
    let report = measure(arguments)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", report.text());
    }
    Ok(())
}

fn measure(arguments: &Arguments) -> Result<Report> {
    let workloads = workload::select(workload::ALL, &arguments.only)?;
    if let Err(missing) = Means::Netns.check() {
        bail!("{missing}");
    }
    let _alone = alone()?;
    let bytes = arguments.size << 20;
    let mut report = Report {
        machine: Machine::here(),
        rounds: arguments.rounds as usize,
        seconds: arguments.seconds,
        bytes,
        openafs_arguments: arguments.openafs.clone(),
        rows: workloads.iter().map(|workload| Row::new(workload)).collect(),
    };
    eprintln!("bench: starting the cells");
    let mut openafs = Side::start(Server::OpenAfs, &arguments.openafs).context("OpenAFS")?;
    let mut cellar = Side::start(Server::Cellar, &arguments.openafs).context("Cellar")?;
    for round in 0..report.rounds {
        for row in &mut report.rows {
            eprintln!("bench: round {} of {}, {}", round + 1, arguments.rounds, row.workload);
            let milliseconds = (arguments.seconds * 1e3) as u64;
            let order = Order::once(row.workload, milliseconds, bytes);
            run_both(&order, row, &mut openafs, &mut cellar, round % 2 == 1)?;
        }
    }
    Ok(report)
}

/// Ensures that only one run is in progress: cells always have the same names and addresses.
pub(crate) fn alone() -> Result<std::fs::File> {
    let program = std::fs::File::open(std::env::current_exe()?)?;
    rustix::fs::flock(&program, FlockOperation::NonBlockingLockExclusive)
        .context("another run seems to be in progress")?;
    Ok(program)
}

/// Runs a workload once against each server; the order alternates between rounds. A mix of many clients may
/// overload a server: that is recorded as a result, and the other runs continue.
fn run_both(
    order: &Order,
    row: &mut Row,
    openafs: &mut Side,
    cellar: &mut Side,
    cellar_first: bool,
) -> Result<()> {
    for is_cellar in [cellar_first, !cellar_first] {
        let (server, side) = if is_cellar { ("Cellar", &mut *cellar) } else { ("OpenAFS", &mut *openafs) };
        let outcome = side.run(order).with_context(|| format!("{} against {server}", order.workload));
        match outcome {
            Ok(outcome) if is_cellar => row.cellar.push(outcome),
            Ok(outcome) => row.openafs.push(outcome),
            Err(error) if row.is_mix => {
                eprintln!("bench: {error:#}");
                row.failed.push(server);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=600.0).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("must be 0.01 to 600".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
        let arguments =
            Arguments::try_parse_from(["bench", "--only", "fetch", "--openafs", "-S -p 8"]).unwrap();
        assert_eq!((arguments.rounds, arguments.openafs.as_str()), (5, "-S -p 8"));
        for bad in [["--seconds", "0"], ["--seconds", "x"], ["--rounds", "0"], ["--size", "0"]] {
            let arguments = ["bench", bad[0], bad[1]];
            assert!(Arguments::try_parse_from(arguments).is_err(), "{bad:?}");
        }
    }
}
