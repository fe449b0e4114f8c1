//! Operations on volumes that take several servers: move, copy, release, backup; restore and split.
//!
//! Each is a [`Job`]: what a person asked for, how far it is, and what it left lying about on servers.
//! [`run`] carries it on, step by step, through standard calls of volume and location servers, so that
//! it does not matter who made those servers. Before a step leaves anything behind the job is recorded
//! with that intent, and whoever finds the record later, after the end of the program in any place,
//! calls [`run`] with it: the job is finished or undone.
//!
//! The rules that make that safe:
//!
//! - What the location database says is the truth, if the server that takes changes says it. A copy of a
//!   volume is only removed while the entry is locked by the job and, read again, points elsewhere.
//! - A call without an answer may have been executed. So every step can be done twice, or looks first
//!   what is there: at locks, transactions, volumes and entries.
//! - A volume that moves is out of service on disk at its old place before the entry may point to the new
//!   one, and once the entry may have been changed there is no way but forward.
//! - While somebody who is needed does not answer nothing stays locked for long: the job gives its lock
//!   back, waits, and takes it again before it goes on.
//!
//! The crate is pure: servers, time, pauses and the journal come in through [`World`].

mod backing_up;
mod calls;
mod copying;
mod engine;
mod entry;
mod filling;
mod foretelling;
mod job;
mod moving;
mod plan;
mod releasing;
pub mod rights;
mod room;
mod sites;
mod splitting;
mod traffic;
mod world;

pub use calls::{ENODEV, ENOENT};
pub use engine::{End, run};
pub use foretelling::{Gets, Outlook, Room, SiteOutlook, Told, foretell};
pub use job::{Event, Job, Operation, Place, Stage};
pub use traffic::Traffic;
pub use world::{Trouble, Wish, World};

#[cfg(test)]
mod tests;
