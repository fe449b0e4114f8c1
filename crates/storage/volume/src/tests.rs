//! Tests of volumes on in-memory stores.

mod basics;
mod caching;
mod compaction;
mod concurrency;
mod crashing;
mod loading;
mod model;
mod overlaying;
mod partitions;
mod pending;
mod purge;
mod quota;
mod reading_ahead;
mod received;
mod repeating;
mod restoring;
mod scrubbing;
mod sealing;
mod segments;
mod sharing;
mod small_files;
mod snapshots;
mod support;
mod taken;
mod totals;
