//! Cellar's own service: what administrators and users ask of a server and AFS has no call for.
//!
//! It is served on the file server's port beside RXAFS, with the same callers. [`AdminServer`] implements
//! it over the server's volumes; a file for each family of calls, as `idl/cellar.idl` groups them. What
//! the file server decides (rights on files) comes in from outside.
//!
//! Who does not know the service is no Cellar server: OpenAFS answers RX_INVALID_OPERATION.

mod caches;
mod checks;
mod damaged;
mod figures;
mod jobs;
mod log;
mod policy;
mod profiles;
mod server;
mod service;
mod slow;
mod snapshots;
mod transport;
mod usage;

pub use figures::{CALLS_OF_VOLUME, CLIENTS_OF_VOLUME};
pub use jobs::JobKeeper;
pub use profiles::{profile_kinds, profile_stages};
pub use server::{AdminServer, AdminServerParts};
pub use snapshots::{SnapshotEntry, SnapshotHost};
pub use transport::TransportSource;
pub use usage::{Below, DirectoryUsage};

#[cfg(test)]
mod tests;
