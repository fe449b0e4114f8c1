//! How much may wait and how much may be served.

use crate::Kind;

/// Weight of a user about whom nothing is said.
pub const WEIGHT_ORDINARY: u32 = 100;

/// Largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// Largest cost of one call, so that nobody is charged for what it only announced.
pub const COST_MAX: u32 = 4096;

/// Small calls have this many parts of the work to each part of bulk calls while both wait.
pub const SMALL_SHARE: u32 = 8;

/// Of the strangers that are served at a time each kind keeps one in so many for itself.
const STRANGERS_KEPT: usize = 4;

/// Limits of a [`Queue`](crate::Queue). Numbers out of range are brought into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls of each kind that may wait; and as many of strangers of each kind.
    pub waiting_max: usize,
    /// Calls of one user that may wait.
    pub waiting_of_user_max: usize,
    /// Calls served at a time, without those that wait for their clients.
    pub workers: usize,
    /// Of these, how many only serve small calls.
    pub workers_for_small: usize,
    /// How many workers each kind has for itself, by [`Kind::index`]. Each keeps the same part of `served_max`.
    pub workers_kept: [usize; Kind::COUNT],
    /// Calls served at a time together with those that wait for their clients.
    pub served_max: usize,
    /// Calls of strangers served at a time, beside all others.
    pub strangers_max: usize,
    /// Calls of one user served at a time while others wait.
    pub user_share: usize,
    /// Calls for one volume served at a time while others wait.
    pub volume_share: usize,
}

impl Limits {
    /// The same with everything in range: at least one worker for each class, and one call each.
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

    /// Bulk calls served at a time.
    pub(crate) fn bulk_max(&self) -> usize {
        self.workers - self.workers_for_small
    }

    /// Workers that a kind has for itself.
    pub(crate) fn kept(&self, kind: Kind) -> usize {
        self.workers_kept[kind.index()]
    }

    /// Of these, how many serve bulk calls.
    pub(crate) fn kept_for_bulk(&self, kind: Kind) -> usize {
        self.kept(kind) * self.bulk_max() / self.workers
    }

    /// Strangers of one kind served at a time.
    pub(crate) fn strangers_max_of_kind(&self) -> usize {
        let kept = (self.strangers_max / STRANGERS_KEPT).max(1);
        self.strangers_max.saturating_sub(kept).max(1)
    }

    /// What one user may hold though nobody else waits: those who come later must find something.
    pub(crate) fn user_max(&self) -> usize {
        self.workers.max(self.served_max / 4)
    }

    /// Calls that may wait for their clients while others are served in their place.
    pub(crate) fn stalled_max(&self) -> usize {
        self.served_max - self.workers
    }

    /// How many of these may be of one kind.
    pub(crate) fn stalled_max_of(&self, kind: Kind) -> usize {
        let stalled_max = self.stalled_max();
        stalled_max - stalled_max * self.kept(kind.other()) / self.workers
    }
}
