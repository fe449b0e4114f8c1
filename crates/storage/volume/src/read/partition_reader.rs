//! Read access to the stores of a partition while its volumes are in use.

use crate::core::shared::Partition;
use crate::{VolumeError, Volumes};
use base::PartitionId;
use bytes::Bytes;
use std::sync::Arc;
use store::{Batch, CommitNumber, Family, KeyRange, MetaStore, SegmentAudit, Snapshot, StoreError, Visit};

/// The metadata of a partition, and its segments, for reading only: a commit fails. For a check of the
/// partition. While volumes change, only a [`MetaStore::snapshot`] is a consistent state.
pub struct PartitionReader(Arc<Partition>);

impl Volumes {
    /// Returns read access to the stores of a partition.
    ///
    /// # Errors
    /// `NoPartition`.
    pub fn partition_reader(&self, partition: PartitionId) -> Result<PartitionReader, VolumeError> {
        Ok(PartitionReader(self.partition(partition)?))
    }
}

impl PartitionReader {
    /// Returns the segments as they are on disk now, with their accounts as of `state`, a snapshot taken
    /// earlier; `None` if there are no files.
    ///
    /// # Errors
    /// Errors of the disk or the metadata.
    pub fn audit(&self, state: &dyn MetaStore) -> Result<Option<SegmentAudit>, StoreError> {
        self.0.handle.chunks.audit(state)
    }
}

impl MetaStore for PartitionReader {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.0.handle.meta.get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.0.handle.meta.get_many(family, keys)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.0.handle.meta.scan(family, range, visit)
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.0.handle.meta.snapshot()
    }

    fn commit(&self, _batch: Batch) -> Result<CommitNumber, StoreError> {
        Err(StoreError::Meta("a partition is changed by its volumes only".to_owned()))
    }

    fn sync(&self, _number: CommitNumber) -> Result<(), StoreError> {
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        self.0.handle.meta.failure()
    }
}
