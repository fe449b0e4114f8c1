//! `cellar cluster balance`.

use super::Balance;
use super::moving::{Found, Moved, sentence};
use crate::commands::Context;
use crate::output::{Format, line};
use anyhow::{Context as _, Result, bail};
use base::PartitionId;
use cluster::{NodeName, Transfer, balance};
use cluster_proto::Owned;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A partition that is to move.
#[derive(Debug, Serialize)]
struct Planned {
    partition: String,
    from: String,
    to: String,
}

/// Who has what among the nodes that run.
struct Shares {
    owners: BTreeMap<PartitionId, Option<NodeName>>,
    /// The node that has the cell's databases open.
    databases: Option<NodeName>,
    nodes: BTreeSet<NodeName>,
    /// Nodes that run and take nothing, because they reach no other node.
    isolated: BTreeSet<NodeName>,
}

impl Shares {
    fn of(found: &Found) -> Shares {
        Shares {
            owners: found.running_owners(),
            databases: found.databases_owner(),
            nodes: found.takers().map(|seen| seen.record.node.clone()).collect(),
            isolated: found.isolated.clone(),
        }
    }

    /// Refuses a cluster whose nodes have all ended.
    fn check(&self) -> Result<()> {
        if self.nodes.is_empty() {
            bail!("no node runs that takes partitions (`cellar cluster status`)");
        }
        Ok(())
    }

    fn moves(&self) -> Vec<Transfer<PartitionId>> {
        let fixed = self.databases.iter().map(|node| (node.clone(), 1)).collect();
        balance(&self.owners, &fixed, &self.nodes)
    }

    /// Describes how many partitions each node has after these moves, and which partitions do not move.
    fn described(&self, moves: &[Transfer<PartitionId>]) -> String {
        let mut after = self.owners.clone();
        after.extend(moves.iter().map(|one| (one.what, Some(one.to.clone()))));
        let count = |node: &NodeName| {
            let partitions = after.values().flatten().filter(|owner| *owner == node).count();
            let databases = if self.databases.as_ref() == Some(node) { " and the databases" } else { "" };
            format!("{node} {partitions}{databases}")
        };
        let counts: Vec<String> = self.nodes.iter().map(count).collect();
        let left_out: Vec<String> = after
            .iter()
            .filter(|(_, owner)| owner.as_ref().is_none_or(|node| !self.runs(node)))
            .map(|(id, _)| id.to_string())
            .collect();
        let rest = match left_out.as_slice() {
            [] => String::new(),
            all => format!("; no running node owns {}", all.join(", ")),
        };
        let alone = self.isolated.iter().map(|node| self.alone(node)).collect::<Vec<_>>().concat();
        format!("partitions of the running nodes: {}{rest}{alone}", counts.join(", "))
    }

    /// Whether a node runs, also if it takes nothing.
    fn runs(&self, node: &NodeName) -> bool {
        self.nodes.contains(node) || self.isolated.contains(node)
    }

    /// Describes a node that takes nothing.
    fn alone(&self, node: &NodeName) -> String {
        let owned = self.owners.iter().filter(|(_, owner)| owner.as_ref() == Some(node));
        let databases = (self.databases.as_ref() == Some(node)).then(|| "the databases".to_owned());
        let owned: Vec<String> = owned.map(|(id, _)| id.to_string()).chain(databases).collect();
        if owned.is_empty() {
            return format!("; {node} reaches no other node and gets none");
        }
        format!("; {node} reaches no other node, gets none, and still owns {}", owned.join(", "))
    }
}

