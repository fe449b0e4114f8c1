//! Measures the cost of many volumes: the time from opening partitions to serving, the memory for each idle
//! volume, and whether creating, cloning, deleting and first using one takes longer among many than among
//! few. `make` (which exits without an orderly shutdown), `start` and `list` after the arguments run one
//! stage.
//!
//!     cargo run --release -p volume --example many_volumes -- DIRECTORY 1500000 3
//!
//! The directory holds the partitions `a`, `b`, ... with that many volumes in total; missing ones are
//! created. Every third volume is the clone of the one before it.

mod support;

use base::{UnixTime, VolumeId, VolumeType};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Partition;
use support::{Outcome, create_on, handle, median, open_partition, partition_id, relaxed};
use volume::{CloneVolume, VolumeError, Volumes};

/// First id of the volumes that are created, cloned and deleted while measuring.
const MEASURED: u32 = 4_000_000_000;
const MEASURED_ROUNDS: u32 = 300;

struct Server {
    volumes: Volumes,
    _partitions: Vec<Arc<Partition>>,
}

fn open_partitions(folder: &Path, partitions: u8) -> Outcome<Vec<Arc<Partition>>> {
    let paths: Vec<PathBuf> =
        (0..partitions).map(|index| folder.join(char::from(b'a' + index).to_string())).collect();
    let open = |path: &PathBuf| open_partition(path).map(Arc::new).map_err(|error| error.to_string());
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = paths.iter().map(|path| scope.spawn(move || open(path))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    opened.into_iter().map(|opened| Ok(opened.map_err(|_| "a thread panicked")??)).collect()
}

fn open(folder: &Path, partitions: u8) -> Outcome<Server> {
    find_volumes(open_partitions(folder, partitions)?)
}

fn find_volumes(opened: Vec<Arc<Partition>>) -> Outcome<Server> {
    let handles = (0..).zip(&opened).map(|(index, partition)| handle(index, partition)).collect();
    Ok(Server { volumes: Volumes::open(handles, relaxed())?, _partitions: opened })
}

fn make(volumes: &Volumes, number: u32, partitions: u8) -> Result<(), VolumeError> {
    let id = VolumeId(number + 1);
    if number % 3 == 2 {
        return clone(volumes, VolumeId(number), id);
    }
    create_on(volumes, partition_id((number / 3 % u32::from(partitions)) as u8), id).map(drop)
}

fn clone(volumes: &Volumes, of: VolumeId, id: VolumeId) -> Result<(), VolumeError> {
    let name = format!("volume.{of}.ro").parse().map_err(|_| VolumeError::Invalid("name"))?;
    let new = CloneVolume { id, name, kind: VolumeType::ReadOnly, now: UnixTime(2) };
    volumes.clone_volume(of, &new).map(|_| ())
}

/// Exits the process without an orderly shutdown.
fn make_missing(folder: &Path, count: u32, partitions: u8) -> Outcome<()> {
    let server = open(folder, partitions)?;
    let start = Instant::now();
    for number in 0..count {
        if server.volumes.get(VolumeId(number + 1)).is_ok() {
            continue;
        }
        make(&server.volumes, number, partitions)?;
        if number % 10_000 == 0 {
            server.volumes.sync()?;
        }
    }
    server.volumes.sync()?;
    println!("{count} volumes are there after {:.1} s", start.elapsed().as_secs_f64());
    std::process::exit(0)
}

/// Returns the resident memory in bytes.
fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

/// Measures the time until everything serves, and the memory then.
fn measure_start(folder: &Path, partitions: u8) -> Outcome<()> {
    let start = Instant::now();
    let opened = open_partitions(folder, partitions)?;
    let partitions_open = start.elapsed();
    let server = find_volumes(opened)?;
    let serving = start.elapsed();
    let start = Instant::now();
    server.volumes.get(VolumeId(1))?;
    let first = start.elapsed();
    println!("partitions open after {partitions_open:.2?}, all volumes serve after {serving:.2?}");
    println!("first use of a volume {first:.0?}");
    println!("resident {}", resident()?);
    Ok(())
}

/// Operations measured on one volume.
const ONE: [&str; 4] = ["create", "clone", "delete", "first look at"];

/// Returns the median times of these operations among `count` other volumes.
fn measure_one(folder: &Path, count: u32, partitions: u8) -> Outcome<[Duration; ONE.len()]> {
    let server = open(folder, partitions)?;
    let volumes = &server.volumes;
    let mut times = [const { Vec::new() }; ONE.len()];
    for round in 0..MEASURED_ROUNDS {
        let (id, copy) = (VolumeId(MEASURED + 2 * round), VolumeId(MEASURED + 2 * round + 1));
        let start = Instant::now();
        create_on(volumes, partition_id(0), id)?;
        let made = Instant::now();
        clone(volumes, id, copy)?;
        let cloned = Instant::now();
        volumes.delete(copy)?;
        volumes.delete(id)?;
        let deleted = Instant::now();
        volumes.get(VolumeId(round.wrapping_mul(2_654_435_761) % count + 1))?;
        let looked = deleted.elapsed();
        let measured = [made - start, cloned - made, (deleted - cloned) / 2, looked];
        for (all, time) in times.iter_mut().zip(measured) {
            all.push(time);
        }
    }
    while volumes.purge_step()? {}
    Ok(times.map(median))
}

/// Lists a partition and uses every volume once, printing the memory after each.
fn measure_listing(folder: &Path, partitions: u8) -> Outcome<()> {
    let server = open(folder, partitions)?;
    let volumes = &server.volumes;
    let before = resident()?;
    let mut ids = Vec::new();
    let start = Instant::now();
    volumes.list_headers(partition_id(0), &mut |listed| {
        ids.push(listed.header.id);
        ControlFlow::Continue(())
    })?;
    let (time, loaded, after) = (start.elapsed(), volumes.loaded_count(), resident()?);
    let kib = after.saturating_sub(before) >> 10;
    println!("listed {} volumes of a partition in {time:.2?}: {loaded} in memory, {kib} KiB more", ids.len());
    let start = Instant::now();
    for id in &ids {
        volumes.get(*id)?;
    }
    let (time, loaded, kib) =
        (start.elapsed(), volumes.loaded_count(), resident()?.saturating_sub(after) >> 10);
    println!("used each of them once in {time:.2?}: {loaded} in memory, {kib} KiB more");
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, count, partitions, stage @ ..] = &arguments[..] else {
        return Err("usage: many_volumes FOLDER VOLUMES PARTITIONS".into());
    };
    let (folder, count, partitions) = (Path::new(folder), count.parse()?, partitions.parse()?);
    match stage.first().map(String::as_str) {
        Some("make") => make_missing(folder, count, partitions),
        Some("list") => measure_listing(folder, partitions),
        Some("start") => measure_start(folder, partitions),
        _ => measure_all(folder, count, partitions),
    }
}

