//! Which other nodes a node reaches.

use super::text::{Reader, RecordError, Writer};
use crate::names::{Incarnation, NodeName, join};
use std::collections::BTreeSet;

const KIND: &str = "cellar node reach";

/// Greatest number of nodes that are named.
pub const REACHED_MAX: usize = 32;

/// The object `reach/NODE`, which the node writes when it changes. It counts while the node's lease has the same incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachRecord {
    /// The node, as in the object's name.
    pub node: NodeName,
    /// Its membership.
    pub incarnation: Incarnation,
    /// The nodes that have answered it within the last seconds.
    reached: BTreeSet<NodeName>,
    /// How often clients have sent it something while it did not reach every node, since its start. Only changes of it mean anything.
    pub clients: u64,
}

impl ReachRecord {
    /// Returns a record. Only the first [`REACHED_MAX`] of the nodes that it reaches are kept.
    pub fn new(
        node: NodeName,
        incarnation: Incarnation,
        reached: impl IntoIterator<Item = NodeName>,
        clients: u64,
    ) -> ReachRecord {
        let mut reached: BTreeSet<NodeName> = reached.into_iter().collect();
        while reached.len() > REACHED_MAX {
            reached.pop_last();
        }
        ReachRecord { node, incarnation, reached, clients }
    }

    /// Returns the nodes that it reaches.
    pub fn reached(&self) -> &BTreeSet<NodeName> {
        &self.reached
    }

    /// Returns the name of the object of a node in the cluster's folder.
    pub fn object(folder: &str, node: &NodeName) -> String {
        join(folder, &format!("reach/{node}"))
    }

    /// Returns the object's contents.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND);
        writer.field("node", &self.node);
        writer.field("incarnation", self.incarnation);
        writer.field("reached", self.reached.len());
        for node in &self.reached {
            writer.field("node", node);
        }
        writer.field("clients", self.clients);
        writer.finish()
    }

    /// Parses the object `reach/NODE`.
    ///
    /// # Errors
    /// Any contents other than those that [`encode`](ReachRecord::encode) returns.
    pub fn decode(node: &NodeName, bytes: &[u8]) -> Result<ReachRecord, RecordError> {
        let mut reader = Reader::open(KIND, bytes)?;
        let named = reader.parse("node")?;
        let incarnation = reader.parse("incarnation")?;
        let count: usize = reader.parse("reached")?;
        if count > REACHED_MAX {
            return Err(RecordError::Field("reached"));
        }
        let reached = (0..count).map(|_| reader.parse("node")).collect::<Result<_, _>>()?;
        let clients = reader.parse("clients")?;
        let record = ReachRecord { node: named, incarnation, reached, clients };
        // One form only: what differs elsewhere (order, further lines) was not written by a node.
        let is_own_form = record.node == *node && record.encode() == bytes;
        is_own_form.then_some(record).ok_or(RecordError::Field("node"))
    }
}
