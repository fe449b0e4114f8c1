//! The engines that keep metadata, one module each. Everything else uses [`MetaEngine`], and names none.

pub mod contract;
pub mod memory;
pub mod rocks;

use crate::MetaEngine;
use std::sync::Arc;

/// Returns the engine of partitions and databases on this machine's disks.
pub fn local() -> Arc<dyn MetaEngine> {
    Arc::new(rocks::RocksEngine)
}

#[cfg(test)]
mod tests;
