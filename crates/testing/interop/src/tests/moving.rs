//! Clients in a cell that Cellar's file server has joined: users of OpenAFS's protection server, and a volume
//! that moves while it is written.
//!
//! When the volume leaves OpenAFS's server, the client is OpenAFS's: the kernel's kafs waits forever after
//! VMOVED; see `docs/design/testing.md`. When it leaves Cellar's server, the client may be kafs.

use crate::Test;
use crate::tests::fuse::in_mounted_cell;
use crate::tests::joining::{NOBODY, Pair};
use crate::tests::kafs::{NEEDS, NEEDS_NEWEST, NEWEST, OWN, acknowledged, check_records, users_of};
use crate::tests::mixed::all;
use crate::tests::{calls, script, wait_for};
use anyhow::{Context, Result, bail, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use interop::vm::Guest;
use std::path::Path;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "fuse-volume-moves", needs: &[Means::Netns, Means::Fuse], run: volume_moves },
        Test { name: "kafs-volume-moves", needs: NEEDS, run: || moves_under_kafs(OWN) },
        Test { name: "kafs-volume-moves-newest", needs: NEEDS_NEWEST, run: || moves_under_kafs(NEWEST) },
        Test { name: "kafs-joined-users", needs: NEEDS, run: joined_users },
    ]
}

/// A second Cellar file server in the cell.
const SECOND: (&str, &str) = ("cellar5", "10.99.0.44");

/// Maximum number of errors that the kernel reports to the writer, or to a reader, per move. A call during
/// the move finds that the volume has gone, looks it up and retries; a call that was in flight is reported
/// once as an error.
const ERRORS_PER_MOVE_MAX: usize = 2;

/// The kernel's client writes, renames and reads, uncached, while its volume moves between Cellar's servers
/// and from there to OpenAFS's. It must continue and never read wrong data, and no acknowledged record may be
/// missing.
fn moves_under_kafs(kernel: &[&str]) -> Result<()> {
    let pair = Pair::start()?;
    let second = Cell::start_cellar_joining(&pair.openafs, SECOND.0, SECOND.1, NOBODY)?;
    pair.all(&["cellar volume create data --on CELLAR --quota 0 --acl system:anyuser=rlidwka"])?;
    let out = pair.openafs.path().join("out");
    std::fs::create_dir(&out)?;
    let mut guest = Guest::new(&pair.openafs, "moves", 1200)
        .with(kernel)
        .with(&["--hostroot", "--share", out.to_str().context("path")?])
        .mount("data", "/mnt")
        .start(&script(&pair.openafs, "moves", "READ_BACK=1", &["reader.sh", "writer.sh"])?)?;
    let mut some_more = || {
        let before = acknowledged(&guest.printed()).len();
        let reads = lines(&guest.printed(), "read before").len();
        wait_for(Duration::from_secs(120), || {
            let printed = guest.printed();
            let is_read = lines(&printed, "read before").len() >= reads + READS;
            Ok((is_read && acknowledged(&printed).len() >= before + KERNEL_RECORDS) || !guest.is_running()?)
        })?;
        ensure!(guest.is_running()?, "the guest ended");
        Ok(())
    };
    let own = format!("cellar volume move data --to {}", SECOND.1);
    let between = |from, to| format!("vos move data {from} a {to} a -localauth");
    let (first, theirs) = (pair.cellar.address, pair.openafs.address);
    let hops = [between(first, SECOND.1), between(SECOND.1, first), own, between(SECOND.1, theirs)];
    let moved = hops.iter().try_for_each(|hop| {
        some_more()?;
        all(&pair.cellar, std::slice::from_ref(hop))
    });
    let moved = moved.and_then(|()| some_more());
    std::fs::write(out.join("stop"), "")?;
    let output = guest.finish()?;
    let log =
        || format!("{}\n--\n{}\nthe guest:\n{}", pair.cellar.cellar_log(), second.cellar_log(), output.text);
    moved.with_context(log)?;
    ensure!(output.status == 0, "the client did not finish; Cellar's logs end:\n{}", log());
    let written = acknowledged(&output.text);
    check_records(&pair.openafs, "data", &written).with_context(log)?;
    let read_back = check_reads(&output.text, hops.len())?;
    let errors_max = ERRORS_PER_MOVE_MAX * hops.len();
    ensure!(
        read_back + errors_max >= written.len(),
        "{read_back} of {} records were read back",
        written.len()
    );
    // Reads after the last move went to OpenAFS's server.
    let fetches = &["FetchData", "FetchData64"];
    let asked = calls(&pair.cellar, fetches)? + calls(&second, fetches)?;
    ensure!(
        asked > (KERNEL_RECORDS * hops.len()) as u64,
        "Cellar's servers were asked {asked} times for data"
    );
    println!("interop: kafs wrote {} records that are all there after {} moves", written.len(), hops.len());
    println!("interop: {read_back} were read back; Cellar's servers were asked {asked} times for data");
    Ok(())
}

