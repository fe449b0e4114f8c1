//! Tests of whole partitions in a bucket that is in memory, and that fails like one across a network.

mod borrowing;
mod checking;
mod copies;
mod crossing;
mod foreign;
mod fronts;
mod golden;
mod hiding;
mod histories;
mod merging;
mod opening;
mod support;
#[path = "../../../volume/tests/durability/common.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod writers;
