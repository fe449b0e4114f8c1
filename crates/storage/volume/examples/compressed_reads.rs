//! Measures how fast a tree is read with each compression and without: from disk, from the kernel's page
//! cache, and from the chunk cache. Also prints the page-cache rate per second of processor time, which other
//! load on the machine hardly affects.
//!
//!     cargo run --release -p volume --example compressed_reads -- FOLDER TREE
//!
//! FOLDER receives the partitions, which are not removed. The measured time includes comparing every file
//! with what was stored, but not read-ahead.

#![allow(clippy::cast_precision_loss, reason = "figures for people")]

mod support;

use base::{Fid, VolumeId};
use bytes::Bytes;
use rustix::fs::{Advice, fadvise};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use store::{Codec, Partition};
use support::{
    NOTHING, Outcome, actor, create, median, open_partition, processor_seconds, read_tree, relaxed,
};
use volume::{StoreRequest, VolumeOptions, Volumes};

const ROUNDS: usize = 5;
/// Names in one directory of the volume.
const NAMES: usize = 5000;
const CODECS: [Codec; 4] = [Codec::Raw, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(3)];
const FROM: [&str; 4] = ["medium", "page cache", "chunk cache", "per CPU s"];

struct Opened {
    partition: Partition,
    volumes: Volumes,
}

fn open(path: &Path, codec: Codec) -> Outcome<Opened> {
    let partition = open_partition(path)?;
    Ok(Opened { volumes: support::volumes(&partition, VolumeOptions { codec, ..relaxed() })?, partition })
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, tree] = arguments.as_slice() else { return Err("FOLDER TREE".into()) };
    let mut files = Vec::new();
    // Small files are stored inline in the metadata, where they are not compressed.
    read_tree(Path::new(tree), 4096, &mut files)?;
    let bytes: u64 = files.iter().map(|file| file.len() as u64).sum();
    println!("{} files, {bytes} bytes; MB/s, medians of {ROUNDS}", files.len());
    let path = |codec: Codec| PathBuf::from(folder).join(codec.to_string().replace(':', ""));
    let mut stored = Vec::new();
    for codec in CODECS {
        stored.push(store(&open(&path(codec), codec)?, &files)?);
    }
    let mut rates = [const { [const { vec![] }; FROM.len()] }; CODECS.len()];
    for _ in 0..ROUNDS {
        // Alternates the codecs, so that other load on the machine affects all of them.
        for ((codec, (fids, _)), rates) in CODECS.iter().zip(&stored).zip(&mut rates) {
            forget(&path(*codec))?;
            let opened = open(&path(*codec), *codec)?;
            rates[0].push(bytes as f64 / read(&opened, fids, &files)? / 1e6);
            rates[2].push(bytes as f64 / read(&opened, fids, &files)? / 1e6);
            drop(opened);
            let opened = open(&path(*codec), *codec)?;
            let before = processor_seconds();
            rates[1].push(bytes as f64 / read(&opened, fids, &files)? / 1e6);
            rates[3].push(bytes as f64 / (processor_seconds() - before) / 1e6);
        }
    }
    println!("{:>8} {:>7} {}", "policy", "ratio", FROM.map(|from| format!("{from:>12}")).join(""));
    for ((codec, (_, ratio)), rates) in CODECS.iter().zip(&stored).zip(rates) {
        let rates = rates.map(|rates| format!("{:>12.1}", median(rates)));
        println!("{codec:>8} {ratio:>7.2} {}", rates.join(""));
    }
    Ok(())
}

/// Returns the FIDs of the stored files and the compression ratio of their chunks.
fn store(opened: &Opened, files: &[Bytes]) -> Outcome<(Vec<Fid>, f64)> {
    let volume = create(&opened.volumes, 1)?;
    let actor = actor();
    let (mut fids, mut directory) = (Vec::new(), volume.root());
    for (number, file) in files.iter().enumerate() {
        if number % NAMES == 0 {
            let made =
                volume.make_directory(&actor, volume.root(), format!("d{number}").as_bytes(), &NOTHING)?;
            directory = made.status.fid(volume.id());
        }
        let made = volume.create_file(&actor, directory, format!("f{number}").as_bytes(), &NOTHING)?;
        let fid = made.status.fid(volume.id());
        let (length, mut rest) = (file.len() as u64, file.clone());
        let request = StoreRequest { offset: 0, length, file_length: length, set: NOTHING };
        volume.store(&actor, fid, &request, &mut |most: usize| Ok(rest.split_to(rest.len().min(most))))?;
        fids.push(fid);
    }
    opened.volumes.sync()?;
    let chunks = opened.partition.statistics().chunks;
    Ok((fids, chunks.raw_bytes_appended as f64 / chunks.stored_bytes_appended as f64))
}

/// Returns the seconds it takes to compare every file with what was stored.
fn read(opened: &Opened, fids: &[Fid], files: &[Bytes]) -> Outcome<f64> {
    let volume = opened.volumes.get(VolumeId(1))?;
    let began = Instant::now();
    for (fid, file) in fids.iter().zip(files) {
        let mut reader = volume.reader(*fid, 0, u64::MAX)?;
        let mut rest = file.clone();
        while reader.remaining() > 0 {
            for piece in reader.next(1 << 20)? {
                if rest.split_to(piece.len().min(rest.len())) != piece {
                    return Err(format!("the file {fid:?} has other bytes").into());
                }
            }
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Advises the kernel that the files below a folder will not be read soon.
fn forget(folder: &Path) -> Outcome<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else {
            let file = fs::File::open(path)?;
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
