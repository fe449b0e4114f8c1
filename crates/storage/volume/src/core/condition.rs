//! Counts known problems of a partition.

use crate::VolumeError;
use crate::core::volumes::Volumes;
use base::PartitionId;
use std::ops::ControlFlow;
use store::KeyRange;
use volume_records::{families, keys};

/// Maximum that is counted of each kind.
const COUNTED_MAX: u64 = 10_000;

/// Known problems of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Entries of [`Volumes::quarantine`].
    pub damaged: u64,
    /// Purge jobs of deleted volumes and huge deleted files that [`Volumes::purge_step`] has still to
    /// complete; at most 10,000 are counted.
    pub reclaiming: u64,
}

impl Volumes {
    /// Returns the known problems of a partition. Reads the lists on every call; they are usually empty.
    pub fn condition(&self, partition: PartitionId) -> Result<Condition, VolumeError> {
        let damaged = self.quarantine(partition)?.len() as u64;
        Ok(Condition { damaged, reclaiming: self.reclaiming(partition)? })
    }

    /// Returns the I/O error that made a partition read-only until the next start, if any.
    pub fn failure(&self, partition: PartitionId) -> Result<Option<String>, VolumeError> {
        Ok(self.partition(partition)?.handle.meta.failure())
    }

    fn reclaiming(&self, partition: PartitionId) -> Result<u64, VolumeError> {
        let (from, to) = keys::registry_range(keys::Registry::Job);
        let mut count = 0;
        let home = self.partition(partition)?;
        home.handle.meta.scan(families::VOLUMES, KeyRange::ascending(&from, &to), &mut |_, _| {
            count += 1;
            if count < COUNTED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(count)
    }
}
