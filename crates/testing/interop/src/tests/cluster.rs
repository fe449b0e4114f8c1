//! Three nodes of a cluster, which share two partitions in a bucket. SeaweedFS, an S3 server, runs on the databases' host.

use crate::Test;
use crate::tests::fuse::in_mounted_cell;
use crate::tests::mixed::all;
use crate::tests::registering::registered;
use crate::tests::store::Writer;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, kill_tree, tools};
use interop::means::Means;
use interop::seaweed::Seaweed;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

/// They run only if they are asked for.
pub(crate) fn hidden() -> Vec<Test> {
    vec![
        Test { name: "cluster-killed", needs: NEEDS, run: killed },
        Test { name: "cluster-cut", needs: NEEDS, run: cut },
        Test {
            name: "cluster-fuse",
            needs: &[Means::Netns, Means::Seaweed, Means::Fuse],
            run: cache_manager,
        },
    ]
}

/// Time limit for a node or a partition to be there, and for clients to go on.
const LIMIT: Duration = Duration::from_secs(90);

/// Longest time from the death of the owner to the next change through another node.
const TAKEOVER: Duration = Duration::from_secs(12);

/// How long a node is stopped.
const STOPPED: Duration = Duration::from_secs(15);

/// Acknowledged changes between two events.
const CHANGES: usize = 20;

/// Nodes with their addresses.
pub(super) type Places = [(&'static str, &'static str); 3];

const OF_KILLED: Places = [("clu1", "10.99.0.221"), ("clu2", "10.99.0.222"), ("clu3", "10.99.0.223")];
const OF_FUSE: Places = [("clu9", "10.99.0.229"), ("clua", "10.99.0.230"), ("club", "10.99.0.231")];
const OF_CUT: Places = [("clu5", "10.99.0.225"), ("clu6", "10.99.0.226"), ("clu7", "10.99.0.227")];

/// How long a call waits for packets of a node that does not answer.
const SHORT_MS: u64 = 1000;
const LONG_MS: u64 = 120_000;

/// Number of lines of a program that a failure quotes.
const QUOTED_LINES: usize = 5;

/// A program that prints a line with the time and a number for each answer, until it is dropped.
pub(crate) struct Series {
    child: Child,
    log: PathBuf,
}

impl Series {
    /// Creates files in a volume through one node.
    pub(crate) fn pulse(host: &Cell, server: &str, volume: &str) -> Result<Series> {
        Series::start(host, &format!("pulse-{volume}.log"), &["pulse", host.address, server, volume])
    }

    /// Asks one node for the version of a volume's root directory.
    fn peek(host: &Cell, server: &str, volume: &str, patience_ms: u64) -> Result<Series> {
        let (log, patience) = (format!("peek-{server}-{patience_ms}.log"), patience_ms.to_string());
        Series::start(host, &log, &["peek", host.address, server, volume, &patience])
    }

    fn start(host: &Cell, log: &str, arguments: &[&str]) -> Result<Series> {
        let log = host.path().join(log);
        let child = Command::new(tools().join("openafs-cell"))
            .arg("-d")
            .arg(host.path())
            .arg("run")
            .arg(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .spawn()?;
        Ok(Series { child, log })
    }

    /// Returns the end of what was printed, for a failure.
    fn end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(QUOTED_LINES)..];
        format!("{} ends with: {}", self.log.display(), last.join("; "))
    }

    /// Returns the times of the answers, and their numbers. Lines about failed calls have no number.
    fn rows(&self) -> Result<Vec<(SystemTime, u64)>> {
        let text = std::fs::read_to_string(&self.log)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let row = |line: &str| {
            let (ms, number) = line.split_once(' ')?;
            Some((UNIX_EPOCH + Duration::from_millis(ms.parse().ok()?), number.parse().ok()?))
        };
        Ok(whole.lines().filter_map(row).collect())
    }

    /// Waits for this many more answers.
    pub(crate) fn more(&self, count: usize) -> Result<()> {
        let before = self.rows()?.len();
        wait_for(LIMIT, || Ok(self.rows()?.len() >= before + count)).with_context(|| self.end())
    }

    /// Waits for the first answer that came after this time, and returns how long afterwards.
    fn after(&self, time: SystemTime) -> Result<Duration> {
        let first = || -> Result<_> { Ok(self.rows()?.into_iter().find(|(at, _)| *at > time)) };
        wait_for(LIMIT, || Ok(first()?.is_some())).with_context(|| self.end())?;
        Ok(first()?.context("no answer")?.0.duration_since(time)?)
    }

    /// Returns the longest time between two answers after `since`, the first one counted from it.
    pub(crate) fn longest_gap(&self, since: SystemTime) -> Result<Duration> {
        self.after(since + Duration::from_millis(500))?;
        let (mut last, mut longest) = (since, Duration::ZERO);
        for (at, _) in self.rows()?.into_iter().filter(|(at, _)| *at > since) {
            longest = longest.max(at.duration_since(last)?);
            last = at;
        }
        Ok(longest)
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        kill_tree(&mut self.child);
    }
}

