//! Volumes on stores in memory.

mod basics;
mod check;
mod concurrency;
mod loading;
mod model;
mod partitions;
mod purge;
mod restoring;
mod sealing;
mod snapshots;
mod support;
