//! Decides which waiting call a limited number of workers serves next.
//!
//! There are three nested decisions, each of which costs O(log n):
//!
//! * **Class.** Small calls (a status, a name, a few KiB) do not queue behind bulk ones: each class
//!   has its own queue, and small calls go first until they have had [`SMALL_SHARE`] of the work.
//! * **User.** Within a class users share by weight. This is start-time fair queueing (Goyal, Vin and
//!   Cheng 1996): each user has a tag, the time in units of work at which it has used up its share so
//!   far, and the smallest tag is next. A user that was idle starts at the current time: unused work
//!   is not saved up, and other users' work in the meantime is not owed to them.
//! * **Volume.** A user's calls for several volumes take turns; calls for one volume keep their order.
//!
//! The [`Kind`] of the caller precedes all of these. Each kind has its own part of the [`Queue`]: waiting
//! calls, sub-queues, volumes and guaranteed workers. Verified callers go first, so that a flood of calls
//! that cost nothing to make neither delays their calls nor causes them to be refused; anonymous callers keep
//! their guaranteed part. When too many calls of a kind wait, the newest call of the user with the most is evicted
//! in favour of users with fewer.
//!
//! In addition, there are limits on the calls being served. While others wait, one user and one volume hold
//! at most a share of the workers, and a few workers are reserved for small calls. Apart from these, no
//! worker idles while a call waits: if all waiting users have reached their share, one of them is served.
//!
//! This crate uses neither clock nor threads. [`Queue`] documents the order of calls.

mod crowd;
mod flow;
mod holders;
mod kind;
mod limits;
mod line;
mod numbers;
mod queue;

pub use kind::Kind;
pub use limits::{COST_MAX, Limits, SMALL_SHARE, WEIGHT_MAX, WEIGHT_ORDINARY};
pub use queue::{Next, Queue, Refusal, Ticket};

/// How a call is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Moves little data, and may have an interactive user waiting for it.
    Small,
    /// Moves much data, and may take as long as its client likes.
    Bulk,
    /// Its client must first be identified or notified by the server, and may not answer. Served by
    /// additional threads, which are not counted as workers. These are called unidentified clients below.
    Stranger,
}

/// Number of bytes that cost one unit of work to move, the cost of a small call.
pub const UNIT_BYTES: u64 = 64 * 1024;

/// The work that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Class of the call.
    pub class: Class,
    /// The volume it accesses; 0 if none.
    pub volume: u32,
    /// Expected cost in units of work, 1 to [`COST_MAX`].
    pub cost: u32,
}

impl Demand {
    /// A small call that accesses no volume.
    pub const SMALL: Demand = Demand { class: Class::Small, volume: 0, cost: 1 };

    /// Returns the work of this call for a user of a kind.
    pub fn of(self, user: u64, weight: u32, kind: Kind) -> Work {
        Work { user, kind, weight, volume: self.volume, class: self.class, cost: self.cost }
    }
}

/// Returns the cost of a call that moves this number of bytes, in units of work.
pub fn cost_of(bytes: u64) -> u32 {
    (1 + bytes / UNIT_BYTES).min(u64::from(COST_MAX)) as u32
}

/// Description of a call for scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The user: a number that callers cannot choose, such as a keyed hash.
    pub user: u64,
    /// The user's kind, the same for all calls of a user.
    pub kind: Kind,
    /// The user's share relative to others, 1 to [`WEIGHT_MAX`]; usually [`WEIGHT_ORDINARY`].
    pub weight: u32,
    /// The volume it accesses; 0 if none, in which case no volume limit applies.
    pub volume: u32,
    /// Class of the call.
    pub class: Class,
    /// Expected cost in units of a small call's work, 1 to [`COST_MAX`].
    pub cost: u32,
}
