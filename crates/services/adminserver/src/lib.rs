//! Cellar's own service: requests of administrators and users for which AFS has no call.
//!
//! It is served on the file server's port next to RXAFS, for the same callers. [`AdminServer`] implements it
//! on top of the server's volumes, with one file per family of calls, grouped as in `idl/cellar.idl`.
//! Decisions of the file server (rights on files) are passed in from outside.
//!
//! A server that does not know the service is not a Cellar server: OpenAFS answers RX_INVALID_OPERATION.

#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "handlers have the signatures that the interface gives them"
)]

mod caches;
mod checks;
mod cluster;
mod damaged;
mod figures;
mod jobs;
mod log;
mod policy;
mod profiles;
mod server;
mod slow;
mod snapshots;
mod transport;
mod usage;

pub use cluster::{Cluster, GiveUpError, RemoveNodeError};
pub use figures::{CALLS_OF_VOLUME, CLIENTS_OF_VOLUME};
pub use jobs::JobKeeper;
pub use profiles::{profile_kinds, profile_stages};
pub use server::{AdminServer, AdminServerParts};
pub use snapshots::{SnapshotEntry, SnapshotHost};
pub use transport::TransportSource;
pub use usage::{Below, DirectoryUsage};

#[cfg(test)]
mod tests;
