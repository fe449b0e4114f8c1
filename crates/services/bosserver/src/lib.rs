//! The basic overseer service (BOZO), as far as tools need it.
//!
//! OpenAFS's bosserver starts and watches processes. Cellar is one process, so this service has nothing to
//! start. It reports the program's roles where `bos` and scripts expect processes, and edits the list of
//! administrators. What it reports is true of Cellar:
//!
//! * **Instances** are the roles that run: `fs` (of type `fs`, with the commands of the file and the
//!   volume server, so that scripts which look for a file server find one), `ptserver` and
//!   `vlserver` (of type `simple`). The program defines the roles, see [`Overseer::roles`].
//! * The server is always in **restricted mode**, OpenAFS's mode in which nothing can be installed,
//!   removed, executed, created or pruned through the network: such calls fail with BZACCESS, as in
//!   OpenAFS. The mode cannot be left, authorisation checks cannot be switched off, and keys and the
//!   cell's name and hosts can only be changed in files.
//! * **Starting and stopping**: a request for the current state succeeds; any other fails with BZBUSY
//!   unless the [`Overseer`] supports it.
//! * **BosConfig** ([`bos_config`]) lists the same instances in a file, for tools that read it there; it is never
//!   read back.
//! * There are no regular restarts (`never`), no core files, no notifiers.
//! * Keys never leave the server, not even on an encrypted connection: `bos listkeys` shows their
//!   versions and checksums.
//!
//! Protocol: OpenAFS 1.8 `bozo/bosint.xg`; behaviour: `bozo/bosoprocs.c` and the output of `bos(8)`.

#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "handlers have the signatures that the interface gives them"
)]

mod bos_config;
mod cell;
mod instance;
mod log;
mod overseer;
mod programs;
mod restrictions;
mod server;

pub use bos_config::bos_config;
pub use cell::key_checksum;
pub use overseer::{
    CellDescription, DatabaseHost, FileDates, KeyList, KeyVersion, LastExit, Overseer, OverseerError, Role,
    RoleKind, RoleState,
};
pub use server::BosServer;

#[cfg(test)]
mod tests;
