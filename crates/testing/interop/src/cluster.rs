//! A cluster of nodes, each in namespaces of its own. Its partitions are in a bucket of SeaweedFS on a host that is no node.

use crate::cell::Cell;
use crate::seaweed::Seaweed;
use anyhow::{Context, Result, ensure};
use cluster_proto::ClusterRecord;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The bucket of the cluster.
pub const BUCKET: &str = "cellar";

/// Folder for the copies of the bucket's data, in a node's folder.
pub const COPIES: &str = "cache";

/// Place of the cluster.
pub const PLACE: &str = "s3://cellar/test.example";

/// The row of `cellar cluster status` about the cell's databases.
pub const DATABASES: &str = "databases";

/// Time limit for nodes, partitions and their registration to be there: new partitions are probed first.
const LIMIT: Duration = Duration::from_secs(120);

/// Roles of a server without databases.
const FILE_SERVER: &str = "roles = [\"fs\", \"vol\", \"bos\"]";

/// Name and address of a host.
pub type Place = (&'static str, &'static str);

/// A cluster that is to be started.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The host of SeaweedFS, and of the cell's databases unless they are in the bucket.
    pub host: Place,
    /// The nodes; they have the names of their cells.
    pub nodes: [Place; 3],
    /// Letters of the partitions.
    pub partitions: &'static [&'static str],
    /// Addresses that move between the nodes. Without any, clients use the nodes' own.
    pub service_addresses: &'static [&'static str],
    /// Whether the nodes serve the cell's databases, which are in the bucket.
    pub has_databases: bool,
    /// Size of each node's copies of the bucket's data, in MiB.
    pub copies_mb: u32,
    /// Whether `cellar cluster init` and `join` set the nodes up. Each of them probes the bucket for some 20 s. Otherwise the
    /// nodes have the configuration that these commands would write; clusters with databases need the commands.
    pub by_commands: bool,
    /// Whether the bucket has the object that `cellar cluster init` writes, without the commands. Then partitions are not probed.
    pub has_record: bool,
}

impl Plan {
    /// Returns a cluster with the partitions `b` and `c`, without service addresses, and with the databases on the host.
    pub const fn new(host: Place, nodes: [Place; 3]) -> Plan {
        let partitions = &["b", "c"];
        Plan {
            host,
            nodes,
            partitions,
            service_addresses: &[],
            has_databases: false,
            copies_mb: 256,
            by_commands: false,
            has_record: false,
        }
    }

    /// Starts it, and waits until each partition is open at its owner, each service address is at a node, and all nodes are
    /// registered as one server.
    ///
    /// # Errors
    /// If a command fails, or after 120 s; the error has the nodes' logs.
    pub fn start(self) -> Result<Cluster> {
        let host = if self.has_databases {
            let host = Cell::prepare_configured(self.host.0, self.host.1, "")?;
            host.use_databases(&self.nodes)?;
            host
        } else {
            Cell::start_configured(self.host.0, self.host.1, "")?
        };
        Seaweed::start(&host, &[BUCKET])?;
        if self.has_record {
            self.write_record(&host)?;
        }
        let mut cluster = Cluster { host, nodes: Vec::new(), plan: self };
        for place in self.nodes {
            let node = self.prepare(&cluster, place)?;
            cluster.nodes.push(node);
        }
        if !self.service_addresses.is_empty() {
            cluster.run(&format!("cellar cluster addresses {}", self.service_addresses.join(",")))?;
        }
        cluster.nodes.iter_mut().try_for_each(Cell::start_cellar_alone)?;
        cluster.wait()?;
        Ok(cluster)
    }

    /// Writes the list of partitions. SeaweedFS's filer shows the objects as files.
    fn write_record(&self, host: &Cell) -> Result<()> {
        let folder = PLACE.rsplit('/').next().unwrap_or_default();
        let ids = self.partitions.iter().map(|letters| letters.parse().map_err(anyhow::Error::msg));
        let record = ClusterRecord::new(folder.parse()?, ids.collect::<Result<_>>()?);
        let file = host.scratch()?.join("record");
        std::fs::write(&file, record.context("no partitions")?.encode())?;
        let object = format!("http://127.0.0.1:8888/buckets/{BUCKET}/{}", ClusterRecord::object(folder));
        let data = format!("--data-binary @{} -H 'Content-Type: text/plain'", file.display());
        host.shell(&format!("curl -sSf -X PUT {data} {object}"))?.ok().map(drop)
    }

    /// Makes a host a node, without starting it.
    fn prepare(&self, cluster: &Cluster, place: Place) -> Result<Cell> {
        let ((name, address), is_first) = (place, cluster.nodes.is_empty());
        let node = Cell::prepare_joining(&cluster.host, name, address)?;
        // The first node of a cluster with databases has all roles, and none of them yet.
        let roles = if self.has_databases && is_first { "" } else { FILE_SERVER };
        let databases = if self.has_databases { self.nodes[0].1 } else { self.host.1 };
        let section = if self.by_commands { String::new() } else { self.section(cluster, &node)? };
        node.configure_partitions(databases, roles, &section)?;
        if self.has_databases {
            node.use_databases(&[place])?;
        }
        if self.by_commands {
            self.set_up(cluster, &node)?;
        }
        Ok(node)
    }

