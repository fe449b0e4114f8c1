//! Calls that a front sends to the owner of a partition: when one is sent, held, repeated or given up, and how an owner
//! executes one only once.

mod results;

pub use results::{Begun, CallKey, Results};

use crate::names::{Epoch, NodeName};
use crate::route::Route;
use base::{AbortCode, Monotonic};
use std::net::SocketAddr;
use std::time::Duration;

/// First pause after a node that was considered the owner has refused a call. It doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// How often a call that is held asks for the way again.
const HOLD: Duration = Duration::from_millis(50);

/// Whether a call may be executed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It only reads, or it writes the same data to the same place.
    Freely,
    /// A second execution would have another result: a creation, a removal, a lock. The owner remembers its result.
    Once,
}

/// What a front does next with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send it to this node, and report the outcome by [`Forwarding::ended`].
    Send {
        /// The owner.
        node: NodeName,
        /// Its ownership.
        epoch: Epoch,
        /// Where it receives calls of other nodes.
        addresses: Vec<SocketAddr>,
        /// How long the owner may hold it.
        wait: Duration,
    },
    /// Execute it here.
    Local,
    /// Ask for the way again after this time.
    Hold(Duration),
    /// Give it up with this code.
    Fail(AbortCode),
}

/// How an attempt to forward a call ended, if not with the owner's reply or error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node has not executed it.
    Refused,
    /// It is not known whether the node has executed it.
    Unknown,
}

/// A call at a front, from its arrival to its reply.
///
/// The caller repeats [`step`](Forwarding::step) with the present [`Route`] of the partition and does what it returns.
///
/// A call that must not be executed twice, and whose outcome is unknown, is only repeated to the same owner in the same
/// epoch, which remembers its result. The next owner does not: the client then begins anew, as after the restart of
/// a server.
#[derive(Clone, Debug)]
pub struct Forwarding {
    repeat: Repeat,
    since: Monotonic,
    limit: Duration,
    /// The ownership in which it may have been executed.
    in_doubt: Option<Epoch>,
    not_before: Monotonic,
    pause: Duration,
    is_spent: bool,
}

impl Forwarding {
    /// Creates a call that has arrived at `now`. It is given up after `limit`, which is
    /// [`Timing::hold_limit`](crate::Timing::hold_limit).
    pub fn new(now: Monotonic, repeat: Repeat, limit: Duration) -> Forwarding {
        Forwarding {
            repeat,
            since: now,
            limit,
            in_doubt: None,
            not_before: now,
            pause: PAUSE,
            is_spent: false,
        }
    }

    /// Returns for how long the call has been here.
    pub fn age(&self, now: Monotonic) -> Duration {
        now.since(self.since)
    }

    /// Returns what to do next, given the way of calls to the partition.
    pub fn step(&self, now: Monotonic, route: Route) -> Step {
        let left = self.limit.saturating_sub(self.age(now));
        if self.is_spent || left.is_zero() {
            return Step::Fail(AbortCode::VRESTARTING);
        }
        let pause = self.not_before.since(now);
        match route {
            Route::Local(epoch) | Route::Forward { epoch, .. } if self.must_not_reach(epoch) => {
                Step::Fail(AbortCode::VRESTARTING)
            }
            Route::Local(_) => Step::Local,
            Route::Forward { .. } if !pause.is_zero() => Step::Hold(pause),
            Route::Forward { node, epoch, addresses } => Step::Send { node, epoch, addresses, wait: left },
            Route::Hold => Step::Hold(HOLD.min(left)),
            Route::Refuse(refusal) => Step::Fail(refusal.abort_code().unwrap_or(AbortCode::VRESTARTING)),
        }
    }

    fn must_not_reach(&self, epoch: Epoch) -> bool {
        self.repeat == Repeat::Once && self.in_doubt.is_some_and(|doubted| doubted != epoch)
    }

    /// Records that an attempt to an owner in `epoch` has ended without a result. `is_whole` is false if a part of the
    /// request is no longer there, or a part of a reply was sent: then the client has to begin anew.
    pub fn ended(&mut self, now: Monotonic, epoch: Epoch, outcome: Outcome, is_whole: bool) {
        if outcome == Outcome::Unknown {
            self.in_doubt = Some(epoch);
        }
        self.is_spent |= !is_whole;
        self.not_before = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
