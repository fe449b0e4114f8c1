//! Measures how fast a file is stored with each compression, with and without threads that compress while
//! more data arrives.
//!
//!     cargo run --release -p volume --example compression_speed -- FOLDER SOURCE... [MIB]
//!
//! FOLDER receives a partition, which is not removed. SOURCE are files whose contents are stored repeatedly.

#![allow(clippy::cast_precision_loss, reason = "figures for people")]

mod support;

use base::VolumeId;
use bytes::Bytes;
use std::path::Path;
use std::time::Instant;
use store::{Codec, Partition};
use support::{NOTHING, Outcome, actor, create, open_partition};
use volume::{StoreRequest, VolumeOptions};

/// Bytes that arrive from the network in one piece.
const PIECE_BYTES: usize = 64 << 10;
const ROUNDS: usize = 9;

fn main() -> Outcome<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mib = arguments.last().and_then(|last| last.parse::<u64>().ok()).inspect(|_| _ = arguments.pop());
    let [folder, sources @ ..] = arguments.as_slice() else { return Err("FOLDER SOURCE... [MIB]".into()) };
    let mut data = Vec::new();
    for source in sources {
        data.extend(std::fs::read(source)?);
    }
    if data.is_empty() {
        return Err("no data".into());
    }
    let bytes = mib.unwrap_or(256) << 20;
    let pieces: Vec<Bytes> = data.chunks(PIECE_BYTES).map(Bytes::copy_from_slice).collect();
    let partition = open_partition(Path::new(folder))?;
    println!("{:>8} {:>8} {:>10} {:>10} {:>7}", "policy", "threads", "MB/s", "best", "ratio");
    let mut next_id = 1;
    for codec in [Codec::Raw, Codec::Lz4, Codec::Zstd(3), Codec::Zstd(9)] {
        let options = |append_threads| VolumeOptions { codec, append_threads, ..VolumeOptions::default() };
        let threads = [0, VolumeOptions::default().append_threads];
        let mut rates = [vec![], vec![]];
        let before = partition.statistics().chunks;
        // Alternates the variants, so that other load on the machine affects both.
        for _ in 0..ROUNDS {
            for (threads, rates) in threads.iter().zip(&mut rates) {
                rates.push(one(&partition, options(*threads), next_id, &pieces, bytes)?);
                next_id += 1;
            }
        }
        let after = partition.statistics().chunks;
        let stored = after.stored_bytes_appended - before.stored_bytes_appended;
        let ratio = (after.raw_bytes_appended - before.raw_bytes_appended) as f64 / stored as f64;
        for (threads, rates) in threads.iter().zip(&mut rates) {
            rates.sort_by(f64::total_cmp);
            let (median, best) = (rates[ROUNDS / 2], rates[ROUNDS - 1]);
            println!("{codec:>8} {threads:>8} {median:>10.1} {best:>10.1} {ratio:>7.2}");
        }
    }
    Ok(())
}

/// Stores a file in a new volume and returns the rate in MB/s.
fn one(
    partition: &Partition,
    options: VolumeOptions,
    id: u32,
    pieces: &[Bytes],
    length: u64,
) -> Outcome<f64> {
    let volumes = support::volumes(partition, options)?;
    let volume = create(&volumes, id)?;
    let fid = volume.create_file(&actor(), volume.root(), b"file", &NOTHING)?.status.fid(volume.id());
    let request = StoreRequest { offset: 0, length, file_length: length, set: NOTHING };
    let mut coming = pieces.iter().cycle();
    let mut piece = Bytes::new();
    let began = Instant::now();
    volume.store(&actor(), fid, &request, &mut |most: usize| {
        if piece.is_empty() {
            // Like from a socket: the bytes are not yet in a cache shared with another thread.
            piece = Bytes::copy_from_slice(coming.next().map_or(&[][..], |piece| piece));
        }
        Ok(piece.split_to(piece.len().min(most)))
    })?;
    let rate = length as f64 / began.elapsed().as_secs_f64() / 1e6;
    volumes.delete(VolumeId(id))?;
    while volumes.purge_step()? {}
    partition.maintain()?;
    Ok(rate)
}