/// Checks that no wrong data was read and that few operations failed. Returns the number of records that were
/// read back.
fn check_reads(printed: &str, moves: usize) -> Result<usize> {
    // Occasionally the output of two programs is mixed in one line.
    let wrong: Vec<_> = printed.lines().filter(|line| line.contains("WRONG ")).collect();
    ensure!(wrong.is_empty(), "the client read what was never written: {wrong:?}");
    for reported in [lines(printed, "refused "), lines(printed, "unread ")] {
        println!("interop: what the kernel told of errors meanwhile: {reported:?}");
        ensure!(reported.len() <= ERRORS_PER_MOVE_MAX * moves, "too many errors: {reported:?}");
    }
    Ok(lines(printed, "read record ").len())
}

/// Returns the lines of a guest's output that start with `begin`.
fn lines<'a>(printed: &'a str, begin: &str) -> Vec<&'a str> {
    printed.lines().map(str::trim).filter(|line| line.starts_with(begin)).collect()
}

/// Users, groups and owners of OpenAFS's protection server on Cellar's file server.
fn joined_users() -> Result<()> {
    let pair = Pair::start()?;
    pair.all(&["cellar volume create data --on CELLAR --quota 0 --acl system:anyuser=rlidwka"])?;
    users_of(&pair.openafs).with_context(|| format!("Cellar's log ends:\n{}", pair.cellar.cellar_log()))
}

/// Partitions of OpenAFS's server that the volume moves from, each once.
///
/// OpenAFS 1.8.9's file server may keep the special files of a volume open when the volume moves away while a
/// client uses it. If that volume returns to the same partition, the server reads the deleted files, finds
/// that the header needs salvaging, and repeats this until it gives up on the volume: the salvager finds
/// nothing wrong.
const PARTITIONS: [&str; 4] = ["a", "b", "c", "d"];
/// Number of records that the client writes before the next move.
const RECORDS: usize = 20;
/// The same for the kernel's client, which runs emulated and reads each record back, and the number of times
/// that it reads an older file meanwhile.
const KERNEL_RECORDS: usize = 8;
const READS: usize = 5;
/// The volume that the client uses: the one below its mount point.
const VOLUME: &str = "root.cell";

/// A client continuously writes, reads back and renames. It must not see a single error, and no acknowledged
/// record may be missing at the end.
fn volume_moves() -> Result<()> {
    let pair = Pair::start_with(&["-p", "4"])?;
    pair.openafs.open_volume(Server::OpenAfs, VOLUME)?;
    let printed = in_mounted_cell(&pair.openafs, |root| write_under_moves(&pair, root))
        .with_context(|| format!("Cellar's log ends:\n{}", pair.cellar.cellar_log()))?;
    let written = acknowledged(&printed);
    check_records(&pair.openafs, VOLUME, &written)?;
    println!("interop: {} records are all there after {} moves", written.len(), 2 * PARTITIONS.len() - 1);
    Ok(())
}

/// Runs the client while the volume moves, and returns its output.
fn write_under_moves(pair: &Pair, root: &Path) -> Result<String> {
    let folder = pair.openafs.scratch()?;
    let (log, stop) = (folder.join("client.log"), folder.join("stop"));
    let prelude = format!("D={} STOP={}", root.display(), stop.display());
    let script = script(&pair.openafs, "moving", &prelude, &["moving.sh"])?;
    let printed = || std::fs::read_to_string(&log).unwrap_or_default();
    let (moved, ended) = std::thread::scope(|scope| {
        // A client that loses its volume would wait forever.
        let command = format!("timeout -s KILL 600 bash {} >{} 2>&1", script.display(), log.display());
        let client = scope.spawn(move || pair.openafs.shell(&command));
        let moved = move_about(pair, &|| acknowledged(&printed()).len(), &|| !client.is_finished());
        let stopped = std::fs::write(&stop, "");
        (moved.and(stopped.map_err(Into::into)), client.join())
    });
    let Ok(ended) = ended else { bail!("the client's thread panicked") };
    moved.with_context(|| format!("the client printed:\n{}", printed()))?;
    ensure!(ended?.status == 0, "the client saw errors:\n{}", printed());
    Ok(printed())
}

/// Moves the volume each time the client has written some records; it ends on Cellar's server.
fn move_about(pair: &Pair, written: &dyn Fn() -> usize, is_writing: &dyn Fn() -> bool) -> Result<()> {
    let some_more = || {
        let before = written();
        wait_for(Duration::from_secs(120), || Ok(written() >= before + RECORDS || !is_writing()))?;
        ensure!(is_writing(), "the client ended");
        Ok(())
    };
    for (number, partition) in PARTITIONS.iter().enumerate() {
        if number > 0 {
            some_more()?;
            pair.all(&[&format!("vos move {VOLUME} CELLAR a OPENAFS {partition}")])?;
        }
        some_more()?;
        pair.all(&[&format!("vos move {VOLUME} OPENAFS {partition} CELLAR a")])?;
    }
    some_more()
}
