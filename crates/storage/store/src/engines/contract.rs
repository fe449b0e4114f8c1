//! What every engine has to do, as tests that a crate with an engine runs on it. Each takes an engine and a folder
//! in which it has no database, and panics if the engine does something else.

use crate::{
    Batch, CommitNumber, Family, KeyRange, MetaConfig, MetaEngine, MetaOptions, MetaStore, StoreError,
};
use std::ops::ControlFlow;
use std::path::Path;

pub(crate) const ITEMS: Family = Family::new(2, "items");
/// Its records name chunks.
pub(crate) const NAMES: Family = Family::new(4, "names");

/// As many as a server declares, in no order.
pub(crate) const FAMILIES: [Family; 7] = [
    NAMES,
    ITEMS,
    Family::new(1, "one"),
    Family::new(3, "three"),
    Family::new(8, "eight"),
    Family::new(6, "six"),
    Family::new(7, "seven"),
];

/// A function of this module.
pub type Clause = fn(&dyn MetaEngine, &Path);

/// All functions of this module with their names.
pub const CLAUSES: [(&str, Clause); 8] = [
    ("a closed database opens again with its contents", opens_again),
    ("a read-only database has everything and takes nothing", opens_read_only),
    ("a family that is not declared is an error", refuses_unknown_families),
    ("many keys are read as one by one", reads_many),
    ("a scan is bounded, ordered, and of one family", scans_in_order),
    ("statistics count commits and syncs", counts),
    ("a failed database is read but not written", fails_once),
    ("a snapshot is not affected by later commits", keeps_snapshots),
];

fn options() -> MetaOptions<'static> {
    MetaOptions { families: &FAMILIES, config: MetaConfig::small(), ..MetaOptions::default() }
}

fn put(meta: &dyn MetaStore, family: Family, key: &[u8], value: &str) -> CommitNumber {
    let mut batch = Batch::new();
    batch.put(family, key, value);
    meta.commit(batch).unwrap()
}

/// A closed database opens again with its contents.
pub fn opens_again(engine: &dyn MetaEngine, folder: &Path) {
    let missing = MetaOptions { create: false, ..options() };
    assert!(matches!(engine.open(folder, &missing), Err(StoreError::Meta(_))));
    let meta = engine.open(folder, &options()).unwrap();
    put(&*meta, ITEMS, b"k", "synced");
    meta.sync(put(&*meta, NAMES, b"k", "too")).unwrap();
    put(&*meta, ITEMS, b"", "closing makes it durable");
    drop(meta);
    let meta = engine.open(folder, &missing).unwrap();
    assert_eq!(meta.get(ITEMS, b"k").unwrap().unwrap(), "synced");
    assert_eq!(meta.get(NAMES, b"k").unwrap().unwrap(), "too");
    assert_eq!(meta.get(ITEMS, b"").unwrap().unwrap(), "closing makes it durable");
    assert_eq!(meta.get(Family::SYSTEM, b"k").unwrap(), None);
}

/// A database that is open read-only has everything and takes nothing.
pub fn opens_read_only(engine: &dyn MetaEngine, folder: &Path) {
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
}

/// A database with a family that is not declared is not opened. An engine in memory may not know families.
pub fn refuses_unknown_families(engine: &dyn MetaEngine, folder: &Path) {
    let one = [ITEMS];
    let fewer = MetaOptions { families: &one, ..options() };
    drop(engine.open(folder, &fewer).unwrap());
    drop(engine.open(folder, &options()).unwrap());
    match engine.open(folder, &fewer) {
        Ok(_) => assert!(format!("{engine:?}").starts_with("MemoryEngine")),
        Err(error) => assert!(matches!(error, StoreError::Meta(_)), "{error}"),
    }
}

/// Many keys are read as one by one.
pub fn reads_many(engine: &dyn MetaEngine, folder: &Path) {
    let meta = engine.open(folder, &options()).unwrap();
    (0..100u8).filter(|n| n % 3 > 0).for_each(|n| _ = put(&*meta, ITEMS, &[n], &n.to_string()));
    let keys: Vec<[u8; 1]> = (0..100u8).map(|n| [n.wrapping_mul(7)]).collect();
    let keys: Vec<&[u8]> = keys.iter().chain([&[3]]).map(|key| &key[..]).collect();
    let one_by_one: Vec<_> = keys.iter().map(|key| meta.get(ITEMS, key).unwrap()).collect();
    assert_eq!(meta.get_many(ITEMS, &keys).unwrap(), one_by_one);
    assert!(one_by_one.iter().any(Option::is_some) && one_by_one.iter().any(Option::is_none));
    assert!(meta.get_many(ITEMS, &[]).unwrap().is_empty());
}

/// A scan visits the keys of its family between its bounds in the order asked for, until it is stopped.
pub fn scans_in_order(engine: &dyn MetaEngine, folder: &Path) {
    let meta = engine.open(folder, &options()).unwrap();
    for family in [Family::new(1, "one"), ITEMS, Family::new(3, "three")] {
        for key in [&b"a"[..], b"b", b"b\0", b"c", b"\xff\xff"] {
            put(&*meta, family, key, family.name());
        }
    }
    let keys = |range: KeyRange<'_>, most: usize| {
        let mut keys = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            assert_eq!(value, ITEMS.name().as_bytes());
            keys.push(key.to_vec());
            if keys.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        meta.scan(ITEMS, range, &mut visit).unwrap();
        keys
    };
    assert_eq!(keys(KeyRange::ascending(b"b", b"c"), 9), [&b"b"[..], b"b\0"]);
    assert_eq!(keys(KeyRange::descending(b"", b"c"), 9), [&b"b\0"[..], b"b", b"a"]);
    assert_eq!(keys(KeyRange::ascending(b"", b"\xff\xff\xff"), 9).len(), 5);
    assert_eq!(keys(KeyRange::descending(b"", b"\xff\xff\xff"), 1), [b"\xff\xff"]);
    assert!(
        keys(KeyRange::ascending(b"c", b"b"), 9).is_empty()
            && keys(KeyRange::ascending(b"c", b"c"), 9).is_empty()
    );
}

/// Statistics count commits and syncs.
pub fn counts(engine: &dyn MetaEngine, folder: &Path) {
    let meta = engine.open(folder, &options()).unwrap();
    for _ in 0..3 {
        meta.sync(put(&*meta, ITEMS, b"k", "v")).unwrap();
    }
    let statistics = meta.statistics();
    assert_eq!((statistics.commits, statistics.sync_requests, statistics.syncs), (3, 3, 3));
    assert!(statistics.log_bytes > 0);
    meta.begin_upkeep().unwrap();
}

/// A failed database is read but not written.
pub fn fails_once(engine: &dyn MetaEngine, folder: &Path) {
    let meta = engine.open(folder, &options()).unwrap();
    meta.sync(put(&*meta, ITEMS, b"k", "v")).unwrap();
    let number = put(&*meta, ITEMS, b"not durable", "v");
    let fenced = meta.health().fenced();
    _ = meta.health().fail(fenced);
    assert!(matches!(meta.sync(number), Err(StoreError::Fenced { .. })));
    assert!(matches!(meta.commit(Batch::new()), Err(StoreError::Fenced { .. })));
    assert_eq!(meta.get(ITEMS, b"k").unwrap().unwrap(), "v");
    assert!(meta.failure().unwrap().contains("taken over"));
}

/// A snapshot is not affected by later commits.
pub fn keeps_snapshots(engine: &dyn MetaEngine, folder: &Path) {
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
}
