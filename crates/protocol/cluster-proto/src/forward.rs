//! Calls that a front sends to the owner of a partition: when one is sent, held, repeated or given up, and how an owner
//! executes one only once.

mod results;

pub use results::{Begun, Results};

use crate::names::{Epoch, NodeName, PartitionName};
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
    /// A second execution does no harm: it only reads, extends a lock, or sets a volume's settings to the same values.
    Freely,
    /// A second execution would have another result. The owner remembers the first one's, the next owner does not: a change by
    /// the volume service.
    Once,
    /// The partition contains the result of the first execution, which every owner finds: a creation, a removal, a store, a
    /// lock.
    Recorded,
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
/// A call that must not be executed twice, and whose outcome is unknown, is only repeated where its result is found: in
/// the same partition if it is recorded there, else at the same owner in the same epoch. Otherwise the client begins anew, as
/// after the restart of a server.
#[derive(Clone, Debug)]
pub struct Forwarding {
    repeat: Repeat,
    since: Monotonic,
    limit: Duration,
    /// The ownership in which it may have been executed.
    in_doubt: Option<(PartitionName, Epoch)>,
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

    /// Whether the call may have been executed, and must not be executed again.
    pub fn is_in_doubt(&self) -> bool {
        self.repeat != Repeat::Freely && self.in_doubt.is_some()
    }

    /// Returns what to do next, given the way of calls to the partition, and which that is if it is known. It may be another one
    /// than before, when a volume moves.
    pub fn step(&self, now: Monotonic, partition: Option<&PartitionName>, route: Route) -> Step {
        let left = self.limit.saturating_sub(self.age(now));
        if self.is_spent || left.is_zero() {
            return Step::Fail(AbortCode::VRESTARTING);
        }
        let pause = self.not_before.since(now);
        match route {
            Route::Local(epoch) | Route::Forward { epoch, .. } if self.must_not_reach(partition, epoch) => {
                Step::Fail(AbortCode::VRESTARTING)
            }
            Route::Local(_) => Step::Local,
            Route::Forward { .. } if !pause.is_zero() => Step::Hold(pause),
            Route::Forward { node, epoch, addresses } => Step::Send { node, epoch, addresses, wait: left },
            Route::Hold => Step::Hold(HOLD.min(left)),
            Route::Refuse(refusal) => Step::Fail(refusal.abort_code().unwrap_or(AbortCode::VRESTARTING)),
        }
    }

    fn must_not_reach(&self, partition: Option<&PartitionName>, epoch: Epoch) -> bool {
        let Some((doubted, in_epoch)) = &self.in_doubt else { return false };
        match self.repeat {
            Repeat::Freely => false,
            Repeat::Once => (Some(doubted), *in_epoch) != (partition, epoch),
            Repeat::Recorded => Some(doubted) != partition,
        }
    }

    /// Records that an attempt to the partition's owner in `epoch` has ended without a result. `is_whole` is false if a part of the
    /// request is no longer there, or a part of a reply was sent: then the client has to begin anew.
    pub fn ended(
        &mut self,
        now: Monotonic,
        (partition, epoch): (&PartitionName, Epoch),
        outcome: Outcome,
        is_whole: bool,
    ) {
        if outcome == Outcome::Unknown {
            self.in_doubt = Some((partition.clone(), epoch));
        }
        self.is_spent |= !is_whole;
        self.not_before = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
