//! The partitions of a server.

use crate::VolumeError;
use crate::core::shared::Partition;
use base::PartitionId;
use parking_lot::RwLock;
use std::sync::Arc;

/// The open partitions. Calls find theirs through their volumes, without the lock.
pub(crate) struct Homes(
    /// Guards the list; held for no longer than a copy of it takes.
    RwLock<Vec<Arc<Partition>>>,
);

impl Homes {
    pub(crate) fn new(homes: Vec<Arc<Partition>>) -> Homes {
        Homes(RwLock::new(homes))
    }

    /// Returns all partitions.
    pub(crate) fn all(&self) -> Vec<Arc<Partition>> {
        self.0.read().clone()
    }

    pub(crate) fn find(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.0.read().iter().find(|home| home.handle.id == id).cloned()
    }

    pub(crate) fn add(&self, home: Arc<Partition>) -> Result<(), VolumeError> {
        let mut homes = self.0.write();
        if homes.iter().any(|known| known.handle.id == home.handle.id) {
            return Err(VolumeError::Invalid("the partition is open already"));
        }
        homes.push(home);
        Ok(())
    }

    /// Puts another state of the same partition into its place.
    pub(crate) fn replace(&self, old: &Arc<Partition>, new: Arc<Partition>) {
        let mut homes = self.0.write();
        if let Some(home) = homes.iter_mut().find(|home| Arc::ptr_eq(home, old)) {
            *home = new;
        }
    }

    pub(crate) fn remove(&self, id: PartitionId) {
        self.0.write().retain(|home| home.handle.id != id);
    }
}
