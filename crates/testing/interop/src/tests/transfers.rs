//! Transfers between Cellar servers, which only send missing data; transfers between partitions of a server;
//! and a `vos` that is killed meanwhile.

use crate::Test;
use crate::tests::mixed::{all, copy};
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "transfers", needs: &[Means::Netns], run: transfers },
        Test { name: "transfers-within", needs: &[Means::Netns], run: within },
        Test { name: "releases-within", needs: &[Means::Netns], run: releases_within },
    ]
}

/// Size of a file that takes a while to send.
const BIG_FILE_MIB: u64 = 64;
/// Maximum number of bytes sent by a release of a few changed chunks.
const SENT_BYTES_MAX: u64 = 4 << 20;
/// Time limit for a `vos` command to start sending.
const LIMIT: Duration = Duration::from_secs(120);
/// Maximum number of attempts to observe a command while it sends.
const ATTEMPTS_MAX: u32 = 10;

fn transfers() -> Result<()> {
    let mut first = Cell::start(Server::Cellar, "send1", "10.99.0.71")?;
    let mut second = Cell::start_cellar_joining(&first, "send2", "10.99.0.72", "10.99.0.73")?;
    first.open_volume(Server::Cellar, "tree")?;
    let big = first.scratch()?.join("big");
    first.shell(&format!("head -c {BIG_FILE_MIB}M /dev/urandom > {}", big.display()))?.ok()?;
    copy(&first, &format!("{} cell:tree/big", big.display()))?;
    let sites =
        [first.address, second.address].map(|server| format!("vos addsite {server} a tree -localauth"));
    all(&first, &sites)?;
    missing_chunks(&first, &second).context("what is missing is sent")?;
    jobs_elsewhere(&first, &second).context("the jobs of another server")?;
    restored(&first).context("a restore")?;
    let between = |from, to| format!("vos move tree {from} a {to} a -localauth");
    let commands = [
        ("vos release tree -force -localauth".to_owned(), None),
        (between(first.address, second.address), Some(between(second.address, first.address))),
    ];
    for (command, back) in commands {
        killed(&mut [&mut first, &mut second], &command, back.as_deref()).with_context(|| command.clone())?;
        all(&first, &[command])?;
        compare(&first)?;
    }
    Ok(())
}

fn cellar(cell: &Cell, command: &str) -> Result<String> {
    cell.run(&format!("cellar {command}"))?.ok()
}

