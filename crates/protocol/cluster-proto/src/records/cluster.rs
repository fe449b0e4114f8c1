//! What all nodes of a cluster share.

use super::text::{Reader, RecordError, Writer};
use crate::names::join;
use base::{CellName, PartitionId};

const KIND: &str = "cellar cluster";

/// Where databases are that all nodes serve.
const IN_BUCKET: &str = "bucket";

/// Largest number of partitions: there are no more letters.
const PARTITIONS_MAX: usize = 256;

/// The object `FOLDER/cluster`, which is written when the cluster is set up, and once more if the databases are moved into
/// the bucket later. Nodes do not read it: it is for those that join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRecord {
    /// The cell of all nodes.
    pub cell: CellName,
    /// The partitions, in order and each once. There is at least one.
    partitions: Vec<PartitionId>,
    has_databases: bool,
}

impl ClusterRecord {
    /// Returns the record of a cluster without databases; `None` without partitions. Their order does not matter.
    pub fn new(cell: CellName, mut partitions: Vec<PartitionId>) -> Option<ClusterRecord> {
        partitions.sort_unstable();
        partitions.dedup();
        (!partitions.is_empty()).then_some(ClusterRecord { cell, partitions, has_databases: false })
    }

    /// Says whether the cell's databases are in the bucket.
    #[must_use]
    pub fn with_databases(mut self, has_databases: bool) -> ClusterRecord {
        self.has_databases = has_databases;
        self
    }

    /// Returns the partitions, in order.
    pub fn partitions(&self) -> &[PartitionId] {
        &self.partitions
    }

    /// Whether the cell's databases are in the bucket, and all nodes serve them.
    pub fn has_databases(&self) -> bool {
        self.has_databases
    }

    /// Returns the name of the object of a cluster in a folder.
    pub fn object(folder: &str) -> String {
        join(folder, "cluster")
    }

    /// Returns the object's contents.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND);
        writer.field("cell", &self.cell);
        writer.field("partitions", self.partitions.len());
        for partition in &self.partitions {
            writer.field("partition", partition.letters());
        }
        // Without it, the object is one that programs without such databases can read.
        if self.has_databases {
            writer.field("databases", IN_BUCKET);
        }
        writer.finish()
    }

    /// Parses the object.
    ///
    /// # Errors
    /// Any contents other than those that [`encode`](ClusterRecord::encode) returns.
    pub fn decode(bytes: &[u8]) -> Result<ClusterRecord, RecordError> {
        let mut reader = Reader::open(KIND, bytes)?;
        let cell = reader.parse("cell")?;
        let count: usize = reader.parse("partitions")?;
        if count > PARTITIONS_MAX {
            return Err(RecordError::Field("partitions"));
        }
        let partitions = (0..count).map(|_| reader.parse("partition")).collect::<Result<_, _>>()?;
        let mut record = ClusterRecord::new(cell, partitions).ok_or(RecordError::Field("partitions"))?;
        record.has_databases = reader.field("databases") == Ok(IN_BUCKET);
        // One form only: what differs elsewhere (order, further lines) was not written by a program.
        if record.encode() == bytes { Ok(record) } else { Err(RecordError::Field("partition")) }
    }
}
