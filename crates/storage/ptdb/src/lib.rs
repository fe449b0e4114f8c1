//! The protection database: users, groups, memberships, and the rights to change them.
//!
//! [`Protection`] is the whole interface. Servers of this program call it directly, for instance for a user's
//! [`Protection::protection_set`]; calls of the PR interface use the methods that take an [`Actor`] and check
//! its rights. Behaviour is that of OpenAFS 1.8 built with supergroups, including the output of `pts`, with
//! these deliberate differences:
//!
//! - positions (PR_WhereIsIt, PR_ListEntries) are never reused, so that a listing in steps neither repeats nor
//!   misses an entry, whatever changes between the steps;
//! - a registered user of another cell may use every call, not only register;
//! - changing the id of a group that is in groups, or has groups in it, works;
//! - an unauthenticated caller is never the owner of anything.
//!
//! The records are described in `docs/reference/formats/protection.md`.

pub mod access;
pub mod actor;
mod asking;
mod change;
mod changing;
mod codec;
mod create;
pub mod entry;
pub mod error;
mod import;
mod naming;
mod overlay;
pub mod protection;
mod remove;
mod tables;

#[cfg(test)]
mod tests;

pub use access::Policy;
pub use actor::{Actor, Standing, identify, registered_name};
pub use asking::Dump;
pub use change::Change;
pub use changing::{Fields, NewEntry};
pub use create::Kind;
pub use entry::{Entry, EntryFlags, Totals};
pub use error::ProtectionError;
pub use import::{Imported, OneSided, Outcome};
pub use protection::{LIST_IDS_MAX, Protection};

use store::Family;

/// The family of the database's records. Number and name are part of the format.
pub const FAMILY: Family = Family::new(7, "protection");
