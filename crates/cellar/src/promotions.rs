//! Promotions in this program: their configuration, their journal, the cells as promotions see them, and
//! whoever runs them.

pub mod asking;
pub mod cells;
pub mod config;
mod digests;
pub mod journal;
pub mod run;
pub mod source;
mod volumes;
