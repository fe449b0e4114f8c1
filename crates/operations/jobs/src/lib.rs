//! Operations on volumes that involve several servers: move, copy, release, backup, restore and split.
//!
//! Each is a [`Job`]: the requested operation, its durable state, and what it has left on servers. [`run`]
//! advances it step by step through standard calls to volume and location servers, so it works with any
//! implementation of those servers. Before a step leaves anything behind, the job is recorded with that
//! intent. After the program has ended at any point, a later run reads the record and calls [`run`] with it:
//! the job is completed or undone.
//!
//! These rules make that safe:
//!
//! - The location database is authoritative, as read from the server that accepts changes. A copy of a
//!   volume is removed only while the job holds the lock of the entry and the entry, read again, points
//!   elsewhere.
//! - A call without a reply may have been executed. So every step is idempotent, or first checks the
//!   current state of locks, transactions, volumes and entries.
//! - A volume that moves is out of service on disk at its source before the entry may point to the
//!   destination. Once the entry may have been changed, the job can only go forward.
//! - Nothing stays locked for long while a required server does not respond: the job releases its
//!   lock, waits, and takes it again before it continues.
//!
//! Each operation is a procedure with its own state (`procedure/`); a new one is a new file there and a line in
//! its register. The engine runs any of them stage by stage. `rpc` makes the calls.
//!
//! The crate is pure: servers, time, pauses and the journal are provided through [`World`].

mod creation;
mod distribution;
mod dump;
mod engine;
mod entry;
mod job;
mod journal;
mod lock;
mod preflight;
mod procedure;
pub mod rights;
mod rpc;
mod sites;
mod state;
mod traffic;
mod transaction;
mod world;

pub use engine::{End, run};
pub use job::{Event, Job, Place, Stage};
pub use preflight::{Gets, Outlook, PartitionSpace, SiteOutlook, VolumeSummary, preflight};
pub use procedure::{Copy, Move, Operation, Overwrite, Release, Restore, Split};
pub use rpc::{ENODEV, ENOENT};
pub use traffic::Traffic;
pub use world::{Control, JobError, World};

#[cfg(test)]
mod tests;
