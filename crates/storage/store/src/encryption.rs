//! Encryption at rest: the keys of a partition and their use.
//!
//! File data is encrypted with *data keys*. They are stored in the partition's [key ring](KeyRing), wrapped
//! with the *master key*, which is not stored there: it comes from a file or a command that the configuration
//! names. New data is encrypted with the newest data key; older keys are kept for the data that they
//! encrypted, so neither a new data key nor a new master key requires rewriting data. Format:
//! docs/reference/formats/keys.md.

mod file;
mod master;
mod ring;
mod sealing;

pub use file::KeyFile;
pub use master::{KeyError, MASTER_KEY_BYTES, MasterKey};
pub use ring::KeyRing;
pub(crate) use ring::rewrap;
use sealing::SEAL_BYTES;

/// Overhead of encrypted contents in metadata, in bytes: the key's id, nonce and tag.
pub const SEALED_VALUE_BYTES: usize = 4 + SEAL_BYTES;

#[cfg(test)]
mod tests;
