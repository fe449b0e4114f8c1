//! `cellar cluster move` and `cellar cluster drain`.

use super::place::{ask, described, of_node, surveyed};
use super::status::{is_owned_by, owned_by};
use super::{Drain, Move};
use crate::commands::Context;
use crate::commands::stat::figures::{Source, look};
use afs_idl::cellar::{self, GiveUpPartitionRequest};
use anyhow::{Context as _, Result, anyhow, bail};
use base::{AbortCode, PartitionId};
use cell_client::describe::failed;
use cell_client::{CellClient, Interface};
use cellar_config::{ClusterSettings, Settings};
use cellar_server::buckets::connect;
use cluster::{Holder, NodeName, NodeRecord, NodeSeen, NodeState, OwnerRecord, PartitionName, Survey};
use cluster_proto::Owned;
use events::catalogue::ClusterFigures;
use observe::Table;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

/// For how long the new owner may take to open a partition.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// For how long a node that reaches other nodes again may take nothing yet. Others have to answer it for ten seconds.
const RETURNED_WITHIN: Duration = Duration::from_secs(15);

/// Interval between two readings of the owner, and between two questions to the new one.
const INTERVAL: Duration = Duration::from_millis(500);

/// A partition that has another owner now, or the databases.
#[derive(Debug, Serialize)]
pub(super) struct Moved {
    partition: String,
    from: String,
    to: String,
    epoch: u64,
    /// Time without an owner, from the request to the new owner's entry in the bucket.
    seconds: f64,
}

/// The cluster as it was found.
pub(super) struct Found {
    settings: Settings,
    cluster: ClusterSettings,
    pub(super) survey: Survey,
    /// The running nodes that take nothing, because they reach no other node.
    pub(super) isolated: BTreeSet<NodeName>,
}

impl Found {
    pub(super) fn new(context: &Context) -> Result<Found> {
        let (settings, cluster) = of_node(context)?;
        let survey = surveyed(&settings, &cluster)?;
        let live = survey.nodes.iter().filter(|seen| is_live(seen));
        let leases: Vec<NodeRecord> = live.map(|seen| seen.record.clone()).collect();
        let isolated =
            cluster::read_isolated_nodes(&*connect(&cluster.bucket)?, cluster.folder(), &leases)
                .with_context(|| format!("cannot read the cluster in {}", described(&cluster.bucket)))?;
        Ok(Found { settings, cluster, survey, isolated })
    }

    /// Returns the running nodes that take what is given up for them.
    pub(super) fn takers(&self) -> impl Iterator<Item = &NodeSeen> {
        takers(&self.survey.nodes, &self.isolated)
    }

    fn owners(&self) -> Vec<(Owned, Option<&OwnerRecord>)> {
        let partitions = self.settings.partitions.iter().map(|partition| Owned::Partition(partition.id));
        let all = partitions.chain([Owned::Databases]);
        let owner = |what| {
            let place = self.place(what)?;
            let (_, owner) = self.survey.owners.iter().find(|(name, _)| *name == place)?;
            Some((what, owner.as_ref()))
        };
        all.filter_map(owner).collect()
    }

    /// Returns the place of a partition, or of the databases if they are in the bucket.
    fn place(&self, what: Owned) -> Option<PartitionName> {
        match what {
            Owned::Partition(id) => Some(self.cluster.partition(id)),
            Owned::Databases => self.cluster.databases_place().cloned(),
        }
    }

    /// Returns the running node that owns each partition.
    pub(super) fn running_owners(&self) -> BTreeMap<PartitionId, Option<NodeName>> {
        let partition = |(what, owner): (Owned, Option<&OwnerRecord>)| match what {
            Owned::Partition(id) => Some((id, self.running(owner))),
            Owned::Databases => None,
        };
        self.owners().into_iter().filter_map(partition).collect()
    }

    /// Returns the running node that has the cell's databases open, if they are in the bucket.
    pub(super) fn databases_owner(&self) -> Option<NodeName> {
        let owners = self.owners();
        let (_, owner) = owners.iter().find(|(what, _)| *what == Owned::Databases)?;
        self.running(*owner)
    }

    fn running(&self, owner: Option<&OwnerRecord>) -> Option<NodeName> {
        let is_owner = |seen: &&NodeSeen| is_live(seen) && is_owned_by(seen, owner);
        self.survey.nodes.iter().find(is_owner).map(|seen| seen.record.node.clone())
    }

