//! Thousands of seeded histories of a database in a bucket that refuses, delays, loses, repeats and never answers
//! requests, and whose answers break off, of processes that crash, and of processes that sleep while another takes over. After every open, the
//! database is a prefix of the commits of the process before, and it has every acknowledged one. After a takeover, the
//! earlier process gets no acknowledgement of a commit that its successor does not have. After an outage, or a time
//! without permission, the database serves again without being opened again. A bucket that denies that an object exists
//! may close the database or prevent an open, but nothing is missing in what is read or opened.
//!
//! Each process has a runtime and a clock of its own that runs only while it is called, so a history takes
//! milliseconds, and a process that is not called is one that sleeps. `CELLAR_BUCKET_COUNT=n` sets the number of
//! histories.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use slate_meta::faulty::{Away, Faults, FaultyBucket, Met};
use slate_meta::{SlateConfig, SlateEngine};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Batch, CommitNumber, Family, KeyRange, MetaConfig, MetaDatabase, MetaEngine, MetaOptions, MetaStore,
    Snapshot, StoreError,
};
use tokio::runtime::{Builder, Runtime};

const HISTORIES: u64 = 300;
const STEPS: u32 = 40;
const KEYS: u8 = 12;
const ITEMS: Family = Family::new(2, "items");
const NAMES: Family = Family::new(4, "names");
/// Has one record with the number of the commit, so that no two states are equal.
const COUNTS: Family = Family::new(7, "counts");
const FAMILIES: [Family; 3] = [ITEMS, NAMES, COUNTS];
const FOLDER: &str = "/vicepa/cellar/meta";
/// Attempts to open a database in a bucket with faults, each as long as `PATIENCE`.
const OPENS_MAX: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(30);

type Records = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

/// What all histories together covered, to prove that the test exercises everything.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    commits: u64,
    acknowledged: u64,
    reads: u64,
    snapshots: u64,
    crashes: u64,
    lost_unacknowledged: u64,
    orderly_ends: u64,
    takeovers: u64,
    fenced: u64,
    outages: u64,
    unavailable: u64,
    full: u64,
    failed_opens: u64,
    /// Databases that SlateDB closed though no other process had opened them.
    closed: u64,
    /// Calls that failed since the bucket denied that an object exists, and opens.
    missing: u64,
    missing_opens: u64,
}

/// A process with the database open.
struct Node {
    runtime: Arc<Runtime>,
    engine: Option<SlateEngine>,
    meta: Option<Arc<dyn MetaDatabase>>,
    /// The records after every commit since the open, beginning with those at the open, with the commit's number.
    states: Vec<(CommitNumber, Records)>,
    /// Number of these commits that are acknowledged.
    durable: usize,
}

impl Node {
    fn meta(&self) -> &dyn MetaDatabase {
        &**self.meta.as_ref().unwrap()
    }

    fn records(&self) -> &Records {
        &self.states.last().unwrap().1
    }

    fn rest(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Ends the process as a crash does.
    fn crash(mut self) -> (Vec<(CommitNumber, Records)>, usize) {
        self.abandon();
        (std::mem::take(&mut self.states), self.durable)
    }

    fn abandon(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.abandon();
        }
        self.meta = None;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.abandon();
    }
}

struct History {
    rng: SmallRng,
    bucket: FaultyBucket,
    faults: Faults,
    limits: MetaConfig,
    seed: u64,
    nodes: u64,
    node: Option<Node>,
    /// A process that another has taken over from, with the number of its commits that the other found.
    zombie: Option<(Node, usize)>,
    commits: u64,
    is_hiding: bool,
    seen: Seen,
}

fn faults(rng: &mut SmallRng) -> Faults {
    // A third of the histories has one kind of fault only, often; the others have all.
    let mut share = |most: u32| rng.random_range(0..=most);
    let all = Faults {
        refused: share(80),
        lost: share(80),
        own_conflict: share(60),
        late: share(60),
        repeated: share(80),
        delayed: share(80),
        hung: share(8),
    };
    match rng.random_range(0..12) {
        0 => Faults { lost: 300, ..Faults::default() },
        1 => Faults { late: 300, ..Faults::default() },
        2 => Faults { repeated: 500, ..Faults::default() },
        3 => Faults { own_conflict: 400, ..Faults::default() },
        _ => all,
    }
}

fn number(records: &Records) -> u64 {
    let count = records.get(&(COUNTS.number(), b"n".to_vec()));
    count.map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
}

