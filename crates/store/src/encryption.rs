//! Encryption at rest: the keys of a partition, and what is done with them.
//!
//! File data is encrypted with *data keys*, which lie in the partition's [key ring](KeyRing), wrapped
//! with the *master key*, which does not: it comes from a file or a command that the configuration names.
//! New data takes the newest data key; older ones stay for what they encrypted, so neither a new data
//! key nor a new master key rewrites anything. Format: docs/reference/formats/keys.md.

mod master;
mod ring;
mod sealing;

pub use master::{KeyError, MASTER_KEY_BYTES, MasterKey};
pub use ring::KeyRing;
pub(crate) use ring::rewrap;
use sealing::SEAL_BYTES;

/// How much longer contents in metadata are when they are encrypted: the key's id, nonce and tag.
pub const SEALED_VALUE_BYTES: usize = 4 + SEAL_BYTES;

#[cfg(test)]
mod tests;
