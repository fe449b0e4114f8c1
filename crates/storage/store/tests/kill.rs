//! Repeatedly kills a process that writes to a real partition, at arbitrary moments, and checks the result:
//! for every writer a prefix of its writes, including all acknowledged ones, with every chunk intact.
//!
//! The process is this test program, run with only the ignored test `writer`.

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use store::{
    Batch, ChunkAddress, Codec, Family, KeyRange, MetaConfig, MetaStore, Partition, PartitionConfig,
    SegmentConfig,
};

const ROUNDS: u64 = 40;
const ITEMS: Family = Family::new(2, "items");
/// Its records name chunks.
const NAMES: Family = Family::new(4, "names");
const WRITERS: u8 = 4;
/// Environment variable with the folder of the writing process.
const FOLDER: &str = "STORE_KILL_TEST_FOLDER";
const ACKNOWLEDGED: &str = "acknowledged ";

/// So small that flushes, compactions and new segments are frequent.
fn config() -> PartitionConfig {
    PartitionConfig {
        families: &[ITEMS, NAMES],
        meta: MetaConfig { write_buffer_bytes: 256 << 10, cache_bytes: 1 << 20, ..MetaConfig::default() },
        segments: SegmentConfig {
            segment_bytes: 256 << 10,
            aligned_bytes_min: 3000,
            ..SegmentConfig::default()
        },
        ..PartitionConfig::default()
    }
}

fn key(writer: u8, number: u64) -> Vec<u8> {
    [&[writer][..], &number.to_be_bytes()].concat()
}

fn chunk(writer: u8, number: u64) -> Bytes {
    let length = (number * 37 % 5000) as usize;
    let mut rng = SmallRng::seed_from_u64(number << 8 | u64::from(writer));
    (0..length).map(|_| rng.random::<u8>()).collect()
}

/// Returns the rows of a writer, which must be consecutive from the first.
fn rows(meta: &dyn MetaStore, writer: u8) -> Vec<ChunkAddress> {
    let mut found = Vec::new();
    let mut visit = |row: &[u8], value: &[u8]| {
        assert_eq!(row, key(writer, found.len() as u64), "a hole in what writer {writer} did");
        found.push(ChunkAddress::from_bytes(value).unwrap());
        ControlFlow::Continue(())
    };
    meta.scan(NAMES, KeyRange::ascending(&[writer], &[writer + 1]), &mut visit).unwrap();
    found
}

fn write(partition: &Partition, writer: u8) {
    let (meta, chunks) = (partition.meta(), partition.chunks());
    let first = rows(&*meta, writer).len() as u64;
    for number in first.. {
        let address = chunks.append(&[chunk(writer, number)], Codec::Lz4).unwrap();
        chunks.sync().unwrap();
        let mut batch = Batch::new();
        batch.put(NAMES, key(writer, number), address.to_bytes());
        // The same row in another family: both or neither must be there.
        batch.put(ITEMS, key(writer, number), vec![writer; 500]);
        let number_of_commit = meta.commit(batch).unwrap();
        if number % 3 != 0 {
            continue;
        }
        meta.sync(number_of_commit).unwrap();
        let line = format!("{ACKNOWLEDGED}{writer} {number}\n");
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
#[ignore = "the process that gets killed; does nothing by itself"]
fn writer() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let partition = Partition::open(Path::new(&folder), &config()).unwrap();
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let partition = &partition;
            scope.spawn(move || write(partition, number));
        }
    });
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["writer", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets the child write until it has acknowledged `until` writes, kills it, and records all acknowledgements.
fn run_and_kill(folder: &Path, until: u64, acknowledged: &mut [Option<u64>; WRITERS as usize]) {
    let mut child = start(folder);
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The test harness prints text before the first one, and the last one may be truncated.
        let Some((_, numbers)) = line.split_once(ACKNOWLEDGED) else { continue };
        let Some((writer, number)) = numbers.split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        let last = &mut acknowledged[writer.parse::<usize>().unwrap()];
        *last = Some(number.max(last.unwrap_or(0)));
        seen += 1;
        if seen == until {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(!status.success() && seen >= until, "the writer ended by itself: {status}");
}

fn check(folder: &Path, acknowledged: &[Option<u64>; WRITERS as usize]) -> u64 {
    let partition = Partition::open(folder, &config()).unwrap();
    let (meta, chunks) = (partition.meta(), partition.chunks());
    let mut total = 0;
    for writer in 0..WRITERS {
        let rows = rows(&*meta, writer);
        let expected = acknowledged[usize::from(writer)].map_or(0, |last| last + 1);
        assert!(
            rows.len() as u64 >= expected,
            "writer {writer}: {} rows, {expected} acknowledged",
            rows.len()
        );
        for (number, address) in (0..).zip(&rows) {
            assert_eq!(chunks.read(*address).unwrap(), chunk(writer, number));
            let both = meta.get(ITEMS, &key(writer, number)).unwrap();
            assert_eq!(both.as_deref(), Some(&[writer; 500][..]));
        }
        let beyond = meta.get(ITEMS, &key(writer, rows.len() as u64)).unwrap();
        assert_eq!(beyond, None, "half of a batch");
        total += rows.len() as u64;
    }
    total
}

#[test]
fn a_killed_process_leaves_a_prefix_of_acknowledged_records() {
    let folder = tempfile::tempdir().unwrap();
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut acknowledged = [None; WRITERS as usize];
    let mut total = 0;
    for _ in 0..ROUNDS {
        run_and_kill(folder.path(), rng.random_range(1..60), &mut acknowledged);
        let found = check(folder.path(), &acknowledged);
        assert!(found > total);
        total = found;
    }
}
