//! The volume location service (VL, service 52 on port 7003): which volumes are on which servers.
//!
//! [`VlService`] serves the generated interface. Reading is open to everybody; changing, and asking
//! for names by pattern, is for superusers. Everything else is decided in [`vldb::Locations`].

mod conflicts;
mod query;
mod service;
mod statistics;
pub mod ubik;
mod wire;

#[cfg(test)]
mod tests;

pub use conflicts::Neighbours;
pub use service::{Clock, Settings, VlService};
