//! Seeded histories of volumes on a partition in a bucket that refuses, delays, loses, repeats and never answers requests:
//! changes, also by stores whose data another process writes to the bucket, clones, upkeep of all kinds, crashes, orderly restarts, outages, and processes that go on after another has
//! taken the partition over. After an open, the contents are those of an earlier state, with everything that was promised.
//! At the end, with all volumes deleted, the bucket has no object of file data.
//!
//! Each process has a runtime and a clock of its own that runs only while it is called. `CELLAR_BUCKET_COUNT=n` sets the
//! number of histories.

use crate::fronts::Front;
use crate::support::{PLACE, PREFIX, Raw, config, runtime};
use crate::writers::{Files, Writer, clone, contents, options, partition_id, volume, volume_id};
use async_trait::async_trait;
use base::{UnixTime, VolumeId, VolumeType};
use bucket::faulty::{Away, Faults, FaultyBucket, Met};
use bucket_partition::{BucketConfig, Opener};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as Name;
use object_store::{
    CopyOptions, Extensions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as BucketResult,
};
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use store::{Inspection, MetaConfig, Partition, PartitionConfig, StoreError, Tenure};
use volume::{
    CompactionPolicy, Durability, PartitionHandle, ScrubPolicy, Space, VolumeError, VolumeOptions, Volumes,
};
use volume_check::{CheckOptions, check};

const HISTORIES: u64 = 60;
const EVENTS: u32 = 60;
const WRITERS: u32 = 3;
/// Attempts to open the partition, each as long as `PATIENCE` for each part of it.
const OPENS_MAX: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// A fault of the bucket that no faulty bucket may have, to show that the histories find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    None,
    /// One in seven objects of file data is acknowledged, and not there.
    LostData,
    /// One in seven objects of the log is acknowledged, and not there.
    LostLog,
    /// What exists is replaced by a request that is to create it.
    NoFence,
    /// Objects of file data are not removed.
    NoRemoval,
}

/// The bucket of one process.
#[derive(Clone, Debug)]
struct Planted {
    bucket: FaultyBucket,
    plant: Plant,
    count: Arc<AtomicU64>,
}

