//! Tests of the check on partitions that the crate `volume` wrote.

mod online;
mod planted;
mod support;
