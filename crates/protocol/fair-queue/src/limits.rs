//! Limits on waiting and served calls.

use crate::Kind;

/// Weight of a user unless configured otherwise.
pub const WEIGHT_ORDINARY: u32 = 100;

/// Maximum weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// Maximum cost of one call, to bound the charge for an announced amount of data that may never be moved.
pub const COST_MAX: u32 = 4096;

/// Units of work of small calls per unit of bulk calls while both wait.
pub const SMALL_SHARE: u32 = 8;

/// The reciprocal of the fraction of `strangers_max` that is guaranteed to each kind.
const STRANGERS_KEPT: usize = 4;

/// Limits of a [`Queue`](crate::Queue). Values out of range are clamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of waiting calls of each kind, and also of each kind's unidentified clients.
    pub waiting_max: usize,
    /// Maximum number of waiting calls of one user.
    pub waiting_of_user_max: usize,
    /// Maximum number of calls served at a time, not counting stalled ones.
    pub workers: usize,
    /// Number of workers that only serve small calls.
    pub workers_for_small: usize,
    /// Number of workers guaranteed to each kind, indexed by [`Kind::index`]. Each also has the same fraction
    /// of `served_max`.
    pub workers_kept: [usize; Kind::COUNT],
    /// Maximum number of calls served at a time, including stalled ones.
    pub served_max: usize,
    /// Maximum number of calls of unidentified clients served at a time, in addition to all others.
    pub strangers_max: usize,
    /// Maximum number of calls of one user served at a time while others wait.
    pub user_share: usize,
    /// Maximum number of calls for one volume served at a time while others wait.
    pub volume_share: usize,
}

impl Limits {
    /// Clamps the limits: at least one worker for each class, and one call each.
    pub(crate) fn in_range(self) -> Limits {
        let workers = self.workers.max(1);
        let workers_for_small = self.workers_for_small.min(workers - 1);
        Limits {
            waiting_max: self.waiting_max.max(1),
            waiting_of_user_max: self.waiting_of_user_max.max(1),
            workers,
            workers_for_small,
            workers_kept: self.workers_kept.map(|kept| kept.min(workers - workers_for_small - 1)),
            served_max: self.served_max.max(workers),
            strangers_max: self.strangers_max.max(1),
            user_share: self.user_share.max(1),
            volume_share: self.volume_share.max(1),
        }
    }

    /// Returns the maximum number of bulk calls served at a time.
    pub(crate) fn bulk_max(&self) -> usize {
        self.workers - self.workers_for_small
    }

    /// Returns the number of workers guaranteed to a kind.
    pub(crate) fn kept(&self, kind: Kind) -> usize {
        self.workers_kept[kind.index()]
    }

    /// Returns how many of a kind's guaranteed workers serve bulk calls.
    pub(crate) fn kept_for_bulk(&self, kind: Kind) -> usize {
        self.kept(kind) * self.bulk_max() / self.workers
    }

    /// Returns the maximum number of calls of one kind's unidentified clients served at a time.
    pub(crate) fn strangers_max_of_kind(&self) -> usize {
        let kept = (self.strangers_max / STRANGERS_KEPT).max(1);
        self.strangers_max.saturating_sub(kept).max(1)
    }

    /// Returns the maximum number of served calls of one user even if no other user waits, which leaves some
    /// for users that come later.
    pub(crate) fn user_max(&self) -> usize {
        self.workers.max(self.served_max / 4)
    }

    /// Returns the maximum number of stalled calls in whose place others are served.
    pub(crate) fn stalled_max(&self) -> usize {
        self.served_max - self.workers
    }

    /// Returns how many of the stalled calls may be of one kind.
    pub(crate) fn stalled_max_of(&self, kind: Kind) -> usize {
        let stalled_max = self.stalled_max();
        stalled_max - stalled_max * self.kept(kind.other()) / self.workers
    }
}
