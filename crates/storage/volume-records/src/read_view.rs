//! Determines which versions of records a volume sees.
//!
//! Without rollbacks a volume sees all versions of its epoch and earlier. A rollback returns the read-write
//! volume to the state of a snapshot, and changes continue from there at the next epoch. The epochs in
//! between become a side branch that the volume and its later clones do not see. Volumes that already read in
//! that branch still see it.

use crate::VnodeStatus;
use base::UnixTime;
use std::sync::Arc;

/// Maximum number of rollbacks in a volume's history; repeated rollbacks to the same snapshot count once.
const ROLLBACKS_MAX: usize = 1000;

/// A rollback: versions born after `after` up to `until` are not seen.
///
/// Older versions are shown with a data version that the volume never had before, and as modified at the time
/// of the rollback, because clients have seen other contents under the data versions in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// Epoch of the snapshot.
    pub after: u64,
    /// Epoch of the read-write volume before the rollback.
    pub until: u64,
    /// Minimum data version shown for versions born before the rollback.
    pub version: u64,
    /// Time of the rollback.
    pub at: UnixTime,
}

/// A read view: an epoch, and the earlier epochs that are hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadView {
    /// The newest epoch that is seen.
    pub epoch: u64,
    /// The rollbacks: ascending, not overlapping, all before `epoch`.
    pub rollbacks: Arc<[Rollback]>,
}

impl ReadView {
    /// Creates a view of everything up to an epoch.
    pub fn up_to(epoch: u64) -> ReadView {
        ReadView { epoch, rollbacks: Arc::new([]) }
    }

    /// Creates a view with these rollbacks; `None` if they are not in order.
    pub fn new(epoch: u64, rollbacks: Vec<Rollback>) -> Option<ReadView> {
        let is_sound = |rollback: &Rollback| {
            rollback.after > 0 && rollback.after < rollback.until && rollback.until < epoch
        };
        let is_sorted = rollbacks.windows(2).all(|pair| pair[0].until < pair[1].after);
        let is_right = rollbacks.len() <= ROLLBACKS_MAX && is_sorted && rollbacks.iter().all(is_sound);
        is_right.then(|| ReadView { epoch, rollbacks: rollbacks.into() })
    }

    /// Returns this view at a later epoch.
    #[must_use]
    pub fn at(&self, epoch: u64) -> ReadView {
        ReadView { epoch, rollbacks: Arc::clone(&self.rollbacks) }
    }

    /// Returns the view of a read-write volume that rolls back to this one when `until` is the group's newest
    /// epoch; `None` after too many rollbacks.
    pub fn back_to_this(&self, until: u64, version: u64, at: UnixTime) -> Option<ReadView> {
        let until = until.max(self.epoch + 1);
        let rollback = Rollback { after: self.epoch, until, version, at };
        ReadView::new(until + 1, self.rollbacks.iter().copied().chain([rollback]).collect())
    }

    /// Returns whether versions born at this epoch are seen.
    pub fn sees(&self, born: u64) -> bool {
        born <= self.epoch && self.hiding(born).is_none()
    }

    /// Returns the rollback that hides versions born at this epoch.
    pub fn hiding(&self, born: u64) -> Option<&Rollback> {
        // The first rollback that does not end before.
        let at = self.rollbacks.partition_point(|rollback| rollback.until < born);
        self.rollbacks.get(at).filter(|rollback| rollback.after < born)
    }

    /// Returns the rollbacks since this birth.
    fn rollbacks_since(&self, born: u64) -> &[Rollback] {
        let at = self.rollbacks.partition_point(|rollback| rollback.until < born);
        &self.rollbacks[at..]
    }

    /// Adjusts a stored status, from a version of this birth, for every rollback since.
    pub fn lift(&self, status: &mut VnodeStatus, born: u64) {
        for rollback in self.rollbacks_since(born) {
            status.data_version = status.data_version.max(rollback.version);
            status.server_modified = status.server_modified.max(rollback.at);
        }
    }

    /// Returns the index of the visible version; versions are given newest first with their birth.
    pub fn newest<T>(&self, versions: &[(u64, T)]) -> Option<usize> {
        versions.iter().position(|&(born, _)| self.sees(born))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileKind;
    use base::{UserId, VnodeId};

    fn rollback(after: u64, until: u64, version: u64) -> Rollback {
        Rollback { after, until, version, at: UnixTime(until as u32) }
    }

    /// Returns the status of a root directory that was created at time 2.
    fn status() -> VnodeStatus {
        VnodeStatus {
            vnode: VnodeId::ROOT,
            unique: 1,
            kind: FileKind::Directory,
            mode: 0o777,
            owner: UserId(0),
            group: 0,
            links: 2,
            length: 2048,
            data_version: 1,
            client_modified: UnixTime(2),
            server_modified: UnixTime(2),
            author: UserId(0),
            parent: VnodeId(0),
            parent_unique: 0,
        }
    }

    #[test]
    fn a_rollback_hides_later_changes() {
        let monday = ReadView::up_to(2);
        let back = monday.back_to_this(5, 10, UnixTime(5)).unwrap();
        let seen = |read_view: &ReadView| (1..12).filter(|&born| read_view.sees(born)).collect::<Vec<_>>();
        assert_eq!((back.epoch, seen(&back)), (6, vec![1, 2, 6]));
        let again = back.at(7).back_to_this(9, 100, UnixTime(9)).unwrap();
        assert_eq!(seen(&again), [1, 2, 6, 7, 10]);
        let far = monday.back_to_this(10, 7, UnixTime(10)).unwrap();
        assert_eq!(seen(&far), [1, 2, 11]);
        let lifted = |born| {
            let mut status = status();
            again.lift(&mut status, born);
            (status.data_version, status.server_modified)
        };
        assert_eq!([lifted(2), lifted(7)], [(100, UnixTime(9)); 2]);
        assert_eq!(lifted(10), (1, UnixTime(2)));
        assert_eq!(again.newest(&[(9, ()), (8, ()), (3, ()), (1, ())]), Some(3));
        assert_eq!(again.newest(&[(9, ())]), None);
    }

    #[test]
    fn only_ordered_rollbacks_make_a_view() {
        assert!(ReadView::new(9, vec![rollback(1, 3, 0), rollback(5, 8, 0)]).is_some());
        for wrong in [
            vec![rollback(0, 3, 0)],
            vec![rollback(3, 3, 0)],
            vec![rollback(5, 9, 0)],
            vec![rollback(5, 8, 0), rollback(1, 3, 0)],
            vec![rollback(1, 5, 0), rollback(5, 8, 0)],
            (0..=ROLLBACKS_MAX as u64).map(|at| rollback(3 * at + 1, 3 * at + 2, 0)).collect(),
        ] {
            assert_eq!(
                ReadView::new(9.max(3 * wrong.len() as u64), wrong.clone()).filter(|_| wrong.len() < 3),
                None
            );
        }
    }
}
