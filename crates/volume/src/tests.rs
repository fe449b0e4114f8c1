//! Volumes on stores in memory.

mod basics;
mod model;
mod support;
