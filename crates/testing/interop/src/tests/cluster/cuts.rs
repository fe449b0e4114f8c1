//! Cuts of single ways between nodes, the bucket and clients. What one host sends to another is lost; everything else arrives.

use super::killed::{HERE, change, status};
use super::{CHANGES, LIMIT, TAKEOVER, compare_in};
use crate::Test;
use crate::tests::addresses::{SERVED, wait_until_shared};
use crate::tests::series::Series;
use crate::tests::wait_for;
use anyhow::{Context, Result, anyhow, ensure};
use cell_client::files::Attributes;
use interop::cell::Cell;
use interop::cluster::Cluster;
use interop::hostile::{Client, uuid};
use std::time::{Duration, SystemTime};

pub(super) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-cut", needs: super::NEEDS, run: cut }]
}

/// A cut that is shorter than the time for which a node holds a call.
const SHORT: Duration = Duration::from_secs(6);

/// Longest pause of a client of nodes between which there is such a cut: a node that sends nothing is given up after 3 s.
const PAUSE: Duration = Duration::from_secs(6 + 6);

/// Longest pause of a client when a node reaches the bucket, and no other node: it leaves after 16 s and some seconds, and a call that a node
/// has held for 20 s is repeated.
const ISOLATED: Duration = Duration::from_secs(20 + 15);

/// No interface has it.
const NOWHERE: &str = "02:00:00:00:00:fe";

/// A way from one host to another that is cut until this is dropped.
struct Lost<'a> {
    from: &'a Cell,
    to: String,
}

impl<'a> Lost<'a> {
    fn new(from: &'a Cell, to: &str) -> Result<Lost<'a>> {
        let set = format!("ip neighbour replace {to} lladdr {NOWHERE} nud permanent dev eth0");
        from.shell(&set)?.ok().context(set)?;
        Ok(Lost { from, to: to.to_owned() })
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        _ = self.from.shell(&format!("ip neighbour del {} dev eth0", self.to));
    }
}

fn cut() -> Result<()> {
    let mut cluster = SERVED.start()?;
    wait_until_shared(&cluster).with_context(|| cluster.logs())?;
    let last = cluster.nodes.len() - 1;
    cluster.give("b", last)?;
    for volume in ["data0", "data1", "data2", "held"] {
        cluster.create_volume(volume)?;
    }
    let pulses = (0..cluster.nodes.len())
        .map(|node| Series::pulse(&cluster.host, cluster.address_of(node)?, &format!("data{node}")))
        .collect::<Result<Vec<_>>>()?;
    let trial = Trial { cluster: &cluster, pulses: &pulses };
    trial.run(last).with_context(|| cluster.logs())?;
    for (node, pulse) in pulses.iter().enumerate() {
        compare_in(&cluster, &format!("data{node}"), pulse)?;
    }
    drop(pulses);
    cluster.end().with_context(|| cluster.logs())
}

/// The cluster, and clients, each of the service address that was at the node of its number.
struct Trial<'a> {
    cluster: &'a Cluster,
    pulses: &'a [Series],
}

