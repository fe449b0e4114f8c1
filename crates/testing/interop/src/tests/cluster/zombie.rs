//! A node that stands still for a minute while it owns the partition, and goes on as if nothing had happened.

use super::history::History;
use super::{CHANGES, SINGLE, TAKEOVER, compare, create_volumes_together, pulses};
use crate::Test;
use crate::tests::series::Series;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cluster::Cluster;
use std::time::{Duration, SystemTime};

pub(super) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-zombie", needs: super::NEEDS, run: zombie }]
}

/// How long it stands still: longer than all time limits of calls between nodes, and of its connections to the bucket.
const STOPPED: Duration = Duration::from_secs(60);

/// Time limit for it to be a node like others again.
const RETURN: Duration = Duration::from_secs(30);

/// How long a call waits for packets of a node that does not answer.
const SHORT_MS: u64 = 1000;
const LONG_MS: u64 = 120_000;

fn zombie() -> Result<()> {
    let mut cluster = SINGLE.start()?;
    let owner = create_volumes_together(&cluster)?;
    let pulses = pulses(&cluster)?;
    stop_owner(&cluster, &pulses, owner).with_context(|| cluster.logs())?;
    compare(&cluster, &pulses)?;
    cluster.end().with_context(|| cluster.logs())
}

/// The clients of the other nodes go on within the promised time. When the stopped node goes on, it shows nothing outdated, passes
/// calls on, and can own the partition again.
fn stop_owner(cluster: &Cluster, pulses: &[Series], owner: usize) -> Result<()> {
    let front = (owner + 1) % cluster.nodes.len();
    let volume = format!("data{front}");
    let mut histories: Vec<History> =
        (0..cluster.nodes.len()).map(|node| History::of(&format!("data{node}"))).collect();
    let late = Series::peek(&cluster.host, cluster.nodes[owner].address, &volume, LONG_MS)?;
    let present = Series::peek(&cluster.host, cluster.nodes[front].address, &volume, SHORT_MS)?;
    late.more(3)?;
    present.more(3)?;
    pulses.iter().try_for_each(|pulse| pulse.more(CHANGES))?;
    histories.iter_mut().try_for_each(|history| history.look(cluster, owner))?;
    cluster.nodes[owner].stop_cellar()?;
    let since = SystemTime::now();
    let longest = pulses[front].longest_gap(since)?;
    println!("interop: the longest pause was {:.1} s", longest.as_secs_f64());
    ensure!(longest <= TAKEOVER, "clients waited for {longest:?}");
    histories.iter_mut().try_for_each(|history| history.look(cluster, front))?;
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
    histories.iter_mut().try_for_each(|history| history.look(cluster, owner))?;
    pulses[owner].more(CHANGES)?;
    own_again(cluster, pulses, owner)?;
    for node in 0..cluster.nodes.len() {
        histories.iter_mut().try_for_each(|history| history.look(cluster, node))?;
    }
    Ok(())
}

/// The node has joined again by itself, and takes the partition when it is moved there.
fn own_again(cluster: &Cluster, pulses: &[Series], owner: usize) -> Result<()> {
    let name = cluster.nodes[owner].name;
    wait_for(RETURN, || {
        let status = cluster.status()?;
        let mut nodes = status["nodes"].as_array().context("no nodes")?.iter();
        Ok(nodes.any(|node| node["node"] == name && node["state"] == "live"))
    })
    .with_context(|| format!("{name} does not join again"))?;
    ensure!(cluster.present_owner("b")? != owner, "{name} owns the partition, which another node has taken");
    cluster.give("b", owner)?;
    pulses.iter().try_for_each(|pulse| pulse.more(CHANGES))
}
