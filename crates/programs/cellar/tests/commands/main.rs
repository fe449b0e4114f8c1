//! Tests of the program's commands and of whole cells, in one program: each would take seconds to link. Those that measure
//! their whole process are programs of their own.

#[path = "../support/mod.rs"]
mod support;

mod advisories;
mod applying;
mod auditing;
// Takes longest. Tests begin in the order of their names, so under a later one it would run alone at the end.
mod browsing;
mod buckets;
mod catching_up;
mod clusters;
mod comparing;
mod configuring;
mod copying;
mod damaged;
mod examining;
mod importing;
mod logging;
#[cfg(feature = "bucket")]
mod members;
#[cfg(feature = "bucket")]
mod nodes;
mod outliving;
#[cfg(feature = "bucket")]
mod partitions;
mod preflight;
mod private;
mod promoting;
mod protecting;
mod quickstart;
mod rekeying;
#[cfg(feature = "bucket")]
mod sharing;
mod store_check;
mod storing;
mod tracing;
