//! What a volume with very many files costs: making it, cloning it, deleting a clone and the volume, and
//! what the purger then takes. Everything happens in this process, without a network.
//!
//!     cargo run --release -p volume --example big_volume -- FOLDER 1000000
//!
//! The folder is on the disk to measure and must not exist.

use base::{Fid, PartitionId, UnixTime, UserId, VolumeId, VolumeType};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Partition, PartitionConfig};
use volume::{
    Actor, CloneVolume, Durability, NewVolume, PartitionHandle, SetStatus, Space, Volume, VolumeOptions,
    Volumes,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const DIRECTORY_FILES: u32 = 1000;
const ROUNDS: u32 = 20;
const NOTHING: SetStatus = SetStatus { mode: None, owner: None, group: None, client_modified: None };

fn open(folder: &Path) -> Result<(Arc<Partition>, Volumes)> {
    std::fs::create_dir(folder)?;
    let config = PartitionConfig { chunk_of: Some(volume::chunk_of), ..PartitionConfig::default() };
    let partition = Arc::new(Partition::open(folder, &config)?);
    let handle = PartitionHandle {
        id: partition_id()?,
        meta: partition.meta(),
        chunks: partition.chunks(),
        space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
    };
    let options = VolumeOptions { durability: Durability::Interval, ..VolumeOptions::default() };
    Ok((partition, Volumes::open(vec![handle], options)?))
}

fn partition_id() -> Result<PartitionId> {
    PartitionId::from_index(0).ok_or_else(|| "no partition".into())
}

fn make(volumes: &Volumes, id: u32, files: u32) -> Result<Arc<Volume>> {
    let new = NewVolume {
        id: VolumeId(id),
        name: format!("volume.{id}").parse().map_err(|_| "name")?,
        kind: VolumeType::ReadWrite,
        parent: VolumeId(id),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    };
    let volume = volumes.create(partition_id()?, &new)?;
    let mut directory = volume.root();
    for file in 0..files {
        if file % DIRECTORY_FILES == 0 {
            let name = format!("directory-{file}");
            directory =
                volume.make_directory(&actor(), volume.root(), name.as_bytes(), &NOTHING)?.status.fid(new.id);
            volumes.sync()?;
        }
        volume.create_file(&actor(), directory, format!("file-{file}").as_bytes(), &NOTHING)?;
    }
    volumes.sync()?;
    Ok(volume)
}

fn actor() -> Actor {
    Actor { user: UserId(1), privileged: true, now: UnixTime(1) }
}

/// Median times of making and of deleting a clone, durably.
fn clone(volumes: &Volumes, volume: &Volume, first: u32) -> Result<[Duration; 2]> {
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
    Ok(times.map(|mut all| {
        all.sort_unstable();
        all[all.len() / 2]
    }))
}

/// Every status, in the order of the directories.
fn list(volume: &Volume) -> Result<u32> {
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

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, files] = &arguments[..] else { return Err("usage: big_volume FOLDER FILES".into()) };
    let (partition, volumes) = open(Path::new(folder))?;
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
