//! What is acknowledged stays, whatever happens: crashes, killed processes, full disks.

mod common;
mod full;
mod kill;
mod policies;
mod received;
mod reclaim;
