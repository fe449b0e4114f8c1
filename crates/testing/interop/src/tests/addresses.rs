//! Service addresses that move between the nodes of a cluster. SeaweedFS is on the host of the databases, where the clients
//! run, too.

use crate::Test;
use crate::tests::cluster::Series;
use crate::tests::registering::registered;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::means::Means;
use interop::seaweed::Seaweed;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

/// Runs only if it is asked for: its client needs a repair of `pulse`.
pub(crate) fn hidden() -> Vec<Test> {
    vec![Test { name: "cluster-addresses", needs: NEEDS, run: addresses }]
}

const HOST: (&str, &str) = ("addr0", "10.99.0.190");
const NODES: [(&str, &str); 3] =
    [("addr1", "10.99.0.191"), ("addr2", "10.99.0.192"), ("addr3", "10.99.0.193")];
const SERVICE: [&str; 3] = ["10.99.0.195", "10.99.0.196", "10.99.0.197"];

/// Time limit for nodes, partitions and addresses to be there.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest pause of a client of an address whose node is killed.
const TAKEOVER: Duration = Duration::from_secs(12);

/// Longest pause of a client of an address whose node is stopped in order.
const HANDOVER: Duration = Duration::from_secs(6);

/// The host of the databases, and the nodes.
struct Cluster {
    host: Cell,
    nodes: Vec<Cell>,
}

impl Cluster {
    /// Starts three nodes, and waits until each has one service address, and these are registered alone.
    fn start() -> Result<Cluster> {
        let host = Cell::start_configured(HOST.0, HOST.1, "")?;
        Seaweed::start(&host, &["cellar"])?;
        let mut nodes = Vec::new();
        for (name, address) in NODES {
            let lines = format!(
                "[cluster]\nbucket = \"s3://cellar/cell\"\nendpoint = \"http://{}:8333\"\nallow_http = true\n\
                 credentials_file = \"aws\"\ncache = \"cache\"\ncache_mb = 256\npartitions = [\"b\"]\n\
                 node = \"{name}\"\n",
                host.address
            );
            let node = Cell::prepare_configured_joining(&host, name, address, &lines)?;
            Seaweed::write_credentials(&node)?;
            nodes.push(node);
        }
        let mut cluster = Cluster { host, nodes };
        cluster.run(&format!("cellar cluster addresses {}", SERVICE.join(",")))?;
        for node in &mut cluster.nodes {
            node.start_cellar_alone()?;
        }
        cluster.wait_until_shared().with_context(|| cluster.logs())?;
        let entry = registered(&cluster.host, SERVICE[0])?;
        let known: BTreeSet<&str> = entry.addresses.iter().map(String::as_str).collect();
        ensure!(known == SERVICE.into(), "registered: {known:?}");
        Ok(cluster)
    }

    fn logs(&self) -> String {
        let log = |node: &Cell| format!("{}:\n{}", node.name, node.cellar_log());
        self.nodes.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    fn run(&self, command: &str) -> Result<String> {
        let node = &self.nodes[0];
        let config = node.path().join("cellar.toml");
        node.run(&format!("{command} --config {}", config.display()))?
            .ok()
            .with_context(|| command.to_owned())
    }

    /// Returns the indices of the nodes that have an address at their interface.
    fn holders(&self, address: &str) -> Result<Vec<usize>> {
        let mut all = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let shown = node.shell("ip -4 -o address show")?.ok()?;
            if shown.contains(&format!(" {address}/")) {
                all.push(index);
            }
        }
        ensure!(all.len() <= 1, "{address} is at several nodes: {all:?}");
        Ok(all)
    }

    fn holder(&self, address: &str) -> Result<usize> {
        self.holders(address)?.first().copied().with_context(|| format!("no node has {address}"))
    }

    /// Waits until a node other than `before` has an address.
    fn wait_for_other(&self, address: &str, before: usize) -> Result<usize> {
        wait_for(LIMIT, || Ok(self.holders(address)?.first().is_some_and(|node| *node != before)))?;
        self.holder(address)
    }

    /// Waits until each node has one address, and the partition is owned.
    fn wait_until_shared(&self) -> Result<()> {
        wait_for(LIMIT, || {
            let mut holders = BTreeSet::new();
            for address in SERVICE {
                holders.extend(self.holders(address)?);
            }
            Ok(holders.len() == NODES.len())
        })
        .context("the addresses are not shared")?;
        wait_for(LIMIT, || Ok(self.status()?["partitions"][0]["state"] == "owned")).context("no owner")?;
        for row in self.status()?["service_addresses"].as_array().context("no addresses")? {
            let address = row["address"].as_str().context("no address")?;
            let holder = self.nodes[self.holder(address)?].name;
            ensure!(row["state"] == "owned" && row["node"] == holder, "{row}, and {holder} has it");
        }
        Ok(())
    }

    fn status(&self) -> Result<Value> {
        let shown = self.run("cellar cluster status --json")?;
        serde_json::from_str(&shown).context(shown)
    }

    /// Returns the index of the node that owns the partition.
    fn owner(&self) -> Result<usize> {
        let status = self.status()?;
        let owner = status["partitions"][0]["owner"].as_str().context("no owner")?;
        NODES.iter().position(|(name, _)| *name == owner).with_context(|| owner.to_owned())
    }

