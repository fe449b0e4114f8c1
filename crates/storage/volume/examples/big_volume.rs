//! Measures the cost of a volume with very many files: creating it, cloning it, deleting a clone and the
//! volume, and purging afterwards. Everything runs in this process, without a network.
//!
//!     cargo run --release -p volume --example big_volume -- FOLDER 1000000
//!
//! FOLDER is on the disk to measure and must not exist.

mod support;

use base::{Fid, UnixTime, VolumeId, VolumeType};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{NOTHING, Outcome, actor, create, median, open_partition, relaxed, volumes};
use volume::{CloneVolume, Volume, Volumes};

const DIRECTORY_FILES: u32 = 1000;
const ROUNDS: u32 = 20;

fn make(volumes: &Volumes, id: u32, files: u32) -> Outcome<Arc<Volume>> {
    let volume = create(volumes, id)?;
    let mut directory = volume.root();
    for file in 0..files {
        if file % DIRECTORY_FILES == 0 {
            let name = format!("directory-{file}");
            directory = volume
                .make_directory(&actor(), volume.root(), name.as_bytes(), &NOTHING)?
                .status
                .fid(volume.id());
            volumes.sync()?;
        }
        volume.create_file(&actor(), directory, format!("file-{file}").as_bytes(), &NOTHING)?;
    }
    volumes.sync()?;
    Ok(volume)
}

/// Returns the median times of creating and deleting a clone, durably.
fn clone(volumes: &Volumes, volume: &Volume, first: u32) -> Outcome<[Duration; 2]> {
    let mut times = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        let id = VolumeId(first + round);
        let name = format!("clone.{id}").parse().map_err(|_| "name")?;
        let begin = Instant::now();
        volumes.clone_volume(
            volume.id(),
            &CloneVolume { id, name, kind: VolumeType::ReadOnly, now: UnixTime(2) },
        )?;
        volumes.sync()?;
        times[0].push(begin.elapsed());
        let begin = Instant::now();
        volumes.delete(id)?;
        volumes.sync()?;
        times[1].push(begin.elapsed());
    }
    Ok(times.map(median))
}

/// Reads the status of every vnode, in directory order.
fn list(volume: &Volume) -> Outcome<u32> {
    let (mut found, mut directories) = (0, Vec::new());
    let fid = |found: volume::Found| Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique };
    volume.entries(volume.root(), &mut |name, found| {
        if !name.starts_with(b".") {
            directories.push(fid(found));
        }
    })?;
    for directory in directories {
        let mut files = Vec::new();
        volume.entries(directory, &mut |name, found| {
            if !name.starts_with(b".") {
                files.push(fid(found));
            }
        })?;
        for file in files {
            volume.status(file)?;
            found += 1;
        }
    }
    Ok(found)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, files] = &arguments[..] else { return Err("usage: big_volume FOLDER FILES".into()) };
    let partition = open_partition(Path::new(folder))?;
    let volumes = volumes(&partition, relaxed())?;
    let small = make(&volumes, 1, 10)?;
    let files = files.parse()?;
    let begin = Instant::now();
    let big = make(&volumes, 2, files)?;
    println!("{files} files made in {:.1} s", begin.elapsed().as_secs_f64());
    let (of_small, of_big) = (clone(&volumes, &small, 1000)?, clone(&volumes, &big, 2000)?);
    for (what, (small, big)) in ["clone", "delete a clone"].iter().zip(of_small.iter().zip(of_big)) {
        println!("{what}: {small:.1?} of a volume with 10 files, {big:.1?} of one with {files}");
    }
    for _ in 0..2 {
        let begin = Instant::now();
        let found = list(&big)?;
        println!("{found} statuses in {:.2} s", begin.elapsed().as_secs_f64());
    }
    let begin = Instant::now();
    volumes.delete(VolumeId(2))?;
    volumes.sync()?;
    println!("delete the volume: {:.1?}", begin.elapsed());
    let begin = Instant::now();
    while volumes.purge_step()? {}
    println!("the purger, without its pauses: {:.1} s", begin.elapsed().as_secs_f64());
    drop((small, big, volumes, partition));
    Ok(())
}
