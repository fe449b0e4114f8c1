//! Volumes in memory: the index of all volumes, loading and unloading, creation and replacement, caches, and
//! durability of changes.

pub(crate) mod appenders;
pub(crate) mod cache;
pub(crate) mod cache_report;
pub(crate) mod call;
pub(crate) mod call_results;
pub(crate) mod chunk_names;
pub(crate) mod condition;
pub(crate) mod continuity;
pub(crate) mod creation;
pub(crate) mod crew;
pub(crate) mod dedup_statistics;
pub(crate) mod group;
pub(crate) mod held;
pub(crate) mod homes;
pub(crate) mod host_list;
pub(crate) mod index;
pub(crate) mod listing;
pub(crate) mod loader;
pub(crate) mod lock_records;
pub(crate) mod numbers;
pub(crate) mod parked;
pub(crate) mod pending;
pub(crate) mod permit;
pub(crate) mod read_ahead;
pub(crate) mod receipt_list;
pub(crate) mod recent;
pub(crate) mod replacement;
pub(crate) mod sealed_extents;
pub(crate) mod shared;
pub(crate) mod shared_chunks;
pub(crate) mod unloader;
pub(crate) mod usage;
pub(crate) mod vnode_read_ahead;
pub(crate) mod volume;
pub(crate) mod volumes;
