//! `cellar cluster remove`.

use super::Remove;
use super::moving::is_live;
use super::place::{ask, of_node, surveyed};
use super::status::{state_of, when};
use crate::commands::Context;
use afs_idl::cellar::{self, RemoveNodeRequest};
use anyhow::{Context as _, Result, anyhow, bail};
use base::AbortCode;
use cell_client::describe::failed;
use cell_client::{CellClient, Interface};
use cluster::{NodeName, NodeSeen, NodeState};
use serde::Serialize;
use std::net::Ipv4Addr;

/// A node that was removed.
#[derive(Debug, Serialize)]
struct Removed {
    node: String,
    /// `left` or `dead`.
    state: &'static str,
    /// The node that has removed it.
    by: String,
}

/// Removes a node by means of one that runs, which checks the caller and has the audit.
pub(super) fn run(context: &Context, options: &Remove) -> Result<()> {
    let (settings, cluster) = of_node(context)?;
    let nodes = surveyed(&settings, &cluster)?.nodes;
    let node = &options.node;
    let seen = removable(node, &nodes)?;
    let client = context.client()?;
    let (by, server) = running(&client, &nodes)?;
    let connection = client.connection(server, Interface::Cellar);
    cellar::remove_node(&*connection, &RemoveNodeRequest { node: node.as_str().into() })
        .map_err(|code| refused(code, node, (by.as_str(), server)))?;
    let state = state_of(seen);
    let past = match seen.record.state {
        NodeState::Dead => format!("which was dead since {}", when(seen.written)),
        _ => format!("which had left at {}", when(seen.written)),
    };
    let sentence = format!(
        "{by} has removed the lease of {node}, {past}: the cluster does not know {node} any more. A node of this name can \
         join again"
    );
    context.format.done(&Removed { node: node.to_string(), state, by: by.to_string() }, sentence)
}

/// Returns the node, if it is one that does not run.
fn removable<'a>(node: &NodeName, nodes: &'a [NodeSeen]) -> Result<&'a NodeSeen> {
    let found = nodes.iter().find(|seen| seen.record.node == *node);
    let seen = found.with_context(|| {
        let names: Vec<&str> = nodes.iter().map(|seen| seen.record.node.as_str()).collect();
        format!("the cluster has no node `{node}`; it has {}", names.join(", "))
    })?;
    match state_of(seen) {
        "live" => bail!("{node} runs: stop it first"),
        "silent" => bail!(
            "{node} is silent: it may come back. The other nodes find it dead about a minute after its last sign of life, if \
             one of them runs; try again then"
        ),
        _ => Ok(seen),
    }
}

/// Returns a node that runs and answers.
fn running<'a>(client: &CellClient, nodes: &'a [NodeSeen]) -> Result<(&'a NodeName, Ipv4Addr)> {
    let mut why = "none runs".to_owned();
    for seen in nodes.iter().filter(|seen| is_live(seen)) {
        match ask(client, &seen.record) {
            Ok((server, _)) => return Ok((&seen.record.node, server)),
            Err(error) => why = format!("{} does not answer: {error}", seen.record.node),
        }
    }
    bail!("a node is removed by another one that runs, and {why}")
}

/// Describes why a node was not removed.
fn refused(code: AbortCode, node: &NodeName, (by, server): (&str, Ipv4Addr)) -> anyhow::Error {
    let why = match code {
        AbortCode::UAENOENT => format!("{by} finds no lease of it; it is removed already"),
        AbortCode::UAEBUSY => "its lease says that it runs".into(),
        AbortCode::UAENOTEMPTY => {
            "it is the last owner of something that no other node has taken over yet (`cellar cluster status`)".into()
        }
        AbortCode::UAETIMEDOUT => format!("the bucket does not answer {by}; it may be removed nevertheless"),
        AbortCode::UAEOPNOTSUPP => format!("the server at {server} was started without `[cluster]`"),
        AbortCode::UAEACCES => "only superusers remove nodes".into(),
        AbortCode::RXGEN_OPCODE => format!("{by} runs an older program; upgrade it first"),
        code => return failed(format!("remove {node} by {by} ({server})"))(code),
    };
    anyhow!("cannot remove {node}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_to_remove_a_node_say_what_to_do() {
        let node = "fs2".parse().unwrap();
        for (code, words) in [
            (AbortCode::UAENOENT, "fs1 finds no lease of it"),
            (AbortCode::UAEBUSY, "says that it runs"),
            (AbortCode::UAENOTEMPTY, "no other node has taken over yet"),
            (AbortCode::UAETIMEDOUT, "does not answer fs1"),
            (AbortCode::UAEOPNOTSUPP, "192.0.2.1 was started without `[cluster]`"),
            (AbortCode::UAEACCES, "only superusers"),
            (AbortCode::RXGEN_OPCODE, "upgrade it first"),
            (AbortCode::RX_CALL_DEAD, "by fs1 (192.0.2.1): the server does not answer"),
        ] {
            let error = refused(code, &node, ("fs1", Ipv4Addr::new(192, 0, 2, 1))).to_string();
            assert!(error.contains(words) && error.contains("fs2"), "{error}");
        }
    }
}
