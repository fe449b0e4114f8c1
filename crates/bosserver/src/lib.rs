//! The basic overseer service (BOZO), as far as tools ask for it.
//!
//! OpenAFS's bosserver starts and watches processes. Cellar is one process, so this service has
//! nothing to start; it answers for the program's own roles what `bos` and scripts ask about
//! processes, and edits the list of administrators. What it says is true of Cellar:
//!
//! * **Instances** are the roles that run: `fs` (of type `fs`, with the commands of the file and the
//!   volume server, so that scripts which look for a file server find one), `ptserver` and
//!   `vlserver` (of type `simple`). The program that knows the roles decides, see [`Overseer::roles`].
//! * The server is always in **restricted mode**, OpenAFS's mode in which nothing can be installed,
//!   removed, executed, created or pruned through the network: such calls give BZACCESS, as they do
//!   there. The mode cannot be left, authorisation checks cannot be switched off, and keys and the
//!   cell's name and hosts are changed in files only.
//! * **Starting and stopping**: asking for what is so already succeeds; anything else gives BZBUSY
//!   unless the [`Overseer`] can do it.
//! * **BosConfig** ([`bos_config`]) lists the same instances in a file, for tools that read it there; nothing is
//!   read back from it.
//! * There are no regular restarts (`never`), no core files, no notifiers.
//! * Keys never leave the server, not even on an encrypted connection: `bos listkeys` shows their
//!   versions and checksums.
//!
//! Protocol: OpenAFS 1.8 `bozo/bosint.xg`; behaviour: `bozo/bosoprocs.c`, what `bos(8)` prints.

mod bos_config;
mod cell;
mod instance;
mod log;
mod overseer;
mod service;

pub use bos_config::bos_config;
pub use cell::key_checksum;
pub use overseer::{
    CellDescription, DatabaseHost, FileDates, KeyList, KeyVersion, LastExit, Overseer, OverseerError, Role,
    RoleKind, RoleState,
};
pub use service::BosServer;

#[cfg(test)]
mod tests;
