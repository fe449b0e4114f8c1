//! Volumes move, are released and are removed while OpenAFS's kernel client uses them.

use super::{ROOT, SECONDS};
use crate::tests::joining::{NOBODY, Pair};
use crate::tests::kafs::{acknowledged, check_records};
use crate::tests::{calls, script, wait_for};
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::vm::{GUEST, Guest, Running};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// A second Cellar file server in the cell.
const SECOND: (&str, &str) = ("cellar5", "10.99.0.44");
/// Time limit for the guest to go on.
const LIMIT: Duration = Duration::from_secs(180);
/// Number of releases: half by `vos`, half by `cellar volume`.
const RELEASES: usize = 6;
/// Number of records that the client writes before the next move, and number of times that it reads an older
/// file meanwhile.
const RECORDS: usize = 10;
const READS: usize = 5;

/// The client writes, renames and reads back in a volume that moves between Cellar's servers, to OpenAFS's and
/// back, and must not see a single error. At the same time it reads a volume that is released, loses one
/// site after the other, and finds that a volume is removed and made anew.
pub(super) fn volumes() -> Result<()> {
    let pair = Pair::start()?;
    let second = Cell::start_cellar_joining(&pair.openafs, SECOND.0, SECOND.1, NOBODY)?;
    // The guest is behind the database server.
    for server in [&pair.cellar, &second] {
        server.shell(&format!("ip route add {GUEST} via {}", pair.openafs.address))?.ok()?;
    }
    let create = |volume: &str, server: &str| {
        format!("cellar volume create {volume} --on {server} --quota 0 --acl system:anyuser=rlidwka")
    };
    let first = pair.cellar.address;
    pair.all(&[
        &create("root.cell", first),
        &create("data", first),
        &create("soft", first),
        &create("gone", SECOND.1),
        "vos addsite CELLAR a soft",
        &format!("vos addsite {} a soft", SECOND.1),
        "vos release soft",
    ])?;
    let out = pair.openafs.path().join("out");
    std::fs::create_dir(&out)?;
    let prelude = format!("D={ROOT}/data CELLROOT={ROOT} READ_BACK=1 FORGET='fs flush' RELEASES={RELEASES}");
    let script = script(&pair.openafs, "volumes", &prelude, &["volumes.sh", "reader.sh", "writer.sh"])?;
    let mut guest = Guest::libafs(&pair.openafs, "volumes", SECONDS)
        .with(&["--share", out.to_str().context("path")?])
        .start(&script)?;
    let (taken, moved) = thread::scope(|scope| {
        let turns = scope.spawn(|| take_turns(&pair, &out));
        let moved = moves(&pair, &mut guest);
        (turns.join(), moved)
    });
    std::fs::write(out.join("stop"), "")?;
    let output = guest.finish()?;
    let logs =
        || format!("{}\n--\n{}\nthe guest:\n{}", pair.cellar.cellar_log(), second.cellar_log(), output.text);
    moved.with_context(logs)?;
    taken
        .map_err(|_| anyhow::anyhow!("the thread that releases and removes panicked"))?
        .with_context(logs)?;
    ensure!(output.status == 0 && output.text.contains("volumes done: 0 failed"), "{}", logs());
    for bad in ["FAIL:", "WRONG ", "refused ", "unread "] {
        let lines: Vec<&str> = output.text.lines().filter(|line| line.contains(bad)).collect();
        ensure!(lines.is_empty(), "the client saw errors: {lines:?}\n{}", logs());
    }
    let written = acknowledged(&output.text);
    check_records(&pair.openafs, "data", &written).with_context(logs)?;
    let asked = calls(&pair.cellar, FETCHES)? + calls(&second, FETCHES)?;
    ensure!(asked > (READS * MOVES) as u64, "Cellar's servers were asked {asked} times for data");
    println!("interop: {} records are all there after {MOVES} moves", written.len());
    Ok(())
}

const FETCHES: &[&str] = &["FetchData", "FetchData64"];
const MOVES: usize = 6;

/// Moves the volume each time that the client has used it for a while. Its last server is the second one.
fn moves(pair: &Pair, guest: &mut Running) -> Result<()> {
    let (first, theirs) = (pair.cellar.address, pair.openafs.address);
    let between = |from, to| format!("vos move data {from} a {to} a");
    let hops: [String; MOVES] = [
        between(first, SECOND.1),
        between(SECOND.1, first),
        format!("cellar volume move data --to {}", SECOND.1),
        format!("cellar volume move data --to {first}"),
        between(first, theirs),
        between(theirs, SECOND.1),
    ];
    some_more(guest)?;
    for hop in &hops {
        pair.all(&[hop])?;
        some_more(guest).with_context(|| format!("after {hop}"))?;
    }
    Ok(())
}

/// Waits until the client has written some more records and read the older file several times.
fn some_more(guest: &mut Running) -> Result<()> {
    let reads = |printed: &str| printed.lines().filter(|line| line.trim() == "read before").count();
    let before = guest.printed();
    let (written, read) = (acknowledged(&before).len() + RECORDS, reads(&before) + READS);
    wait_for(LIMIT, || {
        let printed = guest.printed();
        let is_done = acknowledged(&printed).len() >= written && reads(&printed) >= read;
        Ok(is_done || !guest.is_running()?)
    })?;
    ensure!(guest.is_running()?, "the guest ended");
    Ok(())
}

/// Releases and removes volumes, in turns with the guest.
fn take_turns(pair: &Pair, out: &Path) -> Result<()> {
    let turn = |theirs: &str, commands: &[&str], ours: &str| {
        wait_for(LIMIT, || Ok(out.join(theirs).exists())).with_context(|| theirs.to_owned())?;
        pair.all(commands)?;
        std::fs::write(out.join(ours), "").with_context(|| ours.to_owned())
    };
    for number in 1..=RELEASES {
        let command = if number % 2 == 1 { "vos release soft" } else { "cellar volume release soft" };
        turn(&format!("written-{number}"), &[command], &format!("released-{number}"))?;
    }
    for (number, server) in [(1, pair.cellar.address), (2, SECOND.1)] {
        let remove = format!("vos remove {server} a soft.readonly");
        turn(&format!("reading-{number}"), &[&remove], &format!("removed-{number}"))?;
        let add = format!("vos addsite {server} a soft");
        turn(&format!("read-{number}"), &[&add, "vos release soft"], &format!("again-{number}"))?;
    }
    turn("present", &["vos remove -id gone"], "gone")?;
    let create =
        format!("cellar volume create gone --on {} --quota 0 --acl system:anyuser=rlidwka", SECOND.1);
    turn("missed", &[&create], "made")
}
