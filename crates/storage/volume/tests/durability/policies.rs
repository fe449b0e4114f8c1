//! Tests what a crash can lose with each durability policy, on a faulty disk: the last acknowledged changes,
//! in the order of all changes of the partition, data and metadata together; never more than the policy
//! allows, and nothing in the middle.

use crate::common::{Files, Writer, clone, contents, options, partition_id, volume, volume_id};
use base::VolumeId;
use disk::{Disk, FaultyDisk, Garbling, Torn};
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::{FileData, MemoryMeta, MetaStore, Reserve, SegmentAudit, SegmentConfig, SegmentStore};
use volume::{Durability, PartitionHandle, Space, VolumeOptions, Volumes};
use volume_check::{CheckOptions, check};

const HISTORIES: u64 = 240;
const RUNS: u32 = 3;
const EVENTS: u32 = 40;
const WRITERS: u32 = 3;
/// Changes between two periodic syncs of the server.
const PERIOD: usize = 9;
const FOLDER: &str = "/segments";
const POLICIES: [Durability; 3] = [Durability::Always, Durability::Close, Durability::Interval];

/// The expected contents: every writer's files, and every clone's.
#[derive(Clone)]
struct State {
    writers: Vec<Arc<Writer>>,
    clones: BTreeMap<VolumeId, Arc<Files>>,
    /// Whether the change that led to this state stored file data.
    is_data: bool,
}

/// Events counted over all histories of one policy.
#[derive(Debug, Default)]
struct Seen {
    changes: usize,
    lost: usize,
    lost_at_once: usize,
    power_cuts: usize,
    deleted_segments: usize,
}

struct History {
    rng: SmallRng,
    policy: Durability,
    disk: FaultyDisk,
    meta: Arc<MemoryMeta>,
    /// The state at the start, and after every change since.
    states: Vec<State>,
    /// Index of the first state that may be found after a crash.
    certain: usize,
    clones_made: u32,
}

/// One run of the server.
struct Run {
    store: Arc<SegmentStore>,
    volumes: Volumes,
}

impl Run {
    fn open(history: &mut History) -> Run {
        let config = SegmentConfig {
            segment_bytes: history.rng.random_range(1..60_000),
            cache_bytes: history.rng.random_range(0..20_000),
            open_files_max: 4,
            reserve: Reserve { bytes: 0, permille: 0 },
            unsynced_bytes_max: 1 << 20,
            aligned_bytes_min: if history.rng.random() {
                64 << 10
            } else {
                history.rng.random_range(0..3000)
            },
        };
        let (disk, meta) = (Arc::new(history.disk.clone()), Arc::clone(&history.meta));
        let store = SegmentStore::open(disk, Path::new(FOLDER), Arc::clone(&meta) as _, config).unwrap();
        let recount = store.recount(&*meta.snapshot(), volume::CHUNK_NAMES, &mut || true).unwrap();
        assert!(recount.is_none_or(|found| found.missing == 0));
        let store = Arc::new(store);
        let handle = PartitionHandle {
            id: partition_id(),
            meta,
            chunks: Arc::clone(&store) as _,
            space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
        };
        let options = VolumeOptions { durability: history.policy, ..options() };
        Run { store, volumes: Volumes::open(vec![handle], options).unwrap() }
    }

    fn is(&self, state: &State) -> bool {
        let clones = self.volumes.list(partition_id()).into_iter();
        let mut clones = clones.filter(|volume| volume.kind() != base::VolumeType::ReadWrite);
        let is_clone = |volume: &Arc<volume::Volume>| {
            state.clones.get(&volume.id()).is_some_and(|files| contents(volume) == **files)
        };
        let count = clones.clone().count();
        let volume = |writer: &Writer| self.volumes.get(volume_id(writer.number)).unwrap();
        state.writers.iter().all(|writer| contents(&volume(writer)) == writer.files)
            && count == state.clones.len()
            && clones.all(|volume| is_clone(&volume))
    }
}

impl History {
    fn new(seed: u64, policy: Durability) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let torn = if rng.random() { Torn::Sector } else { Torn::Byte };
        let disk = FaultyDisk::new(seed, Garbling { torn, noise: rng.random(), short: rng.random() });
        disk.create_dir(Path::new(FOLDER)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let writers = (0..WRITERS).map(|number| Arc::new(Writer::new(number))).collect();
        let states = vec![State { writers, clones: BTreeMap::new(), is_data: false }];
        let meta = Arc::new(MemoryMeta::new());
        History { rng, policy, disk, meta, states, certain: 0, clones_made: 0 }
    }

    /// Records an acknowledged change and what the policy guarantees about it.
    fn acknowledged(&mut self, next: State) {
        let waits = match self.policy {
            Durability::Always => true,
            Durability::Close => !next.is_data,
            Durability::Interval => false,
        };
        self.states.push(next);
        if waits {
            self.all_is_certain();
        }
    }

    fn all_is_certain(&mut self) {
        self.certain = self.states.len() - 1;
    }

