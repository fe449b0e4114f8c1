//! Volumes on stores in memory.

mod basics;
mod concurrency;
mod model;
mod purge;
mod support;
