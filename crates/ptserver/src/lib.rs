//! The protection service (PR, service 73 on port 7002): who users are and which groups they are in.
//!
//! [`PtService`] serves the generated interface. It finds out who calls, translates messages, and
//! leaves every decision to [`ptdb::Protection`].

mod service;
mod wire;

#[cfg(test)]
mod tests;

pub use service::{Clock, PtService};