fn scan(
    from: impl Fn(Family, &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError>,
) -> Result<Records, StoreError> {
    let mut found = Records::new();
    for family in FAMILIES {
        from(family, &mut |key, value| _ = found.insert((family.number(), key.to_vec()), value.to_vec()))?;
    }
    Ok(found)
}

fn records_of(meta: &dyn MetaStore, reverse: bool) -> Result<Records, StoreError> {
    let range = KeyRange { from: b"", to: b"\xff", reverse };
    scan(|family, add| {
        meta.scan(family, range, &mut |key, value| {
            add(key, value);
            ControlFlow::Continue(())
        })
    })
}

fn records_in(state: &dyn Snapshot) -> Result<Records, StoreError> {
    scan(|family, add| {
        state.scan(family, KeyRange::ascending(b"", b"\xff"), &mut |key, value| {
            add(key, value);
            ControlFlow::Continue(())
        })
    })
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let faults = faults(&mut rng);
        let limits = MetaConfig {
            cache_bytes: rng.random_range(1..100_000),
            // Small, so that tables are written and merged often.
            write_buffer_bytes: rng.random_range(4000..100_000),
            ..MetaConfig::small()
        };
        let bucket = FaultyBucket::new(seed, Faults::default());
        let mut history = History {
            rng,
            bucket,
            faults,
            limits,
            seed,
            nodes: 0,
            node: None,
            zombie: None,
            commits: 0,
            is_hiding: false,
            seen: Seen::default(),
        };
        history.node = Some(history.open());
        history.bucket.set_faults(faults);
        history.bucket.set_cut(u32::try_from(seed % 3).unwrap_or(0) * 50);
        history
    }

    fn node(&mut self) -> &mut Node {
        self.node.as_mut().unwrap()
    }

    /// Tries once to open the database in a new process.
    fn try_open(&mut self) -> Result<Node, StoreError> {
        self.nodes += 1;
        let garbage_age =
            self.rng.random_bool(0.5).then(|| Duration::from_secs(self.rng.random_range(1..60)));
        let runtime =
            Arc::new(Builder::new_current_thread().enable_time().start_paused(true).build().unwrap());
        let config = SlateConfig {
            patience: PATIENCE,
            request_limit: Duration::from_secs(5),
            garbage_age,
            seed: Some(self.seed << 20 | self.nodes),
            ..SlateConfig::default()
        };
        let bucket = Arc::new(self.bucket.clone());
        let engine = SlateEngine::with_runtime(Arc::clone(&runtime), bucket, "p1", config);
        let options = MetaOptions { families: &FAMILIES, config: self.limits, ..MetaOptions::default() };
        let opened = engine.open(Path::new(FOLDER), &options).and_then(|meta| {
            let records = records_of(&*meta, false)?;
            Ok((meta, records))
        });
        match opened {
            Ok((meta, records)) => {
                let states = vec![(CommitNumber(0), records)];
                Ok(Node { runtime, engine: Some(engine), meta: Some(meta), states, durable: 0 })
            }
            Err(error) => {
                engine.abandon();
                Err(error)
            }
        }
    }

    /// Opens the database in a new process.
    fn open(&mut self) -> Node {
        let mut last = None;
        for _ in 0..OPENS_MAX {
            match self.try_open() {
                Ok(node) => return node,
                Err(error @ StoreError::Unavailable { .. }) => {
                    self.seen.failed_opens += 1;
                    last = Some(error);
                }
                Err(other) => panic!("{other}"),
            }
        }
        panic!("it does not open any more, with {:?}; the last error: {last:?}", self.faults);
    }

    /// Opens the database that the previous process left. `states` are that process's commits; the first `durable`
    /// of them were acknowledged. Returns the number of commits found.
    fn open_after(&mut self, states: &[(CommitNumber, Records)], durable: usize) -> usize {
        let node = self.open();
        self.resume(node, states, durable)
    }

    /// Goes on with a process that has opened what the previous one left, as [`Self::open_after`] does.
    fn resume(&mut self, node: Node, states: &[(CommitNumber, Records)], durable: usize) -> usize {
        let found = node.records();
        let survived = states.iter().position(|(_, records)| records == found).unwrap_or_else(|| {
            panic!(
                "commit {} is not the newest of a prefix of the commits {} to {}",
                number(found),
                number(&states[0].1),
                number(&states.last().unwrap().1)
            )
        });
        assert!(
            survived >= durable,
            "acknowledged commit {} is lost, the newest is {}",
            number(&states[durable].1),
            number(found)
        );
        self.seen.lost_unacknowledged += (states.len() - 1 - survived) as u64;
        self.node = Some(node);
        survived
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..42 => self.commit(),
            42..60 => self.sync(),
            60..70 => self.read(),
            70..73 => self.snapshot(),
            73..80 => {
                let time = Duration::from_millis(self.rng.random_range(0..20_000));
                self.node().rest(time);
            }
            80..85 => self.crash(),
            85..87 => self.restart(),
            87..91 => self.take_over(),
            91..96 => self.wake_zombie(),
            _ => self.outage(),
        }
    }

    fn batch(&mut self, records: &mut Records) -> Batch {
        self.commits += 1;
        let mut batch = Batch::new();
        for _ in 0..self.rng.random_range(1..5) {
            let family = if self.rng.random() { ITEMS } else { NAMES };
            let key = vec![self.rng.random_range(0..KEYS)];
            if self.rng.random_ratio(1, 4) {
                batch.delete(family, key.clone());
                records.remove(&(family.number(), key));
            } else {
                let most = if self.rng.random_ratio(1, 8) { 4000 } else { 100 };
                let value = vec![self.rng.random(); self.rng.random_range(0..most)];
                batch.put(family, key.clone(), value.clone());
                records.insert((family.number(), key), value);
            }
        }
        let count = self.commits.to_be_bytes();
        batch.put(COUNTS, "n", count);
        records.insert((COUNTS.number(), b"n".to_vec()), count.to_vec());
        batch
    }

    fn commit(&mut self) {
        let mut records = self.node().records().clone();
        let batch = self.batch(&mut records);
        let node = self.node.as_mut().unwrap();
        match node.meta().commit(batch) {
            Ok(number) => {
                assert!(number > node.states.last().unwrap().0);
                node.states.push((number, records));
                self.seen.commits += 1;
            }
            // It has not happened, which the next read checks.
            Err(StoreError::Unavailable { .. }) => self.seen.full += 1,
            Err(error) => {
                // It is unknown whether it has.
                node.states.push((CommitNumber(u64::MAX), records));
                self.reopen(&error);
            }
        }
    }

    fn sync(&mut self) {
        let node = self.node.as_mut().unwrap();
        let of = if self.rng.random() {
            node.states.len() - 1
        } else {
            self.rng.random_range(0..node.states.len())
        };
        match node.meta().sync(node.states[of].0) {
            Ok(()) => {
                node.durable = node.durable.max(of);
                self.seen.acknowledged += 1;
            }
            Err(StoreError::Unavailable { .. }) => self.seen.unavailable += 1,
            Err(error) => self.reopen(&error),
        }
    }

    /// Goes on after the database has failed for good, though no other process has it.
    fn reopen(&mut self, error: &StoreError) {
        if self.is_hiding {
            self.seen.missing += 1;
            if self.node().meta().failure().is_none() {
                return;
            }
            self.hide(false);
        }
        println!("seed {}: closed: {error}", self.seed);
        self.seen.closed += 1;
        self.crash();
    }

    fn read(&mut self) {
        let (is_scan, reverse) = (self.rng.random(), self.rng.random());
        let node = self.node.as_mut().unwrap();
        let found = if is_scan {
            records_of(node.meta(), reverse)
        } else {
            let keys: Vec<[u8; 1]> = (0..KEYS).map(|key| [key]).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            [ITEMS, NAMES].iter().try_fold(Records::new(), |mut found, family| {
                for (key, value) in keys.iter().zip(node.meta().get_many(*family, &keys)?) {
                    found.extend(value.map(|value| ((family.number(), key.to_vec()), value.to_vec())));
                }
                Ok(found)
            })
        };
        match found {
            Ok(found) => {
                let expected =
                    node.records().iter().filter(|((family, _), _)| is_scan || *family != COUNTS.number());
                assert!(found.iter().eq(expected), "it reads other records than were committed");
                self.seen.reads += 1;
            }
            Err(StoreError::Unavailable { .. }) => self.seen.unavailable += 1,
            Err(error) => self.reopen(&error),
        }
    }

    fn snapshot(&mut self) {
        let mut records = self.node().records().clone();
        let batch = self.batch(&mut records);
        let node = self.node.as_mut().unwrap();
        let found = {
            let state = node.meta().snapshot();
            let committed = node.meta().commit(batch);
            committed.map(|number| (number, records_in(&*state)))
        };
        match found {
            Ok((number, found)) => {
                match found {
                    Ok(found) => {
                        assert!(found == *node.records(), "a snapshot shows a later commit");
                        self.seen.snapshots += 1;
                    }
                    Err(StoreError::Unavailable { .. }) => self.seen.unavailable += 1,
                    Err(other) => panic!("{other}"),
                }
                node.states.push((number, records));
            }
            Err(StoreError::Unavailable { .. }) => self.seen.full += 1,
            Err(error) => {
                node.states.push((CommitNumber(u64::MAX), records));
                self.reopen(&error);
            }
        }
    }

    fn crash(&mut self) {
        self.seen.crashes += 1;
        let (states, durable) = self.node.take().unwrap().crash();
        self.open_after(&states, durable);
    }

    /// Closes and opens the database, while nothing fails.
    fn restart(&mut self) {
        self.bucket.set_faults(Faults::default());
        let mut node = self.node.take().unwrap();
        let is_failed = node.meta().failure().is_some();
        drop(node.meta.take());
        let (states, durable) = (std::mem::take(&mut node.states), node.durable);
        drop(node);
        let survived = self.open_after(&states, durable);
        assert!(is_failed || survived == states.len() - 1, "closing makes everything durable");
        self.bucket.set_faults(self.faults);
        self.seen.orderly_ends += 1;
    }

    /// Opens the database in another process, while this one sleeps.
    fn take_over(&mut self) {
        let old = self.node.take().unwrap();
        let found = self.open_after(&old.states, old.durable);
        self.seen.takeovers += 1;
        self.zombie = Some((old, found));
        if self.rng.random() {
            self.wake_zombie();
        }
    }

    /// Lets the process that slept go on. It gets no acknowledgement of a commit that its successor does not have.
    fn wake_zombie(&mut self) {
        let Some((mut zombie, found)) = self.zombie.take() else { return };
        let mut records = zombie.records().clone();
        let batch = self.batch(&mut records);
        match zombie.meta().commit(batch) {
            Ok(number) => zombie.states.push((number, records)),
            Err(StoreError::Unavailable { .. }) => {}
            Err(error) => self.check_fenced(&error, &zombie),
        }
        if self.rng.random() {
            zombie.rest(Duration::from_millis(self.rng.random_range(0..5000)));
        }
        let newest = zombie.states.len() - 1;
        match zombie.meta().sync(zombie.states[newest].0) {
            Ok(()) => assert!(newest <= found, "two processes have acknowledged different commits"),
            Err(StoreError::Unavailable { .. }) => {}
            Err(error) => self.check_fenced(&error, &zombie),
        }
        if self.rng.random() {
            self.zombie = Some((zombie, found));
        }
    }

    fn check_fenced(&mut self, error: &StoreError, zombie: &Node) {
        assert!(matches!(error, StoreError::Fenced { .. }), "{error}");
        assert!(zombie.meta().failure().unwrap().contains("taken over"));
        self.seen.fenced += 1;
    }

    fn hide(&mut self, is_hiding: bool) {
        self.is_hiding = is_hiding;
        self.bucket.set_away(is_hiding.then_some(Away::Hiding));
    }

    /// The bucket denies for some time that objects exist. What is read then is right or an error, and so is what a
    /// process finds that opens the database meanwhile. Afterwards everything is there.
    fn hiding(&mut self) {
        self.hide(true);
        for _ in 0..self.rng.random_range(1..8) {
            match self.rng.random_range(0..6) {
                0 => self.commit(),
                1 => self.sync(),
                2 | 3 => self.read(),
                4 => {
                    let time = Duration::from_secs(self.rng.random_range(0..20));
                    self.node().rest(time);
                }
                _ => self.crash_hidden(),
            }
        }
        self.hide(false);
        self.bucket.set_faults(Faults::default());
        // Perhaps it could not see that an object was its own, which counts as another process's.
        self.sync();
        if self.node().meta().failure().is_some() {
            self.seen.closed += 1;
            self.crash();
        }
        self.serves();
        self.bucket.set_faults(self.faults);
    }

    /// Ends the process, and opens the database while objects are hidden, if that is possible.
    fn crash_hidden(&mut self) {
        let (states, durable) = self.node.take().unwrap().crash();
        match self.try_open() {
            Ok(node) => _ = self.resume(node, &states, durable),
            Err(error) => {
                self.seen.missing_opens += 1;
                if !matches!(error, StoreError::Unavailable { .. }) {
                    println!("seed {}: cannot open: {error}", self.seed);
                }
                let is_hiding = self.is_hiding;
                self.hide(false);
                self.open_after(&states, durable);
                self.hide(is_hiding);
            }
        }
    }

    /// Makes the bucket unreachable for some time. Afterwards the database serves again as it is.
    fn outage(&mut self) {
        self.seen.outages += 1;
        let away = match self.rng.random_range(0..4) {
            0 => return self.hiding(),
            1 => Away::Denied,
            2 => Away::Failing,
            _ => Away::Silent,
        };
        self.bucket.set_away(Some(away));
        let closed = self.seen.closed;
        for _ in 0..self.rng.random_range(1..6) {
            match self.rng.random_range(0..4) {
                0 => self.commit(),
                1 => self.sync(),
                2 => self.read(),
                _ => {
                    // Sometimes ten minutes; each second of it costs a few requests.
                    let most = if self.rng.random_ratio(1, 20) { 600 } else { 20 };
                    let time = Duration::from_secs(self.rng.random_range(0..most));
                    self.node().rest(time);
                }
            }
            assert_eq!(self.seen.closed, closed, "an outage has closed the database");
        }
        self.bucket.set_away(None);
        self.bucket.set_faults(Faults::default());
        self.serves();
        self.bucket.set_faults(self.faults);
    }

    /// Checks that a bucket without faults is used again.
    fn serves(&mut self) {
        let newest = self.node().states.len() - 1;
        let served = (0..3).any(|_| {
            let node = self.node.as_mut().unwrap();
            let synced = node.meta().sync(node.states[newest].0);
            assert!(matches!(synced, Ok(()) | Err(StoreError::Unavailable { .. })), "{synced:?}");
            synced.is_ok()
        });
        assert!(served, "it does not serve again after an outage");
        self.node().durable = newest;
        let reads = self.seen.reads;
        self.read();
        assert_eq!(self.seen.reads, reads + 1, "it does not read again after an outage");
    }

    /// Checks that the database opens and serves in a bucket without faults.
    fn end(mut self) -> (Seen, Met) {
        self.bucket.set_faults(Faults::default());
        self.crash();
        self.commit();
        let node = self.node();
        node.meta().sync(node.states.last().unwrap().0).unwrap();
        node.durable = node.states.len() - 1;
        self.crash();
        (self.seen, self.bucket.met())
    }
}

