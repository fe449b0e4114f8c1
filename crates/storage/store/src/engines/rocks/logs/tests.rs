use super::super::rot::{self, Opened};
use super::super::survey::tests::{key, record, replay};
use super::super::survey::{BATCH_HEADER_BYTES, Survey, read_all};
use super::super::{claims, gaps};
use super::*;
use disk::{DiskStep, FaultyDisk, Garbling, HookedDisk, Torn};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::IoSlice;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const FOLDER: &str = "/meta";

fn path(number: u64) -> PathBuf {
    Path::new(FOLDER).join(format!("{number:06}.log"))
}

fn fresh() -> (FaultyDisk, Logs) {
    let disk = FaultyDisk::new(1, Garbling::default());
    disk.create_dir(Path::new(FOLDER)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let logs = Logs::new(Arc::new(disk.clone()), Path::new(FOLDER));
    (disk, logs)
}

/// Writes a log as RocksDB does: at its own position, whatever the length of the file.
struct Writer {
    file: Arc<dyn File>,
    position: u64,
}

impl Writer {
    fn create(disk: &FaultyDisk, number: u64) -> Writer {
        Writer { file: disk.create(&path(number)).unwrap(), position: 0 }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(&mut [IoSlice::new(bytes)], self.position)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn append(&mut self, text: &str) {
        self.write(text.as_bytes()).unwrap();
    }
}

fn written(commits: u64) -> Written {
    Written { commits, bytes: commits * 10 }
}

fn contents(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Returns the contents of a log after a simulated crash, without the zeros at the end.
fn left(disk: &FaultyDisk, number: u64) -> Option<String> {
    let file = disk.crash().open(&path(number)).ok()?;
    let text = String::from_utf8(contents(&*file)).ok()?;
    Some(text.trim_end_matches('\0').to_owned())
}

#[test]
fn a_sync_makes_names_and_contents_of_all_logs_durable() {
    let (disk, logs) = fresh();
    let mut first = Writer::create(&disk, 4);
    first.append("one");
    logs.sync(Some(1), written(1)).unwrap();
    assert_eq!(left(&disk, 4).unwrap(), "one");
    // The last writes to a log and the first ones to the next.
    first.append(" two");
    let mut second = Writer::create(&disk, 9);
    second.append("three");
    disk.create(&Path::new(FOLDER).join("000010.sst")).unwrap();
    logs.sync(Some(2), written(3)).unwrap();
    assert_eq!(left(&disk, 4).unwrap(), "one two");
    assert_eq!(left(&disk, 9).unwrap(), "three");
    disk.remove(&path(4)).unwrap();
    second.append(" four");
    logs.sync(Some(3), written(4)).unwrap();
    assert_eq!(left(&disk, 9).unwrap(), "three four");
    assert_eq!(logs.known.lock().logs.keys().collect::<Vec<_>>(), [&9]);
}

#[test]
fn an_unchanged_log_is_not_synced_again() {
    let (disk, _) = fresh();
    let syncs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&syncs);
    let count = move |step| _ = counted.fetch_add(u32::from(step == DiskStep::Sync), Relaxed);
    let logs = Logs::new(Arc::new(HookedDisk::new(Arc::new(disk.clone()), count)), Path::new(FOLDER));
    let mut files = [4, 9].map(|number| Writer::create(&disk, number));
    for file in &mut files {
        file.append("one");
    }
    let synced = |layout, commits| {
        let before = syncs.load(Relaxed);
        logs.sync(layout, written(commits)).unwrap();
        syncs.load(Relaxed) - before
    };
    assert_eq!(synced(Some(1), 2), 3, "both files and the folder");
    assert_eq!((synced(Some(1), 2), synced(Some(2), 2), synced(None, 2)), (0, 0, 0));
    files[1].append("two");
    assert_eq!(synced(Some(2), 3), 1, "nothing is written to the older one any more");
}

#[test]
fn every_failure_of_a_sync_is_reported() {
    let mut failures = 0;
    for operation in 0..100 {
        let (disk, logs) = fresh();
        Writer::create(&disk, 4).append("one");
        disk.fail_at(disk.operations() + operation, io::ErrorKind::ReadOnlyFilesystem);
        match logs.sync(Some(1), written(1)) {
            Ok(_) => assert_eq!(left(&disk, 4).unwrap(), "one"),
            Err(error) => {
                assert!(error.to_string().contains(FOLDER), "{error}");
                failures += 1;
            }
        }
    }
    assert!(failures >= 2, "{failures}");
}

#[test]
fn a_log_rarely_grows_at_a_sync_and_never_by_much() {
    let (disk, logs) = fresh();
    let mut log = Writer::create(&disk, 4);
    let (mut commits, mut bytes, mut grown, mut length) = (0, 0, 0, 0);
    let record = [1; 4000];
    while log.position < 4 << 20 {
        log.write(&record).unwrap();
        commits += 1;
        bytes += record.len() as u64 - HEADER_BYTES as u64;
        logs.sync(Some(1), Written { commits, bytes }).unwrap();
        let now = log.file.length().unwrap();
        grown += u32::from(now != length);
        length = now;
        assert!(length - log.position <= AHEAD_BYTES as u64, "at {}", log.position);
    }
    assert!(grown <= 1 + (4 << 20) / STEP_BYTES as u32, "{grown}");
    let found = contents(&*log.file);
    let (data, zeros) = found.split_at(log.position as usize);
    assert!(data.iter().all(|byte| *byte == 1) && zeros.iter().all(|byte| *byte == 0));
}

#[test]
fn a_full_disk_only_makes_the_log_grow_without_zeros() {
    let (disk, logs) = fresh();
    disk.set_capacity(100 << 10);
    let mut log = Writer::create(&disk, 4);
    for commits in 1..=50 {
        log.append("some");
        logs.sync(Some(1), Written { commits, bytes: commits << 20 }).unwrap();
        assert_eq!(left(&disk, 4).unwrap(), "some".repeat(commits as usize));
    }
    assert!(matches!(logs.known.lock().logs[&4].zeros, Zeros::Refused));
}

#[test]
fn the_end_of_the_zeros_does_not_look_like_a_torn_header() {
    for rest in 0..10 {
        let (disk, logs) = fresh();
        let mut log = Writer::create(&disk, 4);
        log.write(&vec![1; BLOCK_BYTES + rest]).unwrap();
        logs.sync(Some(1), written(1)).unwrap();
        let beyond = log.file.length().unwrap() as usize % BLOCK_BYTES;
        assert!(beyond == 0 || beyond >= HEADER_BYTES, "{rest}: {beyond}");
    }
}

/// All logs are needed, and tables have no changes.
const ANY: Opened = Opened { oldest_log: Some(0), newest_change: u64::MAX };

fn read(disk: &FaultyDisk) -> Vec<Survey> {
    read_all(disk, Path::new(FOLDER), Some(&key())).unwrap()
}

/// What happened in histories.
#[derive(Debug, Default)]
struct Seen {
    crashes: u32,
    lost_commits: u32,
    /// Crashes after which RocksDB would have replayed a commit without an earlier one.
    holes: u32,
    failed_writes: u32,
    failed_syncs: u32,
    refused_zeros: u32,
    /// Losses that were found.
    rotten: u32,
}

/// A log that is written as by RocksDB and synced by [`Logs`].
struct History {
    rng: SmallRng,
    disk: FaultyDisk,
    logs: Logs,
    log: Writer,
    written: Written,
    durable_commits: u64,
    /// Of each commit: where it begins, and the number of commits that were durable.
    begun: Vec<(u64, u64)>,
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let torn = if rng.random() { Torn::Byte } else { Torn::Sector };
        let disk = FaultyDisk::new(seed, Garbling { torn, noise: rng.random(), short: true });
        disk.create_dir(Path::new(FOLDER)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let logs = Logs::new(Arc::new(disk.clone()), Path::new(FOLDER));
        let log = Writer::create(&disk, 4);
        let soon = disk.operations() + rng.random_range(0..300);
        match rng.random_range(0..6) {
            0 => disk.cut_power_at(soon),
            1 => disk.fail_at(soon, ErrorKind::Other),
            2 => disk.set_capacity(rng.random_range(0..1 << 20)),
            _ => {}
        }
        History { rng, disk, logs, log, written: Written::default(), durable_commits: 0, begun: Vec::new() }
    }

    /// Writes a record; some fill their block exactly, so that the next block begins with a whole record.
    fn commit(&mut self) -> io::Result<()> {
        let room = BLOCK_BYTES - self.log.position as usize % BLOCK_BYTES;
        let length = match self.rng.random_range(0..4) {
            0 => self.rng.random_range(0..300),
            1 => self.rng.random_range(0..20_000),
            _ => room.saturating_sub(HEADER_BYTES + BATCH_HEADER_BYTES + claims::TAG.len() + claims::BYTES),
        };
        let bytes = record(self.log.position as usize, self.written.commits, self.durable_commits, length);
        self.begun.push((self.log.position, self.durable_commits));
        self.log.write(&bytes)?;
        self.written.commits += 1;
        // More than it was, so that zeros are appended more often.
        self.written.bytes += bytes.len() as u64 + self.rng.random_range(0..100_000);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.logs.sync(Some(1), self.written)?;
        self.durable_commits = self.written.commits;
        Ok(())
    }

    fn play(&mut self, seen: &mut Seen) {
        for _ in 0..self.rng.random_range(1..60) {
            if self.commit().is_err() {
                seen.failed_writes += 1;
                return;
            }
            if self.rng.random_ratio(1, 6) && self.sync().is_err() {
                seen.failed_syncs += 1;
                return;
            }
        }
    }

    /// Checks that after a crash exactly a prefix of the commits is replayed, with all durable ones.
    fn crash(&self, seen: &mut Seen) {
        let disk = self.disk.crash();
        disk.set_capacity(u64::MAX);
        seen.crashes += 1;
        let Ok(file) = disk.open(&path(4)) else {
            return assert_eq!(self.durable_commits, 0);
        };
        let is_prefix = |numbers: &[u64]| numbers.iter().copied().eq(0..numbers.len() as u64);
        let before = replay(&contents(&*file));
        let logs = read(&disk);
        assert_eq!(rot::find(&logs, ANY), None, "a crash is no loss");
        gaps::close(&disk, &logs).unwrap();
        let after = replay(&contents(&*file));
        assert!(is_prefix(&after) && before.starts_with(&after), "{before:?} and {after:?}");
        assert!(after.len() as u64 >= self.durable_commits, "{after:?}, {} durable", self.durable_commits);
        assert_eq!(rot::find(&read(&disk), ANY), None, "nor is it one when the gap is closed");
        seen.holes += u32::from(!is_prefix(&before));
        seen.lost_commits += (self.written.commits as u32).saturating_sub(after.len() as u32);
        let marked = read(&disk.crash());
        assert!(marked.iter().all(|log| log.gap.is_none()), "marks are durable");
    }

    /// Checks that after a crash damage of what was durable is found, if a later commit is left that knew of it.
    fn rot(&mut self, seen: &mut Seen) {
        let disk = self.disk.crash();
        disk.set_capacity(u64::MAX);
        let Ok(file) = disk.open(&path(4)) else { return };
        let before = replay(&contents(&*file));
        let Some((end, _)) =
            self.begun.get(self.durable_commits as usize).copied().filter(|(end, _)| *end > 0)
        else {
            return;
        };
        let (at, bytes) = (self.rng.random_range(0..end), [1, 1, 512][self.rng.random_range(0..3)]);
        let garbage = vec![self.rng.random::<u8>(); bytes.min((end - at) as usize)];
        file.write_all_at(&mut [IoSlice::new(&garbage)], at).unwrap();
        let left = replay(&contents(&*file)).len();
        if left == before.len() {
            return;
        }
        let last = self.begun.partition_point(|(begin, _)| *begin < at + bytes as u64);
        let known = self.begun[..before.len()].iter().skip(last).map(|(_, durable)| *durable).max();
        let is_certain = known.unwrap_or(0) > left as u64;
        let opened = Opened { newest_change: left as u64, ..ANY };
        let is_found = rot::find(&read(&disk), opened).is_some();
        assert!(is_found || !is_certain, "{left} left of {}, {known:?} known", before.len());
        seen.rotten += u32::from(is_found);
    }
}

#[test]
fn a_crash_leaves_a_prefix_of_a_log_that_has_zeros_ahead() {
    let mut seen = Seen::default();
    seeds::play(1500, |seed| {
        let mut history = History::new(seed);
        history.play(&mut seen);
        (0..4).for_each(|_| history.crash(&mut seen));
        (0..4).for_each(|_| history.rot(&mut seen));
        let is_refused = |log: &Log| matches!(log.zeros, Zeros::Refused);
        seen.refused_zeros += u32::from(history.logs.known.lock().logs.values().any(is_refused));
    });
    println!("{seen:?}");
    let Seen { crashes, lost_commits, holes, failed_writes, failed_syncs, refused_zeros, rotten } = seen;
    let counts = [crashes, lost_commits, holes, failed_writes, failed_syncs, refused_zeros, rotten];
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}