/// The databases with the bucket, and the nodes.
pub(super) struct Cluster {
    pub(super) databases: Cell,
    pub(super) nodes: Vec<Cell>,
}

impl Cluster {
    pub(super) fn start(name: &'static str, address: &'static str, places: Places) -> Result<Cluster> {
        let databases = Cell::start_configured(name, address, "")?;
        Seaweed::start(&databases, &["cellar"])?;
        let mut nodes = Vec::new();
        for (name, address) in places {
            let lines = format!(
                "[cluster]\nbucket = \"s3://cellar/cell\"\nendpoint = \"http://{}:8333\"\nallow_http = true\n\
                 credentials_file = \"aws\"\ncache = \"cache\"\ncache_mb = 256\npartitions = [\"b\", \"c\"]\n\
                 node = \"{name}\"\n",
                databases.address
            );
            let mut node = Cell::prepare_configured_joining(&databases, name, address, &lines)?;
            Seaweed::write_credentials(&node)?;
            node.start_cellar_alone()?;
            nodes.push(node);
        }
        let cluster = Cluster { databases, nodes };
        cluster.wait_for_owners().with_context(|| cluster.logs())?;
        cluster.are_one_server().with_context(|| cluster.logs())?;
        Ok(cluster)
    }

    pub(super) fn logs(&self) -> String {
        let log = |node: &Cell| format!("{}:\n{}", node.name, node.cellar_log());
        self.nodes.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    /// Returns the index of the node that owns a partition, if there is one.
    pub(super) fn owner(&self, partition: usize) -> Result<Option<usize>> {
        let node = &self.nodes[0];
        let config = node.path().join("cellar.toml");
        let shown = node.run(&format!("cellar cluster status --json --config {}", config.display()))?.ok()?;
        let shown: Value = serde_json::from_str(&shown).context(shown)?;
        let row = &shown["partitions"][partition];
        let is_owned = row["state"] == "owned";
        Ok(self.nodes.iter().position(|node| is_owned && row["owner"] == node.name))
    }

    /// Moves a partition to a node.
    pub(super) fn give(&self, partition: usize, node: usize) -> Result<()> {
        let (letters, name, of) = (["b", "c"][partition], self.nodes[node].name, &self.nodes[0]);
        let config = of.path().join("cellar.toml");
        let command = format!("cellar cluster move {letters} {name} --config {}", config.display());
        // Its owner may not have opened it yet: a new partition is probed first.
        wait_for(LIMIT, || Ok(self.owner(partition)? == Some(node) || of.run(&command)?.status == 0))?;
        wait_for(LIMIT, || Ok(self.owner(partition)? == Some(node)))
    }

    fn wait_for_owners(&self) -> Result<()> {
        for partition in [0, 1] {
            wait_for(LIMIT, || Ok(self.owner(partition)?.is_some()))?;
        }
        Ok(())
    }

    /// Waits until all nodes are registered as one server.
    fn are_one_server(&self) -> Result<()> {
        wait_for(LIMIT, || {
            let entry = registered(&self.databases, self.nodes[0].address)?;
            Ok(self.nodes.iter().all(|node| entry.addresses.iter().any(|known| known == node.address)))
        })
    }

    /// Creates a volume for each node, which changes it, and one for writers; all in the partition b.
    fn create_volumes(&self) -> Result<usize> {
        let owner = self.owner(0)?.context("no owner")?;
        let server = self.nodes[owner].address;
        for volume in ["data0", "data1", "data2", "steps"] {
            let rights = "--quota 0 --acl system:anyuser=rlidwka";
            let create = format!("cellar volume create {volume} --on {server} --partition b {rights}");
            // Its owner may not have opened it yet: a new partition is probed first.
            wait_for(LIMIT, || Ok(self.databases.run(&create)?.status == 0)).context(create.clone())?;
        }
        Ok(owner)
    }

    fn pulses(&self) -> Result<Vec<Series>> {
        let start = |(index, node): (usize, &Cell)| {
            Series::pulse(&self.databases, node.address, &format!("data{index}"))
        };
        self.nodes.iter().enumerate().map(start).collect()
    }

    /// Checks that everything is there that was acknowledged.
    fn compare(&self, pulses: &[Series]) -> Result<()> {
        for (index, pulse) in pulses.iter().enumerate() {
            let (count, copy) = (pulse.rows()?.len(), self.databases.scratch()?.join(format!("copy{index}")));
            all(&self.databases, &[format!("cellar cp cell:data{index}/ {}", copy.display())])?;
            for number in 0..count {
                let is_there = copy.join(format!("pulse-{number}")).exists();
                ensure!(is_there, "pulse-{number} of {count} is gone from data{index}");
            }
            println!("interop: {count} changes through {} are there", self.nodes[index].name);
        }
        Ok(())
    }

    /// Checks that the contents of `steps` are those after `done` steps of the writer, or one more.
    fn compare_steps(&self, done: u64) -> Result<u64> {
        let mut last = Writer::start_in(&self.databases, "steps", 0, done, 0)?;
        ensure!(last.end()?, "{}", last.printed()?);
        last.done()?.context("it has compared")
    }

    /// Ends all nodes, and checks both partitions with all data.
    pub(super) fn end(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.end_cellar("TERM")?;
        }
        let node = &self.nodes[0];
        let config = node.path().join("cellar.toml");
        let checked =
            node.run(&format!("cellar store check --data --json --config {}", config.display()))?.ok()?;
        let rows: Value = serde_json::from_str(&checked).context(checked)?;
        let rows = rows.as_array().context("no rows")?;
        ensure!(rows.len() == 2 && rows.iter().all(|row| row["damage_count"] == 0), "{rows:#?}");
        Ok(())
    }
}

