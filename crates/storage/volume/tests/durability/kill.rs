//! Repeatedly kills a process that changes volumes on a real partition, at random moments. The next process
//! starts by comparing everything with what was acknowledged, and continues while it searches for data that
//! the killed one orphaned. In the end everything is deleted, and nothing may be left.
//!
//! The process is this test program itself, run with only the ignored test `server`.

use crate::common::{Writer, clone, contents, named, options, partition_id, volume, volume_id};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use store::{Inspection, MetaConfig, Partition, PartitionConfig, SegmentConfig};
use volume::{PartitionHandle, Space, Volumes};
use volume_check::{CheckOptions, check};

const KILLS: u32 = 20;
const WRITERS: u32 = 3;
/// Environment variable with the folder.
const FOLDER: &str = "VOLUME_KILL_TEST_FOLDER";
/// Environment variable with each writer's number of acknowledged steps.
const DONE: &str = "VOLUME_KILL_TEST_DONE";
const ACKNOWLEDGED: &str = "acknowledged ";

/// Returns sizes so small that flushes, compactions and segment changes happen all the time.
fn config() -> PartitionConfig {
    PartitionConfig {
        meta: MetaConfig { write_buffer_bytes: 256 << 10, cache_bytes: 1 << 20, ..MetaConfig::small() },
        segments: SegmentConfig {
            segment_bytes: 100 << 10,
            cache_bytes: 100 << 10,
            aligned_bytes_min: 16 << 10,
            ..SegmentConfig::default()
        },
        maintenance: Some(Duration::from_millis(5)),
        families: &volume::families::ALL,
        chunk_names: Some(volume::CHUNK_NAMES),
        ..PartitionConfig::default()
    }
}

fn open(folder: &Path) -> (Arc<Partition>, Volumes) {
    let partition = Arc::new(Partition::open(folder, &config()).unwrap());
    let handle = PartitionHandle {
        id: partition_id(),
        meta: partition.meta(),
        chunks: partition.chunks(),
        space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
    };
    let volumes = Volumes::open(vec![handle], options()).unwrap();
    (partition, volumes)
}

/// Returns the writers in their expected state.
fn writers(done: &[u64]) -> Vec<Writer> {
    (0..).zip(done).map(|(writer, &done)| Writer::after(writer, done)).collect()
}

fn compare(volumes: &Volumes, writers: &mut [Writer]) {
    for writer in writers {
        writer.check_after_crash(&volume(volumes, writer.number).unwrap());
    }
    // The contents of clones are unknown here, but all of them must be readable.
    for volume in volumes.list(partition_id()) {
        contents(&volume);
    }
}

/// Prints a line for the parent; returns false once the parent has stopped reading.
fn say(line: &str) -> bool {
    std::io::stdout().lock().write_all(format!("{ACKNOWLEDGED}{line}\n").as_bytes()).is_ok()
}

fn write(volumes: &Volumes, mut writer: Writer) {
    let volume = volume(volumes, writer.number).unwrap();
    let number = writer.number;
    while say(&format!("{number} {}", writer.done)) {
        writer.next(&volume).unwrap();
    }
}

fn churn(volumes: &Volumes) {
    for round in 0.. {
        let (writer, number) = (round % WRITERS, round / WRITERS % 3);
        let id = base::VolumeId(volume_id(writer).0 + 1 + number);
        if volumes.get(id).is_ok() {
            volumes.delete(id).unwrap();
        }
        clone(volumes, writer, number).unwrap();
        while volumes.purge_step().unwrap() {}
    }
}

#[test]
#[ignore = "the process that gets killed; does nothing by itself"]
fn server() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let done = std::env::var(DONE).unwrap();
    let done: Vec<u64> = done.split(' ').map(|number| number.parse().unwrap()).collect();
    let (_partition, volumes) = open(Path::new(&folder));
    let mut writers = writers(&done);
    compare(&volumes, &mut writers);
    thread::scope(|scope| {
        let volumes = &volumes;
        scope.spawn(move || churn(volumes));
        for writer in writers {
            scope.spawn(move || write(volumes, writer));
        }
    });
}

fn start(folder: &Path, done: &[u64]) -> Child {
    let done: Vec<String> = done.iter().map(ToString::to_string).collect();
    Command::new(std::env::current_exe().unwrap())
        .args(["kill::server", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(DONE, done.join(" "))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a process until it has acknowledged `until` steps, kills it, and records all acknowledged steps.
fn run_and_kill(folder: &Path, until: u64, done: &mut [u64]) {
    let mut child = start(folder, done);
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The test harness prints before the first line, and the last one may be incomplete.
        let Some((_, numbers)) = line.split_once(ACKNOWLEDGED) else { continue };
        let Some((writer, steps)) = numbers.split_once(' ') else { continue };
        let Ok(steps) = steps.parse::<u64>() else { continue };
        let last = &mut done[writer.parse::<usize>().unwrap()];
        *last = steps.max(*last);
        seen += 1;
        if seen == until {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(!status.success() && seen >= until, "it ended by itself: {status}");
}

/// Checks that the store left by a kill is consistent before anything opens it.
fn check_store(folder: &Path) {
    let found = Inspection::open(folder).unwrap();
    let report = check(found.meta(), Some(found.segments()), CheckOptions { data: true }, &mut |_| {});
    assert!(report.is_clean(), "{report:#?}");
}

#[test]
fn a_killed_server_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut done = vec![0; WRITERS as usize];
    for _ in 0..KILLS {
        // Some processes are killed before they have compared everything.
        let until = if rng.random_ratio(1, 5) { 1 } else { rng.random_range(1..150) };
        run_and_kill(folder.path(), until, &mut done);
        check_store(folder.path());
    }
    let (partition, volumes) = open(folder.path());
    compare(&volumes, &mut writers(&done));
    while partition.needs_recount() {
        assert_eq!(partition.failure(), None);
        thread::sleep(Duration::from_millis(1));
    }
    compare(&volumes, &mut writers(&done));
    for volume in volumes.list(partition_id()) {
        volumes.delete(volume.id()).unwrap();
    }
    while volumes.purge_step().unwrap() {}
    assert_eq!(named(&*partition.meta()), []);
    while partition.statistics().chunks.segments > 0 {
        assert_eq!(partition.failure(), None);
        thread::sleep(Duration::from_millis(1));
    }
    let statistics = partition.statistics().chunks;
    drop((volumes, partition));
    check_store(folder.path());
    assert_eq!((statistics.damaged_reads, statistics.dead_bytes), (0, 0));
}
