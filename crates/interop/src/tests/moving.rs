//! Clients in a cell that Cellar's file server has joined: people of OpenAFS's protection server, and a
//! volume that moves while it is written.
//!
//! When the volume leaves OpenAFS's server the client is OpenAFS's: the kernel's kafs waits for ever after VMOVED;
//! see `docs/design/testing.md`. When it leaves Cellar's it is kafs, too.

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

/// A second file server of Cellar in the cell.
const SECOND: (&str, &str) = ("cellar5", "10.99.0.44");

/// What the kernel may tell the writer, and a reader, of one move: whoever asks amid it finds that the volume has gone, looks it up
/// and asks again, and what was on its way meanwhile is told as an error once.
const ERRORS_PER_MOVE_MAX: usize = 2;

/// The kernel's client writes, renames and reads while its volume moves between Cellar's servers and from there to
/// OpenAFS's, without its caches. It must go on, never read anything wrong, and nothing that was acknowledged may be missing.
fn moves_under_kafs(kernel: &[&str]) -> Result<()> {
    let pair = Pair::start()?;
    let second = Cell::start_cellar_joining(&pair.openafs, SECOND.0, SECOND.1, NOBODY)?;
    pair.all(&["cellar volume create data --on CELLAR --quota 0 --acl system:anyuser=rlidwka"])?;
    let out = pair.openafs.path().join("out");
    std::fs::create_dir(&out)?;
    let mut guest = Guest::new(&pair.openafs, "moves", 400)
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
    // OpenAFS's server was asked for the rest, after the last move.
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

/// Nothing was read that is wrong, and few operations failed. How many records were read back.
fn check_reads(printed: &str, moves: usize) -> Result<usize> {
    // Two programs print into one line now and then.
    let wrong: Vec<_> = printed.lines().filter(|line| line.contains("WRONG ")).collect();
    ensure!(wrong.is_empty(), "the client read what was never written: {wrong:?}");
    for told in [lines(printed, "refused "), lines(printed, "unread ")] {
        println!("interop: what the kernel told of errors meanwhile: {told:?}");
        ensure!(told.len() <= ERRORS_PER_MOVE_MAX * moves, "too many errors: {told:?}");
    }
    Ok(lines(printed, "read record ").len())
}

/// The lines of what a guest printed that begin so.
fn lines<'a>(printed: &'a str, begin: &str) -> Vec<&'a str> {
    printed.lines().map(str::trim).filter(|line| line.starts_with(begin)).collect()
}

/// Users, groups and owners of OpenAFS's protection server on Cellar's file server.
fn joined_users() -> Result<()> {
    let pair = Pair::start()?;
    pair.all(&["cellar volume create data --on CELLAR --quota 0 --acl system:anyuser=rlidwka"])?;
    users_of(&pair.openafs).with_context(|| format!("Cellar's log ends:\n{}", pair.cellar.cellar_log()))
}

/// The partitions of OpenAFS's server that the volume comes from, each once.
///
/// OpenAFS 1.8.9's file server may keep the special files of a volume open that leaves while a client uses
/// it. If that volume returns to the same partition it reads the deleted files, finds its header to need
/// salvage, and goes on so until it gives the volume up: the salvager finds nothing wrong.
const PARTITIONS: [&str; 4] = ["a", "b", "c", "d"];
/// Records that the client writes before the volume moves on.
const RECORDS: usize = 20;
/// The same of the kernel's client, which is emulated and reads each record back; and how often it reads the file of before meanwhile.
const KERNEL_RECORDS: usize = 8;
const READS: usize = 5;
/// The volume that the client works in: what it finds below its mount point.
const VOLUME: &str = "root.cell";

/// A client writes, reads back and renames all the time. It must not see one error, and nothing that
/// was acknowledged may be missing at the end.
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

/// What the client printed.
fn write_under_moves(pair: &Pair, root: &Path) -> Result<String> {
    let folder = pair.openafs.scratch()?;
    let (log, stop) = (folder.join("client.log"), folder.join("stop"));
    let prelude = format!("D={} STOP={}", root.display(), stop.display());
    let script = script(&pair.openafs, "moving", &prelude, &["moving.sh"])?;
    let printed = || std::fs::read_to_string(&log).unwrap_or_default();
    let (moved, ended) = std::thread::scope(|scope| {
        // A client whose volume is lost would wait for ever.
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

/// Moves the volume whenever the client has written some more; it ends on Cellar's server.
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
