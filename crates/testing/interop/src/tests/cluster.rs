//! Three nodes of a cluster, which share two partitions in a bucket. SeaweedFS, an S3 server, runs on the databases' host.

mod bucket;
mod kafs;
mod reads;
mod upgrade;
mod walk;

use crate::Test;
use crate::tests::fuse::in_mounted_cell;
use crate::tests::mixed::all;
use crate::tests::series::{SETTLED, Series, check_files};
use crate::tests::store::Writer;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::cluster::{Cluster, Plan};
use interop::means::Means;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

pub(crate) fn tests() -> Vec<Test> {
    let own = vec![
        Test { name: "cluster-killed", needs: NEEDS, run: killed },
        Test { name: "cluster-cut", needs: NEEDS, run: cut },
    ];
    [upgrade::tests(), bucket::tests(), kafs::tests(), own, walk::tests()].into_iter().flatten().collect()
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

/// Longest time from the death of the owner to the next change through another node: less than the 20 s for which a node holds
/// a call.
const TAKEOVER: Duration = Duration::from_secs(19);

/// How long a node is stopped.
const STOPPED: Duration = Duration::from_secs(15);

/// Acknowledged changes between two events.
const CHANGES: usize = 20;

/// The cluster of these and other tests. Each test has a network of its own.
pub(crate) const PLAN: Plan = Plan::new(
    ("clu0", "10.99.0.220"),
    [("clu1", "10.99.0.221"), ("clu2", "10.99.0.222"), ("clu3", "10.99.0.223")],
);

/// A cluster in which each node can own a partition, and the volumes in these partitions.
const SPREAD: Plan = Plan { partitions: &["a", "b", "c"], ..PLAN };
const VOLUMES: [&str; 3] = ["data0", "data1", "data2"];

/// How long a call waits for packets of a node that does not answer.
const SHORT_MS: u64 = 1000;
const LONG_MS: u64 = 120_000;

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
    for (index, pulse) in pulses.iter().enumerate() {
        let count = pulse.rows()?.len();
        check_files(&cluster.host, &format!("data{index}"), count)?;
        println!("interop: {count} changes through {} are there", cluster.nodes[index].name);
    }
    Ok(())
}

/// The owner is killed while clients change files through every node, then a node that owns nothing; both come back.
fn killed() -> Result<()> {
    let mut cluster = PLAN.start()?;
    let owner = create_volumes_together(&cluster)?;
    let pulses = pulses(&cluster)?;
    kill_nodes(&mut cluster, &pulses, owner).with_context(|| cluster.logs())?;
    cluster.end().with_context(|| cluster.logs())
}

fn kill_nodes(cluster: &mut Cluster, pulses: &[Series], owner: usize) -> Result<()> {
    let mut writer = Writer::start_in(&cluster.host, "steps", 0, 0, u64::MAX)?;
    wait_for(LIMIT, || Ok(writer.done()?.unwrap_or(0) >= CHANGES as u64))?;
    pulses.iter().try_for_each(|pulse| pulse.more(CHANGES))?;
    cluster.nodes[owner].end_cellar("KILL")?;
    let since = SystemTime::now();
    for index in (0..cluster.nodes.len()).filter(|index| *index != owner) {
        let taken = pulses[index].after(since + SETTLED)?;
        let longest = pulses[index].longest_gap(since)?;
        println!(
            "interop: {} acknowledged a change {:.1} s after the kill; the longest pause was {:.1} s",
            cluster.nodes[index].name,
            taken.as_secs_f64(),
            longest.as_secs_f64()
        );
        ensure!(longest <= TAKEOVER, "clients of {} waited for {longest:?}", cluster.nodes[index].name);
    }
    // It may have called the killed node, and the next one may do so, too: these programs use one address of a server.
    let has_ended = writer.has_ended()?;
    let mut done = writer.done()?.context("it has compared")?;
    cluster.nodes[owner].start_cellar_alone()?;
    if has_ended {
        println!("interop: the writer's node was killed after {done} steps");
        done = Writer::compare_in(&cluster.host, "steps", 0, done)?;
        writer = Writer::start_in(&cluster.host, "steps", 0, done, u64::MAX)?;
    }
    pulses[owner].more(CHANGES).context("the killed node does not pass calls on")?;

    let next = cluster.present_owner("b")?;
    ensure!(next != owner, "the killed node owns the partition");
    let front = (0..cluster.nodes.len()).find(|index| ![owner, next].contains(index)).context("no front")?;
    cluster.nodes[front].end_cellar("KILL")?;
    let since = SystemTime::now();
    for index in [owner, next] {
        pulses[index].more(CHANGES)?;
        let longest = pulses[index].longest_gap(since)?;
        println!("interop: without a front, the longest pause was {:.1} s", longest.as_secs_f64());
        ensure!(longest <= TAKEOVER, "clients of {} waited for {longest:?}", cluster.nodes[index].name);
    }
    cluster.nodes[front].start_cellar_alone()?;
    pulses[front].more(CHANGES).context("the killed front does not pass calls on")?;
    done = done.max(writer.stop()?.unwrap_or(0));
    Writer::compare_in(&cluster.host, "steps", 0, done)?;
    compare(cluster, pulses)
}

/// The owner stops for longer than its lease while clients change files through other nodes. When it goes on, it shows
/// nothing outdated, and passes calls on.
fn cut() -> Result<()> {
    let mut cluster = PLAN.start()?;
    let owner = create_volumes_together(&cluster)?;
    let pulses = pulses(&cluster)?;
    stop_owner(&cluster, &pulses, owner).with_context(|| cluster.logs())?;
    compare(&cluster, &pulses)?;
    cluster.end().with_context(|| cluster.logs())
}

fn stop_owner(cluster: &Cluster, pulses: &[Series], owner: usize) -> Result<()> {
    let front = (owner + 1) % cluster.nodes.len();
    let volume = format!("data{front}");
    let late = Series::peek(&cluster.host, cluster.nodes[owner].address, &volume, LONG_MS)?;
    let present = Series::peek(&cluster.host, cluster.nodes[front].address, &volume, SHORT_MS)?;
    late.more(3)?;
    present.more(3)?;
    pulses.iter().try_for_each(|pulse| pulse.more(CHANGES))?;
    cluster.nodes[owner].stop_cellar()?;
    let since = SystemTime::now();
    let longest = pulses[front].longest_gap(since)?;
    println!("interop: the longest pause was {:.1} s", longest.as_secs_f64());
    ensure!(longest <= TAKEOVER, "clients waited for {longest:?}");
    std::thread::sleep(STOPPED.saturating_sub(since.elapsed()?));
    pulses[front].more(1)?;
    present.more(2)?;
    let (_, version) = present.rows()?.pop().context("no version")?;
    let (answers, goes_on) = (late.rows()?.len(), SystemTime::now());
    cluster.nodes[owner].resume_cellar()?;
    let back = late.after(goes_on)?;
    let old: Vec<_> =
        late.rows()?.split_off(answers).into_iter().filter(|(_, shown)| *shown < version).collect();
    ensure!(old.is_empty(), "the stopped node has shown {old:?} after version {version}");
    println!("interop: the stopped node passed calls on after {:.1} s", back.as_secs_f64());
    pulses[owner].more(CHANGES)
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
