//! The nodes of a cluster, each in namespaces of its own. Their partitions are in a bucket of SeaweedFS.

use crate::cell::Cell;
use crate::seaweed::Seaweed;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Letters of the partitions.
pub const LETTERS: [&str; 2] = ["b", "c"];

/// The bucket of the cluster.
pub const BUCKET: &str = "cellar";

/// Folder for the copies of the bucket's data, in a node's folder.
pub const COPIES: &str = "cache";

/// Time limit for nodes, partitions and their registration to be there: new partitions are probed first.
const LIMIT: Duration = Duration::from_secs(90);

/// The cell's databases with SeaweedFS on one host, and the nodes.
pub struct Nodes {
    /// The host of the databases and of SeaweedFS.
    pub host: Cell,
    /// The nodes; they have the names of their cells.
    pub nodes: Vec<Cell>,
}

impl Nodes {
    /// Starts the host and the nodes, given by their names and addresses. Each node has `copies_mb` MiB for copies of the
    /// bucket's data. Waits until the partitions are owned and the nodes are registered as one server.
    ///
    /// # Errors
    /// If that takes longer than 90 s; the error has the nodes' logs.
    pub fn start(
        host: (&'static str, &'static str),
        places: &[(&'static str, &'static str)],
        copies_mb: u32,
    ) -> Result<Nodes> {
        let host = Cell::start_configured(host.0, host.1, "")?;
        Seaweed::start(&host, &[BUCKET])?;
        let mut nodes = Vec::new();
        for &(name, address) in places {
            let lines = format!(
                "[cluster]\nbucket = \"s3://{BUCKET}/cell\"\nendpoint = \"http://{}:8333\"\nallow_http = true\n\
                 credentials_file = \"aws\"\ncache = \"{COPIES}\"\ncache_mb = {copies_mb}\npartitions = {LETTERS:?}\n\
                 node = \"{name}\"\n",
                host.address
            );
            let mut node = Cell::prepare_configured_joining(&host, name, address, &lines)?;
            Seaweed::write_credentials(&node)?;
            node.start_cellar_alone()?;
            nodes.push(node);
        }
        let nodes = Nodes { host, nodes };
        nodes.wait()?;
        Ok(nodes)
    }

    /// Returns the ends of the nodes' logs.
    pub fn logs(&self) -> String {
        let log = |node: &Cell| format!("{}:\n{}", node.name, node.cellar_log());
        self.nodes.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    /// Returns the index of the node that owns the partition with this index, if there is one.
    ///
    /// # Errors
    /// If `cellar cluster status` fails.
    pub fn owner(&self, partition: usize) -> Result<Option<usize>> {
        let node = self.nodes.first().context("no node")?;
        let config = node.path().join("cellar.toml");
        let shown = node.run(&format!("cellar cluster status --json --config {}", config.display()))?.ok()?;
        let shown: Value = serde_json::from_str(&shown).context(shown)?;
        let row = &shown["partitions"][partition];
        let is_owned = row["state"] == "owned";
        Ok(self.nodes.iter().position(|node| is_owned && row["owner"] == node.name))
    }

    /// Waits until each partition is open at a live node, and all nodes are registered as one server.
    ///
    /// # Errors
    /// If that takes longer than 90 s; the error has the nodes' logs.
    pub fn wait(&self) -> Result<()> {
        for (partition, letter) in LETTERS.iter().enumerate() {
            self.wait_until("a partition is not served", || {
                let Some(owner) = self.owner(partition)? else { return Ok(false) };
                let list = format!("vos listpart {} -localauth", self.nodes[owner].address);
                Ok(self.host.run(&list)?.text.contains(&format!("/vicep{letter}")))
            })?;
        }
        let list = "vos listaddrs -printuuid -noresolve -localauth";
        self.wait_until("the nodes are not registered as one server", || {
            let shown = self.host.run(list)?.text;
            let has_all = |block: &str| self.nodes.iter().all(|node| block.contains(node.address));
            Ok(shown.split("UUID:").any(has_all))
        })
    }

    /// Creates a volume without quota that anyone may write to, in the first partition.
    ///
    /// # Errors
    /// If it cannot be created, or the partition has no owner.
    pub fn create_volume(&self, volume: &str) -> Result<()> {
        let owner = self.owner(0)?.context("no owner")?;
        let (server, partition) = (self.nodes[owner].address, LETTERS[0]);
        let rights = "--quota 0 --acl system:anyuser=rlidwka";
        let create = format!("cellar volume create {volume} --on {server} --partition {partition} {rights}");
        self.host.run(&create)?.ok().map(drop)
    }

    /// Removes a volume of the first partition.
    ///
    /// # Errors
    /// If `vos` fails, or the partition has no owner.
    pub fn remove_volume(&self, volume: &str) -> Result<()> {
        let owner = self.owner(0)?.context("no owner")?;
        let (server, partition) = (self.nodes[owner].address, LETTERS[0]);
        let remove = format!("vos remove -server {server} -partition {partition} -id {volume} -localauth");
        self.host.run(&remove)?.ok().map(drop)
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