    /// Returns the section of the configuration that makes a host a node.
    fn section(&self, cluster: &Cluster, node: &Cell) -> Result<String> {
        let credentials = Seaweed::write_credentials(node)?;
        Ok(format!(
            "[cluster]\nbucket = \"{PLACE}\"\npartitions = {:?}\nnode = \"{}\"\naddress = \"{}\"\n\
             endpoint = \"http://{}:8333\"\nallow_http = true\ncredentials_file = \"{}\"\ncache = \"{}\"\n\
             cache_mb = {}\n",
            self.partitions,
            node.name,
            node.address,
            cluster.host.address,
            credentials.display(),
            node.path().join(COPIES).display(),
            self.copies_mb
        ))
    }

    /// Makes a host a node by a command.
    fn set_up(&self, cluster: &Cluster, node: &Cell) -> Result<()> {
        let command = if cluster.nodes.is_empty() {
            format!("init {PLACE} --partitions {}", self.partitions.join(","))
        } else {
            format!("join {PLACE}")
        };
        let (name, reach, copies) = (node.name, cluster.reach(node)?, node.path().join(COPIES));
        let options = format!("--node {name} --cache {} --cache-mb {}", copies.display(), self.copies_mb);
        let command = format!("cellar cluster {command} {reach} {options} --config {}", node.configuration());
        let said = node.run(&command)?.ok()?;
        ensure!(said.contains(&format!("is the node {name} of the cluster")), "{said}");
        ensure!(said.contains("the cell's databases") == self.has_databases, "{said}");
        Ok(())
    }
}

/// The host of the bucket, and the nodes.
pub struct Cluster {
    /// The host of SeaweedFS, and of the cell's databases unless they are in the bucket.
    pub host: Cell,
    /// The nodes; they have the names of their cells.
    pub nodes: Vec<Cell>,
    plan: Plan,
}

impl Cluster {
    /// Returns the options by which a command on `cell` reaches the bucket.
    ///
    /// # Errors
    /// If the credentials cannot be written.
    pub fn reach(&self, cell: &Cell) -> Result<String> {
        let (address, credentials) = (self.host.address, Seaweed::write_credentials(cell)?);
        Ok(format!(
            "--endpoint http://{address}:8333 --allow-http --credentials-file {}",
            credentials.display()
        ))
    }