    /// Returns a node that runs.
    fn live(&self, name: &NodeName) -> Result<&NodeSeen> {
        let found = self.survey.nodes.iter().find(|seen| seen.record.node == *name);
        found.filter(|seen| is_live(seen)).with_context(|| {
            let names: Vec<&str> = self
                .survey
                .nodes
                .iter()
                .filter(|seen| is_live(seen))
                .map(|seen| seen.record.node.as_str())
                .collect();
            if names.is_empty() {
                format!("no node `{name}` runs, nor any other (`cellar cluster status`)")
            } else {
                format!("no node `{name}` runs; those that do are {}", names.join(", "))
            }
        })
    }

    /// Returns the node that owns a partition, or the databases.
    fn owner(&self, what: Owned) -> Result<&NodeSeen> {
        let owners = self.owners();
        if !owners.iter().any(|(other, _)| *other == what) {
            let Owned::Partition(id) = what else {
                bail!("the cell's databases are not in the bucket of the cluster");
            };
            let known = self.settings.partitions.iter().map(|partition| partition.id.letters());
            bail!("the cluster has no partition {id}; it has {}", known.collect::<Vec<_>>().join(", "));
        }
        let found = self.survey.nodes.iter().find(|seen| owned_by(seen, &owners).any(|owned| owned == what));
        found.filter(|seen| is_live(seen)).with_context(|| {
            format!(
                "no running node owns {what} now; a running node takes it by itself (`cellar cluster status`)"
            )
        })
    }

    /// Moves a partition or the databases, and waits until the other node owns it.
    pub(super) fn move_to(&self, client: &CellClient, what: Owned, to: &NodeName) -> Result<Moved> {
        let from = self.owner(what)?;
        let owner = &from.record.node;
        let (server, _) = ask(client, &from.record)
            .map_err(|why| anyhow!("cannot reach {owner}, which owns {what}: {why}"))?;
        self.await_return(client, to)?;
        let connection = client.connection(server, Interface::Cellar);
        let request = GiveUpPartitionRequest { partition: what.index(), to: to.as_str().into() };
        let begun = Instant::now();
        cellar::give_up_partition(&*connection, &request)
            .map_err(|code| refused(code, what, (owner.as_str(), &server.to_string()), to))?;
        let epoch = self.wait(what, to)?;
        let seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        Ok(Moved { partition: what.to_string(), from: owner.to_string(), to: to.to_string(), epoch, seconds })
    }

    /// Waits until a node that has reached no other one takes again what is given up for it. Others would take it instead.
    fn await_return(&self, client: &CellClient, to: &NodeName) -> Result<()> {
        // One that does not answer here may do so to the others.
        let Ok((server, _)) = ask(client, &self.live(to)?.record) else { return Ok(()) };
        let connection = client.connection(server, Interface::Cellar);
        let is_isolated = || {
            let figures = look::<ClusterFigures>(&*connection, server, Source::Table(Table::Cluster));
            figures.is_ok_and(|(rows, _)| rows.iter().any(|(_, row)| row.isolated > 0))
        };
        await_taker(to, (RETURNED_WITHIN, INTERVAL), is_isolated)
    }

    /// Waits until a node owns something; returns the epoch.
    fn wait(&self, id: Owned, to: &NodeName) -> Result<u64> {
        let name = self.place(id).context("the databases are not in the bucket")?;
        let end = Instant::now() + TAKEN_WITHIN;
        loop {
            let read = cluster::read_owners(&*connect(&self.cluster.bucket)?, std::slice::from_ref(&name));
            let owners = read.with_context(|| {
                format!("{id} is given up for {to}, but cannot read {}", described(&self.cluster.bucket))
            })?;
            match owners.into_iter().find_map(|(_, owner)| owner) {
                Some(OwnerRecord { epoch, holder: Holder::Owned { node, .. } }) if node == *to => {
                    return Ok(epoch.0);
                }
                Some(OwnerRecord { holder: Holder::Owned { node, .. }, .. }) => {
                    bail!("{id} was given up for {to}, but {node} has taken it; see the log of {to}");
                }
                _ if Instant::now() >= end => {
                    bail!(
                        "{id} is given up for {to}, which has not taken it within {TAKEN_WITHIN:?}; see its log, and \
                         `cellar cluster status`"
                    );
                }
                _ => thread::sleep(INTERVAL),
            }
        }
    }
}

