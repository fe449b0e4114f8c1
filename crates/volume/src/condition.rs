//! What is amiss on a partition, as numbers.

use crate::volumes::Volumes;
use crate::{VolumeError, keys};
use base::PartitionId;
use std::ops::ControlFlow;
use store::{Family, KeyRange};

/// What is counted at most, of each.
const COUNTED_MAX: u64 = 10_000;

/// What is amiss on a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Entries of [`Volumes::quarantine`].
    pub damaged: u64,
    /// What deleted volumes and huge deleted files left behind and [`Volumes::purge_step`] is still to
    /// reclaim; at most 10,000 are counted.
    pub reclaiming: u64,
}

impl Volumes {
    /// What is amiss on a partition. Reads the lists anew, which are empty as a rule.
    ///
    /// # Errors
    /// `NoPartition`, `Store`.
    pub fn condition(&self, partition: PartitionId) -> Result<Condition, VolumeError> {
        let damaged = self.quarantine(partition)?.len() as u64;
        Ok(Condition { damaged, reclaiming: self.reclaiming(partition)? })
    }

    /// The I/O error because of which a partition takes no more writes until the next start, if there was one.
    ///
    /// # Errors
    /// `NoPartition`.
    pub fn failure(&self, partition: PartitionId) -> Result<Option<String>, VolumeError> {
        Ok(self.partition(partition)?.handle.meta.failure())
    }

    fn reclaiming(&self, partition: PartitionId) -> Result<u64, VolumeError> {
        let (from, to) = keys::registry_range(keys::Registry::Job);
        let mut count = 0;
        let meta = &self.partition(partition)?.handle.meta;
        meta.scan(Family::Volumes, KeyRange::ascending(&from, &to), &mut |_, _| {
            count += 1;
            if count < COUNTED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(count)
    }
}