/// Extracts a number from a printed JSON object.
fn number(json: &str, name: &str) -> Result<u64> {
    let key = format!("\"{name}\": ");
    let at = json.find(&key).with_context(|| format!("no {name} in {json}"))? + key.len();
    let digits: String = json[at..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().with_context(|| json.to_owned())
}

fn compare(cell: &Cell) -> Result<()> {
    let folder = cell.scratch()?;
    let (big, copied) = (folder.join("big"), folder.join("copied"));
    copy(cell, &format!("cell:tree/big {}", copied.display()))?;
    cell.shell(&format!("cmp {} {}", big.display(), copied.display()))?.ok().context("the big file")?;
    Ok(())
}

fn missing_chunks(first: &Cell, second: &Cell) -> Result<()> {
    let whole = number(&cellar(first, "volume release tree --json")?, "sent")?;
    ensure!(whole >= BIG_FILE_MIB << 20, "the first release sent {whole} bytes");
    let big = first.scratch()?.join("big");
    let change = "dd bs=1 count=5 seek=20000000 conv=notrunc if=/dev/urandom";
    first.shell(&format!("{change} of={}", big.display()))?.ok()?;
    // The whole file is written, with few changes.
    copy(first, &format!("{} cell:tree/big", big.display()))?;
    let little = number(&cellar(first, "volume release tree --json")?, "sent")?;
    ensure!(little > 0 && little < SENT_BYTES_MAX, "the second release sent {little} bytes");
    let trusted_by_nobody = number(&cellar(first, "volume release tree --all --json")?, "sent")?;
    ensure!(trusted_by_nobody < SENT_BYTES_MAX, "a release of all sent {trusted_by_nobody} bytes");
    let moved = cellar(first, &format!("volume move tree --to {} --json", second.address))?;
    ensure!(number(&moved, "sent")? >= BIG_FILE_MIB << 20, "{moved}");
    compare(first)?;
    cellar(first, &format!("volume move tree --to {}", first.address))?;
    compare(first)
}

fn jobs_elsewhere(first: &Cell, second: &Cell) -> Result<()> {
    let there = cellar(second, &format!("volume jobs list --on {}", first.address))?;
    ensure!(there.contains("release of tree") && there.contains("move of tree"), "{there}");
    let one = cellar(second, &format!("volume jobs show 1 --on {}", first.address))?;
    ensure!(one.contains("sent 64."), "{one}");
    let over = second.run(&format!("cellar volume jobs cancel 1 --on {}", first.address))?;
    ensure!(over.ok().is_err(), "a job that is over cannot be cancelled");
    Ok(())
}

fn restored(first: &Cell) -> Result<()> {
    let file = first.scratch()?.join("dump");
    cellar(first, &format!("volume dump tree {}", file.display()))?;
    cellar(first, &format!("volume restore {} again", file.display()))?;
    let listed = cellar(first, "volume jobs list")?;
    ensure!(listed.contains("restore of"), "{listed}");
    let examined = first.run("vos examine again -localauth")?.ok()?;
    ensure!(examined.contains("On-line"), "{examined}");
    Ok(())
}

/// Kills `vos` while it sends a volume. A restart of both servers (or ten minutes' wait) ends what it left
/// open; nothing that it created remains, and the same command then succeeds. A command that completes before
/// it is seen sending is undone with `back`, and run again.
fn killed(cells: &mut [&mut Cell], command: &str, back: Option<&str>) -> Result<()> {
    let Some((target, _)) = cells.split_last() else { return Ok(()) };
    let (first, mut attempts) = (&cells[0], 0);
    while !cut_off(first, target, command)? {
        attempts += 1;
        ensure!(attempts < ATTEMPTS_MAX, "{attempts} times over before it was seen to send");
        all(first, &back.map(str::to_owned).into_iter().collect::<Vec<_>>())?;
    }
    for cell in &mut *cells {
        cell.end_cellar("KILL")?;
        cell.start_cellar()?;
    }
    all(cells[0], &["vos unlock tree -localauth".into()])?;
    for cell in &*cells {
        let listed = cells[0].run(&format!("vos listvol {} -localauth", cell.address))?.ok()?;
        ensure!(!listed.contains("clone-temp"), "{listed}");
        let status = cells[0].run(&format!("vos status {} -localauth", cell.address))?.ok()?;
        ensure!(status.contains("No active transactions"), "{status}");
    }
    Ok(())
}

/// Returns whether `vos` was killed while sending; otherwise it has completed.
fn cut_off(first: &Cell, target: &Cell, command: &str) -> Result<bool> {
    let sends = format!("vos status {} -localauth 2> /dev/null | grep -q Restore", target.address);
    let seconds = LIMIT.as_secs();
    let ended = first.shell(&format!(
        "{command} > /dev/null 2>&1 < /dev/null & vos=$!; end=$((SECONDS + {seconds})); \
         while kill -0 $vos 2> /dev/null; do \
             if {sends}; then kill -KILL $vos && echo killed && exit; fi; \
             [ $SECONDS -lt $end ] || exit 1; \
         done; wait $vos && echo over"
    ))?;
    let printed = ended.ok()?;
    Ok(printed.contains("killed"))
}

/// Moves and copies between two partitions of one server.
fn within() -> Result<()> {
    let mut cell = Cell::start_with(Server::Cellar, "send3", "10.99.0.74", &["-p", "2"])?;
    let server = cell.address;
    cell.open_volume(Server::Cellar, "tree")?;
    let big = cell.scratch()?.join("big");
    cell.shell(&format!("head -c {BIG_FILE_MIB}M /dev/urandom > {}", big.display()))?.ok()?;
    copy(&cell, &format!("{} cell:tree/big", big.display()))?;
    let release = || "vos release tree -localauth".to_owned();
    all(&cell, &[format!("vos addsite {server} a tree -localauth"), release()])?;
    let between = |from, to| format!("vos move tree {server} {from} {server} {to} -localauth");
    let there = between("a", "b");
    killed(&mut [&mut cell], &there, Some(&between("b", "a")))?;
    is_on(&cell, "a")?;
    compare(&cell)?;
    all(&cell, &[there])?;
    is_on(&cell, "b")?;
    compare(&cell)?;
    let second = cell.run(&format!("vos addsite {server} b tree -localauth"))?;
    ensure!(second.text.contains("Multiple ROs on a single server aren't allowed"), "{}", second.text);
    all(&cell, &[format!("vos copy tree {server} b tree.copied {server} a -localauth")])?;
    cellar(&cell, &format!("volume copy tree tree.again --to {server} --partition a"))?;
    cellar(&cell, &format!("volume move tree --to {server} --partition a"))?;
    is_on(&cell, "a")?;
    compare(&cell)?;
    let synchronised = ["syncserv", "syncvldb"].map(|how| format!("vos {how} {server} -localauth"));
    all(&cell, &[release()])?;
    all(&cell, &synchronised)?;
    for volume in ["tree.readonly", "tree.copied", "tree.again"] {
        let copied = cell.scratch()?.join("copied");
        copy(&cell, &format!("cell:{volume}/big {}", copied.display()))?;
        cell.shell(&format!("cmp {} {}", big.display(), copied.display()))?.ok().context(volume)?;
    }
    Ok(())
}

/// Checks that the volume is only on this partition, and that the location database has that site.
fn is_on(cell: &Cell, partition: &str) -> Result<()> {
    for other in ["a", "b"] {
        let listed = cell.run(&format!("vos listvol {} {other} -localauth", cell.address))?.ok()?;
        let has_it = listed.lines().any(|line| line.starts_with("tree ") && line.contains("On-line"));
        let has_any = listed.lines().any(|line| line.starts_with("tree "));
        ensure!(has_it == has_any && has_any == (other == partition), "on {other}: {listed}");
    }
    let entry = cell.run("vos listvldb tree -localauth")?.ok()?;
    ensure!(entry.contains(&format!("partition /vicep{partition} RW Site")), "{entry}");
    Ok(())
}

/// Releases a volume to another partition of its own server.
fn releases_within() -> Result<()> {
    let mut cell = Cell::start_with(Server::Cellar, "send4", "10.99.0.75", &["-p", "2"])?;
    let server = cell.address;
    cell.open_volume(Server::Cellar, "tree")?;
    write(&cell, "first")?;
    all(&cell, &[format!("vos addsite {server} b tree -localauth")])?;
    for again in ["", "-force ", "-f -verbose "] {
        all(&cell, &[format!("vos release tree {again}-localauth")])?;
        shows(&cell, "first", "b").with_context(|| format!("released with {again:?}"))?;
    }
    let refused = [
        (format!("vos addsite {server} a tree -localauth"), "Multiple ROs on a single server aren't allowed"),
        ("vos release tree -stayonline -localauth".into(), "-stayonline not supported"),
    ];
    for (command, why) in refused {
        let refused = cell.run(&command)?;
        ensure!(refused.text.contains(why), "{command}: {}", refused.text);
    }
    for (text, command) in [("second", "vos release tree -localauth"), ("third", "")] {
        write(&cell, text)?;
        match command {
            "" => drop(cellar(&cell, "volume release tree")?),
            vos => all(&cell, &[vos.into()])?,
        }
        shows(&cell, text, "b")?;
    }
    cell.end_cellar("KILL")?;
    cell.start_cellar()?;
    shows(&cell, "third", "b").context("after a restart")?;
    // The volume moves to the partition of its site, and the site to the other one.
    write(&cell, "fourth")?;
    let moved = [
        format!("vos move tree {server} a {server} b -localauth"),
        "vos release tree -localauth".into(),
        format!("vos remsite {server} b tree -localauth"),
        format!("vos addsite {server} a tree -localauth"),
    ];
    all(&cell, &moved)?;
    shows(&cell, "fourth", "b")?;
    write(&cell, "fifth")?;
    all(&cell, &["vos release tree -localauth".into()])?;
    shows(&cell, "fifth", "a")?;
    let synchronised = ["syncserv", "syncvldb"].map(|how| format!("vos {how} {server} -localauth"));
    all(&cell, &synchronised)?;
    shows(&cell, "fifth", "a").context("after syncvldb")
}

fn write(cell: &Cell, text: &str) -> Result<()> {
    let file = cell.scratch()?.join("text");
    cell.shell(&format!("seq 1 20000 > {0} && echo {text} >> {0}", file.display()))?.ok()?;
    copy(cell, &format!("{} cell:tree/text", file.display()))
}

/// Checks that a client reads this text in the read-only volume, and that the volume is only on this
/// partition.
fn shows(cell: &Cell, text: &str, partition: &str) -> Result<()> {
    let copied = cell.scratch()?.join("copied");
    copy(cell, &format!("cell:tree.readonly/text {}", copied.display()))?;
    let read = cell.shell(&format!("tail -n 1 {}", copied.display()))?.ok()?;
    ensure!(read.trim() == text, "{read:?} in place of {text}");
    let listed = cell.run(&format!("vos listvol {} {partition} -localauth", cell.address))?.ok()?;
    let has_it = listed.lines().any(|line| line.starts_with("tree.readonly ") && line.contains("On-line"));
    ensure!(has_it, "on {partition}: {listed}");
    let everywhere = cell.run(&format!("vos listvol {} -localauth", cell.address))?.ok()?;
    ensure!(!everywhere.contains("clone-temp"), "{everywhere}");
    Ok(())
}
