//! Jobs in this program: the journal in a folder, and the servers of a cell as jobs see them.

pub mod journal;
pub mod traffic;
pub mod world;
