//! A cluster of three nodes that is set up and administered by its commands, as a test and for people to watch.
//! SeaweedFS is on the host that has the databases.

use crate::Test;
use crate::tests::mixed::all;
use crate::tests::registering::registered;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, kill_tree, tools};
use interop::means::Means;
use interop::seaweed::Seaweed;
use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-commands", needs: NEEDS, run: commands }]
}

/// Runs only if it is asked for.
pub(crate) fn hidden() -> Vec<Test> {
    vec![Test { name: "demo-cluster", needs: NEEDS, run: demonstration }]
}

const HOST: (&str, &str) = ("nodes0", "10.99.0.180");
const NODES: [(&str, &str); 3] =
    [("nodes1", "10.99.0.181"), ("nodes2", "10.99.0.182"), ("nodes3", "10.99.0.183")];
const PLACE: &str = "s3://cellar/test.example";
const LETTERS: [&str; 3] = ["a", "b", "c"];

/// Time limit for nodes and partitions to be there: new partitions are probed first.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest pause of a client whose volume's owner is killed.
const TAKEOVER: Duration = Duration::from_secs(12);

/// Longest pause of a client whose volume's partition is moved.
const MOVE: Duration = Duration::from_secs(10);

/// A host with the databases and the bucket, and the nodes.
struct Cluster {
    host: Cell,
    nodes: Vec<Cell>,
}

/// A node or partition as `cellar cluster status` shows it.
type Shown = Vec<Value>;

impl Cluster {
    /// Sets three nodes up and starts them; waits until each partition is owned.
    fn start() -> Result<Cluster> {
        let host = Cell::start_configured(HOST.0, HOST.1, "")?;
        Seaweed::start(&host, &["cellar"])?;
        let mut cluster = Cluster { host, nodes: Vec::new() };
        for (name, address) in NODES {
            let mut node = Cell::prepare_configured_joining(&cluster.host, name, address, "")?;
            let credentials = Seaweed::write_credentials(&node)?;
            let command = if cluster.nodes.is_empty() { "init" } else { "join" };
            let partitions = if cluster.nodes.is_empty() { "--partitions a,b,c" } else { "" };
            let said = node
                .run(&format!(
                    "cellar cluster {command} {PLACE} {partitions} --node {name} --endpoint http://{}:8333 --allow-http \
                     --credentials-file {} --cache {} --cache-mb 256 --config {}",
                    HOST.1,
                    credentials.display(),
                    node.path().join("cache").display(),
                    config(&node),
                ))?
                .ok()?;
            ensure!(said.contains(&format!("is the node {name} of the cluster")), "{said}");
            node.start_cellar_alone()?;
            if cluster.nodes.is_empty() {
                registered(&cluster.host, address).with_context(|| node.cellar_log())?;
            }
            cluster.nodes.push(node);
        }
        cluster.wait_for_owners()?;
        Ok(cluster)
    }

    /// Waits until every partition is owned by a live node.
    fn wait_for_owners(&self) -> Result<()> {
        wait_for(LIMIT, || {
            let (_, partitions) = self.status()?;
            Ok(partitions.iter().all(|partition| partition["state"] == "owned"))
        })
        .with_context(|| self.logs())
    }

