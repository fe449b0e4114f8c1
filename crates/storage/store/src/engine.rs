//! Engines of metadata: opening a database, its limits, its statistics.
//!
//! [`MetaStore`] is the interface for reading and writing. Code that opens, closes and reports databases uses
//! the two traits here, and names no engine.

use crate::health::Health;
use crate::{Batch, Family, MetaStore, StoreError};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// Limits on the memory, files and threads of a metadata database. An engine ignores a limit on something that
/// it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaConfig {
    /// Size of the cache of data read from the medium, in bytes, shared by all families.
    pub cache_bytes: usize,
    /// Memory for changes not yet in tables, in bytes, for all families together.
    pub write_buffer_bytes: usize,
    /// Maximum number of open files.
    pub open_files_max: u16,
    /// Number of threads that write and merge tables.
    pub background_jobs: u8,
}

impl Default for MetaConfig {
    fn default() -> MetaConfig {
        MetaConfig {
            cache_bytes: 128 << 20,
            write_buffer_bytes: 64 << 20,
            open_files_max: 512,
            background_jobs: 2,
        }
    }
}

impl MetaConfig {
    /// Limits for a cell database, whose records are few and small compared with those of a partition.
    pub fn small() -> MetaConfig {
        MetaConfig {
            cache_bytes: 16 << 20,
            write_buffer_bytes: 8 << 20,
            open_files_max: 64,
            background_jobs: 1,
        }
    }
}

/// Statistics of a metadata database. An engine reports 0 for something that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaStatistics {
    /// Batches committed since the open.
    pub commits: u64,
    /// Bytes of these batches, which is the amount written to the log. Rewriting the data into tables is not
    /// counted.
    pub log_bytes: u64,
    /// Calls that waited for durability since the open.
    pub sync_requests: u64,
    /// Syncs of the log that served them.
    pub syncs: u64,
    /// Size of the tables in bytes.
    pub table_bytes: u64,
    /// Memory used by changes not yet in tables, in bytes.
    pub write_buffer_bytes: u64,
    /// Memory used by the cache, in bytes.
    pub cache_bytes: u64,
}

/// How to open a database.
#[derive(Clone, Copy, Debug)]
pub struct MetaOptions<'a> {
    /// Families of the crates above. Those of `store` are always there.
    pub families: &'a [Family],
    /// Limits.
    pub config: MetaConfig,
    /// Whether to create the database if it does not exist.
    pub create: bool,
    /// Whether upkeep waits for [`MetaDatabase::begin_upkeep`]: during a start, other work needs the
    /// processors more.
    pub defers_upkeep: bool,
}

impl Default for MetaOptions<'_> {
    /// Creates the database, with `store`'s own families only.
    fn default() -> Self {
        MetaOptions { families: &[], config: MetaConfig::default(), create: true, defers_upkeep: false }
    }
}

impl MetaOptions<'_> {
    /// Returns all families in the order of their numbers, each once.
    pub fn all_families(&self) -> Vec<Family> {
        let mut all = [&[Family::SYSTEM, Family::SEGMENTS], self.families].concat();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A kind of metadata database. [`engines`](crate::engines) has the implementations.
pub trait MetaEngine: Debug + Send + Sync {
    /// Opens the database in `folder`, creating the families that it lacks. May wait for the medium or the
    /// network.
    ///
    /// # Errors
    /// `Damaged` if changes that were durable have provably been lost since.
    /// `Meta` if there is none and it should not be created, or if it has a family that is not declared:
    /// a newer program wrote it.
    fn open(&self, folder: &Path, options: &MetaOptions<'_>) -> Result<Arc<dyn MetaDatabase>, StoreError>;

    /// Opens the database in its current state, with whatever families it has, and changes nothing in it;
    /// every commit fails.
    ///
    /// # Errors
    /// Those of [`MetaEngine::open`].
    fn open_read_only(&self, folder: &Path) -> Result<Arc<dyn MetaDatabase>, StoreError>;

    /// Returns what keeps the database in `folder` from being opened: where durable changes were lost, and which. `None`
    /// if none are known to be lost. Changes nothing.
    fn loss(&self, _folder: &Path) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// Gives up the changes of [`MetaEngine::loss`] and all later ones, so that the database can be opened. Does nothing
    /// if there is no loss. `also` is committed with that.
    fn accept_loss(&self, _folder: &Path, _also: Batch) -> Result<(), StoreError> {
        Ok(())
    }
}

/// An open database. Dropping it closes it, and makes everything committed durable unless it has failed.
pub trait MetaDatabase: MetaStore {
    /// Starts work in the background that keeps the database fast, if [`MetaOptions::defers_upkeep`] deferred
    /// it. Writers may wait some milliseconds for this call. It may be repeated after an error.
    fn begin_upkeep(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the statistics.
    fn statistics(&self) -> MetaStatistics;

    /// Returns the health, which stores that must stop writing together with the database share.
    fn health(&self) -> &Arc<Health>;
}