/// The owner is killed while clients change files through every node, then a node that owns nothing; both come back.
fn killed() -> Result<()> {
    let mut cluster = Cluster::start("clu0", "10.99.0.220", OF_KILLED)?;
    let owner = cluster.create_volumes()?;
    let pulses = cluster.pulses()?;
    kill_nodes(&mut cluster, &pulses, owner).with_context(|| cluster.logs())?;
    cluster.end().with_context(|| cluster.logs())
}

fn kill_nodes(cluster: &mut Cluster, pulses: &[Series], owner: usize) -> Result<()> {
    let mut writer = Writer::start_in(&cluster.databases, "steps", 0, 0, u64::MAX)?;
    wait_for(LIMIT, || Ok(writer.done()?.unwrap_or(0) >= CHANGES as u64))?;
    pulses.iter().try_for_each(|pulse| pulse.more(CHANGES))?;
    let before = SystemTime::now();
    cluster.nodes[owner].end_cellar("KILL")?;
    for index in (0..cluster.nodes.len()).filter(|index| *index != owner) {
        let taken = pulses[index].after(before + Duration::from_millis(500))?;
        let longest = pulses[index].longest_gap(before)?;
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
        done = cluster.compare_steps(done)?;
        writer = Writer::start_in(&cluster.databases, "steps", 0, done, u64::MAX)?;
    }
    pulses[owner].more(CHANGES).context("the killed node does not pass calls on")?;

    let next = cluster.owner(0)?.context("no owner")?;
    ensure!(next != owner, "the killed node owns the partition");
    let front = (0..cluster.nodes.len()).find(|index| ![owner, next].contains(index)).context("no front")?;
    let before = SystemTime::now();
    cluster.nodes[front].end_cellar("KILL")?;
    for index in [owner, next] {
        pulses[index].more(CHANGES)?;
        let longest = pulses[index].longest_gap(before)?;
        println!("interop: without a front, the longest pause was {:.1} s", longest.as_secs_f64());
        ensure!(longest <= TAKEOVER, "clients of {} waited for {longest:?}", cluster.nodes[index].name);
    }
    cluster.nodes[front].start_cellar_alone()?;
    pulses[front].more(CHANGES).context("the killed front does not pass calls on")?;
    done = done.max(writer.stop()?.unwrap_or(0));
    cluster.compare_steps(done)?;
    cluster.compare(pulses)
}

/// The owner stops for longer than its lease while clients change files through other nodes. When it goes on, it shows
/// nothing outdated, and passes calls on.
fn cut() -> Result<()> {
    let mut cluster = Cluster::start("clu4", "10.99.0.224", OF_CUT)?;
    let owner = cluster.create_volumes()?;
    let pulses = cluster.pulses()?;
    stop_owner(&cluster, &pulses, owner).with_context(|| cluster.logs())?;
    cluster.compare(&pulses)?;
    cluster.end().with_context(|| cluster.logs())
}

fn stop_owner(cluster: &Cluster, pulses: &[Series], owner: usize) -> Result<()> {
    let front = (owner + 1) % cluster.nodes.len();
    let volume = format!("data{front}");
    let late = Series::peek(&cluster.databases, cluster.nodes[owner].address, &volume, LONG_MS)?;
    let present = Series::peek(&cluster.databases, cluster.nodes[front].address, &volume, SHORT_MS)?;
    late.more(3)?;
    present.more(3)?;
    pulses.iter().try_for_each(|pulse| pulse.more(CHANGES))?;
    let before = SystemTime::now();
    cluster.nodes[owner].stop_cellar()?;
    let longest = pulses[front].longest_gap(before)?;
    println!("interop: the longest pause was {:.1} s", longest.as_secs_f64());
    ensure!(longest <= TAKEOVER, "clients waited for {longest:?}");
    std::thread::sleep(STOPPED.saturating_sub(before.elapsed()?));
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
    let mut cluster = Cluster::start("clu8", "10.99.0.228", OF_FUSE)?;
    cluster.create_volumes()?;
    let (databases, nodes) = (&cluster.databases, &mut cluster.nodes);
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
    let copy = cluster.databases.scratch()?.join("copy");
    all(&cluster.databases, &[format!("cellar cp cell:data0/ {}", copy.display())])?;
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