impl Trial<'_> {
    /// `owner` owns the partition.
    fn run(&self, owner: usize) -> Result<()> {
        let nodes = &self.cluster.nodes;
        self.more()?;
        self.to_a_client(owner).context("the owner does not reach a client")?;
        for (from, to) in [(owner, 0), (0, owner)] {
            self.one_way(from, to)
                .with_context(|| format!("{} does not reach {}", nodes[from].name, nodes[to].name))?;
        }
        // Commands run on the first node, and need the bucket.
        let owner = 1;
        self.cluster.give("b", owner)?;
        self.more()?;
        self.to_the_bucket(owner).context("the owner does not reach the bucket")?;
        self.cluster.give("b", owner)?;
        self.more()?;
        self.to_all_nodes(owner).context("the owner and the other nodes do not reach each other")
    }

    fn more(&self) -> Result<()> {
        self.pulses.iter().try_for_each(|pulse| pulse.more(CHANGES))
    }

    /// A client that the owner does not reach loses its promise before a change is acknowledged: the node that it has called
    /// sends it the message.
    fn to_a_client(&self, owner: usize) -> Result<()> {
        let (cluster, front) = (self.cluster, (owner + 1) % self.cluster.nodes.len());
        let cell = super::walk::client(cluster, front)?;
        let made =
            cell.create(&cell.root_of("held")?, b"file", Attributes { mode: 0o644, modified: 1_000_000_000 });
        let file = made.map_err(|code| anyhow!("CreateFile: {code:?}"))?.fid.into();
        let [holder, changer] = [Client::anonymous(HERE, uuid())?, Client::anonymous(HERE, uuid())?];
        status(cluster, &holder, front, file)?;
        let lost = Lost::new(&cluster.nodes[owner], &HERE.to_string())?;
        change(cluster, &changer, front, (file, 0o600))?;
        ensure!(
            holder.broken().contains(&file),
            "a change was acknowledged before the client had lost its promise"
        );
        drop(lost);
        Ok(())
    }

    /// Calls between two nodes wait until the way is mended, or are repeated; none fails, and none is executed twice.
    fn one_way(&self, from: usize, to: usize) -> Result<()> {
        let failures = || self.pulses.iter().map(Series::failures).collect::<Result<Vec<_>>>();
        let (nodes, before) = (&self.cluster.nodes, failures()?);
        let lost = Lost::new(&nodes[from], nodes[to].address)?;
        let since = SystemTime::now();
        std::thread::sleep(SHORT);
        drop(lost);
        let longest = self.pulses.iter().map(|pulse| pulse.longest_gap(since)).collect::<Result<Vec<_>>>()?;
        println!(
            "interop: while {} did not reach {}, the longest pauses were {longest:.1?}",
            nodes[from].name, nodes[to].name
        );
        for (node, pause) in longest.into_iter().enumerate() {
            let limit = if [from, to].contains(&node) { PAUSE } else { SHORT };
            ensure!(pause <= limit, "a client of {} waited for {pause:?}", nodes[node].name);
        }
        ensure!(failures()? == before, "calls have failed");
        self.more()
    }

    /// The clients of all addresses go on within the promised time, also that of the owner's.
    fn to_the_bucket(&self, owner: usize) -> Result<()> {
        let cluster = self.cluster;
        let lost = Lost::new(&cluster.nodes[owner], cluster.host.address)?;
        let since = SystemTime::now();
        let longest = self.pulses.iter().map(|pulse| pulse.longest_gap(since)).collect::<Result<Vec<_>>>()?;
        println!("interop: the owner did not reach the bucket; the longest pauses were {longest:.1?}");
        ensure!(longest.iter().all(|pause| *pause <= TAKEOVER), "clients waited for {longest:?}");
        self.more()?;
        ensure!(cluster.present_owner("b")? != owner, "{} owns the partition", cluster.nodes[owner].name);
        drop(lost);
        wait_for(LIMIT, || Ok(wait_until_shared(cluster).is_ok())).context("it does not join again")?;
        self.more()
    }

    /// The owner leaves everything to the others, since they reach each other and clients. It takes addresses again when it reaches them.
    fn to_all_nodes(&self, owner: usize) -> Result<()> {
        let (cluster, nodes) = (self.cluster, &self.cluster.nodes);
        let others = nodes.iter().enumerate().filter(|(node, _)| *node != owner).map(|(_, cell)| cell);
        let ways = others.flat_map(|other| [(&nodes[owner], other), (other, &nodes[owner])]);
        let lost: Vec<Lost<'_>> =
            ways.map(|(from, to)| Lost::new(from, to.address)).collect::<Result<_>>()?;
        let since = SystemTime::now();
        wait_for(LIMIT, || Ok(cluster.owner("b")?.is_some_and(|now| now != owner)))
            .context("no other node has the partition")?;
        wait_for(LIMIT, || Ok(cluster.address_of(owner).is_err())).context("it keeps its service address")?;
        let longest = self.pulses.iter().map(|pulse| pulse.longest_gap(since)).collect::<Result<Vec<_>>>()?;
        println!("interop: the owner did not reach the other nodes; the longest pauses were {longest:.1?}");
        ensure!(longest.iter().all(|pause| *pause <= ISOLATED), "clients waited for {longest:?}");
        self.more()?;
        drop(lost);
        wait_for(LIMIT, || Ok(wait_until_shared(cluster).is_ok())).context("it takes no addresses again")?;
        self.more()
    }
}
