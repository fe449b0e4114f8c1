//! Calls between the nodes that share partitions in a bucket (`docs/design/cluster.md`).
//!
//! A node serves every volume of the cluster. As a *front* it passes calls of the file service, the volume service and
//! Cellar's own service for volumes and partitions that another node owns to that node ([`Front`]); as an *owner* it executes them ([`ClusterService`]) and reaches clients, whose address it only knows
//! from the front, through that front ([`Fronts`]). The front reads the data of long fetches from the bucket itself, and writes that of long stores ([`Data`]). The owner never passes a forwarded call on, so there are no loops.
//!
//! Sockets, keys, leases and the file service are provided by the caller ([`Environment`]). What a front does when
//! messages are lost, late or refused is decided by [`cluster_proto::Forwarding`].

#![allow(
    clippy::needless_pass_by_value,
    reason = "handlers have the signatures that the interface gives them"
)]

mod administration;
mod bulk;
mod callers;
mod counters;
mod environment;
mod fast_path;
mod fetch;
mod front;
mod fronts;
mod links;
mod members;
mod outgoing;
mod pieces;
mod places;
mod questions;
mod scope;
mod service;
mod stores;
mod streams;
mod wire;

pub use administration::kind_of_administration;
pub use counters::Counters;
pub use environment::{Clients, Data, Environment, Files, LeaseError, Nodes, Own, Ownership, Services};
pub use front::{Front, Handler, Target, Way};
pub use fronts::Fronts;
pub use members::Members;
pub use service::{ClusterService, is_absence};
pub use wire::node as wire_node;
