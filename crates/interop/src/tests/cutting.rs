//! The network between two servers is cut amid moves and releases: for less time than anybody gives the other up after, and for
//! longer than a transaction that nobody uses is kept.

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
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "network-cut", needs: &[Means::Netns], run: network_cut }]
}

/// How long a transaction may be unused: the shortest time that can be configured.
const IDLE_SECONDS: u64 = 120;
/// Less than the silence after which a call is given up (30 s), and than the system takes to find that nobody answers for the address.
const SHORT: Duration = Duration::from_secs(3);
/// Until calls have ended, and then longer than the transactions' time.
const LONG: Duration = Duration::from_secs(30 + IDLE_SECONDS + 30);
/// What each volume holds, and how fast it goes: slow enough that both are seen under way.
const FILE_MIB: u64 = 24;
const RATE: &str = "48mbit";
/// Of each so much has been sent when the network is cut.
const SENT_BYTES: u64 = 2 << 20;
/// How long a job may take to send that, and what it left on a server to go.
const LIMIT: Duration = Duration::from_secs(90);

fn network_cut() -> Result<()> {
    let lines = format!("[volume_server]\nidle_transaction_seconds = {IDLE_SECONDS}");
    let first = Cell::start_configured("cut1", "10.99.0.151", &lines)?;
    let second = Cell::start_configured_joining(&first, "cut2", "10.99.0.152", &lines)?;
    first.shell(&format!("head -c {FILE_MIB}M /dev/urandom > {}/big", first.scratch()?.display()))?.ok()?;
    let slow = format!("tc qdisc replace dev eth0 root tbf rate {RATE} burst 256k latency 500ms");
    first.shell(&slow)?.ok().context("a slow network")?;
    let ended = cut_amid(&first, &second, "short", SHORT)?;
    ensure!(ended.iter().all(|job| job["stage"] == "done"), "after a short cut: {ended:#?}");
    let sent = transfers(&first);
    ensure!(sent.iter().all(|(_, is_whole)| *is_whole), "a call ended for a short cut: {sent:?}");
    cut_amid(&first, &second, "long", LONG)?;
    let sent = transfers(&first).split_off(sent.len());
    ensure!(sent.iter().any(|(_, is_whole)| !is_whole), "no call ended for a long cut: {sent:?}");
    let log = std::fs::read_to_string(second.path().join("cellar.log"))?;
    ensure!(log.contains("a transaction has timed out"), "no transaction was kept open for so long:\n{log}");
    Ok(())
}

/// Moves a volume and releases another one, both of the first server, and cuts the second one off amid both. What became of them.
fn cut_amid(first: &Cell, second: &Cell, which: &str, time: Duration) -> Result<Vec<Value>> {
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
    std::thread::sleep(time);
    link(second, "up")?;
    // They would go on by themselves; with each try that failed they wait twice as long.
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

/// Takes a server's cable away, or puts it in again.
fn link(cell: &Cell, state: &str) -> Result<()> {
    let set = Command::new("ip").args(["link", "set", &format!("v-{}", cell.name), state]).status()?;
    ensure!(set.success(), "the link of {} is not {state}: {set}", cell.name);
    Ok(())
}

/// No lock, no transaction, nothing temporary, and each volume once.
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
