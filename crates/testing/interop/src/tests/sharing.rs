//! The cell's databases in the bucket of a cluster, with OpenAFS's `vos`, `pts` and `udebug`: every node answers, and the
//! death of the one that has them open loses nothing that was acknowledged.

use crate::Test;
use crate::tests::mixed::all;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::means::Means;
use interop::seaweed::Seaweed;
use serde_json::Value;
use std::time::{Duration, Instant};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-databases", needs: NEEDS, run: databases }]
}

/// The host of the bucket and of the tools.
const HOST: (&str, &str) = ("sharing0", "10.99.0.240");
const NODES: [(&str, &str); 3] =
    [("sharing1", "10.99.0.241"), ("sharing2", "10.99.0.242"), ("sharing3", "10.99.0.243")];
const PLACE: &str = "s3://cellar/test.example";

/// Time limit for nodes, partitions and databases to be there: new ones are probed first.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest time without databases after the death of the node that has them open.
const TAKEOVER: Duration = Duration::from_secs(12);

/// The ports of the two databases.
const PORTS: [u16; 2] = [7002, 7003];

struct Cluster {
    host: Cell,
    nodes: Vec<Cell>,
}

fn config(cell: &Cell) -> String {
    cell.path().join("cellar.toml").display().to_string()
}

/// Makes OpenAFS's tools on a host ask these database servers only.
fn ask(cell: &Cell, servers: &[(&str, &str)]) -> Result<()> {
    let lines: Vec<String> = servers.iter().map(|(name, address)| format!("{address} #{name}\n")).collect();
    for file in ["etc/CellServDB", "etc/server/CellServDB"] {
        std::fs::write(cell.path().join(file), format!(">test.example\n{}", lines.concat())).context(file)?;
    }
    Ok(())
}

impl Cluster {
    /// Sets three nodes up and starts them: the first has all roles and no databases yet, the others join with the roles of a
    /// file server.
    fn start() -> Result<Cluster> {
        let host = Cell::prepare_configured(HOST.0, HOST.1, "")?;
        ask(&host, &NODES)?;
        Seaweed::start(&host, &["cellar"])?;
        let mut cluster = Cluster { host, nodes: Vec::new() };
        for node in NODES {
            let (name, address) = node;
            let mut cell = Cell::prepare_configured_joining(&cluster.host, name, address, "")?;
            let is_first = cluster.nodes.is_empty();
            let text = std::fs::read_to_string(config(&cell))?.replace(HOST.1, NODES[0].1);
            let roles = if is_first { "" } else { "roles = [\"fs\", \"vol\", \"bos\"]" };
            let text = text.replace("roles = [\"fs\", \"vol\", \"bos\"]", roles);
            std::fs::write(config(&cell), text)?;
            ask(&cell, &[node])?;
            let credentials = Seaweed::write_credentials(&cell)?;
            let (command, partitions) = if is_first { ("init", "--partitions a,b,c") } else { ("join", "") };
            let said = cell
                .run(&format!(
                    "cellar cluster {command} {PLACE} {partitions} --node {name} --endpoint http://{}:8333 --allow-http \
                     --credentials-file {} --config {}",
                    HOST.1,
                    credentials.display(),
                    config(&cell),
                ))?
                .ok()?;
            ensure!(said.contains(&format!("is the node {name} of the cluster")), "{said}");
            ensure!(said.contains("the cell's databases"), "{said}");
            cell.start_cellar_alone()?;
            cluster.nodes.push(cell);
        }
        cluster.wait_for_owners()?;
        cluster.wait_until_registered()?;
        Ok(cluster)
    }