/// Runs a stage in its own process, so that memory figures cover only that stage, and returns its output.
fn run(stage: &str, folder: &Path, count: u32, partitions: u8) -> Outcome<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(folder).args([count.to_string(), partitions.to_string(), stage.to_owned()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{stage} failed").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Starts twice and returns the resident memory after the second start.
fn starts(folder: &Path, count: u32, partitions: u8) -> Outcome<u64> {
    print!("{}", run("make", folder, count, partitions)?);
    print!("after a kill: {}", run("start", folder, count, partitions)?);
    let text = run("start", folder, count, partitions)?;
    print!("after an orderly end: {text}");
    let resident = text.lines().find_map(|line| line.strip_prefix("resident "));
    Ok(resident.ok_or("nothing about memory")?.parse()?)
}

fn measure_all(folder: &Path, count: u32, partitions: u8) -> Outcome<()> {
    let few = folder.join("few");
    let resident_few = starts(&few, 100, partitions)?;
    let resident_many = starts(folder, count, partitions)?;
    let grown = resident_many.saturating_sub(resident_few);
    println!("{} bytes for each idle volume", grown / u64::from(count - 100));
    let (among_few, among_many) =
        (measure_one(&few, 100, partitions)?, measure_one(folder, count, partitions)?);
    for (what, (few, many)) in ONE.iter().zip(among_few.iter().zip(among_many)) {
        let ratio = many.as_secs_f64() / few.as_secs_f64();
        println!("{what}: {few:.1?} among 100, {many:.1?} among {count}; ratio {ratio:.2}");
    }
    Ok(())
}
