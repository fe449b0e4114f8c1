//! What clients have seen of a volume, which must not go back, whichever node answers.

use super::walk::client;
use anyhow::{Context, Result, anyhow, ensure};
use base::Fid;
use cell_client::files::Node;
use interop::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeMap;

/// A volume whose files are created in its root directory, and neither removed nor renamed.
pub(super) struct History {
    volume: String,
    /// The root directory and the files in it, by name.
    seen: BTreeMap<String, Seen>,
    /// When the volume was changed last.
    updated: u64,
}

/// What was seen of a file.
#[derive(Clone, Copy, Debug)]
struct Seen {
    fid: Fid,
    data_version: u64,
    modified: u32,
}

impl From<&Node> for Seen {
    fn from(node: &Node) -> Seen {
        let status = &node.status;
        let data_version = u64::from(status.data_version_high) << 32 | u64::from(status.data_version);
        Seen { fid: node.fid, data_version, modified: status.server_mod_time }
    }
}

impl History {
    pub(super) fn of(volume: &str) -> History {
        History { volume: volume.to_owned(), seen: BTreeMap::new(), updated: 0 }
    }

    /// Reads the volume through a node: no file may be gone or be another one, no data version and no time may be an earlier
    /// one, and new files have greater uniquifiers than those that were seen.
    pub(super) fn look(&mut self, cluster: &Cluster, node: usize) -> Result<()> {
        self.compare(cluster, node).with_context(|| {
            format!("{}, seen through {} by a new client", self.volume, cluster.nodes[node].name)
        })
    }

    fn compare(&mut self, cluster: &Cluster, node: usize) -> Result<()> {
        let updated = self.updated_at(cluster, node)?;
        ensure!(updated >= self.updated, "it was changed at {updated}, after {}", self.updated);
        self.updated = updated;
        let now = look(cluster, node, &self.volume)?;
        let newest = self.seen.values().map(|seen| seen.fid.unique).max();
        for (name, seen) in &self.seen {
            let now = now.get(name).with_context(|| format!("{name} is gone"))?;
            ensure!(
                now.fid == seen.fid && now.data_version >= seen.data_version && now.modified >= seen.modified,
                "{name} has gone back: {now:?} after {seen:?}"
            );
        }
        for (name, new) in now.iter().filter(|(name, _)| !self.seen.contains_key(*name)) {
            ensure!(Some(new.fid.unique) > newest, "{name} has {new:?}, after the uniquifier {newest:?}");
        }
        self.seen = now;
        Ok(())
    }

    fn updated_at(&self, cluster: &Cluster, node: usize) -> Result<u64> {
        let list = format!("cellar volume list --on {} --json", cluster.nodes[node].address);
        let listed = cluster.host.run(&list)?.ok()?;
        let rows: Value = serde_json::from_str(&listed).context(listed)?;
        let mut rows = rows.as_array().context("no rows")?.iter();
        let row = rows.find(|row| row["name"] == self.volume.as_str()).context("the volume is not listed")?;
        row["updated"].as_u64().with_context(|| row.to_string())
    }
}

fn look(cluster: &Cluster, node: usize, volume: &str) -> Result<BTreeMap<String, Seen>> {
    let cell = client(cluster, node)?;
    let root = cell.root_of(volume)?;
    let entries = cell.list(&root)?;
    let mut seen = BTreeMap::from([(".".to_owned(), Seen::from(&root))]);
    for (entry, node) in entries.iter().zip(cell.open_entries(&root, &entries)?) {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let node = node.map_err(|code| anyhow!("{name}: {code:?}"))?;
        seen.insert(name, Seen::from(&node));
    }
    Ok(seen)
}
