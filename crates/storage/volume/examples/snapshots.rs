//! Measures the cost of snapshots: making one of a volume with few and with many files, and reading the
//! oldest of a hundred compared with the newest state, where files changed between all of them.
//!
//!     cargo run --release -p volume --example snapshots -- EMPTY_DIRECTORY 100000

mod support;

use base::{Fid, UnixTime, VolumeId};
use std::path::Path;
use std::time::{Duration, Instant};
use store::Partition;
use support::{Outcome, actor, create, median, open_partition, relaxed, volumes};
use volume::{Kept, NewSnapshot, SetStatus, StoreRequest, Volume, Volumes};

const HOME: VolumeId = VolumeId(1);
const SNAPSHOTS: u32 = 100;
/// Number of files that are read and changed.
const SAMPLE: usize = 1000;
const ROUNDS: usize = 9;

fn write(volume: &Volume, fid: Fid, byte: u8) -> Outcome<()> {
    let request = StoreRequest { offset: 0, length: 100, file_length: 0, set: SetStatus::default() };
    let mut rest = bytes::Bytes::from(vec![byte; 100]);
    volume.store(&actor(), fid, &request, &mut |most: usize| Ok(rest.split_to(rest.len().min(most))))?;
    Ok(())
}

fn snapshot(volumes: &Volumes, id: u32) -> Outcome<Duration> {
    let new = NewSnapshot {
        id: VolumeId(id),
        parent: VolumeId(id - 1),
        volume_name: format!("snap.{id}").parse()?,
        name: format!("s{id}").parse()?,
        kept: Kept::default(),
        expires: UnixTime(0),
        now: UnixTime(id),
    };
    let begin = Instant::now();
    volumes.snapshot(HOME, &new)?;
    Ok(begin.elapsed())
}

fn fill(volume: &Volume, from: usize, to: usize) -> Outcome<Vec<Fid>> {
    let mut made = Vec::new();
    for number in from..to {
        let directory = volume.root();
        let name = format!("file{number}");
        let created = volume.create_file(&actor(), directory, name.as_bytes(), &SetStatus::default())?;
        made.push(created.status.fid(HOME));
    }
    Ok(made)
}

/// Reads the status and data of the files with cold volume caches.
fn read(partition: &Partition, id: VolumeId, files: &[Fid]) -> Outcome<Duration> {
    let volume = volumes(partition, relaxed())?.get(id)?;
    let begin = Instant::now();
    for &fid in files {
        volume.read(fid, 0, u64::MAX)?;
    }
    Ok(begin.elapsed())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, files] = &arguments[..] else { return Err("usage: snapshots EMPTY_DIRECTORY FILES".into()) };
    let partition = open_partition(Path::new(folder))?;
    let volumes = volumes(&partition, relaxed())?;
    let volume = create(&volumes, HOME.0)?;
    let mut sample = fill(&volume, 0, 10)?;
    let few = median((0..50).map(|at| snapshot(&volumes, 10_000 + 2 * at)).collect::<Outcome<_>>()?);
    sample.extend(fill(&volume, 10, files.parse::<usize>()?.min(60_000))?);
    let many = median((0..50).map(|at| snapshot(&volumes, 20_000 + 2 * at)).collect::<Outcome<_>>()?);
    println!("making a snapshot: {few:?} with 10 files, {many:?} with {} files", sample.len());
    sample.truncate(SAMPLE);
    for at in 0..SNAPSHOTS {
        sample.iter().try_for_each(|&fid| write(&volume, fid, at as u8))?;
        snapshot(&volumes, 30_000 + 2 * at)?;
    }
    sample.iter().try_for_each(|&fid| write(&volume, fid, 0xff))?;
    volumes.sync()?;
    let oldest = VolumeId(30_000);
    let (mut new, mut old) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        new.push(read(&partition, HOME, &sample)?);
        old.push(read(&partition, oldest, &sample)?);
    }
    let (new, old) = (median(new), median(old));
    println!(
        "reading {SAMPLE} files that changed between {SNAPSHOTS} snapshots: newest {new:?}, oldest {old:?}"
    );
    Ok(())
}
