//! Transfers during which the target is killed: data that has arrived is not sent again.

use crate::Test;
use crate::tests::jobs::{begin, finish, jobs};
use crate::tests::mixed::{all, copy};
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::time::{Duration, Instant};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "transfers-resumed", needs: &[Means::Netns], run: resumed }]
}

/// Size of a file that takes a while to send.
const BIG_FILE_MIB: u64 = 384;
/// Number of bytes sent before the target is killed.
const KILLED_AFTER: u64 = 200 << 20;
/// Maximum number of bytes that were sent but not recorded: recording happens every 64 MiB, and some data is
/// in flight.
const SLACK: u64 = 100 << 20;
/// Maximum number of attempts to observe a job while it sends.
const ATTEMPTS_MAX: u32 = 5;
/// Time limit for a job to start sending.
const LIMIT: Duration = Duration::from_secs(120);

fn resumed() -> Result<()> {
    let first = Cell::start(Server::Cellar, "send5", "10.99.0.76")?;
    let mut second = Cell::start_cellar_joining(&first, "send6", "10.99.0.77", "10.99.0.78")?;
    first.open_volume(Server::Cellar, "tree")?;
    let big = first.scratch()?.join("big");
    first.shell(&format!("head -c {BIG_FILE_MIB}M /dev/urandom > {}", big.display()))?.ok()?;
    copy(&first, &format!("{} cell:tree/big", big.display()))?;
    let to = |cell: &Cell| format!("move tree --to {}", cell.address);
    let (there, back) = (to(&second), to(&first));
    interrupted(&first, &mut second, &there, &back).context("a move")?;
    compare(&first, "tree")?;
    all(&first, &[format!("cellar volume {back}")])?;
    all(&first, &[format!("vos addsite {} a tree -localauth", second.address)])?;
    let unsite = format!("vos remove {} a tree.readonly -localauth", second.address);
    let site = format!("vos addsite {} a tree -localauth", second.address);
    let again = format!("{unsite} && {site}");
    interrupted(&first, &mut second, "release tree", &again).context("a release")?;
    compare(&first, "tree.readonly")?;
    for cell in [&first, &second] {
        let listed = first.run(&format!("vos listvol {} -localauth", cell.address))?.ok()?;
        ensure!(listed.contains("Total volumes offLine 0 ; Total busy 0"), "{listed}");
    }
    Ok(())
}

fn compare(cell: &Cell, volume: &str) -> Result<()> {
    let folder = cell.scratch()?;
    let (big, copied) = (folder.join("big"), folder.join("copied"));
    copy(cell, &format!("cell:{volume}/big {}", copied.display()))?;
    cell.shell(&format!("cmp {} {}", big.display(), copied.display()))?.ok().map(drop)
}

/// Returns the transfers in a server's log: the number of bytes sent, and whether the transfer was complete.
pub(crate) fn transfers(cell: &Cell) -> Vec<(u64, bool)> {
    let log = std::fs::read_to_string(cell.path().join("cellar.log")).unwrap_or_default();
    let of_line = |line: &str| {
        let at = line.find(" bytes=")? + " bytes=".len();
        let digits: String = line[at..].chars().take_while(char::is_ascii_digit).collect();
        Some((digits.parse().ok()?, line.contains("outcome=Ok")))
    };
    log.lines().filter(|line| line.contains("is sent to another server")).filter_map(of_line).collect()
}

/// Runs a job that sends a volume from one server to the other, and kills the receiver meanwhile. If the job
/// completes before that, `back` undoes it, and it starts again.
fn interrupted(first: &Cell, second: &mut Cell, command: &str, back: &str) -> Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        let (before, behind) = (transfers(first).len(), jobs(first)?.len());
        begin(first, command)?;
        let is_sending = wait_until_sent(first, behind)?;
        if is_sending {
            second.end_cellar("KILL")?;
            second.start_cellar()?;
        }
        finish(first)?;
        let sent = transfers(first).split_off(before);
        println!("interop: {command}: {sent:?}");
        if is_sending && sent.first().is_some_and(|(_, is_whole)| !is_whole) {
            return check(&sent);
        }
        let back = if back.starts_with("move") { format!("cellar volume {back}") } else { back.to_owned() };
        first.shell(&back)?.ok()?;
    }
    anyhow::bail!("{ATTEMPTS_MAX} times over before it was seen to send")
}

/// Checks that the second transfer only sent what the first one had not.
fn check(sent: &[(u64, bool)]) -> Result<()> {
    let [(before, false), (after, true), ..] = sent else {
        anyhow::bail!("the transfers were {sent:?}");
    };
    let whole = BIG_FILE_MIB << 20;
    ensure!(*before >= KILLED_AFTER / 2, "{before} bytes were sent before the target was killed");
    ensure!(
        before + after < whole + SLACK,
        "{before} and then {after} bytes were sent of {whole} (nothing is kept of a transfer where less than a \
         twentieth of the file system and less than 4 GiB are free: check `df`)"
    );
    Ok(())
}

/// Waits until the job with index `behind` has sent part of a volume; returns false if it has completed.
fn wait_until_sent(cell: &Cell, behind: usize) -> Result<bool> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(job) = jobs(cell)?.get(behind) {
            let sent = job["sent"].as_u64().with_context(|| format!("{job} tells no bytes"))?;
            if sent >= KILLED_AFTER {
                return Ok(job["stage"] == "working");
            }
            if job["stage"] == "done" {
                return Ok(false);
            }
        }
        ensure!(Instant::now() < deadline, "{}", cell.cellar_log());
    }
}
