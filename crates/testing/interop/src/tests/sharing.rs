//! The cell's databases in the bucket of a cluster, with OpenAFS's `vos`, `pts` and `udebug`: every node answers, and the
//! death of the one that has them open loses nothing that was acknowledged.

use crate::Test;
use crate::tests::cluster::PLAN;
use crate::tests::mixed::all;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::cluster::{Cluster, DATABASES, Plan};
use interop::means::Means;
use std::time::{Duration, Instant};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-databases", needs: NEEDS, run: databases }]
}

const SHARING: Plan = Plan { partitions: &["a", "b", "c"], has_databases: true, by_commands: true, ..PLAN };

/// Time limit for nodes, partitions and databases to be there: new ones are probed first.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest time without databases after the death of the node that has them open: less than the 20 s for which a node holds a
/// call.
const TAKEOVER: Duration = Duration::from_secs(19);

/// The ports of the two databases.
const PORTS: [u16; 2] = [7002, 7003];

/// Waits until each partition and the databases have an owner.
fn wait_for_owners(cluster: &Cluster) -> Result<()> {
    wait_for(LIMIT, || {
        let status = cluster.status()?;
        let rows = status["partitions"].as_array().context("no partitions")?;
        Ok(rows.iter().all(|row| row["state"] == "owned"))
    })
    .with_context(|| cluster.logs())
}

/// Returns what `udebug` prints for a node's database.
fn state(cluster: &Cluster, node: usize, port: u16) -> Result<String> {
    Ok(cluster.host.run(&format!("udebug {} {port} -long", cluster.nodes[node].address))?.text)
}

/// Checks that `udebug` shows one sync site, and that the others name it, with the same version.
fn check_states(cluster: &Cluster, nodes: &[usize], site: usize) -> Result<()> {
    for port in PORTS {
        let of_site = state(cluster, site, port)?;
        let version = line(&of_site, "Local db version is ").context(of_site.clone())?;
        for node in nodes {
            let state = state(cluster, *node, port)?;
            if *node == site {
                let others = state.lines().filter(|line| line.starts_with("Server (")).count();
                let servers = format!("({} servers)", nodes.len());
                let is_site = state.contains("I am sync site until") && state.contains("Recovery state 1f");
                ensure!(is_site && state.contains(&servers) && others == nodes.len() - 1, "{state}");
            } else {
                let host = format!("Sync host {} was set", cluster.nodes[site].address);
                ensure!(state.contains("I am not sync site") && state.contains(&host), "{state}");
                let known = line(&state, "Sync site's db version is ").context(state.clone())?;
                ensure!(known == version, "{known} instead of {version}\n{state}");
            }
        }
    }
    Ok(())
}

/// Creates a user, a group and a volume with the tools on a host. They ask that host's database servers.
fn create(cluster: &Cluster, cell: &Cell, name: &str) -> Result<()> {
    let owner = cluster.nodes[cluster.present_owner("a")?].address;
    all(
        cell,
        &[
            format!("pts createuser user.{name} -localauth"),
            format!("pts creategroup admin:{name} -owner admin -localauth"),
            format!("pts adduser user.{name} admin:{name} -localauth"),
            format!("vos create {owner} a vol.{name} -localauth"),
        ],
    )
    .with_context(|| cluster.logs())
}

/// Checks that a host's database servers have all that was created.
fn check(cell: &Cell, names: &[String]) -> Result<()> {
    for name in names {
        let members = cell.run(&format!("pts membership admin:{name} -localauth"))?.ok()?;
        ensure!(members.contains(&format!("user.{name}")), "{}: {members}", cell.address);
        let volume = cell.run(&format!("vos listvldb vol.{name} -noresolve -localauth"))?.ok()?;
        ensure!(volume.contains("number of sites -> 1"), "{}: {volume}", cell.address);
    }
    Ok(())
}

/// Returns the rest of the line that begins like this.
fn line(text: &str, beginning: &str) -> Option<String> {
    text.lines().find_map(|line| line.trim().strip_prefix(beginning)).map(str::to_owned)
}