fn run(seed: u64) -> (Seen, Met) {
    let mut history = History::new(seed);
    (0..STEPS).for_each(|_| history.step());
    history.end()
}

fn count() -> u64 {
    std::env::var("CELLAR_BUCKET_COUNT")
        .map_or(HISTORIES, |text| text.parse().expect("CELLAR_BUCKET_COUNT is a number"))
}

#[test]
fn acknowledged_commits_survive_faults_crashes_and_takeovers() {
    let (mut all, mut met) = (Seen::default(), Met::default());
    let histories = count();
    seeds::play(histories, |seed| {
        let (seen, faults) = run(seed);
        all.commits += seen.commits;
        all.acknowledged += seen.acknowledged;
        all.reads += seen.reads;
        all.snapshots += seen.snapshots;
        all.crashes += seen.crashes;
        all.lost_unacknowledged += seen.lost_unacknowledged;
        all.orderly_ends += seen.orderly_ends;
        all.takeovers += seen.takeovers;
        all.fenced += seen.fenced;
        all.outages += seen.outages;
        all.unavailable += seen.unavailable;
        all.full += seen.full;
        all.failed_opens += seen.failed_opens;
        all.closed += seen.closed;
        all.missing += seen.missing;
        all.missing_opens += seen.missing_opens;
        met.add(&faults);
    });
    println!("{histories} histories: {all:?}\n{met:?}");
    if histories >= HISTORIES {
        let seen = [
            all.commits,
            all.acknowledged,
            all.reads,
            all.snapshots,
            all.crashes,
            all.lost_unacknowledged,
            all.orderly_ends,
            all.takeovers,
            all.fenced,
            all.outages,
            all.unavailable,
            all.missing_opens,
            met.denied,
            met.hidden,
            met.cut,
        ];
        assert!(met.removed > 10 * histories, "garbage is hardly removed: {met:?}");
        assert!(seen.iter().chain(&met.all()).all(|count| *count > 20), "{all:?} {met:?}");
    }
}
