//! The protection service (PR, service 73 on port 7002): users, groups and memberships.
//!
//! [`PtService`] implements the generated interface. It identifies callers and translates messages; all rules
//! are in [`ptdb::Protection`].

#![allow(
    clippy::needless_pass_by_value,
    reason = "handlers have the signatures that the interface gives them"
)]

mod entries;
mod groups;
mod names;
mod service;
mod wire;

#[cfg(test)]
mod tests;

pub use service::{Clock, PtService};
