//! File systems that become read-only under a running server: that of a partition, and that of the cell's
//! databases.

use crate::Test;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::means::Means;
use serde_json::Value;
use std::time::Duration;

const NEEDS: &[Means] = &[Means::Netns, Means::Loop];

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "store-partition-fails", needs: NEEDS, run: partition_fails },
        Test { name: "store-databases-fail", needs: NEEDS, run: databases_fail },
    ]
}

const LIMIT: Duration = Duration::from_secs(60);
const IMAGE: &str = "/var/lib/openafs/failing.img";
const DATABASES: &str = "/var/lib/openafs/db";
const WRITERS: u32 = 4;

/// Returns the command that creates an ext4 file system on this folder; it becomes read-only on an error.
fn make(folder: &str) -> String {
    format!(
        "mkdir -p {folder} && truncate -s 300M {IMAGE} && mkfs.ext4 -q -F {IMAGE} && {} && touch {folder}/AlwaysAttach",
        mount(folder)
    )
}

fn mount(folder: &str) -> String {
    format!("mount -o loop,errors=remount-ro {IMAGE} {folder}")
}

/// Makes the kernel find an error in the file system on this folder.
fn fail(cell: &Cell, folder: &str) -> Result<()> {
    let device = format!("$(basename $(findmnt -nro SOURCE {folder} | tail -n 1))");
    cell.shell(&format!("echo 1 > /sys/fs/ext4/{device}/trigger_fs_error"))?.ok()?;
    let written = cell.shell(&format!("echo > {folder}/written"))?;
    ensure!(written.status != 0, "the file system of {folder} did not become read-only");
    Ok(())
}

fn partition_fails() -> Result<()> {
    let mut cell = Cell::start_on("cellfail", "10.99.0.161", &["-p", "2"], &make("/vicepb"))?;
    let address = cell.address;
    cell.shell(&format!("head -c 20000 /dev/urandom > {}/some", cell.path().display()))?.ok()?;
    for part in ["a", "b"] {
        cell.run(&format!("vos create {address} {part} volume.{part} -localauth"))?.ok()?;
        copy_in(&cell, part, "some")?;
    }
    write_while_it_fails(&cell)?;
    wait_for(LIMIT, || Ok(read_only(&cell)? == [("/vicepa".to_owned(), 0), ("/vicepb".to_owned(), 1)]))
        .with_context(|| cell.cellar_log())?;
    cell.server_pid().with_context(|| cell.cellar_log())?;
    let log = std::fs::read_to_string(cell.path().join("cellar.log"))?;
    ensure!(
        log.lines()
            .any(|line| line.contains("read-only because of an I/O error") && line.contains("/vicepb")),
        "{log}"
    );
    refuses_changes_of_b_only(&cell)?;
    is_named(&cell)?;

    cell.end_cellar("TERM")?;
    cell.shell(&format!(
        "umount /vicepb && {{ e2fsck -fy {IMAGE}; [ $? -lt 4 ]; }} && {}",
        mount("/vicepb")
    ))?
    .ok()?;
    cell.start_cellar()?;
    copy_out(&cell, "b")?;
    copy_in(&cell, "b", "again")
}

/// Several clients create files on both partitions while the file system of one fails.
fn write_while_it_fails(cell: &Cell) -> Result<()> {
    let folder = cell.path().display();
    let one = format!(
        "cellar cp {folder}/some cell:volume.$part/$writer-$number > {folder}/$part-$writer.said 2>&1"
    );
    let loops = format!(
        "for writer in $(seq {WRITERS}); do for part in a b; do \
         (for number in $(seq 20); do {one} || [ $part = b ] || touch {folder}/failed; done) & done; done"
    );
    let device = "$(basename $(findmnt -nro SOURCE /vicepb | tail -n 1))";
    let script = format!("{loops}; sleep 1; echo 1 > /sys/fs/ext4/{device}/trigger_fs_error; wait");
    cell.shell(&script)?.ok()?;
    ensure!(!cell.path().join("failed").exists(), "a write to partition a failed");
    fail(cell, "/vicepb")
}

fn refuses_changes_of_b_only(cell: &Cell) -> Result<()> {
    for number in 0..3 {
        let refused = cell.run(&copying_in(cell, "b", &format!("refused{number}")))?;
        ensure!(refused.status != 0, "written to a read-only file system: {}", refused.text);
        copy_in(cell, "a", &format!("taken{number}"))?;
    }
    copy_out(cell, "a")?;
    copy_out(cell, "b")?;
    cell.run(&format!("vos create {} a volume.new -localauth", cell.address))?.ok()?;
    let refused = cell.run(&format!("vos create {} b volume.refused -localauth", cell.address))?;
    ensure!(refused.status != 0, "created on a read-only file system: {}", refused.text);
    Ok(())
}

/// Checks that every command that shows partitions reports the failed one.
fn is_named(cell: &Cell) -> Result<()> {
    let room = cell.run(&format!("vos partinfo {} b", cell.address))?.ok()?;
    ensure!(room.contains("Free space on partition /vicepb: 0 K"), "{room}");
    let room = cell.run(&format!("vos partinfo {} a", cell.address))?.ok()?;
    ensure!(!room.contains(": 0 K blocks out"), "{room}");
    let findings = cell.run("cellar doctor")?.text;
    ensure!(findings.contains("The partition /vicepb is read-only because of an I/O error."), "{findings}");
    Ok(())
}

/// Returns the partitions, each with 1 if it is read-only.
fn read_only(cell: &Cell) -> Result<Vec<(String, u64)>> {
    let rows = cell.run("cellar stat partitions --json")?.ok()?;
    let rows: Value = serde_json::from_str(&rows).context(rows)?;
    let of = |row: &Value| Some((row["partition"].as_str()?.to_owned(), row["read_only"].as_u64()?));
    rows.as_array().context("no rows")?.iter().map(|row| of(row).context("no figure")).collect()
}

fn copying_in(cell: &Cell, part: &str, name: &str) -> String {
    format!("cellar cp {}/some cell:volume.{part}/{name}", cell.path().display())
}

fn copy_in(cell: &Cell, part: &str, name: &str) -> Result<()> {
    cell.run(&copying_in(cell, part, name))?.ok().map(drop)
}

fn copy_out(cell: &Cell, part: &str) -> Result<()> {
    let (some, copy) = (cell.path().join("some"), cell.path().join("copy"));
    cell.run(&format!("cellar cp cell:volume.{part}/some {}", copy.display()))?.ok()?;
    ensure!(std::fs::read(&some)? == std::fs::read(&copy)?, "volume.{part} has other bytes");
    Ok(std::fs::remove_file(copy)?)
}

fn databases_fail() -> Result<()> {
    let mut cell = Cell::start_on("celldb", "10.99.0.162", &[], &make(DATABASES))?;
    cell.run("pts createuser before -localauth")?.ok()?;
    fail(&cell, DATABASES)?;
    let refused = cell.run("pts createuser after -localauth")?;
    ensure!(refused.status != 0, "created on a read-only file system: {}", refused.text);
    wait_for(LIMIT, || cell.has_ended()).with_context(|| cell.cellar_log())?;
    let log = cell.cellar_log();
    ensure!(!log.contains("Assertion") && log.contains("no longer accept writes"), "{log}");
    let mend =
        format!("umount {DATABASES} && {{ e2fsck -fy {IMAGE}; [ $? -lt 4 ]; }} && {}", mount(DATABASES));
    cell.shell(&mend)?.ok()?;
    cell.start_cellar()?;
    cell.run("pts examine before -localauth")?.ok().map(drop)
}
