//! Service addresses that move between the nodes of a cluster. SeaweedFS is on the host of the databases, where the clients
//! run, too.

use crate::Test;
use crate::tests::cluster::{PLAN, TAKEOVER};
use crate::tests::registering::registered;
use crate::tests::series::Series;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cluster::{Cluster, Plan};
use interop::means::Means;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

/// Runs only if it is asked for: it takes minutes.
pub(crate) fn hidden() -> Vec<Test> {
    vec![Test { name: "cluster-addresses", needs: NEEDS, run: addresses }]
}

/// Its addresses, unused so far.
pub(crate) const SERVICE: [&str; 3] = ["10.99.0.225", "10.99.0.226", "10.99.0.227"];

/// A cluster with service addresses.
pub(crate) const SERVED: Plan = Plan { partitions: &["b"], service_addresses: &SERVICE, ..PLAN };

/// Time limit for nodes, partitions and addresses to be there.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest pause of a client of an address whose node is stopped in order.
const HANDOVER: Duration = Duration::from_secs(6);

/// Returns the indices of the nodes that have an address at their interface.
fn holders(cluster: &Cluster, address: &str) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for (index, node) in cluster.nodes.iter().enumerate() {
        let shown = node.shell("ip -4 -o address show")?.ok()?;
        if shown.contains(&format!(" {address}/")) {
            all.push(index);
        }
    }
    ensure!(all.len() <= 1, "{address} is at several nodes: {all:?}");
    Ok(all)
}

fn holder(cluster: &Cluster, address: &str) -> Result<usize> {
    holders(cluster, address)?.first().copied().with_context(|| format!("no node has {address}"))
}

/// Waits until a node other than `before` has an address.
fn wait_for_other(cluster: &Cluster, address: &str, before: usize) -> Result<usize> {
    wait_for(LIMIT, || Ok(holders(cluster, address)?.first().is_some_and(|node| *node != before)))?;
    holder(cluster, address)
}

/// Waits until each node has one address, and the partition is owned.
pub(crate) fn wait_until_shared(cluster: &Cluster) -> Result<()> {
    wait_for(LIMIT, || {
        let mut all = BTreeSet::new();
        for address in SERVICE {
            all.extend(holders(cluster, address)?);
        }
        Ok(all.len() == cluster.nodes.len())
    })
    .context("the addresses are not shared")?;
    wait_for(LIMIT, || Ok(cluster.owner("b")?.is_some())).context("no owner")?;
    for row in cluster.status()?["service_addresses"].as_array().context("no addresses")? {
        let address = row["address"].as_str().context("no address")?;
        let holder = cluster.nodes[holder(cluster, address)?].name;
        ensure!(row["state"] == "owned" && row["node"] == holder, "{row}, and {holder} has it");
    }
    Ok(())
}

/// Returns the Ethernet address that the clients' host uses for an address.
fn neighbour(cluster: &Cluster, address: &str) -> Result<String> {
    let shown = cluster.host.shell(&format!("ip -4 neighbour show {address}"))?.ok()?;
    let ethernet = shown.split_whitespace().skip_while(|word| *word != "lladdr").nth(1);
    ethernet.map(str::to_owned).with_context(|| format!("no neighbour {address}: {shown}"))
}

/// Returns the Ethernet address of a node.
fn ethernet(cluster: &Cluster, node: usize) -> Result<String> {
    let node = &cluster.nodes[node];
    let addresses = node.shell("ip -4 -o address show")?.ok()?;
    let own = format!(" {}/", node.address);
    let line = addresses.lines().find(|line| line.contains(&own)).context("no own address")?;
    let interface = line.split_whitespace().nth(1).context("no interface")?;
    let link = node.shell(&format!("ip -o link show {interface}"))?.ok()?;
    let ethernet = link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
    ethernet.map(str::to_owned).context(link)
}

fn addresses() -> Result<()> {
    let mut cluster = SERVED.start()?;
    wait_until_shared(&cluster).with_context(|| cluster.logs())?;
    let entry = registered(&cluster.host, SERVICE[0])?;
    let known: BTreeSet<&str> = entry.addresses.iter().map(String::as_str).collect();
    ensure!(known == SERVICE.into(), "registered: {known:?}");
    let owner = cluster.present_owner("b")?;
    ["data0", "data1", "data2"].iter().try_for_each(|volume| cluster.create_volume(volume))?;
    kill_a_node(&mut cluster, owner).with_context(|| cluster.logs())?;
    stop_a_node(&cluster).with_context(|| cluster.logs())?;
    end_a_node(&mut cluster).with_context(|| cluster.logs())
}

/// Starts a client of the service address of a node, and returns both.
fn client(cluster: &Cluster, node: usize, volume: &str) -> Result<(&'static str, Series)> {
    let address = cluster.address_of(node)?;
    let pulse = Series::pulse(&cluster.host, address, volume)?;
    pulse.more(20)?;
    ensure!(neighbour(cluster, address)? == ethernet(cluster, node)?, "the client uses another host");
    Ok((address, pulse))
}

/// A node that does not own the partition is killed while a client uses its address. Its machine goes on.
fn kill_a_node(cluster: &mut Cluster, owner: usize) -> Result<()> {
    let victim = (owner + 1) % cluster.nodes.len();
    let (address, pulse) = client(cluster, victim, "data0")?;
    let before = SystemTime::now();
    cluster.nodes[victim].end_cellar("KILL")?;
    let heir = wait_for_other(cluster, address, victim)?;
    let taken = before.elapsed()?;
    let longest = pulse.longest_gap(before)?;
    println!(
        "interop: {} has {address} {:.1} s after the kill; its client waited {:.1} s",
        cluster.nodes[heir].name,
        taken.as_secs_f64(),
        longest.as_secs_f64()
    );
    ensure!(longest <= TAKEOVER && taken <= TAKEOVER, "the address was away for {taken:?}, {longest:?}");
    ensure!(neighbour(cluster, address)? == ethernet(cluster, heir)?, "the client's table is not up to date");
    cluster.nodes[victim].start_cellar_alone()?;
    wait_until_shared(cluster)?;
    pulse.more(20)
}

/// A node stands still for longer than its lease: its address goes to another node, and is not there when it goes on.
fn stop_a_node(cluster: &Cluster) -> Result<()> {
    let victim = (cluster.present_owner("b")? + 1) % cluster.nodes.len();
    let (address, pulse) = client(cluster, victim, "data1")?;
    let before = SystemTime::now();
    cluster.nodes[victim].stop_cellar()?;
    let heir = wait_for_other(cluster, address, victim)?;
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
            holders(cluster, address)?;
        }
    }
    wait_until_shared(cluster)?;
    pulse.more(20)
}

/// A node is stopped in order: its address moves at once.
fn end_a_node(cluster: &mut Cluster) -> Result<()> {
    let victim = (cluster.present_owner("b")? + 1) % cluster.nodes.len();
    let (address, pulse) = client(cluster, victim, "data2")?;
    let before = SystemTime::now();
    cluster.nodes[victim].end_cellar("TERM")?;
    wait_for_other(cluster, address, victim)?;
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
        ensure!(holders(cluster, address)?.is_empty(), "{address} is still at a node");
    }
    Ok(())
}
