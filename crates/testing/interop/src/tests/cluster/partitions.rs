//! A partition is added to a cluster and removed from it, while its nodes run and clients write.

use super::{LIMIT, PLAN};
use crate::Test;
use crate::tests::series::{Series, check_files};
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cluster::{Cluster, Plan};
use std::time::{Duration, Instant, SystemTime};

pub(super) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-partitions", needs: super::NEEDS, run: partitions }]
}

const GROWING: Plan = Plan { partitions: &["b"], has_record: true, ..PLAN };

const ADD: &str = "cellar cluster partitions add d";
const REMOVE: &str = "cellar cluster partitions remove d";

/// A volume in the new partition for each node.
const USED: [&str; 3] = ["used0", "used1", "used2"];

/// Acknowledged changes of a client between two events.
const CHANGES: usize = 20;

/// Longest pause of a client of another partition, on a busy machine.
const PAUSE: Duration = Duration::from_secs(5);

fn partitions() -> Result<()> {
    let mut cluster = GROWING.start()?;
    cluster.give("b", 0)?;
    cluster.create_volume("data")?;
    let pulse = Series::pulse(&cluster.host, cluster.nodes[2].address, "data")?;
    pulse.more(CHANGES)?;
    let begun = SystemTime::now();
    added(&cluster).with_context(|| cluster.logs())?;
    refused(&cluster).with_context(|| cluster.logs())?;
    removed(&mut cluster).with_context(|| cluster.logs())?;
    pulse.more(CHANGES)?;
    let pause = pulse.longest_gap(begun)?;
    println!("interop: the longest pause of a client of another partition was {pause:.1?}");
    ensure!(pause < PAUSE && pulse.failures()?.is_empty(), "{pause:?}, {:?}", pulse.failures()?);
    let files = pulse.rows()?.len();
    drop(pulse);
    check_files(&cluster.host, "data", files)?;
    cluster.end().with_context(|| cluster.logs())
}

/// Runs a command with the configuration of a node.
fn on(cluster: &Cluster, node: usize, command: &str) -> Result<interop::cell::Output> {
    let node = &cluster.nodes[node];
    node.run(&format!("{command} --config {}", node.configuration()))
}

/// A volume in the new partition is served by every node, and created through one that did not run the command.
fn added(cluster: &Cluster) -> Result<()> {
    let begun = Instant::now();
    on(cluster, 0, ADD)?.ok()?;
    let known = begun.elapsed();
    let server = cluster.nodes[2].address;
    let create = format!("vos create {server} d more -maxquota 0 -localauth");
    cluster.host.run(&create)?.ok()?;
    println!("interop: /vicepd was added in {known:.1?}, and had a volume after {:.1?}", begun.elapsed());
    for node in &cluster.nodes {
        let list = format!("vos listvol {} d -quiet -localauth", node.address);
        let listed = cluster.host.run(&list)?.ok()?;
        ensure!(listed.contains("more"), "{}: {listed}", node.name);
        let parts = cluster.host.run(&format!("vos listpart {} -localauth", node.address))?.ok()?;
        ensure!(parts.contains("/vicepd"), "{}: {parts}", node.name);
    }
    for (node, volume) in cluster.nodes.iter().zip(USED) {
        cluster.create_volume_in(volume, "d")?;
        let pulse = Series::pulse(&cluster.host, node.address, volume)?;
        pulse.more(CHANGES)?;
        ensure!(pulse.failures()?.is_empty(), "{}: {:?}", node.name, pulse.failures()?);
    }
    Ok(())
}

/// A partition with volumes is not removed, nor added twice.
fn refused(cluster: &Cluster) -> Result<()> {
    let again = on(cluster, 0, ADD)?;
    ensure!(again.status != 0 && again.text.contains("has /vicepd already"), "{}", again.text);
    let used = on(cluster, 1, REMOVE)?;
    ensure!(used.status != 0 && used.text.contains("4 volumes are on it"), "{}", used.text);
    Ok(())
}

/// An empty one is removed while a node is down, which does not serve it when it comes back with the old list.
fn removed(cluster: &mut Cluster) -> Result<()> {
    on(cluster, 1, ADD)?.ok()?;
    for volume in USED.iter().chain(&["more"]) {
        cluster.host.run(&format!("vos remove -id {volume} -localauth"))?.ok()?;
    }
    cluster.nodes[1].end_cellar("TERM")?;
    let begun = Instant::now();
    on(cluster, 0, REMOVE)?.ok()?;
    println!("interop: /vicepd was removed in {:.1?}", begun.elapsed());
    cluster.nodes[1].start_cellar_alone()?;
    let log = cluster.nodes[1].path().join("cellar.log");
    let says = "`cluster.partitions` of the configuration is outdated";
    wait_for(LIMIT, || Ok(std::fs::read_to_string(&log)?.contains(says)))?;
    for node in &cluster.nodes {
        let list = format!("vos listpart {} -localauth", node.address);
        wait_for(LIMIT, || {
            let listed = cluster.host.run(&list)?;
            Ok(listed.status == 0 && !listed.text.contains("/vicepd"))
        })
        .with_context(|| node.name.to_owned())?;
    }
    let create = format!("vos create {} d late -localauth", cluster.nodes[1].address);
    ensure!(cluster.host.run(&create)?.status != 0, "a volume was created in a partition that was removed");
    Ok(())
}
