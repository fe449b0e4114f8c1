//! The partitions of a server.

use crate::VolumeError;
use crate::core::shared::Partition;
use base::PartitionId;
use std::sync::{Arc, OnceLock};

/// The partitions that were opened at the start, and room for those that are opened later. None is ever removed, so
/// that no lock is needed to find one.
pub(crate) struct Homes {
    first: Vec<Arc<Partition>>,
    later: Box<[OnceLock<Arc<Partition>>]>,
}

impl Homes {
    pub(crate) fn new(first: Vec<Arc<Partition>>, later: usize) -> Homes {
        Homes { first, later: (0..later).map(|_| OnceLock::new()).collect() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.first.iter().chain(self.later.iter().filter_map(OnceLock::get))
    }

    pub(crate) fn find(&self, id: PartitionId) -> Option<&Arc<Partition>> {
        self.iter().find(|home| home.handle.id == id)
    }

    /// Adds a partition. Must not be called concurrently.
    pub(crate) fn add(&self, home: Arc<Partition>) -> Result<(), VolumeError> {
        if self.find(home.handle.id).is_some() {
            return Err(VolumeError::Invalid("the partition is open already"));
        }
        let room = self.later.iter().find(|place| place.get().is_none());
        let room = room.ok_or(VolumeError::Invalid("there is no room for another partition"))?;
        _ = room.set(home);
        Ok(())
    }
}
