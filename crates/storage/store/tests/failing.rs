//! A file system that fails under a partition while several threads write. The system rejects writes beyond
//! the process's file size limit (EFBIG), which resembles a file system that became read-only: logs, tables
//! and data fail alike. The limited process is a child, since an assertion of RocksDB would abort it.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use store::{Batch, Codec, Family, MetaConfig, MetaStore, Partition, PartitionConfig, StoreError};

/// Environment variables for the child: the partition and the size of its write buffers in bytes.
const ITEMS: Family = Family::new(2, "items");
const ROWS: Family = Family::new(3, "rows");
const PATH: &str = "CELLAR_FAILING_PARTITION";
const BUFFER: &str = "CELLAR_FAILING_BUFFER";
const THREADS: u8 = 4;
const COMMITS_MAX: u32 = 50_000;
const VALUE_BYTES: usize = 700;

fn config(write_buffer_bytes: usize) -> PartitionConfig {
    let meta = MetaConfig { write_buffer_bytes, ..MetaConfig::small() };
    PartitionConfig {
        families: &[ITEMS, ROWS],
        meta,
        maintenance: Some(Duration::from_millis(5)),
        ..PartitionConfig::default()
    }
}

/// Returns a key of one thread, spread over the key space, so that tables overlap and are compacted.
fn key(thread: u8, number: u32) -> Vec<u8> {
    let mut key = number.reverse_bits().to_be_bytes().to_vec();
    key.push(thread);
    key
}

/// Returns an incompressible value.
fn value(thread: u8, number: u32) -> Vec<u8> {
    let mut state = (u64::from(number) << 8) | u64::from(thread) | (1 << 63);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..VALUE_BYTES).map(|_| next()).collect()
}

fn commit(meta: &dyn MetaStore, thread: u8, number: u32) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    let family = if number.is_multiple_of(2) { ITEMS } else { ROWS };
    batch.put(family, key(thread, number), value(thread, number));
    let committed = meta.commit(batch)?;
    if number.is_multiple_of(3) { meta.sync(committed) } else { Ok(()) }
}

/// Writes until the first error; returns the number up to which everything was synced.
fn write(meta: &dyn MetaStore, thread: u8) -> u32 {
    let mut durable = 0;
    for number in 0..COMMITS_MAX {
        if commit(meta, thread, number).is_err() {
            return durable;
        }
        if number.is_multiple_of(3) {
            durable = number;
        }
    }
    panic!("nothing failed");
}

fn check(meta: &dyn MetaStore, thread: u8, durable: u32) {
    for number in 0..=durable {
        let family = if number.is_multiple_of(2) { ITEMS } else { ROWS };
        let found = meta.get(family, &key(thread, number)).unwrap();
        assert_eq!(found.as_deref(), Some(&value(thread, number)[..]), "{thread}, {number}");
    }
}

/// The child's code: does nothing unless started by [`run`].
#[test]
fn child_writes_until_its_disk_fails() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let buffer = std::env::var(BUFFER).unwrap().parse().unwrap();
    let partition = Partition::open(Path::new(&path), &config(buffer)).unwrap();
    let (meta, chunks) = (partition.meta(), partition.chunks());
    let durable: Vec<u32> = std::thread::scope(|scope| {
        let start = |thread| {
            let meta = Arc::clone(&meta);
            scope.spawn(move || write(&*meta, thread))
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let failure = partition.failure().expect("a failure is kept");
    let refused = commit(&*meta, 0, 0).unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly(_)), "{refused}");
    let refused = chunks.append(&[Bytes::from_static(b"data")], Codec::Raw).unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly(_)), "{refused}");
    // Leaves maintenance time for some rounds.
    std::thread::sleep(Duration::from_millis(50));
    for (thread, durable) in (0..THREADS).zip(&durable) {
        check(&*meta, thread, *durable);
    }
    drop((meta, chunks, partition));
    println!("failure {failure}");
    for (thread, durable) in durable.iter().enumerate() {
        println!("durable {thread} {durable}");
    }
}

/// Runs the child with a file size limit of `limit_kib`; returns its output.
fn run(path: &Path, buffer: usize, limit_kib: u32) -> String {
    // The limit is in units of 512 bytes; the signal would end the process.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", limit_kib * 2);
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "child_writes_until_its_disk_fails", "--nocapture"]);
    let done = command.env(PATH, path).env(BUFFER, buffer.to_string()).output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{}, {limit_kib} KiB:\n{out}\n{errors}", done.status);
    out.into_owned()
}

/// Checks that everything durable in the child is there at the next start, when the disk works again.
fn survives(buffer: usize, limit_kib: u32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let out = run(folder.path(), buffer, limit_kib);
    let field = |line: &str, at: usize| line.split(' ').nth(at).unwrap().parse::<u32>().unwrap();
    let durable: BTreeMap<u8, u32> = out
        .lines()
        .filter(|line| line.starts_with("durable "))
        .map(|line| (field(line, 1) as u8, field(line, 2)))
        .collect();
    assert_eq!(durable.len(), usize::from(THREADS), "{out}");
    let partition = Partition::open(folder.path(), &config(buffer)).unwrap();
    assert_eq!(partition.failure(), None);
    for (thread, durable) in durable {
        check(&*partition.meta(), thread, durable);
    }
    commit(&*partition.meta(), 0, COMMITS_MAX).unwrap();
    out
}

#[test]
fn a_failed_log_write_makes_the_partition_read_only() {
    for limit_kib in [300, 350, 425, 500, 700, 1000, 1500, 2500] {
        let out = survives(8 << 20, limit_kib);
        assert!(out.contains(".log: File too large"), "{out}");
    }
}

#[test]
fn a_failed_table_write_makes_the_partition_read_only() {
    for limit_kib in [300, 400, 600] {
        let out = survives(512 << 10, limit_kib);
        assert!(out.contains("File too large"), "{out}");
    }
}
