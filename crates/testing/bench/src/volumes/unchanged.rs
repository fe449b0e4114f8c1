//! Releases a very large volume again without a change, between two Cellar servers.

use super::{Contents, FOLDER_FILES, Pair};
use crate::report::table;
use anyhow::{Context, Result, ensure};
use interop::cell::{Server, cellar_program};
use std::time::Instant;

const VOLUME: &str = "unchanged";
/// Size of a file in bytes.
const FILE_BYTES: u64 = 64 << 20;
/// Number of files written and copied at a time: no more space than these take is needed in addition to the
/// volume and its replica.
const FILES_AT_A_TIME: u64 = 16;

/// The measured steps, in order.
const RELEASES: [(&str, &str); 4] = [
    ("first release to the other server", "volume release unchanged"),
    ("second release, without a change", "volume release unchanged"),
    ("third release, without a change", "volume release unchanged"),
    ("complete release (--all)", "volume release unchanged --all"),
];

/// Creates an incompressible volume of `gib` GiB in which all chunks differ, releases it and prints a table.
pub(super) fn run(gib: u64) -> Result<()> {
    let pair = Pair::start(Server::Cellar).context("Cellar")?;
    pair.first.open_volume(Server::Cellar, VOLUME)?;
    let files = (gib << 30) / FILE_BYTES;
    for first in (0..files).step_by(FILES_AT_A_TIME as usize) {
        eprintln!("bench: {VOLUME}, {first} of {files} files");
        fill(&pair, first, files.min(first + FILES_AT_A_TIME))?;
    }
    pair.run(&format!("vos addsite {} a {VOLUME} -localauth", pair.second.address))?;
    let mut lines = table(&["release", "seconds", "bytes of the transfer", "bytes sent by the machine"], 1);
    for (name, command) in RELEASES {
        eprintln!("bench: {name}");
        rustix::fs::sync();
        let before = network_bytes(&pair)?;
        let start = Instant::now();
        let sent = sent(&pair, command).with_context(|| name.to_owned())?;
        let seconds = start.elapsed().as_secs_f64();
        let network = network_bytes(&pair)? - before;
        lines.add_row([name.into(), format!("{seconds:.2}"), sent.to_string(), network.to_string()]);
    }
    println!("A volume of {files} files, {gib} GiB of random bytes, between two Cellar servers.\n");
    println!("{lines}\n");
    Ok(())
}

fn fill(pair: &Pair, first: u64, end: u64) -> Result<()> {
    let part = Contents { volume: VOLUME, files: end - first, file_bytes: FILE_BYTES };
    let folder = pair.first.scratch()?.join("files");
    let folder = folder.display().to_string();
    pair.first.shell(&part.script(&folder, 1))?.ok()?;
    // A part must fit into one folder.
    ensure!(part.files < FOLDER_FILES, "{} files at a time", part.files);
    pair.run(&format!("{} cp {folder}/0/ cell:{VOLUME}/{first}/", cellar_program()?.display()))?;
    pair.first.shell(&format!("rm -r {folder}"))?.ok().map(drop)
}

/// Runs a job and returns the number of bytes that it reports as sent.
fn sent(pair: &Pair, command: &str) -> Result<u64> {
    let printed = pair.first.run(&format!("{} {command} --json", cellar_program()?.display()))?.ok()?;
    let job: serde_json::Value = serde_json::from_str(&printed).with_context(|| printed.clone())?;
    ensure!(job["stage"] == "done", "{printed}");
    job["sent"].as_u64().context(printed)
}

/// Returns the bytes sent from the first server's machine, including all headers.
fn network_bytes(pair: &Pair) -> Result<u64> {
    let read = "for device in $(ls /sys/class/net); do [ $device = lo ] || cat /sys/class/net/$device/statistics/tx_bytes; done";
    let printed = pair.first.shell(read)?.ok()?;
    let numbers: Result<Vec<u64>, _> = printed.split_whitespace().map(str::parse).collect();
    Ok(numbers.with_context(|| printed.clone())?.iter().sum())
}
