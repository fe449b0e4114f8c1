//! Volumes on stores in memory.

mod basics;
mod check;
mod compaction;
mod concurrency;
mod loading;
mod model;
mod partitions;
mod purge;
mod restoring;
mod scrubbing;
mod sealing;
mod snapshots;
mod support;
