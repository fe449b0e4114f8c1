//! What RocksDB's own logs look like after bit rot.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const COMMITS: u32 = 12;

/// Options with which no tables come and go in the background, so that a copy is what a kill leaves.
fn options() -> MetaOptions<'static> {
    let config = MetaConfig { write_buffer_bytes: 32 << 20, ..small() };
    MetaOptions { config, defers_upkeep: true, ..super::options() }
}

fn open(folder: &Path) -> RocksMeta {
    RocksMeta::open(folder, &options()).unwrap()
}

/// Returns what a kill leaves of a database whose commits were all synced, some together.
fn killed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    for number in 0..COMMITS {
        let committed = commit_number(&meta, number, 10 + 300 * (number as usize % 3));
        if number % 4 != 1 {
            meta.sync(committed).unwrap();
        }
    }
    copy(folder.path())
}

/// Changes one byte of the newest log; returns whether the byte was not zero.
fn flip(folder: &Path, at: usize) -> bool {
    let log = newest_log(folder);
    let mut bytes = std::fs::read(&log).unwrap();
    let was = bytes[at];
    bytes[at] ^= 0x20;
    std::fs::write(&log, bytes).unwrap();
    was != 0
}

/// Where the batches of the newest log begin and end.
fn batches(folder: &Path) -> Vec<usize> {
    batches_of(&newest_log(folder))
}

fn batches_of(log: &Path) -> Vec<usize> {
    let bytes = std::fs::read(log).unwrap();
    let mut starts = vec![0];
    while let Some((_, part)) = survey::intact(&bytes[*starts.last().unwrap()..]) {
        starts.push(starts.last().unwrap() + survey::HEADER_BYTES + part.len());
    }
    starts
}

fn assert_damaged(error: Option<StoreError>, part: &str) {
    let error = error.unwrap();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains(part) && error.contains("were durable; `cellar store accept-loss`"), "{error}");
}

#[test]
fn a_log_that_lost_durable_commits_is_not_opened() {
    let whole = killed();
    let starts = batches(whole.path());
    assert_eq!(starts.len() as u32, COMMITS + 1);
    for (number, ends) in starts.windows(2).enumerate() {
        for at in
            [ends[0], ends[0] + 4, ends[0] + 6, ends[0] + 15, usize::midpoint(ends[0], ends[1]), ends[1] - 1]
        {
            let folder = copy(whole.path());
            flip(folder.path(), at);
            let before = std::fs::read(newest_log(folder.path())).unwrap();
            // Only the last commit of all has none after it.
            if number as u32 == COMMITS - 1 {
                assert_eq!(numbers(&open(folder.path())).len(), number, "{at}");
                continue;
            }
            let log = newest_log(folder.path());
            let place = format!("{} at offset {}", log.display(), ends[0]);
            assert_damaged(RocksMeta::open_read_only(folder.path()).err(), &place);
            assert_damaged(RocksMeta::open(folder.path(), &options()).err(), &place);
            assert_eq!(std::fs::read(&log).unwrap(), before, "nothing is changed");
        }
    }
}

#[test]
fn a_sector_of_zeros_among_durable_commits_is_a_loss() {
    let folder = killed();
    let log = newest_log(folder.path());
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[512..1024].fill(0);
    std::fs::write(&log, bytes).unwrap();
    assert_damaged(RocksMeta::open(folder.path(), &options()).err(), "at offset");
    let error = RocksMeta::open_read_only(folder.path()).err();
    assert_damaged(error, "at offset");
}