/// Moves partitions until all running nodes have equally many.
pub(super) fn run(context: &Context, options: &Balance) -> Result<()> {
    let found = Found::new(context)?;
    let shares = Shares::of(&found);
    shares.check()?;
    let moves = shares.moves();
    let described = shares.described(&moves);
    if moves.is_empty() {
        return context.format.done(&[(); 0], format!("nothing to move; {described}"));
    }
    if options.dry_run {
        return plan(context, &moves, &described);
    }
    let client = context.client()?;
    let mut all: Vec<Moved> = Vec::new();
    for Transfer { what, to, .. } in &moves {
        let moved = found.move_to(&client, Owned::Partition(*what), to).with_context(|| {
            format!("{} of {} partitions were moved; run the command again", all.len(), moves.len())
        })?;
        if context.format == Format::Text {
            line(sentence(&moved))?;
        }
        all.push(moved);
    }
    context.format.done(&all, described)
}

fn plan(context: &Context, moves: &[Transfer<PartitionId>], described: &str) -> Result<()> {
    let planned = |one: &Transfer<PartitionId>| Planned {
        partition: one.what.to_string(),
        from: one.from.to_string(),
        to: one.to.to_string(),
    };
    if context.format == Format::Text {
        for Transfer { what, from, to } in moves {
            line(format!("{what} would move from {from} to {to}"))?;
        }
    }
    let all: Vec<Planned> = moves.iter().map(planned).collect();
    context.format.done(&all, described)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(owners: &[(&str, &str)], databases: &str, nodes: &str) -> Shares {
        let node = |name: &str| (name != "-").then(|| name.parse().unwrap());
        Shares {
            owners: owners.iter().map(|(id, owner)| (id.parse().unwrap(), node(owner))).collect(),
            databases: node(databases),
            nodes: nodes.split_whitespace().map(|name| name.parse().unwrap()).collect(),
            isolated: BTreeSet::new(),
        }
    }

    #[test]
    fn nothing_is_balanced_while_no_node_runs() {
        let refusal = shares(&[("a", "-")], "-", "").check().unwrap_err().to_string();
        assert!(refusal.starts_with("no node runs"), "{refusal}");
        assert!(shares(&[("a", "fs1")], "-", "fs1").check().is_ok());
    }

    #[test]
    fn an_isolated_node_is_named() {
        let isolated = ["fs3".parse().unwrap()].into();
        let shares = Shares { isolated, ..shares(&[("a", "fs1"), ("b", "fs1")], "-", "fs1 fs2") };
        let described = shares.described(&shares.moves());
        assert_eq!(
            described,
            "partitions of the running nodes: fs1 1, fs2 1; fs3 reaches no other node and gets none"
        );
    }

    #[test]
    fn partitions_of_an_isolated_node_are_named() {
        let isolated: BTreeSet<NodeName> = ["fs3".parse().unwrap()].into();
        let owners = [("a", "fs1"), ("b", "fs1"), ("c", "fs3"), ("d", "-"), ("e", "fs3")];
        for (databases, also) in [("fs1", ""), ("fs3", ", the databases")] {
            let shares = Shares { isolated: isolated.clone(), ..shares(&owners, databases, "fs1 fs2") };
            let moves = shares.moves();
            assert!(moves.iter().all(|one| one.from.as_str() == "fs1"), "{moves:?}");
            let described = shares.described(&moves);
            let rest = described.split_once("; ").unwrap().1;
            let alone =
                format!("fs3 reaches no other node, gets none, and still owns /vicepc, /vicepe{also}");
            assert_eq!(rest, format!("no running node owns /vicepd; {alone}"));
        }
    }

    #[test]
    fn the_databases_count_and_stay() {
        let shares = shares(&[("a", "fs1"), ("b", "fs1"), ("c", "fs3"), ("d", "-")], "fs1", "fs1 fs2");
        let moves = shares.moves();
        let shown: Vec<String> =
            moves.iter().map(|one| format!("{} {} {}", one.what, one.from, one.to)).collect();
        assert_eq!(shown, ["/vicepb fs1 fs2"]);
        assert_eq!(
            shares.described(&moves),
            "partitions of the running nodes: fs1 1 and the databases, fs2 1; no running node owns /vicepc, /vicepd"
        );
    }
}
