mod rot;

use super::*;
use crate::test_families::{self, ITEMS, NAMES};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

fn small() -> MetaConfig {
    MetaConfig { cache_bytes: 1 << 20, write_buffer_bytes: 1 << 20, open_files_max: 64, background_jobs: 2 }
}

fn options() -> MetaOptions<'static> {
    MetaOptions { families: &test_families::ALL, config: small(), ..MetaOptions::default() }
}

fn all_families() -> Vec<Family> {
    options().all_families()
}

fn open(folder: &Path) -> RocksMeta {
    RocksMeta::open(folder, &options()).unwrap()
}

fn put(meta: &dyn MetaStore, family: Family, key: &[u8], value: &[u8]) -> CommitNumber {
    let mut batch = Batch::new();
    batch.put(family, key, value);
    meta.commit(batch).unwrap()
}

fn keys(meta: &dyn MetaStore, range: KeyRange<'_>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        found.push(key.to_vec());
        ControlFlow::Continue(())
    };
    meta.scan(ITEMS, range, &mut visit).unwrap();
    found
}

#[test]
fn families_are_apart_and_batches_are_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    let mut batch = Batch::new();
    for family in all_families() {
        batch.put(family, "k", family.name());
        batch.put(family, "gone", "x");
        batch.delete(family, "gone");
    }
    batch.delete(ITEMS, "never there");
    meta.sync(meta.commit(batch).unwrap()).unwrap();
    drop(meta);
    let meta = open(folder.path());
    for family in all_families() {
        assert_eq!(meta.get(family, b"k").unwrap().unwrap(), family.name());
        assert_eq!(meta.get(family, b"gone").unwrap(), None);
    }
}

#[test]
fn scans_are_bounded_on_both_sides_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    for key in ["a", "b", "ba", "c", "\u{ff}"] {
        put(&meta, ITEMS, key.as_bytes(), b"");
    }
    assert_eq!(keys(&meta, KeyRange::ascending(b"b", b"c")), [b"b".to_vec(), b"ba".to_vec()]);
    assert_eq!(keys(&meta, KeyRange::descending(b"b", b"c")), [b"ba".to_vec(), b"b".to_vec()]);
    assert!(keys(&meta, KeyRange::ascending(b"c", b"b")).is_empty());
    assert!(keys(&meta, KeyRange::descending(b"b", b"b")).is_empty());
    let mut seen = 0;
    let mut stop = |_: &[u8], _: &[u8]| {
        seen += 1;
        ControlFlow::Break(())
    };
    meta.scan(ITEMS, KeyRange::ascending(b"", b"z"), &mut stop).unwrap();
    assert_eq!(seen, 1);
}

#[test]
fn a_scan_sees_one_state_although_its_visitor_writes() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    (0..100u8).for_each(|n| _ = put(&meta, ITEMS, &[n], b"old"));
    let mut seen = 0;
    let mut visit = |_: &[u8], value: &[u8]| {
        assert_eq!(value, b"old");
        (0..200u8).for_each(|n| _ = put(&meta, ITEMS, &[n], b"new"));
        seen += 1;
        ControlFlow::Continue(())
    };
    meta.scan(ITEMS, KeyRange::ascending(&[0], &[255]), &mut visit).unwrap();
    assert_eq!(seen, 100);
}

#[test]
fn many_threads_share_syncs() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    thread::scope(|scope| {
        for thread in 0..8u8 {
            let meta = &meta;
            scope.spawn(move || {
                for n in 0..20u8 {
                    meta.sync(put(meta, ITEMS, &[thread, n], b"x")).unwrap();
                }
            });
        }
    });
    let statistics = meta.statistics();
    assert_eq!((statistics.commits, statistics.sync_requests), (160, 160));
    assert!(statistics.syncs <= 160);
    assert_eq!(keys(&meta, KeyRange::ascending(&[0], &[255])).len(), 160);
}

#[test]
fn stores_are_created_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    assert!(RocksMeta::open(folder.path(), &MetaOptions { create: false, ..options() }).is_err());
    drop(open(folder.path()));
    RocksMeta::open(folder.path(), &MetaOptions { create: false, ..options() }).unwrap();
}