#[test]
fn an_accepted_loss_leaves_what_was_before_it() {
    for number in [0, 1, 5, 10] {
        let folder = killed();
        flip(folder.path(), batches(folder.path())[number] + 20);
        let loss = RocksEngine.loss(folder.path()).unwrap().unwrap();
        assert!(loss.contains("were durable"), "{loss}");
        RocksEngine.accept_loss(folder.path(), Batch::new()).unwrap();
        assert_eq!(RocksEngine.loss(folder.path()).unwrap(), None);
        let meta = open(folder.path());
        assert!(numbers(&meta).iter().copied().eq(0..number as u32));
        // Sequence numbers that were claimed as durable are used again.
        for next in number as u32..number as u32 + 3 {
            meta.sync(commit_number(&meta, next, 10)).unwrap();
        }
        let killed = copy(folder.path());
        assert_eq!(numbers(&open(killed.path())).len(), number + 3);
    }
}

/// Returns a copy of a database with two logs, and the older one: a table of one family has its changes, and the other family
/// still needs it.
fn killed_with_a_table() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    (0..5).for_each(|number| meta.sync(commit_number(&meta, number, 10)).unwrap());
    let older = newest_log(folder.path());
    meta.db.flush_cf(meta.family(ITEMS).unwrap()).unwrap();
    (5..10).for_each(|number| meta.sync(commit_number(&meta, number, 10)).unwrap());
    let crashed = copy(folder.path());
    let older = crashed.path().join(older.file_name().unwrap());
    (crashed, older)
}

/// A table of one family has changes that the log has lost for the other: there is no earlier state of both.
#[test]
fn a_loss_that_tables_are_ahead_of_is_not_accepted() {
    let (crashed, older) = killed_with_a_table();
    // The log ends early, with a whole record.
    let end = batches_of(&older)[3] as u64;
    let file = std::fs::File::options().write(true).open(&older).unwrap();
    file.set_len(end).unwrap();
    assert!(RocksEngine.loss(crashed.path()).unwrap().is_some());
    let error = RocksEngine.accept_loss(crashed.path(), Batch::new()).unwrap_err().to_string();
    assert!(error.contains("SST file is ahead"), "{error}");
    assert!(RocksMeta::open(crashed.path(), &options()).is_err());
}

#[test]
fn nothing_is_accepted_if_nothing_is_lost() {
    let folder = killed();
    let before = std::fs::read(newest_log(folder.path())).unwrap();
    assert_eq!(RocksEngine.loss(folder.path()).unwrap(), None);
    RocksEngine.accept_loss(folder.path(), Batch::new()).unwrap();
    assert_eq!(std::fs::read(newest_log(folder.path())).unwrap(), before);
    assert_eq!(numbers(&open(folder.path())).len() as u32, COMMITS);
}

#[test]
fn the_reason_of_rocksdb_is_explained() {
    let (crashed, older) = killed_with_a_table();
    assert_eq!(numbers(&open(copy(crashed.path()).path())).len(), 10);
    let mut bytes = std::fs::read(&older).unwrap();
    bytes[150] ^= 1;
    std::fs::write(&older, bytes).unwrap();
    for error in
        [RocksMeta::open(crashed.path(), &options()).err(), RocksMeta::open_read_only(crashed.path()).err()]
    {
        let error = error.unwrap().to_string();
        assert!(
            error.contains("SST file is ahead") && error.contains("changes 5 to 18 were durable"),
            "{error}"
        );
        assert!(error.contains(&older.display().to_string()), "{error}");
    }
}

#[test]
fn a_log_without_claims_ends_at_its_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut meta = open(folder.path());
    meta.claims = Claims::new(None);
    (0..COMMITS).for_each(|number| meta.sync(commit_number(&meta, number, 100)).unwrap());
    let crashed = copy(folder.path());
    flip(crashed.path(), batches(crashed.path())[7] + 20);
    assert_eq!(numbers(&open(crashed.path())), (0..7).collect::<Vec<_>>());
}

#[test]
fn a_log_of_which_nothing_was_read_is_not_needed_later() {
    let folder = tempfile::tempdir().unwrap();
    let meta = open(folder.path());
    (0..3).for_each(|number| _ = commit_number(&meta, number, 100));
    let crashed = copy(folder.path());
    flip(crashed.path(), 20);
    let number = |path: &Path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let torn = number(&newest_log(crashed.path()));
    let meta = open(crashed.path());
    assert!(oldest_log(&meta.db) > Some(torn));
    assert_eq!(numbers(&meta), []);
    (0..3).for_each(|number| meta.sync(commit_number(&meta, number, 100)).unwrap());
    assert_eq!(numbers(&open(copy(crashed.path()).path())), [0, 1, 2]);
}