/// Returns the running nodes that are not isolated. Commands have leases without addresses.
fn takers<'a>(nodes: &'a [NodeSeen], isolated: &'a BTreeSet<NodeName>) -> impl Iterator<Item = &'a NodeSeen> {
    nodes.iter().filter(|seen| {
        is_live(seen) && !seen.record.addresses.is_empty() && !isolated.contains(&seen.record.node)
    })
}

/// Refuses a node that is isolated.
fn check_taker(node: &NodeName, isolated: &BTreeSet<NodeName>) -> Result<()> {
    if isolated.contains(node) {
        bail!(
            "{node} reaches the bucket, but no other node, so it takes nothing: check the network, and the cluster's port in firewalls"
        );
    }
    Ok(())
}

/// Waits for this time, asking at this interval, until a node takes what is given up for it.
fn await_taker(
    node: &NodeName,
    (time, interval): (Duration, Duration),
    mut is_isolated: impl FnMut() -> bool,
) -> Result<()> {
    let begun = Instant::now();
    while is_isolated() {
        if begun.elapsed() >= time {
            bail!(
                "{node} takes nothing now: it reaches no other node, or has done so for less than ten seconds; nothing was moved to it. \
                 Check the network and the log of {node}, and try again"
            );
        }
        thread::sleep(interval);
    }
    Ok(())
}

/// Whether a node runs.
pub(super) fn is_live(seen: &NodeSeen) -> bool {
    seen.record.state == NodeState::Live && seen.changed.is_some()
}

/// Describes why a node does not give something up.
fn refused(code: AbortCode, id: Owned, (owner, server): (&str, &str), to: &NodeName) -> anyhow::Error {
    let why = match code {
        AbortCode::UAENODEV => format!("{owner} does not own it any more; try again"),
        AbortCode::UAENOENT => format!("{owner} sees no running node `{to}`"),
        AbortCode::UAEBUSY => format!("{owner} is opening it or giving it up; try again in a moment"),
        AbortCode::UAETIMEDOUT => {
            format!("the bucket does not answer {owner}; it may give it up later")
        }
        AbortCode::UAEOPNOTSUPP => format!("the server at {server} was started without `[cluster]`"),
        AbortCode::UAEACCES => "only superusers move partitions".into(),
        code => return failed(format!("move {id} from {owner} ({server}) to {to}"))(code),
    };
    anyhow!("cannot move {id} to {to}: {why}")
}

/// Moves one partition, or the databases.
pub(super) fn move_one(context: &Context, options: &Move) -> Result<()> {
    let found = Found::new(context)?;
    let (what, to) = (options.what, &options.node);
    if found.owner(what)?.record.node == *to {
        bail!("{to} owns {what} already");
    }
    found.live(to)?;
    check_taker(to, &found.isolated)?;
    let moved = found.move_to(&context.client()?, what, to)?;
    let sentence = sentence(&moved);
    context.format.done(&moved, sentence)
}

/// Describes a move that was made.
pub(super) fn sentence(moved: &Moved) -> String {
    let Moved { partition, from, to, epoch, seconds } = moved;
    format!("{partition} moved from {from} to {to} in {seconds:.1} s (epoch {epoch})")
}

/// Moves all that a node owns.
pub(super) fn drain(context: &Context, options: &Drain) -> Result<()> {
    let found = Found::new(context)?;
    let name = options.node.as_ref().unwrap_or(&found.cluster.node);
    let node = found.live(name)?;
    let owners = found.owners();
    let count = |seen: &NodeSeen| owned_by(seen, &owners).count();
    let others: Vec<(NodeName, usize)> = found
        .takers()
        .filter(|seen| seen.record.node != *name)
        .map(|seen| (seen.record.node.clone(), count(seen)))
        .collect();
    let owned: Vec<Owned> = owned_by(node, &owners).collect();
    if owned.is_empty() {
        return context.format.done(&[(); 0], format!("{name} owns no partition"));
    }
    if others.is_empty() {
        bail!("no other node runs that can take over what {name} owns");
    }
    let client = context.client()?;
    let mut all = Vec::new();
    for (what, to) in destinations(&owned, others) {
        let moved = found.move_to(&client, what, &to)?;
        if context.format == crate::output::Format::Text {
            crate::output::line(sentence(&moved))?;
        }
        all.push(moved);
    }
    context
        .format
        .done(&all, format!("{name} owns no partition now; stop it when its clients may use the others"))
}