    fn now(&self) -> State {
        self.states[self.states.len() - 1].clone()
    }

    /// Performs a random event; returns false once the power is off.
    fn event(&mut self, run: &Run, seen: &mut Seen) -> bool {
        match self.rng.random_range(0..100) {
            0..75 => self.step(run),
            75..82 => self.clone_volume(run),
            82..86 => self.delete_clone(run),
            86..90 => self.sync(run),
            _ => {
                seen.deleted_segments += run.store.maintain().unwrap_or(0);
                run.volumes.purge_step().is_ok()
            }
        }
    }

    fn step(&mut self, run: &Run) -> bool {
        let mut next = self.now();
        let writer = Arc::make_mut(&mut next.writers[self.rng.random_range(0..WRITERS) as usize]);
        next.is_data = writer.stores_next();
        let volume = volume(&run.volumes, writer.number).unwrap();
        let is_done = writer.next(&volume).is_ok();
        if is_done {
            self.acknowledged(next);
        }
        is_done
    }

    fn clone_volume(&mut self, run: &Run) -> bool {
        let mut next = self.now();
        let writer = self.rng.random_range(0..WRITERS);
        self.clones_made += 1;
        let made = clone(&run.volumes, writer, self.clones_made).unwrap();
        let files = next.writers[writer as usize].files.clone();
        next.clones.insert(made.id(), Arc::new(files));
        next.is_data = false;
        self.acknowledged(next);
        true
    }

    fn delete_clone(&mut self, run: &Run) -> bool {
        let mut next = self.now();
        if let Some(&id) = next.clones.keys().choose(&mut self.rng) {
            run.volumes.delete(id).unwrap();
            next.clones.remove(&id);
            next.is_data = false;
            self.acknowledged(next);
        }
        true
    }

    /// Syncs a volume, as a client may request.
    fn sync(&mut self, run: &Run) -> bool {
        run.volumes.get(volume_id(0)).unwrap().sync().unwrap();
        self.all_is_certain();
        true
    }

    fn run(&mut self, seen: &mut Seen) {
        let run = Run::open(self);
        for writer in 0..WRITERS {
            volume(&run.volumes, writer).unwrap();
        }
        run.volumes.sync().unwrap();
        let is_cut = self.rng.random_ratio(2, 3);
        if is_cut {
            self.disk.cut_power_at(self.disk.operations() + self.rng.random_range(0..300));
        }
        let mut ticked = self.states.len();
        for _ in 0..EVENTS {
            if self.states.len() - ticked >= PERIOD {
                run.volumes.sync().unwrap();
                self.all_is_certain();
                ticked = self.states.len();
            }
            if !self.event(&run, seen) {
                assert!(is_cut);
                seen.power_cuts += 1;
                break;
            }
        }
        self.crash();
        drop(run);
        self.compare(seen);
    }

    fn crash(&mut self) {
        let pending = self.meta.unsynced_commits();
        self.meta = Arc::new(self.meta.crash(self.rng.random_range(0..=pending)));
        self.disk = self.disk.crash();
        self.check();
    }

    fn compare(&mut self, seen: &mut Seen) {
        let run = Run::open(self);
        let found = self.states.iter().rposition(|state| run.is(state));
        let found = found.expect("what is found is a state that there was");
        assert!(
            found >= self.certain,
            "state {found} of {}, but {} is promised",
            self.states.len(),
            self.certain
        );
        let lost = &self.states[found + 1..];
        assert!(lost.len() <= PERIOD, "{} changes are lost", lost.len());
        assert!(self.policy != Durability::Close || lost.iter().all(|state| state.is_data));
        seen.changes += self.states.len() - 1;
        seen.lost += lost.len();
        seen.lost_at_once = seen.lost_at_once.max(lost.len());
        self.states.truncate(found + 1);
        self.states.drain(..found);
        self.certain = 0;
    }

    /// Checks that the store is consistent before anything opens it.
    fn check(&self) {
        let (disk, meta) = (Arc::new(self.disk.clone()), &*self.meta);
        let segments = SegmentAudit::open(disk, Path::new(FOLDER), meta).unwrap();
        let report = check(meta, Some(&segments), CheckOptions { data: true }, &mut |_| {});
        assert!(report.is_clean(), "{report:#?}");
    }
}

fn histories(policy: Durability, count: u64) -> Seen {
    let mut seen = Seen::default();
    seeds::play(count, |seed| {
        let mut history = History::new(seed, policy);
        (0..RUNS).for_each(|_| history.run(&mut seen));
    });
    println!("{policy:?}: {seen:?}");
    seen
}

#[test]
fn a_crash_loses_no_more_than_the_policy_allows() {
    for policy in POLICIES {
        let seen = histories(policy, HISTORIES / POLICIES.len() as u64);
        assert!(seen.power_cuts > 20 && seen.deleted_segments > 20, "{seen:?}");
        assert_eq!(policy == Durability::Always, seen.lost == 0, "{seen:?}");
        assert!(policy == Durability::Always || seen.lost > 50, "{seen:?}");
    }
}
