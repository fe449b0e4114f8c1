//! Measures a cluster of three nodes over a bucket of SeaweedFS: walks over a tree of files by its owner and by another
//! node, large files written and read through both, and the time in which clients go on after the owner's end. docs/lab/cluster.md explains the figures.

mod bulk;
mod failover;
mod pulse;
mod walks;

pub(crate) use bulk::{BulkOptions, bulk};
pub(crate) use pulse::{PulseOptions, pulse};

use crate::machine::Machine;
use anyhow::{Result, bail};
use interop::cluster::Plan;
use interop::means::Means;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ClusterOptions {
    /// How often to walk over a tree, and to store and fetch a large file, in each way
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Number of files in the tree
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    files: u32,
    /// Number of clients that create the tree at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    makers: u32,
    /// Size of a large file in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    mib: u32,
    /// How often to end the owner with each signal
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    ends: u32,
    /// Run only this part (repeatable)
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Walks over a tree of files
    Walks,
    /// Large files, stored and fetched
    Bulk,
    /// The end of the owner
    Failover,
}

/// The nodes; their copies on the local disk have room for everything that is measured.
const PLAN: Plan = Plan {
    copies_mb: 2048,
    ..Plan::new(
        ("benchn0", "10.99.1.60"),
        [("benchn1", "10.99.1.61"), ("benchn2", "10.99.1.62"), ("benchn3", "10.99.1.63")],
    )
};

/// Measures and prints the tables.
pub(crate) fn run(options: &ClusterOptions) -> Result<()> {
    for means in [Means::Netns, Means::Seaweed] {
        if let Err(missing) = means.check() {
            bail!("{missing}");
        }
    }
    let _alone = crate::alone()?;
    eprintln!("bench: starting the nodes");
    let machine = Machine::here();
    let mut nodes = PLAN.start()?;
    println!("{machine}");
    // Each part is printed immediately, so that an aborted measurement still gives partial results.
    let is_wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if is_wanted(Part::Walks) {
        println!("\n{}", walks::measure(&mut nodes, options)?);
    }
    if is_wanted(Part::Bulk) {
        println!("\n{}", bulk::measure(&mut nodes, options)?);
    }
    if is_wanted(Part::Failover) {
        println!("\n{}", failover::measure(&mut nodes, options)?);
    }
    Ok(())
}
