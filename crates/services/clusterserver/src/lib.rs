//! Calls between the nodes that share partitions in a bucket (`docs/design/cluster.md`).
//!
//! A node serves every volume of the cluster. As a *front* it passes calls for volumes that another node owns to that
//! node ([`Front`]); as an *owner* it executes them ([`ClusterService`]) and reaches clients, whose address it only knows
//! from the front, through that front ([`Fronts`]). The owner never passes a forwarded call on, so there are no loops.
//!
//! Sockets, keys, leases and the file service are provided by the caller ([`Environment`]). What a front does when
//! messages are lost, late or refused is decided by [`cluster_proto::Forwarding`].

#![allow(
    clippy::needless_pass_by_value,
    reason = "handlers have the signatures that the interface gives them"
)]

mod bulk;
mod callers;
mod counters;
mod environment;
mod front;
mod fronts;
mod links;
mod members;
mod outgoing;
mod places;
mod scope;
mod service;
mod streams;
mod wire;

pub use counters::Counters;
pub use environment::{Clients, Environment, Files, LeaseError, Nodes, Own, Ownership};
pub use front::{Front, Way};
pub use fronts::Fronts;
pub use members::Members;
pub use service::ClusterService;
