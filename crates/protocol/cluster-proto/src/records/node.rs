//! The lease of a node.

use super::text::{Reader, RecordError, Writer};
use crate::names::{Incarnation, NodeName};
use crate::timing::{TTL_MAX, TTL_MIN};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// Greatest number of addresses of a node.
pub const ADDRESSES_MAX: usize = 16;

const KIND: &str = "cellar node lease";

/// Whether a membership goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// The node renews the lease.
    Live,
    /// The node has given up everything and left.
    Left,
    /// Another node has waited for the end of the lease and evicted the node. The membership never begins again.
    Dead,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeState::Live => "live",
            NodeState::Left => "left",
            NodeState::Dead => "dead",
        })
    }
}

impl FromStr for NodeState {
    type Err = ();

    fn from_str(text: &str) -> Result<NodeState, ()> {
        match text {
            "live" => Ok(NodeState::Live),
            "left" => Ok(NodeState::Left),
            "dead" => Ok(NodeState::Dead),
            _ => Err(()),
        }
    }
}

/// The object `nodes/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// The node, as in the object's name.
    pub node: NodeName,
    /// The membership.
    pub incarnation: Incarnation,
    /// Number of the write, unique within the membership.
    pub sequence: u64,
    /// Whether it goes on.
    pub state: NodeState,
    /// For how long others wait after they saw the object change. Whole milliseconds.
    pub ttl: Duration,
    /// The membership before, whose end this node has waited for or seen.
    pub replaced: Option<Incarnation>,
    /// Where the node receives calls of other nodes; at most [`ADDRESSES_MAX`].
    pub addresses: Vec<SocketAddr>,
    /// Whether the node can take service addresses.
    pub takes_addresses: bool,
}

impl NodeRecord {
    /// Returns the object's contents.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND);
        writer.field("node", &self.node);
        writer.field("incarnation", self.incarnation);
        writer.field("sequence", self.sequence);
        writer.field("state", self.state);
        writer.field("ttl_ms", self.ttl.as_millis());
        writer.optional("replaced", self.replaced);
        writer.field("addresses", self.addresses.len());
        for address in &self.addresses {
            writer.field("address", address);
        }
        writer.field("takes_addresses", if self.takes_addresses { "yes" } else { "no" });
        writer.finish()
    }

    /// Parses the object `nodes/NODE`.
    ///
    /// # Errors
    /// Any contents other than those that [`encode`](NodeRecord::encode) returns.
    pub fn decode(node: &NodeName, bytes: &[u8]) -> Result<NodeRecord, RecordError> {
        let mut reader = Reader::open(KIND, bytes)?;
        let record = NodeRecord {
            node: reader.parse("node")?,
            incarnation: reader.parse("incarnation")?,
            sequence: reader.parse("sequence")?,
            state: reader.parse("state")?,
            ttl: Duration::from_millis(reader.parse("ttl_ms")?),
            replaced: reader.optional("replaced")?,
            addresses: addresses(&mut reader)?,
            takes_addresses: match reader.field("takes_addresses")? {
                "yes" => true,
                "no" => false,
                _ => return Err(RecordError::Field("takes_addresses")),
            },
        };
        if record.node != *node {
            return Err(RecordError::Field("node"));
        }
        if record.ttl < TTL_MIN || record.ttl > TTL_MAX {
            return Err(RecordError::Field("ttl_ms"));
        }
        // One form only: what differs elsewhere (leading zeros, further lines) was not written by a node.
        if record.encode() == bytes { Ok(record) } else { Err(RecordError::Field("node")) }
    }
}

fn addresses(reader: &mut Reader<'_>) -> Result<Vec<SocketAddr>, RecordError> {
    let count: usize = reader.parse("addresses")?;
    if count > ADDRESSES_MAX {
        return Err(RecordError::Field("addresses"));
    }
    (0..count).map(|_| reader.parse("address")).collect()
}
