//! Partitions of OpenAFS's file servers, read while no server uses them, and their volumes brought into
//! a store.
//!
//! [`Vicep`] is a partition, [`Source`] one of its volumes. [`survey`](survey::survey) checks a volume
//! without its data: every vnode, name, link and length. [`load`](load::load) builds it in a store the
//! way a restored dump is built, so that it is there whole or not at all. What is wrong becomes a
//! [`Problem`] with its place; nothing is mended.

pub mod in_use;
pub mod leftovers;
pub mod load;
pub mod source;
pub mod survey;

pub use source::{Problem, Source, Vicep};

#[cfg(test)]
mod tests;
