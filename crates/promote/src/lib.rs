//! Promotion: a read-write volume of one cell becomes read-only volumes in any number of other cells.
//!
//! What is promoted is a *version*: a clone of the volume, with a signed [`Manifest`] that says what it
//! holds. Every cell gets it from one that already has it, along a [`Tree`], so that the source serves a
//! few cells and not all. In each cell it goes
//!
//! 1. into a *staging volume*, a read-write volume that is never in service but for the moment of cloning;
//! 2. from there into a clone of its own, whose contents are compared with the manifest;
//! 3. only then into the read-only volume that clients use, and from there to the cell's other sites.
//!
//! Clones of former versions stay, so a cell can go back without anything being sent to it.
//!
//! [`Promotion`] decides what comes next in which cell. It is pure: whoever runs it performs each
//! [`Task`] in his own way, tells how it ended, and keeps the [`Record`] in a journal; every task can be
//! done twice.

pub mod digest;
mod engine;
pub mod manifest;
mod record;
mod tree;

pub use digest::Digest;
pub use engine::{Done, Options, Outcome, Promotion, Step, Task, Trouble};
pub use manifest::{Manifest, PublicKey, SignedManifest, SigningKey};
pub use record::{Arrival, CellRecord, Halt, Held, Home, Record, Stage};
pub use tree::Tree;

#[cfg(test)]
mod tests;
