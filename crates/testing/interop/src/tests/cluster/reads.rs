//! A large file that is written and read through nodes that do not own it: the data goes to the bucket and comes from there, not
//! through the owner.

use super::walk::{ATTEMPTS, client, counts_of};
use anyhow::{Context, Result, anyhow, ensure};
use cell_client::files::Attributes;
use interop::cluster::Cluster;
use std::io::Cursor;
use std::time::Instant;

/// Size of the file. The nodes' copies of the bucket have room for it.
const BYTES: usize = 100_000_000;

/// Bytes of everything else that may pass between a front and the owner for it.
const ELSE_MAX: u64 = 1_000_000;

/// Figures of a node, as they are called in its statistics.
const FIGURES: [&str; 4] = ["relayed_bytes", "reads", "read_bytes", "reads_failed"];
const WRITING: [&str; 2] = ["written_bytes", "writes_failed"];

/// Stores a file through the node `writer`, and reads it twice through `reader`; neither owns the volume.
pub(super) fn compare(cluster: &Cluster, volume: &str, (writer, reader): (usize, usize)) -> Result<()> {
    let data = noise(BYTES);
    write(cluster, volume, writer, &data)?;
    for round in 0..2 {
        for attempt in 1..=ATTEMPTS {
            let (before, begun) = (counts_of(cluster, &FIGURES)?, Instant::now());
            let got = fetch(cluster, volume, reader)?;
            let time = begun.elapsed();
            ensure!(got == data, "read {round}: {} of {BYTES} bytes, or other ones", got.len());
            let after = counts_of(cluster, &FIGURES)?;
            let [relayed, reads, read, failed] =
                std::array::from_fn(|figure| after[reader][figure] - before[reader][figure]);
            println!(
                "interop: read {round} of {BYTES} bytes, {time:.1?}: {read} from the bucket, {relayed} from the owner"
            );
            if failed > 0 && attempt < ATTEMPTS {
                println!("interop: {failed} of {reads} reads failed; again");
                continue;
            }
            ensure!((reads, failed) == (1, 0), "{reads} reads, {failed} of them failed");
            ensure!(
                read + ELSE_MAX >= BYTES as u64 && relayed <= ELSE_MAX,
                "{relayed} bytes came from the owner"
            );
            break;
        }
    }
    Ok(())
}

/// Stores the file, and verifies that its data did not pass through the owner.
fn write(cluster: &Cluster, volume: &str, writer: usize, data: &[u8]) -> Result<()> {
    let (before, begun) = (counts_of(cluster, &WRITING)?, Instant::now());
    store(cluster, volume, writer, data)?;
    let time = begun.elapsed();
    let after = counts_of(cluster, &WRITING)?;
    let [written, failed] = std::array::from_fn(|figure| after[writer][figure] - before[writer][figure]);
    println!("interop: {BYTES} bytes stored, {time:.1?}: {written} to the bucket");
    ensure!(
        failed == 0 && written + ELSE_MAX >= BYTES as u64,
        "{written} bytes were written, {failed} stores failed"
    );
    Ok(())
}

/// Returns bytes that compression does not shrink.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8)).flat_map(|_| next()).take(length).collect()
}

fn store(cluster: &Cluster, volume: &str, node: usize, data: &[u8]) -> Result<()> {
    let cell = client(cluster, node)?;
    let attributes = Attributes { mode: 0o644, modified: 1_000_000_000 };
    let file = cell.create(&cell.root_of(volume)?, b"large", attributes);
    let file = file.map_err(|code| anyhow!("cannot create a file: {code:?}"))?;
    cell.store(&file, attributes, &mut Cursor::new(data), data.len() as u64, &mut |_| ())
}

/// Reads the file through a node by a new client.
fn fetch(cluster: &Cluster, volume: &str, node: usize) -> Result<Vec<u8>> {
    let cell = client(cluster, node)?;
    let file = cell.child(&cell.root_of(volume)?, b"large")?.context("there is no file")?;
    let mut data = Vec::with_capacity(BYTES);
    cell.fetch(&file, &mut data, &mut |_| ())?;
    Ok(data)
}
