//! Determines how a change of one vnode changes the totals of directories.

use super::Totals;
use crate::VnodeStatus;
use base::VnodeId;

/// One effect of a change. It applies to a directory and all its ancestors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An amount (modulo 2^64) is added to a directory.
    Add(VnodeId, Totals),
    /// A directory was created, with its own contribution.
    Made {
        /// The directory.
        directory: VnodeId,
        /// Its parent.
        parent: VnodeId,
        /// Its own contribution.
        own: Totals,
    },
    /// A directory was moved to another parent.
    Moved {
        /// The directory.
        directory: VnodeId,
        /// Its previous parent.
        from: VnodeId,
        /// Its new parent.
        to: VnodeId,
    },
    /// An empty directory was removed.
    Removed {
        /// The directory.
        directory: VnodeId,
        /// Its parent.
        parent: VnodeId,
    },
}

/// Returns the effects of changing a vnode from `before` to `now`.
pub fn steps(before: Option<&VnodeStatus>, now: Option<&VnodeStatus>) -> Vec<Step> {
    let is_directory = before.or(now).is_some_and(VnodeStatus::is_directory);
    if is_directory { directory_steps(before, now) } else { file_steps(before, now) }
}

fn file_steps(before: Option<&VnodeStatus>, now: Option<&VnodeStatus>) -> Vec<Step> {
    let nothing = Totals::default();
    let place = |status: &VnodeStatus| (status.parent, Totals::of(status));
    match (before.map(place), now.map(place)) {
        (Some((from, old)), Some((to, new))) if from == to => vec![Step::Add(to, new.minus(old))],
        (old, new) => {
            let gone = old.map(|(from, old)| Step::Add(from, nothing.minus(old)));
            gone.into_iter().chain(new.map(|(to, new)| Step::Add(to, new))).collect()
        }
    }
}

fn directory_steps(before: Option<&VnodeStatus>, now: Option<&VnodeStatus>) -> Vec<Step> {
    match (before, now) {
        (Some(old), Some(new)) => {
            let directory = new.vnode;
            let grown = Step::Add(directory, Totals::of(new).minus(Totals::of(old)));
            let moved = Step::Moved { directory, from: old.parent, to: new.parent };
            if old.parent == new.parent { vec![grown] } else { vec![grown, moved] }
        }
        (None, Some(new)) => {
            vec![Step::Made { directory: new.vnode, parent: new.parent, own: Totals::of(new) }]
        }
        (Some(old), None) => vec![Step::Removed { directory: old.vnode, parent: old.parent }],
        (None, None) => vec![],
    }
}
