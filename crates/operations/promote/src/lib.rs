//! Promotion: a read-write volume of one cell becomes read-only volumes in any number of other cells.
//!
//! The unit of promotion is a *version*: a clone of the volume, with a signed [`Manifest`] that describes its
//! contents. Every cell gets it from one that already has it, along a [`Tree`], so that the source serves a
//! few cells and not all. In each cell it goes
//!
//! 1. into a *staging volume*, a read-write volume that is in service only at the moment of cloning;
//! 2. from there into a separate clone, whose contents are compared with the manifest;
//! 3. only then into the read-only volume that clients use, and from there to the cell's other sites.
//!
//! Clones of former versions are kept, so a cell can roll back without a transfer.
//!
//! [`Promotion`] decides the next task in each cell. It is pure: its user performs each [`Task`], reports the
//! outcome, and keeps the [`Record`] in a journal. Tasks are idempotent.

pub mod digest;
mod engine;
pub mod manifest;
mod record;
mod tree;

pub use digest::Digest;
pub use engine::{Done, Options, Outcome, Promotion, PromotionError, Step, Task};
pub use manifest::{Manifest, PublicKey, SignedManifest, SigningKey};
pub use record::{Arrival, CellRecord, Halt, Held, Home, Record, Stage};
pub use tree::Tree;

#[cfg(test)]
mod tests;
