//! `cellar serve`: opens the stores, starts the services, and shuts them down cleanly.

mod admission;
pub mod authority;
mod background;
pub mod buckets;
pub mod cell_keys;
mod clock;
mod cluster;
#[cfg(feature = "bucket")]
mod copying;
mod destinations;
mod dispatcher;
pub mod environment;
mod exposed;
mod faults;
mod holdings;
mod jobs;
mod jobs_service;
mod known;
pub mod locator;
pub mod log;
pub mod membership;
pub mod metrics;
pub mod neighbours;
pub mod observed;
pub mod offline;
pub mod overseer;
mod privileges;
mod refusals;
pub mod registration;
mod run;
mod running;
pub mod services;
pub mod snapshots;
pub mod sockets;
mod startup;
mod stores;
mod syncing;
mod threads;
mod tickets;
pub mod transport;
mod upkeep;
pub mod volume_servers;
pub mod web;

#[cfg(feature = "bucket")]
pub use copying::{CopiedDatabases, copy_databases};
pub use faults::FaultInjection;
pub use run::{run, run_then};
pub use running::Running;
pub use startup::{start, start_with_faults};
pub use stores::{FAMILIES, handle};

#[cfg(test)]
mod tests;
