//! The phases of a partition at one node, and what may be answered in each.

use std::fmt;

/// How far a node is with a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Another node serves it, or its owner is not known yet.
    Remote,
    /// The owner's lease was not renewed for a while: it is not certain whether the owner serves.
    Waiting,
    /// No node has it any more, and this one writes its name into the owner's object.
    Claiming,
    /// This node is the owner and opens the database, which fences the database's earlier writer.
    Opening,
    /// The database is open. Hosts to which earlier owners made promises are being reset: reads are answered, changes are
    /// not.
    Resetting,
    /// Everything is answered.
    Serving,
    /// The node gives the partition up: calls that have begun are answered, then the database is closed.
    Draining,
    /// The database is closed, and the node removes its name from the owner's object.
    Releasing,
    /// The ownership has ended without being given up: nothing is answered, and the database is being closed.
    Fenced,
}

/// What changes a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseEvent {
    /// The owner was seen to renew its lease, or another owner was seen.
    OwnerSeen,
    /// The owner was not seen to renew its lease for a while.
    OwnerSilent,
    /// The partition is wanted, and no lease protects its owner.
    Claim,
    /// The object names this node.
    Claimed,
    /// Another node was faster.
    Outrun,
    /// The database is open.
    Opened,
    /// The database cannot be opened now.
    NotOpened,
    /// All hosts were reset or found unreachable.
    AllReset,
    /// The node is to give the partition up.
    Release,
    /// All calls have ended and the database is closed.
    Drained,
    /// The object no longer names this node.
    Released,
    /// The membership of this node has ended.
    Lost,
    /// Another process has opened the database.
    Superseded,
    /// The database of an ownership that has ended is closed.
    Closed,
}

/// What a call does to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallKind {
    /// It changes nothing, and may get a promise.
    Read,
    /// It changes something.
    Change,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 9] = [
        Phase::Remote,
        Phase::Waiting,
        Phase::Claiming,
        Phase::Opening,
        Phase::Resetting,
        Phase::Serving,
        Phase::Draining,
        Phase::Releasing,
        Phase::Fenced,
    ];

    /// Returns the phase after an event; `None` if the event changes nothing.
    pub fn after(self, event: PhaseEvent) -> Option<Phase> {
        use PhaseEvent as E;
        match (self, event) {
            (Phase::Remote, E::OwnerSilent) | (Phase::Claiming, E::Lost) => Some(Phase::Waiting),
            (Phase::Remote | Phase::Waiting, E::Claim) | (Phase::Opening, E::NotOpened) => {
                Some(Phase::Claiming)
            }
            (Phase::Waiting, E::OwnerSeen)
            | (Phase::Claiming, E::Outrun | E::Release)
            | (Phase::Releasing, E::Released | E::Lost)
            | (Phase::Fenced, E::Closed) => Some(Phase::Remote),
            (Phase::Claiming, E::Claimed) => Some(Phase::Opening),
            (Phase::Opening, E::Opened) => Some(Phase::Resetting),
            (Phase::Resetting, E::AllReset) => Some(Phase::Serving),
            (Phase::Opening | Phase::Resetting | Phase::Serving, E::Release) => Some(Phase::Draining),
            (Phase::Draining, E::Drained) => Some(Phase::Releasing),
            (
                Phase::Opening | Phase::Resetting | Phase::Serving | Phase::Draining,
                E::Lost | E::Superseded,
            ) => Some(Phase::Fenced),
            _ => None,
        }
    }

    /// Whether a new call of this kind is answered here, if the node's lease is valid.
    pub fn accepts(self, kind: CallKind) -> bool {
        match self {
            Phase::Serving => true,
            Phase::Resetting => kind == CallKind::Read,
            _ => false,
        }
    }

    /// Whether the reply to a call that has begun here may be sent, if the node's lease is valid.
    pub fn answers(self, kind: CallKind) -> bool {
        self.accepts(kind) || self == Phase::Draining
    }

    /// Whether the node has the database open, opens or closes it.
    pub fn has_database(self) -> bool {
        matches!(self, Phase::Opening | Phase::Resetting | Phase::Serving | Phase::Draining | Phase::Fenced)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Remote => "remote",
            Phase::Waiting => "waiting",
            Phase::Claiming => "claiming",
            Phase::Opening => "opening",
            Phase::Resetting => "resetting hosts",
            Phase::Serving => "serving",
            Phase::Draining => "draining",
            Phase::Releasing => "releasing",
            Phase::Fenced => "fenced",
        })
    }
}

#[cfg(test)]
mod tests;
