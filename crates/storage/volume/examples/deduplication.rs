//! Measures what deduplication saves on a tree, and what it costs while storing.
//!
//!     cargo run --release -p volume --example deduplication -- FOLDER TREE [COMPRESSION]
//!
//! FOLDER receives the partitions, which are not removed. All files of TREE are stored in two volumes, one
//! after the other, alternately with and without deduplication. Nothing waits for the disk.

#![allow(clippy::cast_precision_loss, reason = "figures for people")]

mod support;

use base::VolumeId;
use bytes::Bytes;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use store::Codec;
use support::{
    NOTHING, Outcome, actor, create, median, open_partition, processor_seconds, read_tree, relaxed,
};
use volume::{StoreRequest, Volume, VolumeOptions};

/// Bytes that arrive from the network in one piece.
const PIECE_BYTES: usize = 64 << 10;
const ROUNDS: usize = 5;
/// Names in one directory of the volume.
const NAMES: usize = 5000;

/// Results of one round.
struct Round {
    first_mb_per_s: f64,
    second_mb_per_s: f64,
    read_mb_per_s: f64,
    /// Processor seconds for storing the first volume, storing the second, and reading one.
    processor_s: [f64; 3],
    stored_bytes: u64,
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, tree, codec) = match arguments.as_slice() {
        [folder, tree] => (folder, tree, Codec::Lz4),
        [folder, tree, codec] => (folder, tree, codec.parse()?),
        _ => return Err("FOLDER TREE [COMPRESSION]".into()),
    };
    let mut files = Vec::new();
    read_tree(Path::new(tree), 0, &mut files)?;
    let bytes: u64 = files.iter().map(|file| file.len() as u64).sum();
    println!("{} files, {} bytes", files.len(), bytes);
    println!(
        "{:>7} {:>12} {:>12} {:>12} {:>14}",
        "dedup", "first MB/s", "second MB/s", "read MB/s", "chunks, bytes"
    );
    let mut rounds = [vec![], vec![]];
    for round in 0..ROUNDS {
        // Alternates the variants, so that other load on the machine affects both.
        for (deduplicates, rounds) in [false, true].into_iter().zip(&mut rounds) {
            let path = Path::new(folder).join(format!("{round}-{deduplicates}"));
            fs::create_dir_all(&path)?;
            rounds.push(one(&path, codec, deduplicates, &files, bytes)?);
            fs::remove_dir_all(&path)?;
        }
    }
    for (deduplicates, rounds) in [false, true].into_iter().zip(&rounds) {
        let middle = |of: fn(&Round) -> f64| median(rounds.iter().map(of).collect());
        let (first, second) = (middle(|round| round.first_mb_per_s), middle(|round| round.second_mb_per_s));
        let (read, stored) = (middle(|round| round.read_mb_per_s), rounds[0].stored_bytes);
        println!("{deduplicates:>7} {first:>12.1} {second:>12.1} {read:>12.1} {stored:>14}");
        let of_processor: [fn(&Round) -> f64; 3] =
            [|round| round.processor_s[0], |round| round.processor_s[1], |round| round.processor_s[2]];
        println!("        processor time, s: {:.2?}", of_processor.map(middle));
    }
    Ok(())
}

fn one(path: &Path, codec: Codec, deduplicates: bool, files: &[Bytes], bytes: u64) -> Outcome<Round> {
    let partition = open_partition(path)?;
    let volumes = support::volumes(&partition, VolumeOptions { codec, ..relaxed() })?;
    let rate = |began: Instant| bytes as f64 / began.elapsed().as_secs_f64() / 1e6;
    let (mut rates, mut processor_s) = (Vec::new(), Vec::new());
    for id in [1, 2] {
        let volume = create(&volumes, id)?;
        volume.update_header(|header| header.deduplicates = deduplicates)?;
        let (began, before) = (Instant::now(), processor_seconds());
        store_all(&volume, files)?;
        rates.push(rate(began));
        processor_s.push(processor_seconds() - before);
    }
    volumes.sync()?;
    let (began, before) = (Instant::now(), processor_seconds());
    read_all(&volumes.get(VolumeId(2))?, files)?;
    let read_mb_per_s = rate(began);
    let processor_s = [processor_s[0], processor_s[1], processor_seconds() - before];
    let statistics = volumes.deduplication("a".parse()?)?;
    if deduplicates {
        println!("{statistics:?}");
    }
    let stored_bytes = partition.statistics().chunks.stored_bytes_appended;
    Ok(Round {
        first_mb_per_s: rates[0],
        second_mb_per_s: rates[1],
        read_mb_per_s,
        processor_s,
        stored_bytes,
    })
}

fn store_all(volume: &Volume, files: &[Bytes]) -> Outcome<()> {
    let actor = actor();
    let mut directory = volume.root();
    for (number, file) in files.iter().enumerate() {
        if number % NAMES == 0 {
            let name = format!("d{number}");
            let made = volume.make_directory(&actor, volume.root(), name.as_bytes(), &NOTHING)?;
            directory = made.status.fid(volume.id());
        }
        let made = volume.create_file(&actor, directory, format!("f{number}").as_bytes(), &NOTHING)?;
        let length = file.len() as u64;
        let request = StoreRequest { offset: 0, length, file_length: length, set: NOTHING };
        let mut rest = file.clone();
        volume.store(&actor, made.status.fid(volume.id()), &request, &mut |most: usize| {
            // Like from a socket: the bytes are not yet in a cache shared with another thread.
            let piece = rest.split_to(rest.len().min(most).min(PIECE_BYTES));
            Ok(Bytes::copy_from_slice(&piece))
        })?;
    }
    Ok(())
}

/// Compares every file with what was stored.
fn read_all(volume: &Arc<Volume>, files: &[Bytes]) -> Outcome<()> {
    for (number, file) in files.iter().enumerate() {
        let directory = volume.lookup(volume.root(), format!("d{}", number / NAMES * NAMES).as_bytes())?;
        let fid = |found: volume::Found| base::Fid {
            volume: volume.id(),
            vnode: found.vnode,
            unique: found.unique,
        };
        let found = volume.lookup(fid(directory), format!("f{number}").as_bytes())?;
        let mut reader = volume.reader(fid(found), 0, u64::MAX)?;
        let mut rest = file.clone();
        while reader.remaining() > 0 {
            for piece in reader.next(1 << 20)? {
                if rest.split_to(piece.len().min(rest.len())) != piece {
                    return Err(format!("file {number} has other bytes").into());
                }
            }
        }
    }
    Ok(())
}
