//! Three nodes of a cluster, which share two partitions in a bucket. SeaweedFS, an S3 server, runs on the databases' host.

mod bucket;
mod cuts;
mod history;
mod kafs;
mod killed;
mod partitions;
mod reads;
mod upgrade;
mod walk;
mod zombie;

use crate::Test;
use crate::tests::fuse::in_mounted_cell;
use crate::tests::mixed::all;
use crate::tests::series::{Series, check_files};
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::cluster::{Cluster, Plan};
use interop::means::Means;
use std::path::Path;
use std::time::{Duration, Instant};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

pub(crate) fn tests() -> Vec<Test> {
    let all = [
        upgrade::tests(),
        bucket::tests(),
        kafs::tests(),
        killed::tests(),
        partitions::tests(),
        zombie::tests(),
        cuts::tests(),
        walk::tests(),
    ];
    all.into_iter().flatten().collect()
}

/// They run only if they are asked for: what they show beyond the others takes minutes of waiting.
pub(crate) fn hidden() -> Vec<Test> {
    let fuse = &[Means::Netns, Means::Seaweed, Means::Fuse];
    let mut tests = vec![Test { name: "cluster-fuse", needs: fuse, run: cache_manager }];
    tests.extend(kafs::hidden());
    tests.extend(bucket::hidden());
    tests
}

/// Time limit for a node or a partition to be there, and for clients to go on.
const LIMIT: Duration = Duration::from_secs(90);

/// Longest pause of a client whose volume's owner dies, stands still or is cut off, if it calls another node: the promised 12 s,
/// 7 s of them for the lease to end, and 3 s because the machine also runs other tests.
pub(crate) const TAKEOVER: Duration = Duration::from_secs(12 + 3);

/// Acknowledged changes between two events.
const CHANGES: usize = 20;

/// The cluster of these and other tests. Each test has a network of its own.
pub(crate) const PLAN: Plan = Plan::new(
    ("clu0", "10.99.0.220"),
    [("clu1", "10.99.0.221"), ("clu2", "10.99.0.222"), ("clu3", "10.99.0.223")],
);

/// A cluster with one partition. A new one is probed for some 20 s.
const SINGLE: Plan = Plan { partitions: &["b"], ..PLAN };

/// A cluster in which each node can own a partition, and the volumes in these partitions.
const SPREAD: Plan = Plan { partitions: &["a", "b", "c"], ..PLAN };
const VOLUMES: [&str; 3] = ["data0", "data1", "data2"];

/// Creates a volume in each partition.
fn create_volumes(cluster: &Cluster) -> Result<()> {
    let in_partition = |(volume, partition): (&&str, &&str)| cluster.create_volume_in(volume, partition);
    VOLUMES.iter().zip(SPREAD.partitions).try_for_each(in_partition)
}

/// Creates a volume for each node, which changes it, and one for writers; all in the partition b. Returns its owner.
fn create_volumes_together(cluster: &Cluster) -> Result<usize> {
    ["data0", "data1", "data2", "steps"].iter().try_for_each(|volume| cluster.create_volume(volume))?;
    cluster.present_owner("b")
}

/// Starts a client of each node, which creates files in the volume of its number.
fn pulses(cluster: &Cluster) -> Result<Vec<Series>> {
    let start =
        |(index, node): (usize, &Cell)| Series::pulse(&cluster.host, node.address, &format!("data{index}"));
    cluster.nodes.iter().enumerate().map(start).collect()
}

/// Checks that everything is there that was acknowledged to these clients.
fn compare(cluster: &Cluster, pulses: &[Series]) -> Result<()> {
    pulses
        .iter()
        .enumerate()
        .try_for_each(|(index, pulse)| compare_in(cluster, &format!("data{index}"), pulse))
}

/// Checks that everything is in a volume that was acknowledged to this client.
fn compare_in(cluster: &Cluster, volume: &str, pulse: &Series) -> Result<()> {
    let count = pulse.rows()?.len();
    check_files(&cluster.host, volume, count)?;
    println!("interop: {volume} has {count} changes");
    Ok(())
}

/// OpenAFS's cache manager goes on by itself while each node in turn is killed and comes back.
fn cache_manager() -> Result<()> {
    let mut cluster = PLAN.start()?;
    create_volumes_together(&cluster)?;
    let (databases, nodes) = (&cluster.host, &mut cluster.nodes);
    let rights = "--quota 0 --acl system:anyuser=rlidwka";
    let create = format!("cellar volume create root.cell --on {} --partition a {rights}", databases.address);
    all(databases, &[create, "cellar volume mount root.cell/data0 data0".into()])?;
    let written = in_mounted_cell(databases, |root| {
        let volume = root.join("data0");
        write_in(databases, &volume, 0)?;
        for (node, number) in nodes.iter_mut().zip(1..) {
            node.end_cellar("KILL")?;
            let taken = write_in(databases, &volume, number)?;
            println!(
                "interop: without {}, the cache manager waited for {:.1} s",
                node.name,
                taken.as_secs_f64()
            );
            node.start_cellar_alone()?;
        }
        write_in(databases, &volume, 4)?;
        Ok(5)
    });
    let written = written.with_context(|| cluster.logs())?;
    let copy = cluster.host.scratch()?.join("copy");
    all(&cluster.host, &[format!("cellar cp cell:data0/ {}", copy.display())])?;
    for number in 0..written {
        let text = std::fs::read_to_string(copy.join(format!("file-{number}")))?;
        ensure!(text == format!("{number}\n"), "file-{number} holds {text:?}");
    }
    cluster.end().with_context(|| cluster.logs())
}

/// Writes a file through the mounted cell and reads it; returns how long that took.
fn write_in(databases: &Cell, volume: &Path, number: u32) -> Result<Duration> {
    let file = volume.join(format!("file-{number}"));
    let command =
        format!("timeout {} sh -c 'echo {number} >{1} && cat {1}'", LIMIT.as_secs(), file.display());
    let begun = Instant::now();
    let text = databases.shell(&command)?.ok().context(command)?;
    ensure!(text == format!("{number}\n"), "{} holds {text:?}", file.display());
    Ok(begun.elapsed())
}
