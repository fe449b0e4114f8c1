//! Transfers whose target is killed amid them: what had come is not sent again.

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

/// A file that takes a while to send.
const BIG_FILE_MIB: u64 = 384;
/// When so many bytes were sent the target is killed.
const KILLED_AFTER: u64 = 200 << 20;
/// What may have been sent and not be noted: the step of 64 MiB after which it is, and what is on its way.
const SLACK: u64 = 100 << 20;
/// How often a job may be over before it is seen to send.
const ATTEMPTS_MAX: u32 = 5;
/// How long a job may take to begin to send.
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

/// What a server said of its transfers: bytes that were sent, and whether that was all.
pub(crate) fn transfers(cell: &Cell) -> Vec<(u64, bool)> {
    let log = std::fs::read_to_string(cell.path().join("cellar.log")).unwrap_or_default();
    let of_line = |line: &str| {
        let at = line.find(" bytes=")? + " bytes=".len();
        let digits: String = line[at..].chars().take_while(char::is_ascii_digit).collect();
        Some((digits.parse().ok()?, line.contains("outcome=Ok")))
    };
    log.lines().filter(|line| line.contains("is sent to another server")).filter_map(of_line).collect()
}

/// Lets a job send a volume from one server to the other, which is killed amid it. A job that is over before that is
/// undone by `back`, and begun again.
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

/// The second transfer brought what the first one had not.
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

/// Whether the job behind so many others was seen to have sent some of a volume; else it is over.
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
