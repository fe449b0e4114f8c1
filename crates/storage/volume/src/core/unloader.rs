//! Limits the volumes in memory by unloading groups that have not been used lately.
//!
//! A group is unloaded with all its volumes, and only while none of them is referenced: a later lookup loads
//! the group again and must find its whole state in the store. So unstored state keeps a group in memory: a
//! state set by an operator or a transaction, or a mark for destruction. Use counts are stored before
//! unloading.

use crate::core::index::GroupKey;
use crate::{Volume, Volumes};
use std::sync::Arc;

/// Groups examined for each one loaded: enough to keep the number within its limit.
const LOOKS: usize = 8;

impl Volumes {
    /// Unloads some groups if more volumes are in memory than allowed. Call this with no lock other than that
    /// of changes.
    pub(crate) fn keep_few_loaded(&self) {
        if self.index.read().loaded_count() > self.shared.options.loaded_volumes_max {
            self.unload(LOOKS);
        }
    }

    /// Unloads all volumes that are not in use; returns their number.
    pub fn unload_idle(&self) -> usize {
        let looks = 2 * self.index.read().loaded_groups();
        self.unload(looks)
    }

    fn unload(&self, looks: usize) -> usize {
        let candidates = self.index.write().idle_groups(looks);
        candidates.into_iter().map(|(key, volumes)| self.unload_group(key, volumes)).sum()
    }

    /// Unloads a group whose state can be stored; returns the number of its volumes that were unloaded.
    fn unload_group(&self, key: GroupKey, volumes: Vec<Arc<Volume>>) -> usize {
        // Prevents the group from being loaded while it is being unloaded. A partition in a bucket that is away may
        // hold up a loader for long: then the group stays.
        let home = self.partitions.find(key.0);
        let loading = home.as_ref().and_then(|home| home.loading.try_lock());
        let is_stored = loading.is_some() && rest(&volumes);
        drop(volumes);
        let mut index = self.index.write();
        if is_stored {
            return index.unload(key);
        }
        index.keep(key);
        0
    }
}

/// Stores the state of a group that is only in memory; returns whether that succeeded.
fn rest(volumes: &[Arc<Volume>]) -> bool {
    volumes.iter().all(|volume| match volume.store_usage() {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(volume = %volume.id(), %error, "cannot store how often a volume was used");
            false
        }
    })
}
