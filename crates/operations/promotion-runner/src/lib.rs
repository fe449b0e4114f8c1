//! Promotions in this program: configuration, journal, access to cells, and the runner.

pub mod asking;
pub mod cells;
pub mod config;
mod digests;
pub mod journal;
pub mod run;
pub mod source;
mod volumes;
