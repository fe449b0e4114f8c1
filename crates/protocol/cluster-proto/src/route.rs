//! What happens to a call: answered here, forwarded to the owner, held, or refused.

use crate::names::{Epoch, NodeName};
use crate::phase::CallKind;
use base::{AbortCode, HostUuid, Monotonic};
use std::net::SocketAddr;

/// A call to a partition, as far as its way depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it does.
    pub kind: CallKind,
    /// The client host, if it is known.
    pub host: Option<HostUuid>,
    /// How it came to this node.
    pub via: Via,
    /// When it arrived at this node.
    pub since: Monotonic,
}

/// How a call came to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// From the client.
    Client,
    /// From another node, which considers this one the owner in that epoch.
    Front(Epoch),
}

/// What to do with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Execute it. Before the reply is sent, [`may_answer`](crate::Member::may_answer) has to be true.
    Local(Epoch),
    /// Send it to the owner.
    Forward {
        /// The owner.
        node: NodeName,
        /// Its ownership.
        epoch: Epoch,
        /// Where it receives calls of other nodes.
        addresses: Vec<SocketAddr>,
    },
    /// Keep it, acknowledge the client's pings, and ask again after the next change of a phase.
    Hold,
    /// Do not execute it.
    Refuse(Refusal),
}

/// The owner to which this node forwards calls, by what is known at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The owner.
    pub node: NodeName,
    /// Its ownership.
    pub epoch: Epoch,
    /// Where it receives calls of other nodes.
    pub addresses: Vec<SocketAddr>,
    /// When its lease will be in doubt, unless it is renewed before. From then on, ask for the route again.
    pub until: Monotonic,
}

impl From<Forward> for Route {
    fn from(Forward { node, epoch, addresses, .. }: Forward) -> Route {
        Route::Forward { node, epoch, addresses }
    }
}

/// Why a call is not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was held for too long, or it began at a node that no longer has the address. Clients begin anew: kafs after
    /// a second, OpenAFS after 15 s, without considering the server down.
    Restarting,
    /// To a front: this node is not the owner in that epoch. The front asks for the way again.
    NotOwner(Option<(NodeName, Epoch)>),
    /// This node has no lease and does not know the way to the owner. It cannot know what is true. Its service addresses have gone with
    /// the lease, so that only clients of its own address get an answer: to begin anew.
    Silent,
    /// No such partition is configured.
    NoPartition,
}

impl Refusal {
    /// Returns the code for the client, if the refusal implies one.
    pub fn abort_code(&self) -> Option<AbortCode> {
        match self {
            Refusal::Restarting => Some(AbortCode::VRESTARTING),
            Refusal::NoPartition => Some(AbortCode::VNOVOL),
            Refusal::NotOwner(_) | Refusal::Silent => None,
        }
    }
}