#[test]
fn two_cannot_open_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let _meta = open(folder.path());
    assert!(matches!(RocksMeta::open(folder.path(), &options()), Err(StoreError::Meta(_))));
}

#[test]
fn after_a_failure_nothing_is_acknowledged_but_reads_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    meta.sync(put(&meta, ITEMS, b"k", b"v")).unwrap();
    let number = put(&meta, ITEMS, b"later", b"v");
    _ = meta.health.fail(StoreError::Meta("injected".into()));
    assert!(matches!(meta.sync(number), Err(StoreError::ReadOnly(_))));
    assert!(matches!(meta.commit(Batch::new()), Err(StoreError::ReadOnly(_))));
    assert_eq!(meta.get(ITEMS, b"k").unwrap().unwrap(), "v");
    assert!(meta.failure().unwrap().contains("injected"));
}

/// Returns all keys that each kind of read finds.
fn found(meta: &RocksMeta, keys: &[Vec<u8>]) -> [Vec<Vec<u8>>; 4] {
    let all = KeyRange::ascending(b"", b"\xff");
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let many = meta.get_many(ITEMS, &names).unwrap();
    let mut scanned = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        scanned.push(key.to_vec());
        ControlFlow::Continue(())
    };
    meta.snapshot().scan(ITEMS, all, &mut visit).unwrap();
    [
        keys.iter().filter(|key| meta.get(ITEMS, key).unwrap().is_some()).cloned().collect(),
        keys.iter().zip(many).filter_map(|(key, value)| value.map(|_| key.clone())).collect(),
        self::keys(meta, all),
        scanned,
    ]
}

#[test]
fn a_failed_database_shows_only_what_was_durable() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    let names = [b"durable".to_vec(), b"lost".to_vec(), b"opened".to_vec()];
    put(&meta, ITEMS, b"opened", b"1");
    drop(meta);
    let meta = open(folder.path());
    meta.sync(put(&meta, ITEMS, b"durable", b"1")).unwrap();
    put(&meta, ITEMS, b"lost", b"1");
    put(&meta, ITEMS, b"durable", b"2");
    let before = meta.snapshot();
    assert_eq!(found(&meta, &names), [(); 4].map(|()| names.to_vec()));
    meta.health.fail(StoreError::Meta("the disk failed".into()));
    let durable = vec![names[0].clone(), names[2].clone()];
    assert_eq!(found(&meta, &names), [(); 4].map(|()| durable.clone()));
    assert_eq!(meta.get(ITEMS, b"durable").unwrap().unwrap(), "1");
    let mut seen = 0;
    let mut count = |_: &[u8], _: &[u8]| {
        seen += 1;
        ControlFlow::Continue(())
    };
    before.scan(ITEMS, KeyRange::ascending(b"", b"\xff"), &mut count).unwrap();
    assert_eq!(seen, 3, "a snapshot keeps its state");
}

/// Whenever the failure comes, every acknowledged commit is shown. Others are not, unless a sync covered them before their
/// threads asked for one.
#[test]
fn a_failed_database_shows_what_was_acknowledged() {
    for pause in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let meta = open(folder.path());
        let write = |thread: u8| {
            let mut acknowledged = Vec::new();
            for number in 0..u32::MAX {
                let key = [&[thread][..], &number.to_be_bytes()].concat();
                let mut batch = Batch::new();
                batch.put(ITEMS, key.clone(), "");
                if meta.commit(batch).and_then(|number| meta.sync(number)).is_err() {
                    return acknowledged;
                }
                acknowledged.push(key);
            }
            panic!("nothing failed");
        };
        let acknowledged: Vec<Vec<u8>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || write(number))).collect();
            thread::sleep(Duration::from_millis(pause));
            meta.health.fail(StoreError::Meta("the disk failed".into()));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let shown = keys(&meta, KeyRange::ascending(b"", b"\xff"));
        assert!(acknowledged.iter().all(|key| shown.binary_search(key).is_ok()));
        assert!(shown.len() <= acknowledged.len() + 4, "{} and {}", shown.len(), acknowledged.len());
    }
}

