//! Reads partitions of OpenAFS's file servers while no server uses them, and imports their volumes into a
//! store.
//!
//! [`Vicep`] is a partition, [`Source`] one of its volumes. [`survey`](survey::survey) checks a volume
//! without its data: every vnode, name, link and length. [`load`](load::load) builds it in a store like a
//! restored dump, so that it appears completely or not at all. Everything wrong becomes a [`Problem`] with
//! its location; a volume with problems is not repaired.

pub mod in_use;
pub mod leftovers;
pub mod load;
pub mod source;
pub mod survey;

pub use source::{Problem, Source, Vicep};

#[cfg(test)]
mod tests;