    fn logs(&self) -> String {
        let log = |node: &Cell| format!("{}:\n{}", node.address, node.cellar_log());
        self.nodes.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    /// Returns the partitions and the databases as a node's command shows them.
    fn rows(&self, at: usize) -> Result<Vec<Value>> {
        let node = &self.nodes[at];
        let printed = node.run(&format!("cellar cluster status --json --config {}", config(node)))?.ok()?;
        let shown: Value = serde_json::from_str(&printed).context(printed)?;
        Ok(shown["partitions"].as_array().context("no partitions")?.clone())
    }

    fn wait_for_owners(&self) -> Result<()> {
        self.wait_for_owners_at(0)
    }

    fn wait_for_owners_at(&self, node: usize) -> Result<()> {
        wait_for(LIMIT, || Ok(self.rows(node)?.iter().all(|row| row["state"] == "owned")))
            .with_context(|| self.logs())
    }

    /// Waits until each node has the addresses of all.
    fn wait_until_registered(&self) -> Result<()> {
        let has_all = |node: &Cell| -> Result<bool> {
            let listed = node.run("vos listaddrs -noresolve -localauth")?.text;
            Ok(NODES.iter().all(|(_, address)| listed.contains(address)))
        };
        wait_for(LIMIT, || {
            Ok(self.nodes.iter().map(has_all).collect::<Result<Vec<_>>>()?.into_iter().all(|has| has))
        })
        .with_context(|| self.logs())
    }

    /// Returns the index of the node that owns a partition or the databases.
    fn owner(&self, at: usize, row: &str) -> Result<usize> {
        let rows = self.rows(at)?;
        let found = rows.iter().find(|found| found["partition"] == row).with_context(|| row.to_owned())?;
        let owner = found["owner"].as_str().with_context(|| found.to_string())?;
        NODES.iter().position(|(name, _)| *name == owner).context(owner.to_owned())
    }

    /// Returns what `udebug` prints for a node's database.
    fn state(&self, node: usize, port: u16) -> Result<String> {
        Ok(self.host.run(&format!("udebug {} {port} -long", NODES[node].1))?.text)
    }

    /// Checks that `udebug` shows one sync site, and that the others name it, with the same version.
    fn check_states(&self, nodes: &[usize], site: usize) -> Result<()> {
        for port in PORTS {
            let of_site = self.state(site, port)?;
            let version = line(&of_site, "Local db version is ").context(of_site.clone())?;
            for node in nodes {
                let state = self.state(*node, port)?;
                if *node == site {
                    let others = state.lines().filter(|line| line.starts_with("Server (")).count();
                    let servers = format!("({} servers)", nodes.len());
                    let is_site =
                        state.contains("I am sync site until") && state.contains("Recovery state 1f");
                    ensure!(is_site && state.contains(&servers) && others == nodes.len() - 1, "{state}");
                } else {
                    let host = format!("Sync host {} was set", NODES[site].1);
                    ensure!(state.contains("I am not sync site") && state.contains(&host), "{state}");
                    let known = line(&state, "Sync site's db version is ").context(state.clone())?;
                    ensure!(known == version, "{known} instead of {version}\n{state}");
                }
            }
        }
        Ok(())
    }

    /// Creates a user, a group and a volume with the tools on a host. They ask that host's database servers.
    fn create(&self, cell: &Cell, name: &str) -> Result<()> {
        // A node that was killed cannot be asked.
        let at = self.nodes.iter().position(|node| node.server_pid().is_ok()).context("no node runs")?;
        let owner = NODES[self.owner(at, "/vicepa")?].1;
        all(
            cell,
            &[
                format!("pts createuser user.{name} -localauth"),
                format!("pts creategroup admin:{name} -owner admin -localauth"),
                format!("pts adduser user.{name} admin:{name} -localauth"),
                format!("vos create {owner} a vol.{name} -localauth"),
            ],
        )
        .with_context(|| self.logs())
    }
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
    let mut cluster = Cluster::start()?;
    all(
        &cluster.host,
        &[
            "pts createuser admin -localauth".into(),
            "pts adduser admin system:administrators -localauth".into(),
        ],
    )?;
    let mut names: Vec<String> = Vec::new();
    for node in &cluster.nodes {
        cluster.create(node, node.name)?;
        names.push(node.name.to_owned());
    }
    for cell in cluster.nodes.iter().chain([&cluster.host]) {
        check(cell, &names)?;
    }
    refusals(&cluster)?;
    let site = cluster.owner(2, "databases")?;
    // The leases of the others are read every ten seconds.
    wait_for(LIMIT, || Ok(cluster.state(site, 7003)?.contains("(3 servers)"))).context("udebug")?;
    cluster.check_states(&[0, 1, 2], site)?;

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
        let twice = node.run(&format!("pts createuser user.{} -localauth", NODES[0].0))?;
        ensure!(twice.status != 0 && twice.text.contains("Entry for name already exists"), "{}", twice.text);
    }
    Ok(())
}

/// The node that has the databases open is killed while changes are made; returns the time until each of the others and a
/// host with all three database servers accepts a change.
fn killed(cluster: &mut Cluster, site: usize, names: &mut Vec<String>) -> Result<Duration> {
    let rest: Vec<usize> = (0..NODES.len()).filter(|node| *node != site).collect();
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
    cluster.wait_for_owners_at(rest[0])?;
    for node in &rest {
        let cell = &cluster.nodes[*node];
        let name = format!("{}.again", cell.name);
        cluster.create(cell, &name)?;
        names.push(name);
    }
    for node in &rest {
        check(&cluster.nodes[*node], names)?;
        let after = cluster.nodes[*node].run("pts examine after.all -localauth")?.ok()?;
        ensure!(after.contains("Name: after.all"), "{after}");
    }
    let next = cluster.owner(rest[0], "databases")?;
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
    cluster.wait_for_owners()?;
    for cell in cluster.nodes.iter().chain([&cluster.host]) {
        wait_for(LIMIT, || Ok(cell.run("pts examine admin -localauth")?.status == 0))?;
        check(cell, names)?;
    }
    let ids = cluster.host.run("pts listentries -localauth")?.ok()?;
    let mut seen: Vec<&str> = ids.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    ensure!(count > NODES.len() && seen.len() == count, "ids were given twice: {ids}");
    let last = "last".to_owned();
    cluster.create(&cluster.host, &last)?;
    check(&cluster.nodes[2], &[last])
}
