//! The tests, one file per peer.

mod addresses;
mod admin;
mod administering;
mod asking;
mod auditing;
mod buckets;
mod carrying;
mod cluster;
mod comparing;
mod cutting;
mod dumps;
mod electing;
mod examining;
mod failing;
mod fuse;
mod hostile;
mod import;
mod jobs;
mod joining;
pub(crate) mod kafs;
mod libafs;
mod limits;
mod matrix;
mod mixed;
mod moving;
mod nodes;
mod packaging;
mod preflight;
mod probing;
mod promoting;
mod readdressing;
mod registering;
mod resuming;
mod series;
mod sharing;
mod shortening;
mod showing;
mod splitting;
mod stepping;
mod store;
mod syncing;
mod tracing;
mod transfers;
mod trees;
mod upgrading;
mod vanishing;
mod watching;

use crate::Test;
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Returns all tests in running order. Long tests come first, so that none of them runs alone at the end;
/// those that mainly wait come before those with guests, which can then use the processors.
pub(crate) fn all() -> Vec<Test> {
    [
        electing::tests(),
        vanishing::tests(),
        cutting::tests(),
        readdressing::tests(),
        registering::tests(),
        shortening::tests(),
        kafs::tests(),
        promoting::tests(),
        moving::tests(),
        stepping::tests(),
        syncing::tests(),
        resuming::tests(),
        admin::tests(),
        dumps::tests(),
        import::tests(),
        mixed::tests(),
        joining::tests(),
        jobs::tests(),
        preflight::tests(),
        transfers::tests(),
        showing::tests(),
        splitting::tests(),
        matrix::tests(),
        store::tests(),
        failing::tests(),
        buckets::tests(),
        nodes::tests(),
        cluster::tests(),
        sharing::tests(),
        trees::tests(),
        fuse::tests(),
        watching::tests(),
        asking::tests(),
        examining::tests(),
        tracing::tests(),
        auditing::tests(),
        packaging::tests(),
        upgrading::tests(),
        probing::tests(),
        hostile::tests(),
        limits::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the tests that run after the others, one at a time: they measure rates or use all processors.
pub(crate) fn alone() -> Vec<Test> {
    hostile::alone()
}

/// Returns tests that only run when requested by full name; some of them must fail, one is a demonstration.
pub(crate) fn hidden() -> Vec<Test> {
    let of_clusters = [
        nodes::hidden(),
        cluster::hidden(),
        addresses::hidden(),
        administering::hidden(),
        carrying::hidden(),
    ];
    [limits::hidden(), libafs::tests()].into_iter().chain(of_clusters).flatten().collect()
}

/// Returns the path of a file of this crate.
pub(crate) fn own_file(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// Writes a script into the cell's folder: settings, the common functions, and parts from `guest/`.
pub(crate) fn script(cell: &Cell, name: &str, prelude: &str, parts: &[&str]) -> Result<PathBuf> {
    let read =
        |part: &str| std::fs::read_to_string(own_file("guest").join(part)).with_context(|| part.to_owned());
    let mut text = format!("{prelude}\n{}", read("lib.sh")?);
    for part in parts {
        text.push_str(&read(part)?);
    }
    text.push_str("finish\n");
    let path = cell.path().join(format!("script-{name}.sh"));
    std::fs::write(&path, text)?;
    Ok(path)
}

/// Returns the duration of each test that can run for any time, if long tests are requested (`SOAK_MINUTES`).
pub(crate) fn soak() -> Option<Duration> {
    let minutes = std::env::var("SOAK_MINUTES").ok()?.parse::<u64>().ok()?;
    Some(Duration::from_secs(60 * minutes))
}

/// Polls `done` until it returns true.
pub(crate) fn wait_for(limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !done()? {
        ensure!(Instant::now() < deadline, "waited {limit:?} in vain");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Time limit for the transactions and clones of a finished job to disappear from listings.
const SETTLING_LIMIT: Duration = Duration::from_secs(60);

/// Repeats a command in a cell until `is_wanted` accepts its output, and returns that. OpenAFS may still list a transaction
/// shortly after its job has ended.
pub(crate) fn run_until(cell: &Cell, command: &str, is_wanted: impl Fn(&str) -> bool) -> Result<String> {
    let mut printed = String::new();
    wait_for(SETTLING_LIMIT, || {
        printed = cell.run(command)?.ok()?;
        Ok(is_wanted(&printed))
    })
    .with_context(|| format!("{command}: {printed}"))?;
    Ok(printed)
}

/// Returns the number of calls of these procedures to a Cellar server.
pub(crate) fn calls(server: &Cell, procedures: &[&str]) -> Result<u64> {
    figure(server, procedures, "calls")
}

/// Returns the sum of a figure over these procedures of a Cellar server, as printed by `cellar stat calls`.
pub(crate) fn figure(server: &Cell, procedures: &[&str], figure: &str) -> Result<u64> {
    let rows = server.run("cellar stat calls --json")?.ok()?;
    let rows: Value = serde_json::from_str(&rows).context(rows)?;
    let rows = rows.as_array().context("no rows")?.iter();
    let found = rows.filter(|row| procedures.iter().any(|procedure| row["procedure"] == *procedure));
    Ok(found.filter_map(|row| row[figure].as_u64()).sum())
}