    /// Returns the service address of a node.
    fn address_of(&self, node: usize) -> Result<&'static str> {
        for address in SERVICE {
            if self.holder(address)? == node {
                return Ok(address);
            }
        }
        anyhow::bail!("{} has no service address", self.nodes[node].name)
    }

    /// Returns the Ethernet address that the clients' host uses for an address.
    fn neighbour(&self, address: &str) -> Result<String> {
        let shown = self.host.shell(&format!("ip -4 neighbour show {address}"))?.ok()?;
        let ethernet = shown.split_whitespace().skip_while(|word| *word != "lladdr").nth(1);
        ethernet.map(str::to_owned).with_context(|| format!("no neighbour {address}: {shown}"))
    }

    /// Returns the Ethernet address of a node.
    fn ethernet(&self, node: usize) -> Result<String> {
        let own = NODES[node].1;
        let addresses = self.nodes[node].shell("ip -4 -o address show")?.ok()?;
        let line =
            addresses.lines().find(|line| line.contains(&format!(" {own}/"))).context("no own address")?;
        let interface = line.split_whitespace().nth(1).context("no interface")?;
        let link = self.nodes[node].shell(&format!("ip -o link show {interface}"))?.ok()?;
        let ethernet = link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
        ethernet.map(str::to_owned).context(link)
    }
}

fn addresses() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let owner = cluster.owner()?;
    let server = cluster.address_of(owner)?;
    for volume in ["data0", "data1", "data2"] {
        let rights = "--quota 0 --acl system:anyuser=rlidwka";
        let create = format!("cellar volume create {volume} --on {server} --partition b {rights}");
        // The owner may not have opened the partition yet.
        wait_for(LIMIT, || Ok(cluster.host.run(&create)?.status == 0))
            .with_context(|| cluster.logs())
            .context(create.clone())?;
    }
    kill_a_node(&mut cluster, owner).with_context(|| cluster.logs())?;
    stop_a_node(&cluster).with_context(|| cluster.logs())?;
    end_a_node(&mut cluster).with_context(|| cluster.logs())
}

/// Starts a client of the service address of a node, and returns both.
fn client(cluster: &Cluster, node: usize, volume: &str) -> Result<(&'static str, Series)> {
    let address = cluster.address_of(node)?;
    let pulse = Series::pulse(&cluster.host, address, volume)?;
    pulse.more(20)?;
    ensure!(cluster.neighbour(address)? == cluster.ethernet(node)?, "the client uses another host");
    Ok((address, pulse))
}

/// A node that does not own the partition is killed while a client uses its address. Its machine goes on.
fn kill_a_node(cluster: &mut Cluster, owner: usize) -> Result<()> {
    let victim = (owner + 1) % NODES.len();
    let (address, pulse) = client(cluster, victim, "data0")?;
    let before = SystemTime::now();
    cluster.nodes[victim].end_cellar("KILL")?;
    let heir = cluster.wait_for_other(address, victim)?;
    let taken = before.elapsed()?;
    let longest = pulse.longest_gap(before)?;
    println!(
        "interop: {} has {address} {:.1} s after the kill; its client waited {:.1} s",
        cluster.nodes[heir].name,
        taken.as_secs_f64(),
        longest.as_secs_f64()
    );
    ensure!(longest <= TAKEOVER && taken <= TAKEOVER, "the address was away for {taken:?}, {longest:?}");
    ensure!(cluster.neighbour(address)? == cluster.ethernet(heir)?, "the client's table is not up to date");
    cluster.nodes[victim].start_cellar_alone()?;
    cluster.wait_until_shared()?;
    pulse.more(20)
}

/// A node stands still for longer than its lease: its address goes to another node, and is not there when it goes on.
fn stop_a_node(cluster: &Cluster) -> Result<()> {
    let victim = (cluster.owner()? + 1) % NODES.len();
    let (address, pulse) = client(cluster, victim, "data1")?;
    let before = SystemTime::now();
    cluster.nodes[victim].stop_cellar()?;
    let heir = cluster.wait_for_other(address, victim)?;
    let longest = pulse.longest_gap(before)?;
    println!(
        "interop: {} took {address} from a node that stands still; its client waited {:.1} s",
        cluster.nodes[heir].name,
        longest.as_secs_f64()
    );
    ensure!(longest <= TAKEOVER, "a client waited {longest:?}");
    std::thread::sleep(Duration::from_secs(5));
    cluster.nodes[victim].resume_cellar()?;
    // The addresses are never at two nodes, which is checked at each look.
    let goes_on = SystemTime::now();
    while goes_on.elapsed()? < Duration::from_secs(3) {
        for address in SERVICE {
            cluster.holders(address)?;
        }
    }
    cluster.wait_until_shared()?;
    pulse.more(20)
}

/// A node is stopped in order: its address moves at once.
fn end_a_node(cluster: &mut Cluster) -> Result<()> {
    let victim = (cluster.owner()? + 1) % NODES.len();
    let (address, pulse) = client(cluster, victim, "data2")?;
    let before = SystemTime::now();
    cluster.nodes[victim].end_cellar("TERM")?;
    cluster.wait_for_other(address, victim)?;
    let longest = pulse.longest_gap(before)?;
    println!(
        "interop: a client waited {:.1} s for the address of a node that was stopped",
        longest.as_secs_f64()
    );
    ensure!(longest <= HANDOVER, "a client waited {longest:?}");
    for node in &mut cluster.nodes {
        if node.server_pid().is_ok() {
            node.end_cellar("TERM")?;
        }
    }
    for address in SERVICE {
        ensure!(cluster.holders(address)?.is_empty(), "{address} is still at a node");
    }
    Ok(())
}
