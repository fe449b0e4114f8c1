//! A cluster of three nodes that is set up and administered by its commands, as a test and for people to watch.
//! SeaweedFS is on the host that has the databases.

use crate::Test;
use crate::tests::cluster::{PLAN, TAKEOVER};
use crate::tests::series::{Series, check_files};
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::cluster::{Cluster, PLACE, Plan};
use interop::means::Means;
use serde_json::Value;
use std::time::{Duration, Instant};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-commands", needs: NEEDS, run: commands }]
}

/// Runs only if it is asked for.
pub(crate) fn hidden() -> Vec<Test> {
    vec![Test { name: "demo-cluster", needs: NEEDS, run: demonstration }]
}

const LETTERS: [&str; 3] = ["a", "b", "c"];
const SPREAD: Plan = Plan { partitions: &LETTERS, by_commands: true, ..PLAN };
const FIRST: &str = PLAN.nodes[0].0;
const SECOND: &str = PLAN.nodes[1].0;

/// Time limit for nodes and partitions to be there: new partitions are probed first.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest pause of a client whose volume's partition is moved.
const MOVE: Duration = Duration::from_secs(19);

/// Creates a volume in each partition.
fn create_volumes(cluster: &Cluster) -> Result<()> {
    LETTERS.iter().try_for_each(|letters| cluster.create_volume_in(&format!("data.{letters}"), letters))
}

/// Starts a client that creates files in a volume through a node.
fn start_client(cluster: &Cluster, node: usize, volume: &str) -> Result<Series> {
    Series::pulse(&cluster.host, cluster.nodes[node].address, volume)
}

/// Whether all nodes renew their leases.
fn are_live(cluster: &Cluster) -> Result<bool> {
    let status = cluster.status()?;
    let nodes = status["nodes"].as_array().context("no nodes")?;
    Ok(nodes.iter().all(|node| node["state"] == "live"))
}

fn commands() -> Result<()> {
    let mut cluster = SPREAD.start()?;
    refusals(&cluster)?;
    cluster.spread()?;
    create_volumes(&cluster)?;
    moved_while_a_client_writes(&cluster).with_context(|| cluster.logs())?;
    let kept = killed_while_a_client_writes(&mut cluster).with_context(|| cluster.logs())?;
    check_files(&cluster.host, "data.b", kept)
}

/// What must not be possible says so.
fn refusals(cluster: &Cluster) -> Result<()> {
    let node = &cluster.nodes[2];
    let other = Cell::prepare_configured_joining(&cluster.host, "clu4", "10.99.0.224", "")?;
    let at = cluster.reach(&other)?;
    for (cell, command, words) in [
        (node, "cellar cluster move a nobody".to_owned(), "no node `nobody` runs"),
        (node, format!("cellar cluster join {PLACE} {at}"), "there is a section `[cluster]` already"),
        (&other, format!("cellar cluster join {PLACE} --node {FIRST} {at}"), "runs already"),
        (&other, format!("cellar cluster join s3://cellar/none {at}"), "there is no cluster"),
        (&other, format!("cellar cluster init {PLACE} {at}"), "there is a cluster in"),
    ] {
        let refused = cell.run(&format!("{command} --config {}", cell.configuration()))?;
        ensure!(refused.status == 1 && refused.text.contains(words), "{command}: {}", refused.text);
    }
    let to = cluster.nodes[(cluster.present_owner("a")? + 1) % cluster.nodes.len()].name;
    let anonymous =
        node.run(&format!("cellar cluster move a {to} --noauth --config {}", node.configuration()))?;
    ensure!(anonymous.text.contains("only superusers move partitions"), "{}", anonymous.text);
    Ok(())
}

/// A partition moves, and a node is drained, while a client writes through a third node.
fn moved_while_a_client_writes(cluster: &Cluster) -> Result<()> {
    let client = start_client(cluster, 2, "data.a")?;
    client.more(20)?;
    let before = client.rows()?.len();
    let said = cluster.run(&format!("cellar cluster move a {SECOND}"))?;
    ensure!(said.contains(&format!("/vicepa moved from {FIRST} to {SECOND}")), "{said}");
    client.more(20)?;
    let drained = cluster.run(&format!("cellar cluster drain {SECOND}"))?;
    ensure!(drained.contains(&format!("{SECOND} owns no partition now")), "{drained}");
    client.more(20)?;
    let longest = client.longest_wait(before)?;
    println!("interop: {} the client waited {:.1} s at most", said.trim(), longest.as_secs_f64());
    ensure!(longest <= MOVE, "a client waited {longest:?}");
    let files = client.rows()?.len();
    drop(client);
    check_files(&cluster.host, "data.a", files)?;
    ensure!(cluster.present_owner("a")? != 1 && cluster.present_owner("b")? != 1, "{SECOND} has partitions");
    cluster.spread()
}

/// The owner of a partition is killed while a client writes through another node; returns the number of acknowledged files.
fn killed_while_a_client_writes(cluster: &mut Cluster) -> Result<usize> {
    let client = start_client(cluster, 2, "data.b")?;
    client.more(20)?;
    let before = client.rows()?.len();
    cluster.nodes[1].end_cellar("KILL")?;
    client.more(20)?;
    let longest = client.longest_wait(before)?;
    println!("interop: the client waited {:.1} s after the owner was killed", longest.as_secs_f64());
    ensure!(longest <= TAKEOVER, "a client waited {longest:?}");
    let status = cluster.status()?;
    let rows = |key: &str| status[key].as_array().with_context(|| format!("no {key}: {status}"));
    let (nodes, partitions) = (rows("nodes")?, rows("partitions")?);
    let killed = nodes.iter().find(|node| node["node"] == SECOND).context(SECOND)?;
    ensure!(killed["state"] == "dead", "{killed}");
    ensure!(partitions.iter().all(|partition| partition["state"] == "owned"), "{partitions:?}");
    explained(cluster, longest)?;
    cluster.nodes[1].start_cellar_alone()?;
    wait_for(LIMIT, || are_live(cluster))?;
    let files = client.rows()?.len();
    Ok(files)
}