fn databases() -> Result<()> {
    let mut cluster = SHARING.start()?;
    all(
        &cluster.host,
        &[
            "pts createuser admin -localauth".into(),
            "pts adduser admin system:administrators -localauth".into(),
        ],
    )?;
    let mut names: Vec<String> = Vec::new();
    for node in &cluster.nodes {
        create(&cluster, node, node.name)?;
        names.push(node.name.to_owned());
    }
    for cell in cluster.nodes.iter().chain([&cluster.host]) {
        check(cell, &names)?;
    }
    refusals(&cluster)?;
    let site = cluster.present_owner(DATABASES)?;
    // The leases of the others are read every ten seconds.
    wait_for(LIMIT, || Ok(state(&cluster, site, 7003)?.contains("(3 servers)"))).context("udebug")?;
    check_states(&cluster, &[0, 1, 2], site)?;

    let longest = killed(&mut cluster, site, &mut names).with_context(|| cluster.logs())?;
    println!(
        "interop: the databases accepted changes {:.1} s after their node was killed",
        longest.as_secs_f64()
    );
    ensure!(longest <= TAKEOVER, "the databases were away for {longest:?}");

    restarted(&mut cluster, &names).with_context(|| cluster.logs())
}

/// What must not be possible says so, at each node.
fn refusals(cluster: &Cluster) -> Result<()> {
    for node in &cluster.nodes {
        let refused = node.run("pts createuser stranger -noauth")?;
        ensure!(refused.status != 0 && refused.text.contains("Permission denied"), "{}", refused.text);
        let refused = node.run(&format!("vos create {} a stranger -noauth", node.address))?;
        ensure!(refused.status != 0, "{}", refused.text);
        let twice = node.run(&format!("pts createuser user.{} -localauth", cluster.nodes[0].name))?;
        ensure!(twice.status != 0 && twice.text.contains("Entry for name already exists"), "{}", twice.text);
    }
    Ok(())
}

/// The node that has the databases open is killed while changes are made; returns the time until each of the others and a
/// host with all three database servers accepts a change.
fn killed(cluster: &mut Cluster, site: usize, names: &mut Vec<String>) -> Result<Duration> {
    let rest: Vec<usize> = (0..cluster.nodes.len()).filter(|node| *node != site).collect();
    cluster.nodes[site].end_cellar("KILL")?;
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    for node in &rest {
        let cell = &cluster.nodes[*node];
        let mut last = String::new();
        wait_for(LIMIT, || {
            let made = cell.run(&format!("pts createuser after.{} -localauth", cell.name))?;
            last.clone_from(&made.text);
            // An attempt whose answer was lost may have been executed.
            Ok(made.status == 0 || made.text.contains("Entry for name already exists"))
        })
        .with_context(|| last.clone())?;
        longest = longest.max(begun.elapsed());
    }
    // A client with three database servers goes on although one is dead.
    all(&cluster.host, &["pts createuser after.all -localauth".into(), "vos listvldb -localauth".into()])?;
    wait_for_owners(cluster)?;
    for node in &rest {
        let cell = &cluster.nodes[*node];
        let name = format!("{}.again", cell.name);
        create(cluster, cell, &name)?;
        names.push(name);
    }
    for node in &rest {
        check(&cluster.nodes[*node], names)?;
        let after = cluster.nodes[*node].run("pts examine after.all -localauth")?.ok()?;
        ensure!(after.contains("Name: after.all"), "{after}");
    }
    let next = cluster.present_owner(DATABASES)?;
    ensure!(next != site, "a dead node owns the databases");
    cluster.nodes[site].start_cellar_alone()?;
    let back = &cluster.nodes[site];
    wait_for(LIMIT, || Ok(back.run("pts examine after.all -localauth")?.status == 0))?;
    check(back, names)?;
    Ok(longest)
}

/// All nodes are stopped and started again.
fn restarted(cluster: &mut Cluster, names: &[String]) -> Result<()> {
    for node in &mut cluster.nodes {
        node.end_cellar("TERM")?;
    }
    for node in &mut cluster.nodes {
        node.start_cellar_alone()?;
    }
    cluster.wait()?;
    for cell in cluster.nodes.iter().chain([&cluster.host]) {
        wait_for(LIMIT, || Ok(cell.run("pts examine admin -localauth")?.status == 0))?;
        check(cell, names)?;
    }
    let ids = cluster.host.run("pts listentries -localauth")?.ok()?;
    let mut seen: Vec<&str> = ids.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    ensure!(count > cluster.nodes.len() && seen.len() == count, "ids were given twice: {ids}");
    let last = "last".to_owned();
    create(cluster, &cluster.host, &last)?;
    check(&cluster.nodes[2], &[last])
}
