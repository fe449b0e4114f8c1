//! Configuration of RocksDB: bounded memory, files and logs, and recovery to a prefix.

use crate::{Family, MetaConfig};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, LogLevel, Options,
};

/// Bits per key of the filters; about 1 percent false positives.
const BLOOM_BITS_PER_KEY: f64 = 10.0;
const BLOCK_BYTES: usize = 16 << 10;
/// Divisor of the write buffer memory of all families: one family is flushed when it uses this share.
const FAMILY_SHARE: usize = 4;
/// Divisor of the write buffer memory that limits the size of the log.
const LOG_SHARE: usize = 2;
/// Upper limit of the log size; beyond it, data that exists only in the log is flushed to tables. A start
/// after a crash replays the whole log into memory record by record and writes it to tables, which takes
/// about 30 ms of CPU time per MB of small records.
const LOG_BYTES_MAX: usize = 8 << 20;
/// Number of threads that open tables at a start, per family. They are started even for few tables, and the
/// default is 16: with ten families, starting them costs more than opening the tables.
const OPENING_THREADS: i32 = 1;
const INFO_LOG_BYTES_MAX: usize = 4 << 20;
const INFO_LOG_FILES_MAX: usize = 4;
const MANIFEST_BYTES_MAX: usize = 64 << 20;
const BYTES_PER_SYNC: u64 = 1 << 20;

/// Returns the options of the database as a whole.
pub(super) fn database(config: &MetaConfig) -> Options {
    let mut options = Options::default();
    options.create_missing_column_families(true);
    options.set_paranoid_checks(true);
    // Recovery after a crash ends before the first incomplete record of the log. RocksDB 7.8 does not recycle
    // logs in this mode, because recovery could then leave out commits in the middle.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_recycle_log_file_num(0);
    options.set_max_total_wal_size((config.write_buffer_bytes / LOG_SHARE).min(LOG_BYTES_MAX) as u64);
    options.set_db_write_buffer_size(config.write_buffer_bytes);
    options.set_max_open_files(i32::from(config.open_files_max));
    options.set_max_file_opening_threads(OPENING_THREADS);
    // Waiting writers sleep: spinning would take processors that calls need.
    options.set_enable_write_thread_adaptive_yield(false);
    options.set_max_background_jobs(i32::from(config.background_jobs));
    options.set_bytes_per_sync(BYTES_PER_SYNC);
    options.set_max_manifest_file_size(MANIFEST_BYTES_MAX);
    // Nothing is logged after the open: an assertion aborts the process if a second line follows one that
    // could not be written. Errors are returned anyway.
    options.set_log_level(LogLevel::Fatal);
    options.set_max_log_file_size(INFO_LOG_BYTES_MAX);
    options.set_keep_log_file_num(INFO_LOG_FILES_MAX);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    // Keeps the start fast regardless of the number of table files.
    options.set_skip_stats_update_on_db_open(true);
    options
}

/// Name of the option, for `set_options`, that disables automatic compaction.
pub(super) const NO_COMPACTION: &str = "disable_auto_compactions";

/// Returns the families with their options; all share one block cache. If `is_at_rest`, automatic compaction is
/// disabled.
pub(super) fn families(
    config: &MetaConfig,
    families: &[Family],
    is_at_rest: bool,
) -> Vec<ColumnFamilyDescriptor> {
    // RocksDB requires a family of this name; it stays empty.
    let names = families.iter().map(|family| family.name()).chain(["default"]);
    described(config, names, is_at_rest)
}

/// Returns the families of these names.
pub(super) fn families_named(config: &MetaConfig, names: &[String]) -> Vec<ColumnFamilyDescriptor> {
    described(config, names.iter().map(String::as_str), false)
}

fn described<'a>(
    config: &MetaConfig,
    names: impl Iterator<Item = &'a str>,
    is_at_rest: bool,
) -> Vec<ColumnFamilyDescriptor> {
    let cache = Cache::new_lru_cache(config.cache_bytes).ok();
    let describe = |name: &str| {
        let mut options = family(config, cache.as_ref());
        options.set_disable_auto_compactions(is_at_rest);
        ColumnFamilyDescriptor::new(name, options)
    };
    names.map(describe).collect()
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
    // Indexes and filters count towards the cache limit, so that memory stays bounded.
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tables.set_format_version(5);
    tables
}