/// Checks that the takeover of the partition b is shown with its stages by the node that has it now, and that `longest`, for which
/// a client waited, is not much shorter than they are.
fn explained(cluster: &Cluster, longest: Duration) -> Result<()> {
    let address = cluster.nodes[cluster.present_owner("b")?].address;
    let printed = cluster.run(&format!("cellar stat cluster --on {address} --json"))?;
    let shown: Value = serde_json::from_str(&printed).context(printed)?;
    let takeovers = shown["takeovers"].as_array().context("no takeovers")?;
    let is_it = |one: &&Value| one["partition"] == "/vicepb" && one["cause"] == "died";
    let taken = takeovers.iter().find(is_it).with_context(|| format!("it is not there: {shown}"))?;
    ensure!(taken["node"] == SECOND && taken["complete"] == 1, "{taken}");
    let ns = |stage: &str| taken[format!("{stage}_ns")].as_u64().unwrap_or(0);
    let stages =
        ["detect", "evict", "claim", "open", "reset"].map(|stage| (stage, Duration::from_nanos(ns(stage))));
    let total = Duration::from_nanos(ns("total"));
    ensure!(stages.iter().map(|(_, time)| *time).sum::<Duration>() == total, "{taken}");
    // Another node may have evicted the dead one, which saw its last renewal up to a second earlier.
    ensure!(stages[0].1 >= Duration::from_secs(5) && total <= TAKEOVER, "{taken}");
    // The lease was renewed, and seen to be, up to two seconds before the kill. A busy machine delays the answer after the
    // takeover.
    ensure!(
        total >= longest.saturating_sub(Duration::from_secs(7)),
        "{taken}, and a client waited {longest:?}"
    );
    let taker = &cluster.nodes[cluster.present_owner("b")?];
    let line = format!("total_ms={}", total.as_millis());
    ensure!(taker.cellar_log().contains(&line), "no line with {line} in the log");
    println!("interop: the takeover took {total:.1?}: {stages:.1?}");
    Ok(())
}

/// For how long the demonstration shows the clients at a time.
const SHOWN: Duration = Duration::from_secs(8);

/// A client that is shown to people, and its volume.
type Shown = (String, Series);

/// Shows the cluster to people: three clients write, one node is killed, and comes back.
fn demonstration() -> Result<()> {
    println!(
        "A cell with its databases and a bucket (SeaweedFS) on {}; three nodes join a cluster.",
        PLAN.host.1
    );
    let mut cluster = SPREAD.start()?;
    cluster.spread()?;
    create_volumes(&cluster)?;
    println!("{}", cluster.run("cellar cluster status")?);
    println!("A client writes into each volume, all through {} ({}).", PLAN.nodes[2].0, PLAN.nodes[2].1);
    let mut clients: Vec<Shown> = Vec::new();
    for letters in LETTERS {
        let volume = format!("data.{letters}");
        let client = start_client(&cluster, 2, &volume)?;
        clients.push((volume, client));
    }
    clients.iter().try_for_each(|(_, client)| client.more(1))?;
    watch(&clients, SHOWN)?;
    println!("\nkill -9 of {SECOND}, which owns the partition b:");
    cluster.nodes[1].end_cellar("KILL")?;
    watch(&clients, SHOWN * 2)?;
    println!("\n{}", cluster.run("cellar cluster status")?);
    println!("{SECOND} is started again, and gets its partition back:");
    cluster.nodes[1].start_cellar_alone()?;
    wait_for(LIMIT, || are_live(&cluster))?;
    println!("{}", cluster.run(&format!("cellar cluster move b {SECOND}"))?);
    watch(&clients, SHOWN)?;
    println!("\n{}", cluster.run("cellar cluster status")?);
    for (volume, client) in clients {
        let (files, longest) = (client.rows()?.len(), client.longest_wait(0)?);
        drop(client);
        check_files(&cluster.host, &volume, files)?;
        println!(
            "{volume}: {files} files acknowledged, all there; the longest took {:.1} s",
            longest.as_secs_f64()
        );
    }
    Ok(())
}

/// Prints each second how many files each client has written in it.
fn watch(clients: &[Shown], span: Duration) -> Result<()> {
    let begun = Instant::now();
    let count = || clients.iter().map(|(_, client)| Ok(client.rows()?.len())).collect::<Result<Vec<_>>>();
    let mut last = count()?;
    while begun.elapsed() < span {
        std::thread::sleep(Duration::from_secs(1));
        let now = count()?;
        let shown =
            clients.iter().zip(last.iter().zip(&now)).map(|((volume, _), (last, now))| match now - last {
                0 => format!("{volume} waits       "),
                files => format!("{volume} {files:3} files/s"),
            });
        println!("{:4.0} s   {}", begun.elapsed().as_secs_f64(), shown.collect::<Vec<_>>().join("   "));
        last = now;
    }
    Ok(())
}
