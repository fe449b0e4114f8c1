//! Vnodes whose last change may not be durable yet.
//!
//! Clients cache data by data version. If a client got a version that a crash then undid, the server would give
//! the same version to another change, and the client would take its old data for the new ones. So a reply that
//! shows a change waits until the change is durable, also for other clients than the one that made it.

use base::VnodeId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use store::CommitNumber;

/// Number of vnodes from which on durable ones are removed when another is added.
const VNODES_MAX: usize = 4096;

/// The recently changed vnodes of a partition, by group and number.
#[derive(Debug, Default)]
pub(crate) struct RecentChanges {
    /// The newest commit that was noted, and the newest that is known to be durable.
    noted: AtomicU64,
    durable: AtomicU64,
    vnodes: Mutex<HashMap<(u64, VnodeId), CommitNumber>>,
}

impl RecentChanges {
    /// Records the commit that changed these vnodes of a group, before the change can be read.
    pub(crate) fn note(&self, group: u64, vnodes: impl Iterator<Item = VnodeId>, number: CommitNumber) {
        let mut recent = self.vnodes.lock();
        if recent.len() >= VNODES_MAX {
            self.remove_durable(&mut recent);
        }
        recent.extend(vnodes.map(|vnode| ((group, vnode), number)));
        self.noted.fetch_max(number.0, Ordering::AcqRel);
    }

    /// Records that all commits up to this one are durable.
    pub(crate) fn synced(&self, number: CommitNumber) {
        let before = self.durable.fetch_max(number.0, Ordering::AcqRel);
        if number.0 > before && self.noted.load(Ordering::Acquire) > before {
            self.remove_durable(&mut self.vnodes.lock());
        }
    }

    /// Returns the newest commit that is known to be durable.
    pub(crate) fn durable(&self) -> CommitNumber {
        CommitNumber(self.durable.load(Ordering::Acquire))
    }

    /// Returns the commit of the vnode's last change, if it may not be durable.
    pub(crate) fn unsynced(&self, group: u64, vnode: VnodeId) -> Option<CommitNumber> {
        if self.noted.load(Ordering::Acquire) <= self.durable.load(Ordering::Acquire) {
            return None;
        }
        let number = self.vnodes.lock().get(&(group, vnode)).copied()?;
        (number.0 > self.durable.load(Ordering::Acquire)).then_some(number)
    }

    fn remove_durable(&self, vnodes: &mut HashMap<(u64, VnodeId), CommitNumber>) {
        let durable = self.durable.load(Ordering::Acquire);
        vnodes.retain(|_, number| number.0 > durable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_recent_until_they_are_durable() {
        let recent = RecentChanges::default();
        let [one, two] = [VnodeId(1), VnodeId(2)];
        assert_eq!(recent.unsynced(7, one), None);
        recent.note(7, [one].into_iter(), CommitNumber(3));
        recent.note(7, [one, two].into_iter(), CommitNumber(5));
        let seen = |vnode| recent.unsynced(7, vnode);
        assert_eq!((seen(one), seen(two)), (Some(CommitNumber(5)), Some(CommitNumber(5))));
        assert_eq!(recent.unsynced(8, one), None, "another group");
        recent.synced(CommitNumber(4));
        assert_eq!((seen(one), seen(two)), (Some(CommitNumber(5)), Some(CommitNumber(5))));
        recent.synced(CommitNumber(5));
        assert_eq!((seen(one), seen(two)), (None, None));
        assert_eq!(recent.vnodes.lock().len(), 0);
        recent.synced(CommitNumber(2));
        recent.note(7, [two].into_iter(), CommitNumber(6));
        assert_eq!((seen(one), seen(two)), (None, Some(CommitNumber(6))));
    }
}