#[test]
fn a_damaged_table_is_reported_as_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    (0..2000u32).for_each(|n| _ = put(&meta, ITEMS, &n.to_be_bytes(), &[n as u8; 100]));
    meta.db.flush_cf(meta.family(ITEMS).unwrap()).unwrap();
    drop(meta);
    let is_table = |path: &std::path::PathBuf| path.extension().is_some_and(|ext| ext == "sst");
    let mut tables: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(is_table)
        .collect();
    tables.sort_by_key(|path| std::fs::metadata(path).unwrap().len());
    let largest = tables.last().unwrap();
    let mut bytes = std::fs::read(largest).unwrap();
    bytes[100..200].fill(0x55);
    std::fs::write(largest, bytes).unwrap();
    let meta = open(folder.path());
    let error = meta.get(ITEMS, &0u32.to_be_bytes()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

/// One step of a history; it uses few keys, so that steps collide.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, Vec<u8>, u8),
    Delete(u8, Vec<u8>),
    Scan(u8, Vec<u8>, Vec<u8>, bool),
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x7f, 0xff]), 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..8u8, key(), any::<u8>()).prop_map(|(family, key, value)| Step::Put(family, key, value)),
        4 => (0..8u8, key()).prop_map(|(family, key)| Step::Delete(family, key)),
        4 => (0..8u8, key(), key(), any::<bool>()).prop_map(|(family, from, to, back)| Step::Scan(family, from, to, back)),
        1 => Just(Step::Reopen),
    ]
}

fn scanned(meta: &dyn MetaStore, family: Family, range: KeyRange<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    meta.scan(family, range, &mut visit).unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// RocksDB and the store in memory behave identically.
    #[test]
    fn it_behaves_like_the_memory_engine(steps in prop::collection::vec(step(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let model = crate::MemoryMeta::new();
        let mut meta = open(folder.path());
        for step in steps {
            match step {
                Step::Put(family, key, value) => {
                    for store in [&meta as &dyn MetaStore, &model] {
                        put(store, all_families()[family as usize], &key, &[value]);
                    }
                }
                Step::Delete(family, key) => {
                    for store in [&meta as &dyn MetaStore, &model] {
                        let mut batch = Batch::new();
                        batch.delete(all_families()[family as usize], key.clone());
                        store.commit(batch).unwrap();
                    }
                }
                Step::Scan(family, from, to, reverse) => {
                    let family = all_families()[family as usize];
                    let range = KeyRange { from: &from, to: &to, reverse };
                    prop_assert_eq!(scanned(&meta, family, range), scanned(&model, family, range));
                    prop_assert_eq!(meta.get(family, &from).unwrap(), model.get(family, &from).unwrap());
                }
                Step::Reopen => {
                    drop(meta);
                    meta = open(folder.path());
                }
            }
        }
    }
}

#[test]
fn a_snapshot_does_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let rocks = open(&folder.path().join("meta"));
    let memory = crate::MemoryMeta::new();
    for meta in [&rocks as &dyn MetaStore, &memory] {
        let change = |key: &str, value: Option<&str>| {
            let mut batch = Batch::new();
            match value {
                Some(value) => batch.put(NAMES, key, value),
                None => batch.delete(NAMES, key),
            }
            meta.commit(batch).unwrap();
        };
        change("a", Some("1"));
        change("b", Some("2"));
        let state = meta.snapshot();
        change("a", None);
        change("b", Some("3"));
        change("c", Some("4"));
        let mut found = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            std::ops::ControlFlow::Continue(())
        };
        state.scan(NAMES, KeyRange::ascending(b"", b"z"), &mut visit).unwrap();
        assert_eq!(found, [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
    }
}

#[test]
fn tables_are_merged_when_the_start_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let open = || RocksMeta::open(folder.path(), &MetaOptions { defers_upkeep: true, ..options() }).unwrap();
    let tables = |meta: &RocksMeta| {
        let handle = meta.family(ITEMS).unwrap();
        meta.db.property_int_value_cf(handle, "rocksdb.num-files-at-level0").unwrap().unwrap()
    };
    // Each close leaves a table; with four of them, a compaction is due.
    for round in 0..8u8 {
        let meta = open();
        assert_eq!(tables(&meta), u64::from(round));
        put(&meta, ITEMS, &[round], b"x");
    }
    let meta = open();
    thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(tables(&meta), 8, "nothing is merged before it is told to");
    meta.begin_upkeep().unwrap();
    let begun = std::time::Instant::now();
    while tables(&meta) >= 8 {
        assert!(begun.elapsed().as_secs() < 120, "nothing is merged");
        thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(keys(&meta, KeyRange::ascending(b"", b"\xff")).len(), 8);
}

#[test]
fn an_option_that_cannot_be_set_is_an_error_that_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let meta = RocksMeta::open(folder.path(), &options()).unwrap();
    let error = meta.set_of_all("disable_auto_compactions", "perhaps").unwrap_err().to_string();
    assert!(error.contains("disable_auto_compactions of"), "{error}");
    meta.begin_upkeep().unwrap();
}

#[test]
fn a_failed_sync_of_the_log_is_final_and_closes_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    let number = put(&meta, ITEMS, b"k", b"v");
    meta.sync(number).unwrap();
    std::fs::rename(folder.path(), folder.path().with_extension("away")).unwrap();
    // The next sync has to open the log, which no longer exists under its name.
    meta.logs.forget();
    let error = meta.sync(put(&meta, ITEMS, b"k", b"w")).unwrap_err();
    std::fs::rename(folder.path().with_extension("away"), folder.path()).unwrap();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert!(matches!(meta.commit(Batch::new()), Err(StoreError::ReadOnly(_))));
    assert!(matches!(meta.begin_upkeep(), Err(StoreError::ReadOnly(_))));
    assert_eq!(meta.get(ITEMS, b"k").unwrap().unwrap(), "v", "what was not synced is not shown");
    drop(meta);
    assert_eq!(open(folder.path()).get(ITEMS, b"k").unwrap().unwrap(), "w");
}

