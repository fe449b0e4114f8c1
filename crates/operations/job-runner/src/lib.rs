//! Jobs in this program: the journal on disk, and access to the servers of a cell.

pub mod journal;
pub mod traffic;
pub mod world;