impl Planted {
    fn loses(&self, name: &Name) -> bool {
        let folder = match self.plant {
            Plant::LostData => "/chunks/",
            Plant::LostLog => "/wal/",
            _ => return false,
        };
        name.as_ref().contains(folder) && self.count.fetch_add(1, Relaxed) % 7 == 6
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bucket.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Planted {
    async fn put_opts(&self, name: &Name, data: PutPayload, mut how: PutOptions) -> BucketResult<PutResult> {
        if self.loses(name) {
            return Ok(PutResult { e_tag: None, version: None, extensions: Extensions::default() });
        }
        if self.plant == Plant::NoFence && how.mode == PutMode::Create {
            how.mode = PutMode::Overwrite;
        }
        self.bucket.put_opts(name, data, how).await
    }

    async fn put_multipart_opts(
        &self,
        name: &Name,
        how: PutMultipartOptions,
    ) -> BucketResult<Box<dyn MultipartUpload>> {
        self.bucket.put_multipart_opts(name, how).await
    }

    async fn get_opts(&self, name: &Name, how: GetOptions) -> BucketResult<GetResult> {
        self.bucket.get_opts(name, how).await
    }

    fn delete_stream(
        &self,
        names: BoxStream<'static, BucketResult<Name>>,
    ) -> BoxStream<'static, BucketResult<Name>> {
        if self.plant != Plant::NoRemoval {
            return self.bucket.delete_stream(names);
        }
        let bucket = self.bucket.clone();
        names
            .and_then(move |name| {
                let bucket = bucket.clone();
                async move {
                    if name.as_ref().contains("/chunks/") {
                        return Ok(name);
                    }
                    bucket.delete(&name).await.map(|()| name)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Name>) -> BoxStream<'static, BucketResult<ObjectMeta>> {
        self.bucket.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Name>,
        offset: &Name,
    ) -> BoxStream<'static, BucketResult<ObjectMeta>> {
        self.bucket.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Name>) -> BucketResult<ListResult> {
        self.bucket.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Name, to: &Name, how: CopyOptions) -> BucketResult<()> {
        self.bucket.copy_opts(from, to, how).await
    }
}

/// The contents of every writer's volume, and of every clone.
#[derive(Clone)]
struct State {
    writers: Vec<Arc<Writer>>,
    clones: BTreeMap<VolumeId, Arc<Files>>,
    /// Whether the change that led to this state stored file data.
    is_data: bool,
}

/// What all histories together covered, to prove that they do what they should.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    changes: u64,
    unknown: u64,
    unknown_done: u64,
    lost: u64,
    crashes: u64,
    restarts: u64,
    takeovers: u64,
    fenced: u64,
    outages: u64,
    moved_chunks: u64,
    removed_objects: u64,
    orphans: u64,
    failed_opens: u64,
    /// Chunks that another process has stored.
    foreign_chunks: u64,
    /// Objects that it did not create, as far as it knows.
    foreign_failures: u64,
    /// Objects that it created for nothing.
    forgotten: u64,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.changes += other.changes;
        self.unknown += other.unknown;
        self.unknown_done += other.unknown_done;
        self.lost += other.lost;
        self.crashes += other.crashes;
        self.restarts += other.restarts;
        self.takeovers += other.takeovers;
        self.fenced += other.fenced;
        self.outages += other.outages;
        self.moved_chunks += other.moved_chunks;
        self.removed_objects += other.removed_objects;
        self.orphans += other.orphans;
        self.failed_opens += other.failed_opens;
        self.foreign_chunks += other.foreign_chunks;
        self.foreign_failures += other.foreign_failures;
        self.forgotten += other.forgotten;
    }
}

/// One process that has the partition.
struct Node {
    // Dropped in this order.
    volumes: Volumes,
    partition: Arc<Partition>,
    opener: Opener,
    tenure: Tenure,
}

impl Node {
    /// Returns everything that is there.
    fn found(&self) -> (Vec<Files>, BTreeMap<VolumeId, Files>) {
        let of =
            |writer| self.volumes.get(volume_id(writer)).map(|volume| contents(&volume)).unwrap_or_default();
        let clones = self.volumes.list(partition_id()).into_iter();
        let clones = clones.filter(|volume| volume.kind() != VolumeType::ReadWrite);
        ((0..WRITERS).map(of).collect(), clones.map(|volume| (volume.id(), contents(&volume))).collect())
    }

    /// Ends the process as a crash does.
    fn crash(self) {
        self.opener.abandon();
    }
}

struct History {
    rng: SmallRng,
    plant: Plant,
    bucket: FaultyBucket,
    faults: Faults,
    config: PartitionConfig,
    object_bytes_max: u32,
    durability: Durability,
    seed: u64,
    /// Number of processes so far.
    processes: u64,
    /// The state at the last open, and after every change since.
    states: Vec<State>,
    /// Index of the first state that may be found after a crash.
    certain: usize,
    clones_made: u32,
    node: Option<Node>,
    /// A process that writes to the partition of the one that has it.
    front: Front,
    /// A process that another has taken over from, and the state that it left.
    zombie: Option<(Node, State)>,
    seen: Seen,
}

fn faults(rng: &mut SmallRng) -> Faults {
    let mut some = |most: u32| if rng.random() { rng.random_range(0..=most) } else { 0 };
    Faults {
        refused: some(60),
        lost: some(60),
        own_conflict: some(60),
        late: some(60),
        repeated: some(80),
        delayed: some(40),
        hung: some(8),
    }
}

impl State {
    fn is(&self, (files, clones): &(Vec<Files>, BTreeMap<VolumeId, Files>)) -> bool {
        self.writers.iter().zip(files).all(|(writer, files)| writer.files == *files)
            && self.clones.len() == clones.len()
            && clones.iter().all(|(id, files)| self.clones.get(id).is_some_and(|known| **known == *files))
    }
}

