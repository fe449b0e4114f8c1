//! Volumes on stores in memory.

mod basics;
mod check;
mod concurrency;
mod model;
mod purge;
mod support;