#[test]
fn the_layout_changes_whenever_a_log_begins() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    let logs = || {
        let names = std::fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_suffix(".log").map(str::to_owned)).max()
    };
    let (mut known, mut begun) = ((meta.layout().unwrap(), logs()), 0);
    for number in 0..3000u32 {
        put(&meta, all_families()[number as usize % 9], &number.to_be_bytes(), &[number as u8; 2000]);
        let now = (meta.layout().unwrap(), logs());
        assert!(now.1 == known.1 || now.0 > known.0, "{known:?}, {now:?}");
        begun += u32::from(now.1 != known.1);
        known = now;
    }
    assert!(begun > 3, "{begun}");
}

/// Copies a database as a kill would leave it.
fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let copied = std::fs::copy(entry.path(), to.path().join(entry.file_name()));
        // RocksDB removes files that it does not need.
        assert!(copied.is_ok() || !entry.path().exists(), "{copied:?}");
    }
    to
}

/// Returns the path of the newest log.
fn newest_log(folder: &Path) -> std::path::PathBuf {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ext| ext == "log")).max().unwrap()
}

/// Commits a number to two families.
fn commit_number(meta: &RocksMeta, number: u32, value_bytes: usize) -> CommitNumber {
    let mut batch = Batch::new();
    batch.put(ITEMS, number.to_be_bytes(), vec![number as u8; value_bytes]);
    batch.put(NAMES, number.to_be_bytes(), "x");
    meta.commit(batch).unwrap()
}

/// Returns the numbers that are there, which must be the same in both families.
fn numbers(meta: &RocksMeta) -> Vec<u32> {
    let in_family = |family| -> Vec<u32> {
        let found = scanned(meta, family, KeyRange::ascending(b"", &[0xff; 8]));
        found.into_iter().map(|(key, _)| u32::from_be_bytes(key.try_into().unwrap())).collect()
    };
    let found = in_family(ITEMS);
    assert_eq!(found, in_family(NAMES), "half of a batch");
    found
}