/// Returns the new owner of each: always the node that owns the least.
fn destinations(owned: &[Owned], mut others: Vec<(NodeName, usize)>) -> Vec<(Owned, NodeName)> {
    let next = |what: &Owned| {
        let (name, count) = others.iter_mut().min_by_key(|(_, count)| *count)?;
        *count += 1;
        Some((*what, name.clone()))
    };
    owned.iter().map_while(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_go_to_the_nodes_with_the_fewest() {
        let owned: Vec<Owned> = ["a", "b", "c", "databases"].map(|name| name.parse().unwrap()).into();
        let node = |name: &str, count| (name.parse().unwrap(), count);
        let names = |others| -> Vec<String> {
            destinations(&owned, others).into_iter().map(|(what, to)| format!("{what} {to}")).collect()
        };
        assert_eq!(
            names(vec![node("x", 2), node("y", 0)]),
            ["/vicepa y", "/vicepb y", "/vicepc x", "databases y"]
        );
        assert_eq!(names(vec![node("x", 5)]), ["/vicepa x", "/vicepb x", "/vicepc x", "databases x"]);
        assert!(names(Vec::new()).is_empty());
    }

    #[test]
    fn an_isolated_node_gets_nothing() {
        let seen = |name: &str, is_renewed: bool, port: u16| NodeSeen {
            record: NodeRecord {
                node: name.parse().unwrap(),
                incarnation: cluster::Incarnation { nonce: 1, count: 1 },
                sequence: 1,
                state: NodeState::Live,
                ttl: Duration::from_secs(6),
                replaced: None,
                addresses: (port > 0).then(|| ([192, 0, 2, 1], port).into()).into_iter().collect(),
                takes_addresses: false,
            },
            changed: is_renewed.then_some(Duration::ZERO),
            written: std::time::SystemTime::UNIX_EPOCH,
        };
        let nodes = [("a", true, 7010), ("alone", true, 7010), ("command", true, 0), ("silent", false, 7010)]
            .map(|(name, is_renewed, port)| seen(name, is_renewed, port));
        let alone: NodeName = "alone".parse().unwrap();
        let isolated = [alone.clone()].into();
        let names: Vec<&str> = takers(&nodes, &isolated).map(|seen| seen.record.node.as_str()).collect();
        assert_eq!(names, ["a"]);
        let refusal = check_taker(&alone, &isolated).unwrap_err().to_string();
        assert!(refusal.starts_with("alone reaches the bucket, but no other node"), "{refusal}");
        assert!(check_taker(&nodes[0].record.node, &isolated).is_ok());
    }

    #[test]
    fn a_node_that_comes_back_is_waited_for() {
        let (node, second) = ("fs3".parse().unwrap(), Duration::from_secs(1));
        let mut left = 3;
        let returns = || {
            left -= 1;
            left > 0
        };
        await_taker(&node, (60 * second, Duration::ZERO), returns).unwrap();
        assert_eq!(left, 0);
        let refusal = await_taker(&node, (Duration::ZERO, second), || true).unwrap_err().to_string();
        assert!(
            refusal.contains("fs3 takes nothing now") && refusal.contains("nothing was moved"),
            "{refusal}"
        );
    }

    #[test]
    fn refusals_say_what_to_do() {
        let id = "b".parse().unwrap();
        let to = "fs2".parse().unwrap();
        for (code, words) in [
            (AbortCode::UAENODEV, "fs1 does not own it any more"),
            (AbortCode::UAENOENT, "fs1 sees no running node `fs2`"),
            (AbortCode::UAEBUSY, "try again in a moment"),
            (AbortCode::UAETIMEDOUT, "the bucket does not answer fs1"),
            (AbortCode::UAEOPNOTSUPP, "192.0.2.1 was started without `[cluster]`"),
            (AbortCode::UAEACCES, "only superusers"),
            (AbortCode::RX_CALL_DEAD, "from fs1 (192.0.2.1) to fs2: the server does not answer"),
        ] {
            let error = refused(code, id, ("fs1", "192.0.2.1"), &to).to_string();
            assert!(error.contains(words) && error.contains("/vicepb"), "{error}");
        }
    }
}