#[test]
fn an_ordinary_start_writes_no_table_for_its_logs() {
    let folder = killed();
    let tables = |meta: &RocksMeta| {
        let handle = meta.family(Family::SYSTEM).unwrap();
        meta.db.property_int_value_cf(handle, "rocksdb.num-files-at-level0").unwrap().unwrap()
    };
    for _ in 0..3 {
        let meta = open(folder.path());
        assert_eq!(tables(&meta), 0);
    }
}

/// A database that loses power again and again.
struct Life {
    rng: SmallRng,
    folder: tempfile::TempDir,
    /// Numbers committed in the state that was found last, or since; and how many of them are durable.
    committed: u32,
    durable: u32,
}

impl Life {
    /// Opens the database, checks its contents, and changes it. Returns the newest log's path, and what a sync covered
    /// of it.
    fn run(&mut self) -> (std::path::PathBuf, Vec<u8>, RocksMeta) {
        let meta = open(self.folder.path());
        let found = numbers(&meta);
        assert!(found.iter().copied().eq(0..found.len() as u32), "{found:?}");
        self.committed = found.len() as u32;
        assert!(self.committed >= self.durable, "{} of {} found", self.committed, self.durable);
        let mut synced = Vec::new();
        for _ in 0..self.rng.random_range(0..25) {
            let committed = commit_number(&meta, self.committed, self.rng.random_range(1..3000));
            self.committed += 1;
            match self.rng.random_range(0..12) {
                0..3 => {
                    meta.sync(committed).unwrap();
                    synced = std::fs::read(newest_log(self.folder.path())).unwrap();
                }
                // RocksDB syncs the older log, since other families need it.
                3 => {
                    let family = [ITEMS, NAMES][self.rng.random_range(0..2)];
                    meta.db.flush_cf(meta.family(family).unwrap()).unwrap();
                    synced = Vec::new();
                }
                _ => continue,
            }
            self.durable = self.committed;
        }
        (newest_log(self.folder.path()), synced, meta)
    }

    /// Takes the power away: of what was not synced, each sector is there, lost or garbled.
    fn crash(&mut self, log: &Path, synced: &[u8]) {
        let crashed = copy(self.folder.path());
        let mut now = std::fs::read(log).unwrap();
        for (at, sector) in now.chunks_mut(512).enumerate().map(|(at, sector)| (at * 512, sector)) {
            let fate = self.rng.random_range(0..5);
            for (at, byte) in (at..).zip(sector) {
                let before = synced.get(at).copied().unwrap_or(0);
                if *byte != before && fate > 2 {
                    *byte = if fate == 3 { before } else { self.rng.random() };
                }
            }
        }
        let least = synced.len();
        now.truncate(self.rng.random_range(least..=now.len()));
        std::fs::write(crashed.path().join(log.file_name().unwrap()), now).unwrap();
        self.folder = crashed;
    }
}

#[test]
fn no_power_failure_of_many_is_taken_for_rot() {
    let (mut lost, mut crashes) = (0, 0);
    seeds::play(40, |seed| {
        let rng = SmallRng::seed_from_u64(seed);
        let mut life = Life { rng, folder: tempfile::tempdir().unwrap(), committed: 0, durable: 0 };
        for _ in 0..6 {
            let (log, synced, meta) = life.run();
            let before = life.committed;
            life.crash(&log, &synced);
            drop(meta);
            lost += u32::from(before > life.durable);
            crashes += 1;
        }
        life.run();
    });
    assert!(crashes >= 240 && lost > 50, "{crashes} crashes, {lost} with unsynced commits");
}
