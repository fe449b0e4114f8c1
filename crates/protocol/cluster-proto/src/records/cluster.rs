//! What all nodes of a cluster share.

use super::text::{Reader, RecordError, Writer};
use crate::names::join;
use base::{CellName, PartitionId};
use std::collections::BTreeMap;
use std::time::Duration;

const KIND: &str = "cellar cluster";

/// Where databases are that all nodes serve.
const IN_BUCKET: &str = "bucket";

/// Largest number of partitions: there are no more letters.
pub const PARTITIONS_MAX: usize = 256;

/// How long a node relies on the partitions in the record, from the moment at which it began to read it. A command that adds or
/// removes some and does not know what a node has read waits longer ([`LIST_OUTDATED`]).
pub const LIST_FRESH: Duration = Duration::from_secs(7);

/// After this time no node relies on a record that it has read before, however fast or slow its clock runs.
pub const LIST_OUTDATED: Duration = Duration::from_secs(9);

/// What nodes do with a partition of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionState {
    /// It is being added: nodes expect volumes there, and none takes it yet.
    Adding,
    /// A node serves it.
    Served,
    /// It is being removed: it is served, and gets no volumes.
    Removing,
}

impl PartitionState {
    /// The states with the names of their fields.
    const ALL: [(PartitionState, &'static str); 3] = [
        (PartitionState::Adding, "adding"),
        (PartitionState::Served, "partition"),
        (PartitionState::Removing, "removing"),
    ];

    fn field(self) -> &'static str {
        let found = PartitionState::ALL.iter().find(|(state, _)| *state == self);
        found.expect("all states are listed").1
    }
}

/// The object `FOLDER/cluster`, which is written when the cluster is set up, when its partitions change, and when the databases are
/// moved into the bucket later. Nodes read it when they start, and follow its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRecord {
    /// The cell of all nodes.
    pub cell: CellName,
    /// The partitions, in order and each once. There is at least one.
    partitions: BTreeMap<PartitionId, PartitionState>,
    has_databases: bool,
}

impl ClusterRecord {
    /// Returns the record of a cluster without databases; `None` without partitions. Their order does not matter.
    pub fn new(cell: CellName, partitions: Vec<PartitionId>) -> Option<ClusterRecord> {
        let partitions: BTreeMap<_, _> =
            partitions.into_iter().map(|id| (id, PartitionState::Served)).collect();
        (!partitions.is_empty()).then_some(ClusterRecord { cell, partitions, has_databases: false })
    }

    /// Says whether the cell's databases are in the bucket.
    #[must_use]
    pub fn with_databases(mut self, has_databases: bool) -> ClusterRecord {
        self.has_databases = has_databases;
        self
    }

    /// Returns the record with these partitions in this state.
    #[must_use]
    pub fn with(mut self, partitions: &[PartitionId], state: PartitionState) -> ClusterRecord {
        self.partitions.extend(partitions.iter().map(|id| (*id, state)));
        self
    }

    /// Returns the record without these partitions; `None` if no other one is served.
    pub fn without(mut self, partitions: &[PartitionId]) -> Option<ClusterRecord> {
        self.partitions.retain(|id, _| !partitions.contains(id));
        self.partitions.values().any(|state| *state == PartitionState::Served).then_some(self)
    }

    /// Returns the partitions, in order.
    pub fn partitions(&self) -> Vec<PartitionId> {
        self.partitions.keys().copied().collect()
    }

    /// Returns the partitions with their states, in order.
    pub fn states(&self) -> impl Iterator<Item = (PartitionId, PartitionState)> + '_ {
        self.partitions.iter().map(|(id, state)| (*id, *state))
    }

    /// Returns the state of a partition; `None` if the cluster does not have it.
    pub fn state(&self, partition: PartitionId) -> Option<PartitionState> {
        self.partitions.get(&partition).copied()
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
        // If none is added or removed, the object is one that programs which cannot do that can read.
        for (partition, state) in &self.partitions {
            writer.field(state.field(), partition.letters());
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
        let partitions: BTreeMap<_, _> =
            (0..count).map(|_| partition(&mut reader)).collect::<Result<_, _>>()?;
        if partitions.is_empty() {
            return Err(RecordError::Field("partitions"));
        }
        let mut record = ClusterRecord { cell, partitions, has_databases: false };
        record.has_databases = reader.field("databases") == Ok(IN_BUCKET);
        // One form only: what differs elsewhere (order, further lines) was not written by a program.
        if record.encode() == bytes { Ok(record) } else { Err(RecordError::Field("partition")) }
    }
}

/// Reads the next field, which is a partition in one of its states.
fn partition(reader: &mut Reader<'_>) -> Result<(PartitionId, PartitionState), RecordError> {
    let bad = RecordError::Field("partition");
    let (name, letters) = reader.any().ok_or(bad.clone())?;
    let state = PartitionState::ALL.iter().find(|(_, field)| *field == name).ok_or(bad.clone())?.0;
    Ok((letters.parse().map_err(|_| bad)?, state))
}
