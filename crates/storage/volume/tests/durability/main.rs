//! Tests that acknowledged changes survive crashes, killed processes and full disks.

mod common;
mod full;
mod kill;
mod policies;
mod received;
mod reclaim;
