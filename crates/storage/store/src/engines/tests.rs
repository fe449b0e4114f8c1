//! What every engine has to do.

use super::memory::MemoryEngine;
use super::*;
use crate::test_families::{self, ITEMS, NAMES};
use crate::{Batch, CommitNumber, Family, KeyRange, MetaConfig, MetaOptions, MetaStore, StoreError};
use std::ops::ControlFlow;
use std::path::Path;

/// Runs a test in a new folder with each engine.
fn with_each(test: impl Fn(&dyn MetaEngine, &Path)) {
    for engine in [local(), Arc::new(MemoryEngine::new())] {
        let folder = tempfile::tempdir().unwrap();
        test(&*engine, &folder.path().join("meta"));
    }
}

fn options() -> MetaOptions<'static> {
    MetaOptions { families: &test_families::ALL, config: MetaConfig::small(), ..MetaOptions::default() }
}

fn put(meta: &dyn MetaStore, family: Family, key: &[u8], value: &str) -> CommitNumber {
    let mut batch = Batch::new();
    batch.put(family, key, value);
    meta.commit(batch).unwrap()
}

#[test]
fn a_closed_database_opens_again_with_its_contents() {
    with_each(|engine, folder| {
        let missing = MetaOptions { create: false, ..options() };
        assert!(matches!(engine.open(folder, &missing), Err(StoreError::Meta(_))));
        let meta = engine.open(folder, &options()).unwrap();
        put(&*meta, ITEMS, b"k", "synced");
        meta.sync(put(&*meta, NAMES, b"k", "too")).unwrap();
        drop(meta);
        let meta = engine.open(folder, &missing).unwrap();
        assert_eq!(meta.get(ITEMS, b"k").unwrap().unwrap(), "synced");
        assert_eq!(meta.get(NAMES, b"k").unwrap().unwrap(), "too");
        assert_eq!(meta.get(Family::SYSTEM, b"k").unwrap(), None);
    });
}

#[test]
fn a_read_only_database_has_everything_and_takes_nothing() {
    with_each(|engine, folder| {
        assert!(engine.open_read_only(folder).is_err());
        let meta = engine.open(folder, &options()).unwrap();
        put(&*meta, ITEMS, b"k", "v");
        drop(meta);
        let meta = engine.open_read_only(folder).unwrap();
        assert_eq!(meta.get(ITEMS, b"k").unwrap().unwrap(), "v");
        assert_eq!(meta.get(Family::new(77, "unknown"), b"k").unwrap(), None);
        let mut batch = Batch::new();
        batch.delete(ITEMS, "k");
        assert!(meta.commit(batch).is_err());
        drop(meta);
        assert_eq!(engine.open(folder, &options()).unwrap().get(ITEMS, b"k").unwrap().unwrap(), "v");
    });
}

#[test]
fn many_keys_are_read_as_one_by_one() {
    with_each(|engine, folder| {
        let meta = engine.open(folder, &options()).unwrap();
        (0..100u8).filter(|n| n % 3 > 0).for_each(|n| _ = put(&*meta, ITEMS, &[n], &n.to_string()));
        let keys: Vec<[u8; 1]> = (0..100u8).map(|n| [n.wrapping_mul(7)]).collect();
        let keys: Vec<&[u8]> = keys.iter().chain([&[3]]).map(|key| &key[..]).collect();
        let one_by_one: Vec<_> = keys.iter().map(|key| meta.get(ITEMS, key).unwrap()).collect();
        assert_eq!(meta.get_many(ITEMS, &keys).unwrap(), one_by_one);
        assert!(one_by_one.iter().any(Option::is_some) && one_by_one.iter().any(Option::is_none));
        assert!(meta.get_many(ITEMS, &[]).unwrap().is_empty());
    });
}

#[test]
fn statistics_count_commits_and_syncs() {
    with_each(|engine, folder| {
        let meta = engine.open(folder, &options()).unwrap();
        for _ in 0..3 {
            meta.sync(put(&*meta, ITEMS, b"k", "v")).unwrap();
        }
        let statistics = meta.statistics();
        assert_eq!((statistics.commits, statistics.sync_requests, statistics.syncs), (3, 3, 3));
        assert!(statistics.log_bytes > 0);
        meta.begin_upkeep().unwrap();
    });
}

#[test]
fn a_failed_database_is_read_but_not_written() {
    with_each(|engine, folder| {
        let meta = engine.open(folder, &options()).unwrap();
        let number = put(&*meta, ITEMS, b"k", "v");
        let fenced = meta.health().fenced();
        _ = meta.health().fail(fenced);
        assert!(matches!(meta.sync(number), Err(StoreError::Fenced { .. })));
        assert!(matches!(meta.commit(Batch::new()), Err(StoreError::Fenced { .. })));
        assert_eq!(meta.get(ITEMS, b"k").unwrap().unwrap(), "v");
        assert!(meta.failure().unwrap().contains("taken over"));
    });
}

#[test]
fn a_snapshot_is_not_affected_by_later_commits() {
    with_each(|engine, folder| {
        let meta = engine.open(folder, &options()).unwrap();
        put(&*meta, ITEMS, b"a", "1");
        let state = meta.snapshot();
        put(&*meta, ITEMS, b"a", "2");
        put(&*meta, ITEMS, b"b", "3");
        let mut found = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            found.push([key, value].concat());
            ControlFlow::Continue(())
        };
        state.scan(ITEMS, KeyRange::ascending(b"", b"z"), &mut visit).unwrap();
        assert_eq!(found, [b"a1"]);
    });
}