#[test]
fn rocksdb_skips_a_lost_block_unless_the_gap_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    let length = || std::fs::metadata(newest_log(folder.path())).unwrap().len() as usize;
    let mut lengths = vec![length()];
    commit_number(&meta, 0, 20_000);
    lengths.push(length());
    // A record that ends exactly with the block; the number of its length has as many bytes.
    let around = lengths[1] - lengths[0] - 20_000;
    commit_number(&meta, 1, survey::BLOCK_BYTES - lengths[1] - around + 1);
    assert_eq!(length(), survey::BLOCK_BYTES);
    commit_number(&meta, 2, 100);
    let crashed = copy(folder.path());
    let log = newest_log(crashed.path());
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[lengths[1]..survey::BLOCK_BYTES].fill(0);
    std::fs::write(&log, bytes).unwrap();

    let error = RocksMeta::open_read_only(crashed.path()).err().unwrap().to_string();
    assert!(error.contains(&format!("a gap in {} at {}", log.display(), lengths[1])), "{error}");
    let untouched = copy(crashed.path());
    let families = options::families(&small(), &all_families(), false);
    let db = DB::open_cf_descriptors(&options::database(&small()), untouched.path(), families).unwrap();
    assert_eq!(numbers(&RocksMeta::new(db, all_families(), false).unwrap()), [0, 2], "RocksDB alone");
    assert_eq!(numbers(&open(crashed.path())), [0]);
    assert_eq!(numbers(&RocksMeta::open_read_only(crashed.path()).unwrap()), [0]);
}

/// The log of a real database and what a disk that tears, loses and reorders writes has of it.
struct Shadowed {
    folder: tempfile::TempDir,
    meta: RocksMeta,
    disk: disk::FaultyDisk,
    shadow: Arc<dyn disk::File>,
    seen: Vec<u8>,
}

impl Shadowed {
    fn new(seed: u64) -> Shadowed {
        let folder = tempfile::tempdir().unwrap();
        let meta = open(folder.path());
        let garbling = disk::Garbling { noise: seed.is_multiple_of(2), ..disk::Garbling::default() };
        let disk = disk::FaultyDisk::new(seed, garbling);
        let shadow = disk::Disk::create(&disk, Path::new("/log")).unwrap();
        disk::Disk::sync_dir(&disk, Path::new("/")).unwrap();
        Shadowed { folder, meta, disk, shadow, seen: Vec::new() }
    }

    /// Repeats on the other disk what was written to the log.
    fn follow(&mut self) {
        let now = std::fs::read(newest_log(self.folder.path())).unwrap();
        let differs = |at: &usize| self.seen.get(*at) != now.get(*at);
        let from = (0..now.len()).find(differs);
        let to = (0..now.len()).rev().find(differs);
        if let (Some(from), Some(to)) = (from, to) {
            self.shadow.write_all_at(&mut [std::io::IoSlice::new(&now[from..=to])], from as u64).unwrap();
        }
        self.seen = now;
    }

    fn sync(&mut self, number: CommitNumber) {
        self.meta.sync(number).unwrap();
        self.follow();
        self.shadow.sync_data().unwrap();
    }

    /// Returns the numbers found after a power failure.
    fn after_crash(&self) -> Vec<u32> {
        let crashed = copy(self.folder.path());
        let left = disk::Disk::open(&self.disk.crash(), Path::new("/log")).unwrap();
        let mut bytes = vec![0; left.length().unwrap() as usize];
        left.read_exact_at(&mut bytes, 0).unwrap();
        std::fs::write(newest_log(crashed.path()), bytes).unwrap();
        numbers(&open(crashed.path()))
    }
}

#[test]
fn a_power_failure_leaves_a_prefix_with_all_synced_commits() {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    let (mut crashes, mut lost) = (0, 0);
    seeds::play(25, |seed| {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut log = Shadowed::new(seed);
        let (mut durable, commits) = (0, rng.random_range(1..40));
        for number in 0..commits {
            let most = if rng.random() { 200 } else { 15_000 };
            let committed = commit_number(&log.meta, number, rng.random_range(1..most));
            log.follow();
            if rng.random_ratio(1, 8) {
                log.sync(committed);
                durable = number + 1;
            }
        }
        for _ in 0..2 {
            let found = log.after_crash();
            let is_prefix = found.iter().copied().eq(0..found.len() as u32);
            assert!(is_prefix && found.len() as u32 >= durable, "{found:?}, {durable} durable");
            (crashes, lost) = (crashes + 1, lost + commits - found.len() as u32);
        }
    });
    assert!(crashes == 50 && lost > 50, "{crashes} crashes, {lost} commits lost");
}