    fn logs(&self) -> String {
        let log = |node: &Cell| format!("{}:\n{}", node.address, node.cellar_log());
        self.nodes.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    /// Runs a command with the configuration of the third node, which is not killed.
    fn run(&self, command: &str) -> Result<String> {
        let node = &self.nodes[2];
        node.run(&format!("{command} --config {}", config(node)))?.ok().with_context(|| command.to_owned())
    }

    /// Returns the nodes and the partitions.
    fn status(&self) -> Result<(Shown, Shown)> {
        let printed = self.run("cellar cluster status --json")?;
        let shown: Value = serde_json::from_str(&printed).context(printed)?;
        let rows = |key: &str| shown[key].as_array().cloned().with_context(|| format!("no {key}: {shown}"));
        Ok((rows("nodes")?, rows("partitions")?))
    }

    /// Returns the index of the node that owns a partition.
    fn owner(&self, letters: &str) -> Result<usize> {
        let (_, partitions) = self.status()?;
        let name = format!("/vicep{letters}");
        let found = partitions.iter().find(|partition| partition["partition"] == *name);
        let owner = found.and_then(|partition| partition["owner"].as_str()).context("no owner")?.to_owned();
        NODES.iter().position(|(name, _)| *name == owner).context(owner)
    }

    /// Moves partitions so that each node owns that of its number.
    fn spread(&self) -> Result<()> {
        for (letters, (name, _)) in LETTERS.into_iter().zip(NODES) {
            if NODES[self.owner(letters)?].0 != name {
                self.run(&format!("cellar cluster move {letters} {name}"))?;
            }
        }
        Ok(())
    }

    /// Creates a volume in each partition, at its owner.
    fn create_volumes(&self) -> Result<()> {
        for letters in LETTERS {
            let address = NODES[self.owner(letters)?].1;
            all(
                &self.host,
                &[format!(
                    "cellar volume create data.{letters} --on {address} --partition {letters} --quota 0 --acl \
                     system:anyuser=rlidwka"
                )],
            )?;
        }
        Ok(())
    }
}

fn config(cell: &Cell) -> String {
    cell.path().join("cellar.toml").display().to_string()
}

/// A client that creates a file in a volume again and again, through one node.
struct Client {
    volume: String,
    child: Child,
    log: PathBuf,
}

impl Client {
    fn start(cluster: &Cluster, node: usize, volume: &str) -> Result<Client> {
        let host = &cluster.host;
        let log = host.path().join(format!("pulse-{volume}-{}.log", NODES[node].0));
        let child = Command::new(tools().join("openafs-cell"))
            .arg("-d")
            .arg(host.path())
            .arg("run")
            .arg(std::env::current_exe()?)
            .args(["pulse", host.address, NODES[node].1, volume])
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .spawn()?;
        Ok(Client { volume: volume.to_owned(), child, log })
    }

    /// Returns how long each acknowledged file took, in milliseconds.
    fn files(&self) -> Result<Vec<u64>> {
        let text = std::fs::read_to_string(&self.log)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(whole.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect())
    }

    /// Waits for further files.
    fn wait(&self, files: usize) -> Result<()> {
        let begun = self.files()?.len();
        wait_for(LIMIT, || Ok(self.files()?.len() >= begun + files))
            .with_context(|| format!("{} gets no further than {begun} files", self.volume))
    }

