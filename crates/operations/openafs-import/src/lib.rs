//! What OpenAFS servers keep, read for a move to Cellar: volume dumps and vice partitions.

pub mod dump;
pub mod umask;
pub mod vicep;
