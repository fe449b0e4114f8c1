//! The owner of a partition.

use super::text::{Reader, RecordError, Writer};
use crate::names::{Epoch, Incarnation, NodeName};

const KIND: &str = "cellar partition owner";

/// Who may open a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This membership, as long as its lease is valid.
    Owned {
        /// The node.
        node: NodeName,
        /// Its membership.
        incarnation: Incarnation,
    },
    /// No node: the last one has given it up.
    Free {
        /// The node that is to have it next. Others wait a TTL before they take it.
        successor: Option<NodeName>,
    },
}

/// The object `PARTITION/owner`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// Number of the ownership, that of the last owner if it is free.
    pub epoch: Epoch,
    /// The owner.
    pub holder: Holder,
}

impl OwnerRecord {
    /// Returns the object's contents.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND);
        writer.field("epoch", self.epoch);
        match &self.holder {
            Holder::Owned { node, incarnation } => {
                writer.field("state", "owned");
                writer.field("node", node);
                writer.field("incarnation", incarnation);
            }
            Holder::Free { successor } => {
                writer.field("state", "free");
                writer.optional("successor", successor.as_ref());
            }
        }
        writer.finish()
    }

    /// Parses the object.
    ///
    /// # Errors
    /// Any contents other than those that [`encode`](OwnerRecord::encode) returns.
    pub fn decode(bytes: &[u8]) -> Result<OwnerRecord, RecordError> {
        let mut reader = Reader::open(KIND, bytes)?;
        let epoch = Epoch(reader.parse("epoch")?);
        let holder = match reader.field("state")? {
            "owned" => {
                Holder::Owned { node: reader.parse("node")?, incarnation: reader.parse("incarnation")? }
            }
            "free" => Holder::Free { successor: reader.optional("successor")? },
            _ => return Err(RecordError::Field("state")),
        };
        let record = OwnerRecord { epoch, holder };
        // One form only: what differs elsewhere (leading zeros, further lines) was not written by a node.
        if record.encode() == bytes { Ok(record) } else { Err(RecordError::Field("epoch")) }
    }
}
