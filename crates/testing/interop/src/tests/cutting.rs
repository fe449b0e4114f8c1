//! Cuts the network between two servers during moves and releases: for less time than any call timeout, and
//! for longer than an unused transaction is kept.

use crate::Test;
use crate::tests::dumps::{dumped, dumped_from, vnodes};
use crate::tests::jobs::{begin, finish, jobs, settled};
use crate::tests::mixed::{all, copy};
use crate::tests::resuming::transfers;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "network-cut", needs: &[Means::Netns], run: network_cut }]
}

/// Time limit of an unused transaction, the shortest that can be configured.
const IDLE_SECONDS: u64 = 120;
/// Shorter than the timeout of a call without packets (30 s), and than the system's detection of an
/// unreachable neighbour.
const SHORT: Duration = Duration::from_secs(3);
/// Time limit for a transaction to expire after a cut: its call times out (30 s), it is idle for
/// [`IDLE_SECONDS`], and the server's maintenance ends it (every 30 s); twice that on a busy machine.
const EXPIRY_LIMIT: Duration = Duration::from_secs(2 * (30 + IDLE_SECONDS + 30));
/// Size of each volume, and the network rate: slow enough to observe both transfers in progress.
const FILE_MIB: u64 = 24;
const RATE: &str = "24mbit";
/// Number of bytes that each job has sent when the network is cut.
const SENT_BYTES: u64 = 2 << 20;
/// Time limit for a job to send that much, and for transactions to disappear from a server.
const LIMIT: Duration = Duration::from_secs(90);

fn network_cut() -> Result<()> {
    let lines = format!("[volume_server]\nidle_transaction_seconds = {IDLE_SECONDS}");
    let first = Cell::start_configured("cut1", "10.99.0.151", &lines)?;
    let second = Cell::start_configured_joining(&first, "cut2", "10.99.0.152", &lines)?;
    first.shell(&format!("head -c {FILE_MIB}M /dev/urandom > {}/big", first.scratch()?.display()))?.ok()?;
    let slow = format!("tc qdisc replace dev eth0 root tbf rate {RATE} burst 256k latency 500ms");
    first.shell(&slow)?.ok().context("a slow network")?;
    let pass = || {
        std::thread::sleep(SHORT);
        Ok(())
    };
    let ended = cut_amid(&first, &second, "short", pass)?;
    ensure!(ended.iter().all(|job| job["stage"] == "done"), "after a short cut: {ended:#?}");
    let sent = transfers(&first);
    ensure!(sent.iter().all(|(_, is_whole)| *is_whole), "a call ended for a short cut: {sent:?}");
    let log = second.path().join("cellar.log");
    let expire = || {
        wait_for(EXPIRY_LIMIT, || Ok(std::fs::read_to_string(&log)?.contains("a transaction has timed out")))
            .context("no transaction has timed out")
    };
    cut_amid(&first, &second, "long", expire)?;
    let sent = transfers(&first).split_off(sent.len());
    ensure!(sent.iter().any(|(_, is_whole)| !is_whole), "no call ended for a long cut: {sent:?}");
    Ok(())
}

/// Moves one volume of the first server and releases another, and disconnects the second server during both,
/// until `pass` returns. Returns the jobs at their end.
fn cut_amid(
    first: &Cell,
    second: &Cell,
    which: &str,
    pass: impl FnOnce() -> Result<()>,
) -> Result<Vec<Value>> {
    let (moved, released) = (format!("moved.{which}"), format!("released.{which}"));
    for volume in [&moved, &released] {
        first.open_volume(Server::Cellar, volume)?;
        copy(first, &format!("{}/big cell:{volume}/big", first.scratch()?.display()))?;
    }
    for server in [first.address, second.address] {
        all(first, &[format!("vos addsite {server} a {released} -localauth")])?;
    }
    let behind = jobs(first)?.len();
    begin(first, &format!("move {moved} --to {}", second.address))?;
    begin(first, &format!("release {released}"))?;
    let ours = || jobs(first).map(|mut jobs| jobs.split_off(behind.min(jobs.len())));
    wait_for(LIMIT, || {
        let jobs = ours()?;
        ensure!(jobs.iter().all(|job| job["stage"] != "done"), "over before the network was cut: {jobs:#?}");
        Ok(jobs.len() == 2 && jobs.iter().all(|job| job["sent"].as_u64() >= Some(SENT_BYTES)))
    })
    .context("both send")?;
    link(second, "down")?;
    let cut = Instant::now();
    pass()?;
    let time = cut.elapsed();
    link(second, "up")?;
    // The jobs would continue by themselves, but the delay doubles with each failed attempt.
    all(first, &[format!("cellar volume jobs resume --on {}", first.address)])?;
    finish(first)?;
    let ended = ours()?;
    let ends: Vec<_> = ended.iter().map(|job| job["stage"].to_string()).collect();
    println!("interop: cut for {time:?}: the move and the release are {ends:?}");
    nothing_is_left(first, second, [&moved, &released]).with_context(|| format!("{ended:#?}"))?;
    let folder = first.scratch()?;
    for volume in [&moved, &released] {
        copy(first, &format!("cell:{volume}/big {}/copied", folder.display()))?;
        first.shell(&format!("cd {} && cmp big copied", folder.display()))?.ok().context(volume.clone())?;
    }
    let [written, here, there] = [
        dumped(first, &released, "written")?,
        dumped_from(first, &format!("{released}.readonly"), first.address)?,
        dumped_from(first, &format!("{released}.readonly"), second.address)?,
    ]
    .map(|dump| vnodes(&std::fs::read(dump)?));
    let written = written?;
    ensure!(
        written == here? && written == there?,
        "the read-only copies of {released} are not what was written"
    );
    Ok(ended)
}

/// Disconnects a server's network interface, or connects it again.
fn link(cell: &Cell, state: &str) -> Result<()> {
    let set = Command::new("ip").args(["link", "set", &format!("v-{}", cell.name), state]).status()?;
    ensure!(set.success(), "the link of {} is not {state}: {set}", cell.name);
    Ok(())
}

/// Checks that there is no lock, no transaction and nothing temporary, and that each volume exists once.
fn nothing_is_left(first: &Cell, second: &Cell, volumes: [&String; 2]) -> Result<()> {
    for cell in [first, second] {
        wait_for(LIMIT, || {
            let status = first.run(&format!("vos status {} -localauth", cell.address))?;
            Ok(status.text.contains("No active transactions"))
        })
        .with_context(|| format!("transactions on {}", cell.address))?;
    }
    let listed = settled(first, second)?;
    for volume in volumes {
        let copies = listed.lines().filter(|line| line.starts_with(&format!("{volume} "))).count();
        ensure!(copies == 1, "{copies} read-write copies of {volume}:\n{listed}");
    }
    Ok(())
}
