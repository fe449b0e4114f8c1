//! Keeping few volumes in memory: groups that nobody has used lately leave it.
//!
//! A group goes with all its volumes, and only while nobody has any of them in hand: whoever asks for one
//! later loads the group again and must find in the store all that was known. So what is not stored keeps
//! a group here: a state set by an operator or a transaction, a mark to be destroyed. Counts of use are
//! stored first.

use crate::index::GroupKey;
use crate::{Volume, Volumes};
use std::sync::Arc;

/// Groups looked at for each that is loaded: enough to keep the number within its limit.
const LOOKS: usize = 8;

impl Volumes {
    /// Unloads some groups if there are more volumes in memory than there may be. Call it with no lock but
    /// that of changes.
    pub(crate) fn keep_few_loaded(&self) {
        if self.index.read().loaded_count() > self.shared.options.loaded_volumes_max {
            self.unload(LOOKS);
        }
    }

    /// Unloads all that nobody uses at this moment. Answers how many volumes that were.
    pub fn unload_idle(&self) -> usize {
        let looks = 2 * self.index.read().loaded_groups();
        self.unload(looks)
    }

    fn unload(&self, looks: usize) -> usize {
        // Nobody loads a group that is about to go.
        let _loading = self.loading.lock();
        let candidates = self.index.write().idle_groups(looks);
        let rested: Vec<(GroupKey, bool)> =
            candidates.into_iter().map(|(key, volumes)| (key, rest(&volumes))).collect();
        let mut index = self.index.write();
        let mut gone = 0;
        for (key, is_stored) in rested {
            if is_stored {
                gone += index.unload(key);
            } else {
                index.keep(key);
            }
        }
        gone
    }
}

/// Stores what only memory knows of a group; whether that worked.
fn rest(volumes: &[Arc<Volume>]) -> bool {
    volumes.iter().all(|volume| match volume.store_usage() {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(volume = %volume.id(), %error, "cannot store how often a volume was used");
            false
        }
    })
}