    /// Returns the longest time for a file after the first `before`.
    fn longest_after(&self, before: usize) -> Result<Duration> {
        let files = self.files()?;
        Ok(Duration::from_millis(files.get(before..).unwrap_or_default().iter().copied().max().unwrap_or(0)))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        kill_tree(&mut self.child);
    }
}

/// Checks that the first `files` files of a client are in its volume.
fn check_files(cluster: &Cluster, volume: &str, files: usize) -> Result<()> {
    let copy = cluster.host.scratch()?.join(volume);
    all(&cluster.host, &[format!("cellar cp cell:{volume}/ {}", copy.display())])?;
    let found = |number: &usize| !copy.join(format!("pulse-{number}")).exists();
    let missing: Vec<usize> = (0..files).filter(found).collect();
    ensure!(missing.is_empty(), "{volume} lacks acknowledged files: {missing:?} of {files}");
    Ok(())
}

fn commands() -> Result<()> {
    let mut cluster = Cluster::start()?;
    refusals(&cluster)?;
    cluster.spread()?;
    cluster.create_volumes()?;
    moved_while_a_client_writes(&cluster).with_context(|| cluster.logs())?;
    let kept = killed_while_a_client_writes(&mut cluster).with_context(|| cluster.logs())?;
    check_files(&cluster, "data.b", kept)
}

/// What must not be possible says so.
fn refusals(cluster: &Cluster) -> Result<()> {
    let node = &cluster.nodes[2];
    let other = Cell::prepare_configured_joining(&cluster.host, "nodes4", "10.99.0.184", "")?;
    let credentials = Seaweed::write_credentials(&other)?;
    let at = format!(
        "--endpoint http://{}:8333 --allow-http --credentials-file {}",
        HOST.1,
        credentials.display()
    );
    for (cell, command, words) in [
        (node, "cellar cluster move a nobody".to_owned(), "no node `nobody` runs"),
        (node, format!("cellar cluster join {PLACE} {at}"), "there is a section `[cluster]` already"),
        (&other, format!("cellar cluster join {PLACE} --node nodes1 {at}"), "runs already"),
        (&other, format!("cellar cluster join s3://cellar/none {at}"), "there is no cluster"),
        (&other, format!("cellar cluster init {PLACE} {at}"), "there is a cluster in"),
    ] {
        let refused = cell.run(&format!("{command} --config {}", config(cell)))?;
        ensure!(refused.status == 1 && refused.text.contains(words), "{command}: {}", refused.text);
    }
    let anonymous = node.run(&format!("cellar cluster move a nodes3 --noauth --config {}", config(node)))?;
    let owner = NODES[cluster.owner("a")?].0;
    ensure!(
        anonymous.text.contains("only superusers move partitions") || owner == "nodes3",
        "{}",
        anonymous.text
    );
    Ok(())
}

/// A partition moves, and a node is drained, while a client writes through a third node.
fn moved_while_a_client_writes(cluster: &Cluster) -> Result<()> {
    let client = Client::start(cluster, 2, "data.a")?;
    client.wait(20)?;
    let before = client.files()?.len();
    let said = cluster.run("cellar cluster move a nodes2")?;
    ensure!(said.contains("/vicepa moved from nodes1 to nodes2"), "{said}");
    client.wait(20)?;
    let drained = cluster.run("cellar cluster drain nodes2")?;
    ensure!(drained.contains("nodes2 owns no partition now"), "{drained}");
    client.wait(20)?;
    let longest = client.longest_after(before)?;
    println!("interop: {} the client waited {:.1} s at most", said.trim(), longest.as_secs_f64());
    ensure!(longest <= MOVE, "a client waited {longest:?}");
    let files = client.files()?.len();
    drop(client);
    check_files(cluster, "data.a", files)?;
    ensure!(cluster.owner("a")? != 1 && cluster.owner("b")? != 1, "nodes2 has partitions");
    cluster.spread()
}

/// The owner of a partition is killed while a client writes through another node; returns the number of acknowledged files.
fn killed_while_a_client_writes(cluster: &mut Cluster) -> Result<usize> {
    let client = Client::start(cluster, 2, "data.b")?;
    client.wait(20)?;
    let before = client.files()?.len();
    cluster.nodes[1].end_cellar("KILL")?;
    client.wait(20)?;
    let longest = client.longest_after(before)?;
    println!("interop: the client waited {:.1} s after the owner was killed", longest.as_secs_f64());
    ensure!(longest <= TAKEOVER, "a client waited {longest:?}");
    let (nodes, partitions) = cluster.status()?;
    let killed = nodes.iter().find(|node| node["node"] == "nodes2").context("no nodes2")?;
    ensure!(killed["state"] == "dead", "{killed}");
    ensure!(partitions.iter().all(|partition| partition["state"] == "owned"), "{partitions:?}");
    explained(cluster, longest)?;
    cluster.nodes[1].start_cellar_alone()?;
    wait_for(LIMIT, || {
        let (nodes, _) = cluster.status()?;
        Ok(nodes.iter().all(|node| node["state"] == "live"))
    })?;
    let files = client.files()?.len();
    Ok(files)
}

/// Checks that the takeover of the partition b is shown with its stages by the node that has it now, and that `longest`, for which
/// a client waited, is not much shorter than they are.
fn explained(cluster: &Cluster, longest: Duration) -> Result<()> {
    let address = NODES[cluster.owner("b")?].1;
    let printed = cluster.run(&format!("cellar stat cluster --on {address} --json"))?;
    let shown: Value = serde_json::from_str(&printed).context(printed)?;
    let takeovers = shown["takeovers"].as_array().context("no takeovers")?;
    let is_it = |one: &&Value| one["partition"] == "/vicepb" && one["cause"] == "died";
    let taken = takeovers.iter().find(is_it).with_context(|| format!("it is not there: {shown}"))?;
    ensure!(taken["node"] == NODES[1].0 && taken["complete"] == 1, "{taken}");
    let ns = |stage: &str| taken[format!("{stage}_ns")].as_u64().unwrap_or(0);
    let stages =
        ["detect", "evict", "claim", "open", "reset"].map(|stage| (stage, Duration::from_nanos(ns(stage))));
    let total = Duration::from_nanos(ns("total"));
    ensure!(stages.iter().map(|(_, time)| *time).sum::<Duration>() == total, "{taken}");
    // Another node may have evicted the dead one, which saw its last renewal up to a second earlier.
    ensure!(stages[0].1 >= Duration::from_secs(5) && total <= TAKEOVER, "{taken}");
    // The lease was renewed, and seen to be, up to two seconds before the kill.
    ensure!(
        total >= longest.saturating_sub(Duration::from_secs(2)),
        "{taken}, and a client waited {longest:?}"
    );
    let taker = &cluster.nodes[cluster.owner("b")?];
    let line = format!("total_ms={}", total.as_millis());
    ensure!(taker.cellar_log().contains(&line), "no line with {line} in the log");
    println!("interop: the takeover took {total:.1?}: {stages:.1?}");
    Ok(())
}

/// For how long the demonstration shows the clients at a time.
const SHOWN: Duration = Duration::from_secs(8);

/// Shows the cluster to people: three clients write, one node is killed, and comes back.
fn demonstration() -> Result<()> {
    println!("A cell with its databases and a bucket (SeaweedFS) on {}; three nodes join a cluster.", HOST.1);
    let mut cluster = Cluster::start()?;
    cluster.spread()?;
    cluster.create_volumes()?;
    println!("{}", cluster.run("cellar cluster status")?);
    println!("A client writes into each volume, all through {} ({}).", NODES[2].0, NODES[2].1);
    let mut clients = Vec::new();
    for letters in LETTERS {
        clients.push(Client::start(&cluster, 2, &format!("data.{letters}"))?);
    }
    clients.iter().try_for_each(|client| client.wait(1))?;
    watch(&clients, SHOWN)?;
    println!("\nkill -9 of {}, which owns the partition b:", NODES[1].0);
    cluster.nodes[1].end_cellar("KILL")?;
    watch(&clients, SHOWN * 2)?;
    println!("\n{}", cluster.run("cellar cluster status")?);
    println!("{} is started again, and gets its partition back:", NODES[1].0);
    cluster.nodes[1].start_cellar_alone()?;
    wait_for(LIMIT, || {
        let (nodes, _) = cluster.status()?;
        Ok(nodes.iter().all(|node| node["state"] == "live"))
    })?;
    println!("{}", cluster.run(&format!("cellar cluster move b {}", NODES[1].0))?);
    watch(&clients, SHOWN)?;
    println!("\n{}", cluster.run("cellar cluster status")?);
    for client in clients {
        let (files, longest) = (client.files()?.len(), client.longest_after(0)?);
        let volume = client.volume.clone();
        drop(client);
        check_files(&cluster, &volume, files)?;
        println!(
            "{volume}: {files} files acknowledged, all there; the longest took {:.1} s",
            longest.as_secs_f64()
        );
    }
    Ok(())
}

/// Prints each second how many files each client has written in it.
fn watch(clients: &[Client], span: Duration) -> Result<()> {
    let begun = Instant::now();
    let count = || clients.iter().map(|client| Ok(client.files()?.len())).collect::<Result<Vec<_>>>();
    let mut last = count()?;
    while begun.elapsed() < span {
        std::thread::sleep(Duration::from_secs(1));
        let now = count()?;
        let shown = clients.iter().zip(last.iter().zip(&now)).map(|(client, (last, now))| match now - last {
            0 => format!("{} waits       ", client.volume),
            files => format!("{} {files:3} files/s", client.volume),
        });
        println!("{:4.0} s   {}", begun.elapsed().as_secs_f64(), shown.collect::<Vec<_>>().join("   "));
        last = now;
    }
    Ok(())
}