impl History {
    fn new(seed: u64, plant: Plant) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let faults = faults(&mut rng);
        let bucket = FaultyBucket::new(seed, Faults::default());
        let meta = MetaConfig { write_buffer_bytes: rng.random_range(4_000..100_000), ..MetaConfig::small() };
        let policies = [Durability::Always, Durability::Always, Durability::Close, Durability::Interval];
        let writers = (0..WRITERS).map(|number| Arc::new(Writer::new(number))).collect();
        let front: Arc<dyn ObjectStore> =
            Arc::new(Planted { bucket: bucket.clone(), plant, count: Arc::default() });
        let mut history = History {
            plant,
            front: Front::new(&front),
            bucket,
            faults,
            config: PartitionConfig { meta, ..config() },
            object_bytes_max: rng.random_range(1..60_000),
            durability: *policies.iter().choose(&mut rng).unwrap(),
            rng,
            seed,
            processes: 0,
            states: vec![State { writers, clones: BTreeMap::new(), is_data: false }],
            certain: 0,
            clones_made: 0,
            node: None,
            zombie: None,
            seen: Seen::default(),
        };
        history.open();
        for writer in 0..WRITERS {
            volume(&history.node().volumes, writer).unwrap();
        }
        history.node().volumes.sync().unwrap();
        history.set_faults(true);
        history
    }

    fn set_faults(&self, is_on: bool) {
        self.bucket.set_faults(if is_on { self.faults } else { Faults::default() });
        self.bucket.set_cut(if is_on { u32::try_from(self.seed % 3).unwrap_or(0) * 50 } else { 0 });
    }

    fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    fn opener(&mut self, tenure: &Tenure) -> Opener {
        self.processes += 1;
        let bucket = Planted {
            bucket: self.bucket.clone(),
            plant: self.plant,
            count: Arc::new(AtomicU64::new(self.rng.random_range(0..7))),
        };
        let options = BucketConfig {
            object_bytes_max: self.object_bytes_max,
            patience: PATIENCE,
            request_limit: Duration::from_secs(5),
            tenure: tenure.clone(),
            // Each process draws other names of objects.
            seed: Some(self.seed << 20 | self.processes),
            ..BucketConfig::default()
        };
        Opener::with_runtime(runtime(), Arc::new(bucket), PREFIX, PLACE, &options)
    }

    /// Opens the partition in a new process.
    fn open(&mut self) {
        let mut last = None;
        for _ in 0..OPENS_MAX {
            let tenure = Tenure::default();
            let opener = self.opener(&tenure);
            match opener.open(&self.config, None).and_then(|partition| {
                let found = partition.recount(volume::CHUNK_NAMES)?;
                assert!(found.is_none_or(|found| found.missing == 0), "{found:?}");
                Ok(partition)
            }) {
                Ok(partition) => {
                    let partition = Arc::new(partition);
                    match self.open_volumes(&partition) {
                        Ok(volumes) => {
                            self.node = Some(Node { volumes, partition, opener, tenure });
                            return;
                        }
                        Err(VolumeError::Store(error @ StoreError::Unavailable { .. })) => last = Some(error),
                        Err(error) => panic!("{error}"),
                    }
                    opener.abandon();
                }
                Err(error @ StoreError::Unavailable { .. }) => {
                    opener.abandon();
                    last = Some(error);
                }
                Err(error) => panic!("{error}"),
            }
            self.seen.failed_opens += 1;
        }
        panic!("it does not open any more, with {:?}; the last error: {last:?}", self.faults);
    }

    fn open_volumes(&self, partition: &Arc<Partition>) -> Result<Volumes, VolumeError> {
        let handle = PartitionHandle {
            id: partition_id(),
            meta: partition.meta(),
            chunks: partition.chunks(),
            space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
        };
        let options = VolumeOptions { durability: self.durability, append_threads: 0, ..options() };
        Volumes::open(vec![handle], options)
    }

    fn now(&self) -> State {
        self.states[self.states.len() - 1].clone()
    }

    fn all_is_certain(&mut self) {
        self.certain = self.states.len() - 1;
    }

    /// Records a change that led to `next`, and what was promised about it.
    fn changed(&mut self, next: State, result: Result<(), VolumeError>) {
        match result {
            Ok(()) => {
                self.seen.changes += 1;
                let waits = match self.durability {
                    Durability::Always => true,
                    Durability::Close => !next.is_data,
                    Durability::Interval => false,
                };
                self.states.push(next);
                if waits {
                    self.all_is_certain();
                }
            }
            Err(VolumeError::Store(StoreError::Unavailable { .. })) => self.settle(next),
            Err(error) => panic!("{error}"),
        }
    }

    /// Finds out whether a change without an answer has happened. It is not undone by the process that made it.
    fn settle(&mut self, next: State) {
        self.seen.unknown += 1;
        self.bucket.set_away(None);
        self.set_faults(false);
        let found = self.node().found();
        if next.is(&found) {
            self.seen.unknown_done += 1;
            self.states.push(next);
        } else {
            assert!(self.now().is(&found), "a change without an answer has left something else");
        }
        self.set_faults(true);
    }

    fn event(&mut self) {
        match self.rng.random_range(0..100) {
            0..56 => self.step(),
            56..62 => self.clone_volume(),
            62..66 => self.delete_clone(),
            66..71 => self.sync(),
            71..85 => self.upkeep(),
            85..88 => self.crash(),
            88..90 => self.restart(),
            90..94 => self.take_over(),
            94..97 => self.wake_zombie(),
            _ => self.outage(),
        }
    }

    fn step(&mut self) {
        let mut next = self.now();
        let writer = Arc::make_mut(&mut next.writers[self.rng.random_range(0..WRITERS) as usize]);
        next.is_data = writer.stores_next();
        let result = volume(&self.node().volumes, writer.number).and_then(|volume| {
            let mut tried = writer.clone();
            let (front, rng) = (&mut self.front, &mut self.rng);
            let result = tried.next_with(&volume, &mut |volume, fid, cut, offset, data| {
                front.store((rng, volume), fid, cut, (offset, data))
            });
            // What it will be if it happens.
            *writer = Writer::after(writer.number, writer.done + 1);
            result
        });
        self.changed(next, result);
    }

    fn clone_volume(&mut self) {
        let mut next = self.now();
        let writer = self.rng.random_range(0..WRITERS);
        self.clones_made += 1;
        let made = clone(&self.node().volumes, writer, self.clones_made);
        let id = VolumeId(volume_id(writer).0 + 1 + self.clones_made);
        next.clones.insert(id, Arc::new(next.writers[writer as usize].files.clone()));
        next.is_data = false;
        self.changed(next, made.map(|_| ()));
    }

    fn delete_clone(&mut self) {
        let mut next = self.now();
        if let Some(&id) = next.clones.keys().choose(&mut self.rng) {
            let deleted = self.node().volumes.delete(id);
            next.clones.remove(&id);
            next.is_data = false;
            self.changed(next, deleted);
        }
    }

    fn sync(&mut self) {
        match self.node().volumes.sync() {
            Ok(()) => self.all_is_certain(),
            Err(VolumeError::Store(StoreError::Unavailable { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Purges, compacts, scrubs, and removes dead objects.
    fn upkeep(&mut self) {
        let policy = CompactionPolicy { dead_percent: 20, ..CompactionPolicy::default() };
        let node = self.node.as_ref().unwrap();
        let before = node.partition.statistics().chunks;
        let now = UnixTime(1);
        let done = match self.rng.random_range(0..8) {
            0 | 1 => node.volumes.purge_step().map(drop),
            2 => node.volumes.compact_step(partition_id(), policy, now).map(drop),
            3 => node.volumes.scrub_step(partition_id(), ScrubPolicy { period_seconds: 0 }, now).map(drop),
            // What was dead at the first is removed at the second.
            4..7 => node
                .partition
                .maintain()
                .and_then(|_| node.partition.maintain())
                .map(drop)
                .map_err(VolumeError::from),
            _ => {
                node.partition.sweep().map(|removed| self.seen.orphans += removed).map_err(VolumeError::from)
            }
        };
        let after = node.partition.statistics().chunks;
        self.seen.moved_chunks += after.chunks_moved - before.chunks_moved;
        self.seen.removed_objects += after.segments_deleted - before.segments_deleted;
        match done {
            Ok(()) | Err(VolumeError::Store(StoreError::Unavailable { .. })) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(self.node().volumes.quarantine(partition_id()).unwrap_or_default(), []);
    }

    fn crash(&mut self) {
        self.seen.crashes += 1;
        self.node.take().unwrap().crash();
        self.check();
        self.open();
        self.compare();
    }

    /// Closes and opens the partition, while nothing fails.
    fn restart(&mut self) {
        self.seen.restarts += 1;
        self.set_faults(false);
        self.node().volumes.sync().unwrap();
        drop(self.node.take());
        self.all_is_certain();
        self.check();
        self.open();
        self.compare();
        self.set_faults(true);
    }

    /// Another process opens the partition.
    fn take_over(&mut self) {
        self.seen.takeovers += 1;
        let (old, left) = (self.node.take().unwrap(), self.now());
        if self.rng.random_ratio(1, 3) {
            old.tenure.end();
        }
        self.open();
        self.compare();
        self.zombie = Some((old, left));
        if self.rng.random() {
            self.wake_zombie();
        }
    }

    /// Lets the process that was taken over from make a change, which must never become durable.
    fn wake_zombie(&mut self) {
        let Some((zombie, mut state)) = self.zombie.take() else { return };
        let writer = Arc::make_mut(&mut state.writers[self.rng.random_range(0..WRITERS) as usize]);
        let (front, rng) = (&mut self.front, &mut self.rng);
        let changed = volume(&zombie.volumes, writer.number).and_then(|volume| {
            writer.next_with(&volume, &mut |volume, fid, cut, offset, data| {
                front.store((rng, volume), fid, cut, (offset, data))
            })
        });
        let durable = changed.and_then(|()| zombie.volumes.sync());
        _ = zombie.partition.maintain();
        _ = zombie.partition.sweep();
        match durable {
            Ok(()) => panic!("two processes have acknowledged different changes"),
            Err(VolumeError::Store(StoreError::Fenced { .. })) => {
                self.seen.fenced += 1;
                assert!(zombie.partition.failure().unwrap().contains("taken over"));
            }
            Err(_) => {}
        }
        zombie.crash();
    }

    /// Makes the bucket unreachable for a change, and for some time. Afterwards the same process serves again.
    fn outage(&mut self) {
        self.seen.outages += 1;
        let away = [Away::Failing, Away::Silent, Away::Denied][self.rng.random_range(0..3)];
        self.bucket.set_away(Some(away));
        match self.rng.random_range(0..4) {
            0 => self.upkeep(),
            1 => self.sync(),
            _ => self.step(),
        }
        self.bucket.set_away(None);
        self.set_faults(false);
        let served = (0..3).any(|_| match self.node().volumes.sync() {
            Ok(()) => true,
            Err(VolumeError::Store(StoreError::Unavailable { .. })) => false,
            Err(error) => panic!("{error}"),
        });
        assert!(served, "it does not serve again after an outage");
        self.all_is_certain();
        assert!(self.now().is(&self.node().found()), "an outage has changed something");
        self.set_faults(true);
    }

    /// Checks that the partition is consistent before anything opens it.
    fn check(&mut self) {
        let opened = self.opener(&Tenure::default()).inspect(None);
        let inspection: Inspection = match opened {
            Ok(inspection) => inspection,
            Err(StoreError::Unavailable { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        self.set_faults(false);
        let (meta, segments) = (inspection.meta(), inspection.segments());
        let report = check(meta, Some(segments), CheckOptions { data: true }, &mut |_| {});
        assert!(report.is_clean(), "{report:#?}");
        self.set_faults(true);
    }

    /// Compares the contents after an open with all earlier states.
    fn compare(&mut self) {
        self.set_faults(false);
        let found = self.node().found();
        self.set_faults(true);
        let index = self.states.iter().rposition(|state| state.is(&found));
        let index = index.expect("the contents are those of an earlier state");
        assert!(
            index >= self.certain,
            "state {index} of {}, but {} is promised",
            self.states.len(),
            self.certain
        );
        self.seen.lost += (self.states.len() - 1 - index) as u64;
        self.states.truncate(index + 1);
        self.states.drain(..index);
        self.certain = 0;
    }

    /// Deletes everything, and checks that nothing is left.
    fn end(mut self) -> (Seen, Met) {
        self.set_faults(false);
        self.faults = Faults::default();
        self.zombie.take().into_iter().for_each(|(zombie, _)| zombie.crash());
        self.crash();
        let raw = Raw(self.bucket.clone());
        // Until all late requests are done.
        (0..40).for_each(|_| _ = raw.list("chunks"));
        let node = self.node();
        for volume in node.volumes.list(partition_id()) {
            node.volumes.delete(volume.id()).unwrap();
        }
        while node.volumes.purge_step().unwrap() {}
        (0..2).for_each(|_| _ = node.partition.maintain().unwrap());
        node.partition.sweep().unwrap();
        assert_eq!((raw.list("chunks"), node.partition.statistics().chunks.segments), (vec![], 0));
        drop(self.node.take());
        self.check();
        let Front { chunks, failed, forgotten, .. } = self.front;
        self.seen.foreign_chunks = chunks;
        (self.seen.foreign_failures, self.seen.forgotten) = (failed, forgotten);
        (self.seen, self.bucket.met())
    }
}

fn run(seed: u64, plant: Plant) -> (Seen, Met) {
    let mut history = History::new(seed, plant);
    (0..EVENTS).for_each(|_| history.event());
    history.end()
}

fn count() -> u64 {
    std::env::var("CELLAR_BUCKET_COUNT")
        .map_or(HISTORIES, |text| text.parse().expect("CELLAR_BUCKET_COUNT is a number"))
}

#[test]
fn no_promised_change_is_lost_and_no_space_is_leaked() {
    let (mut all, mut met) = (Seen::default(), Met::default());
    let histories = count();
    seeds::play(histories, |seed| {
        let (seen, faults) = run(seed, Plant::None);
        all.add(&seen);
        met.add(&faults);
    });
    println!("{histories} histories: {all:?}\n{met:?}");
    if histories >= HISTORIES {
        let Seen { changes, unknown, lost, crashes, restarts, takeovers, fenced, outages, .. } = all;
        let Seen { unknown_done, moved_chunks, removed_objects, orphans, .. } = all;
        let Seen { foreign_chunks, foreign_failures, forgotten, .. } = all;
        let seen = [
            changes,
            unknown,
            unknown_done,
            lost,
            crashes,
            restarts,
            takeovers,
            fenced,
            outages,
            moved_chunks,
            removed_objects,
            orphans,
            foreign_chunks,
            foreign_failures,
            forgotten,
        ];
        assert!(
            seen.iter().chain(&met.all()).chain(&[met.cut, met.denied]).all(|count| *count > 10),
            "{all:?} {met:?}"
        );
    }
}

#[test]
fn planted_faults_are_found() {
    for plant in [Plant::LostData, Plant::LostLog, Plant::NoFence, Plant::NoRemoval] {
        let finds = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed, plant))).is_err();
        let seed = (0..60).find(finds);
        println!("{plant:?} is found by history {seed:?}");
        assert!(seed.is_some(), "{plant:?} is not found");
    }
}