    /// Returns the ends of the nodes' logs.
    pub fn logs(&self) -> String {
        let log = |node: &Cell| format!("{} ({}):\n{}", node.name, node.address, node.cellar_log());
        self.nodes.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    /// Runs a command with the configuration of the first node that runs, or of the first one.
    ///
    /// # Errors
    /// If it fails.
    pub fn run(&self, command: &str) -> Result<String> {
        let running = self.nodes.iter().find(|node| node.server_pid().is_ok());
        let node = running.or(self.nodes.first()).context("no node")?;
        let command = format!("{command} --config {}", node.configuration());
        node.run(&command)?.ok().with_context(|| command.clone())
    }

    /// Returns what `cellar cluster status` shows.
    ///
    /// # Errors
    /// If it fails.
    pub fn status(&self) -> Result<Value> {
        let printed = self.run("cellar cluster status --json")?;
        serde_json::from_str(&printed).context(printed)
    }

    /// Returns the index of the node that owns a partition, given by its letters, or the [`DATABASES`], if there is one.
    ///
    /// # Errors
    /// If the cluster has no such partition, or `cellar cluster status` fails.
    pub fn owner(&self, partition: &str) -> Result<Option<usize>> {
        self.owner_in(&self.status()?, partition)
    }

    fn owner_in(&self, status: &Value, partition: &str) -> Result<Option<usize>> {
        let name = if partition == DATABASES { partition.to_owned() } else { format!("/vicep{partition}") };
        let mut rows = status["partitions"].as_array().context("no partitions")?.iter();
        let row =
            rows.find(|row| row["partition"] == name).with_context(|| format!("no {name}: {status}"))?;
        let is_owned = row["state"] == "owned";
        Ok(self.nodes.iter().position(|node| is_owned && row["owner"] == node.name))
    }

    /// Returns the index of the node that owns a partition.
    ///
    /// # Errors
    /// As for [`owner`](Cluster::owner), and if the partition has none.
    pub fn present_owner(&self, partition: &str) -> Result<usize> {
        self.owner(partition)?.with_context(|| format!("{partition} has no owner"))
    }

    /// Moves a partition to a node, and waits until that one owns it.
    ///
    /// # Errors
    /// If that takes longer than 120 s; the error has the nodes' logs.
    pub fn give(&self, partition: &str, node: usize) -> Result<()> {
        let command = format!("cellar cluster move {partition} {}", self.nodes[node].name);
        self.wait_until(&command, || Ok(self.run(&command).is_ok() || self.owner(partition)? == Some(node)))
    }

    /// Moves partitions so that each node owns that of its number, and waits until they are open there.
    ///
    /// # Errors
    /// If that takes longer than 120 s; the error has the nodes' logs.
    pub fn spread(&self) -> Result<()> {
        let status = self.status()?;
        for (node, partition) in self.plan.partitions.iter().enumerate().take(self.nodes.len()) {
            if self.owner_in(&status, partition)? != Some(node) {
                self.give(partition, node)?;
            }
        }
        self.wait()
    }

    /// Waits until each partition is open at a live node, each service address is at one, and all nodes are registered as one
    /// server.
    ///
    /// # Errors
    /// If that takes longer than 120 s; the error has the nodes' logs.
    pub fn wait(&self) -> Result<()> {
        self.wait_until("not everything is served", || self.is_served())?;
        self.wait_until("the nodes are not registered as one server", || self.is_one_server())
    }

    fn is_served(&self) -> Result<bool> {
        let status = self.status()?;
        let rows = status["service_addresses"].as_array().context("no service addresses")?;
        let at_nodes = rows.iter().filter(|row| row["state"] == "owned").count();
        let has_databases = !self.plan.has_databases || self.owner_in(&status, DATABASES)?.is_some();
        if at_nodes != self.plan.service_addresses.len() || !has_databases {
            return Ok(false);
        }
        for partition in self.plan.partitions {
            let Some(owner) = self.owner_in(&status, partition)? else { return Ok(false) };
            let list = format!("vos listvol {} {partition} -localauth", self.nodes[owner].address);
            if self.host.run(&list)?.status != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether one entry of the location database has the addresses of all nodes, or all service addresses, as each database
    /// server shows it.
    fn is_one_server(&self) -> Result<bool> {
        let of_nodes = self.nodes.iter().map(|node| node.address).collect::<Vec<_>>();
        let service = self.plan.service_addresses;
        let expected = if service.is_empty() { &of_nodes[..] } else { service };
        let askers = if self.plan.has_databases { &self.nodes[..] } else { std::slice::from_ref(&self.host) };
        for asker in askers.iter().filter(|cell| cell.server_pid().is_ok()) {
            let shown = asker.run("vos listaddrs -printuuid -noresolve -localauth")?.text;
            let is_it = |block: &str| {
                let lines: Vec<&str> = block.lines().map(str::trim).collect();
                expected.iter().all(|address| lines.contains(address))
            };
            if !shown.split("UUID:").any(is_it) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Creates a volume without quota that anyone may write to, in the first partition.
    ///
    /// # Errors
    /// As for [`create_volume_in`](Cluster::create_volume_in).
    pub fn create_volume(&self, volume: &str) -> Result<()> {
        self.create_volume_in(volume, self.plan.partitions[0])
    }

    /// Creates a volume without quota that anyone may write to.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create_volume_in(&self, volume: &str, partition: &str) -> Result<()> {
        // Every node passes it on to the owner of the partition.
        let server = self.plan.service_addresses.first().copied().unwrap_or(self.plan.nodes[0].1);
        let rights = "--quota 0 --acl system:anyuser=rlidwka";
        let create = format!("cellar volume create {volume} --on {server} --partition {partition} {rights}");
        self.host.run(&create)?.ok().map(drop)
    }

    /// Returns the address at which clients find a node: one of its service addresses, or its own.
    ///
    /// # Errors
    /// If the node has none of the service addresses.
    pub fn address_of(&self, node: usize) -> Result<&'static str> {
        let cell = &self.nodes[node];
        if self.plan.service_addresses.is_empty() {
            return Ok(cell.address);
        }
        let shown = cell.shell("ip -4 -o address show")?.ok()?;
        let is_here = |address: &&&str| shown.contains(&format!(" {address}/"));
        let found = self.plan.service_addresses.iter().find(is_here);
        found.copied().with_context(|| format!("{} has no service address", cell.name))
    }

    /// Removes a volume.
    ///
    /// # Errors
    /// If `vos` fails.
    pub fn remove_volume(&self, volume: &str) -> Result<()> {
        self.host.run(&format!("vos remove -id {volume} -localauth"))?.ok().map(drop)
    }

    /// Ends all nodes that run, and checks all partitions with all data.
    ///
    /// # Errors
    /// If a node does not end, or something is damaged.
    pub fn end(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            if node.server_pid().is_ok() {
                node.end_cellar("TERM")?;
            }
        }
        let checked = self.run("cellar store check --data --json")?;
        let rows: Value = serde_json::from_str(&checked).context(checked)?;
        let rows = rows.as_array().context("no rows")?;
        let is_whole = rows.iter().all(|row| row["damage_count"] == 0);
        ensure!(is_whole && rows.len() >= self.plan.partitions.len(), "{rows:#?}");
        Ok(())
    }

    fn wait_until(&self, what: &str, mut is_there: impl FnMut() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !is_there()? {
            ensure!(begun.elapsed() < LIMIT, "{what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}
