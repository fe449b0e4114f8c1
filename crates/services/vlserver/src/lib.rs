//! The volume location service (VL, service 52 on port 7003): which volumes are on which servers.
//!
//! [`VlService`] implements the generated interface. Anyone may read; changes and queries by name pattern are
//! for superusers. All other rules are in [`vldb::Locations`].

#![allow(
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "handlers have the signatures that the interface gives them"
)]

mod conflicts;
mod entries;
mod lookups;
mod query;
mod servers;
mod service;
mod statistics;
pub mod ubik;
mod wire;

#[cfg(test)]
mod tests;

pub use conflicts::Neighbours;
pub use service::{Clock, Settings, VlService};
