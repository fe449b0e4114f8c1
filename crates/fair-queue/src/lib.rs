//! Which waiting call is served next, by a limited number of workers.
//!
//! Three decisions, one inside the other, each of which costs O(log n):
//!
//! * **Class.** Small calls (a status, a name, a few KiB) do not stand behind bulk ones: each class
//!   has a line of its own, and small calls go first until they have had [`SMALL_SHARE`] of the work.
//! * **User.** Within a class users share by weight. This is start-time fair queueing (Goyal, Vin and
//!   Cheng 1996): each user has a tag, the time in units of work at which it has used up what it was
//!   given; the smallest tag is next. Who has been idle begins at the present; what was not used is
//!   not saved up, and what others did meanwhile is no debt.
//! * **Volume.** A user's calls for several volumes take turns; calls for one volume keep their order.
//!
//! Before all of that comes the [`Kind`] of the caller. Each kind has a [`Queue`] part of its own: rooms for
//! waiting calls, lines, volumes and a guaranteed part of the workers. Verified callers go first, so that a
//! flood of calls that cost nothing to make neither refuses nor delays them; anonymous callers keep their part.
//! In a full room the newest call of the user with most waiting calls makes room for users with fewer.
//!
//! On top of that are limits on what is being served. While others wait, one user and one volume hold
//! at most a share of the workers; a few workers are left to small calls. Apart from the last, no worker
//! idles while a call waits: if all who wait are over their share, one of them is served.
//!
//! Nothing here knows a clock or a thread. See [`Queue`] for what to call in which order.

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

/// How a call is treated beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Short: it moves little, and somebody may be waiting at a terminal.
    Small,
    /// Moves much, and may take as long as its client takes.
    Bulk,
    /// Its client must first answer a question, which it may not do. Served by threads of their own,
    /// beside the workers.
    Stranger,
}

/// Bytes that are one unit of work to move: as much as a small call costs.
pub const UNIT_BYTES: u64 = 64 * 1024;

/// What a request says about the work that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Small or bulk.
    pub class: Class,
    /// The volume it is about; 0 is none.
    pub volume: u32,
    /// Units of work; 1 to [`COST_MAX`].
    pub cost: u32,
}

impl Demand {
    /// A small call that is about no volume.
    pub const SMALL: Demand = Demand { class: Class::Small, volume: 0, cost: 1 };

    /// The work that it is for a user of a kind.
    pub fn of(self, user: u64, weight: u32, kind: Kind) -> Work {
        Work { user, kind, weight, volume: self.volume, class: self.class, cost: self.cost }
    }
}

/// The units of work of a call that moves so many bytes.
pub fn cost_of(bytes: u64) -> u32 {
    (1 + bytes / UNIT_BYTES).min(u64::from(COST_MAX)) as u32
}

/// What a call is, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Whose it is: a number that nobody who calls can choose, such as a keyed hash.
    pub user: u64,
    /// The user's kind; the same in all calls of a user.
    pub kind: Kind,
    /// The user's share in relation to others; [`WEIGHT_ORDINARY`] for most. 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// The volume it is about; 0 is none, and has no limit.
    pub volume: u32,
    /// Small or bulk.
    pub class: Class,
    /// What it is expected to cost, in units of a small call's work; 1 to [`COST_MAX`].
    pub cost: u32,
}
