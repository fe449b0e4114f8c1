//! How RocksDB is set up: bounded memory, files and logs, and recovery to a prefix.

use super::MetaConfig;
use crate::Family;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, LogLevel, Options,
};

/// Of a key's filter; about one false hit in a hundred.
const BLOOM_BITS_PER_KEY: f64 = 10.0;
const BLOCK_BYTES: usize = 16 << 10;
/// A write buffer of one family is flushed at this part of the memory for all of them.
const FAMILY_SHARE: usize = 4;
/// The log may be as large as this part of the write buffers, ...
const LOG_SHARE: usize = 2;
/// ... and not larger than this, before what it alone has is written into tables. A start after a crash puts all of it into
/// memory, record by record, and writes it into tables, which takes a processor some 30 ms for each MB of small records.
const LOG_BYTES_MAX: usize = 8 << 20;
/// Threads that open tables at a start, of each family by itself. They are started however few tables there are, 16
/// unless told: with ten families that is more work than the tables.
const OPENING_THREADS: i32 = 1;
const INFO_LOG_BYTES_MAX: usize = 4 << 20;
const INFO_LOG_FILES_MAX: usize = 4;
const MANIFEST_BYTES_MAX: usize = 64 << 20;
const BYTES_PER_SYNC: u64 = 1 << 20;

/// Options of the database as a whole.
pub(super) fn database(config: &MetaConfig) -> Options {
    let mut options = Options::default();
    options.create_missing_column_families(true);
    options.set_paranoid_checks(true);
    // What is found after a crash ends before the first record of the log that is not whole. This
    // excludes the recycling of log files.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_recycle_log_file_num(0);
    options.set_max_total_wal_size((config.write_buffer_bytes / LOG_SHARE).min(LOG_BYTES_MAX) as u64);
    options.set_db_write_buffer_size(config.write_buffer_bytes);
    options.set_max_open_files(i32::from(config.open_files_max));
    options.set_max_file_opening_threads(OPENING_THREADS);
    // Writers that wait for one another sleep; they would burn the processors that calls need.
    options.set_enable_write_thread_adaptive_yield(false);
    options.set_max_background_jobs(i32::from(config.background_jobs));
    options.set_bytes_per_sync(BYTES_PER_SYNC);
    options.set_max_manifest_file_size(MANIFEST_BYTES_MAX);
    // Nothing is logged after the open: an assertion aborts the process when a second line follows one that could not be
    // written. Errors are returned anyway.
    options.set_log_level(LogLevel::Fatal);
    options.set_max_log_file_size(INFO_LOG_BYTES_MAX);
    options.set_keep_log_file_num(INFO_LOG_FILES_MAX);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    // Keeps the start fast however many table files there are.
    options.set_skip_stats_update_on_db_open(true);
    options
}

/// For `set_options`: whether tables are merged by themselves.
pub(super) const NO_COMPACTION: &str = "disable_auto_compactions";

/// Every family with its options; all share one block cache.
pub(super) fn families(config: &MetaConfig) -> Vec<ColumnFamilyDescriptor> {
    families_with(config, false)
}

/// Likewise, and no tables are merged before that is switched on.
pub(super) fn families_at_rest(config: &MetaConfig) -> Vec<ColumnFamilyDescriptor> {
    families_with(config, true)
}

fn families_with(config: &MetaConfig, is_at_rest: bool) -> Vec<ColumnFamilyDescriptor> {
    let cache = Cache::new_lru_cache(config.block_cache_bytes).ok();
    let describe = |name: &str| {
        let mut options = family(config, cache.as_ref());
        options.set_disable_auto_compactions(is_at_rest);
        ColumnFamilyDescriptor::new(name, options)
    };
    let ours = Family::ALL.iter().map(|family| describe(family.name()));
    // RocksDB insists on a family of this name; we keep nothing in it.
    ours.chain(std::iter::once(describe("default"))).collect()
}

fn family(config: &MetaConfig, cache: Option<&Cache>) -> Options {
    let mut options = Options::default();
    options.set_block_based_table_factory(&tables(cache));
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(config.write_buffer_bytes / FAMILY_SHARE);
    options.set_level_compaction_dynamic_level_bytes(true);
    options
}

fn tables(cache: Option<&Cache>) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    if let Some(cache) = cache {
        tables.set_block_cache(cache);
    }
    tables.set_block_size(BLOCK_BYTES);
    tables.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    tables.set_whole_key_filtering(true);
    // Indexes and filters count against the cache, so that memory stays bounded.
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tables.set_format_version(5);
    tables
}
