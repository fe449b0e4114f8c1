//! The store in real processes: servers that are killed while several clients write, a full partition, and a
//! damaged partition.

use crate::Test;
use crate::tests::soak;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server, kill_tree, tools};
use interop::means::Means;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NEEDS: &[Means] = &[Means::Netns];

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "store-server-killed", needs: NEEDS, run: server_killed },
        Test { name: "store-partition-full", needs: NEEDS, run: partition_full },
        Test { name: "store-partition-broken", needs: NEEDS, run: partition_broken },
    ]
}

/// Minimum number of times that the server is killed.
const KILLS: u32 = 6;
const WRITERS: u32 = 4;
const VOLUMES: [&str; 2] = ["killed0", "killed1"];
/// Time limit for a writer to exit after its server was killed.
const END: Duration = Duration::from_secs(60);

/// A writer that runs inside the cell.
pub(crate) struct Writer {
    number: u32,
    child: Child,
    log: PathBuf,
}

impl Writer {
    fn start(cell: &Cell, number: u32, done: u64, until: u64) -> Result<Writer> {
        Writer::start_in(cell, VOLUMES[number as usize % VOLUMES.len()], number, done, until)
    }

    /// Starts a writer in a volume: it compares the contents with `done` acknowledged steps, and goes on to `until`.
    ///
    /// The databases are on the host of `cell`.
    pub(crate) fn start_in(cell: &Cell, volume: &str, number: u32, done: u64, until: u64) -> Result<Writer> {
        Writer::start_with(cell, volume, number, (done, until), &[])
    }

    /// Starts a writer like [`start_in`](Writer::start_in), which calls one node of a cluster.
    pub(crate) fn start_through(
        cell: &Cell,
        node: &str,
        volume: &str,
        number: u32,
        done: u64,
    ) -> Result<Writer> {
        Writer::start_with(cell, volume, number, (done, u64::MAX), &[node])
    }

    fn start_with(
        cell: &Cell,
        volume: &str,
        number: u32,
        (done, until): (u64, u64),
        node: &[&str],
    ) -> Result<Writer> {
        let log = cell.path().join(format!("writer-{number}.log"));
        let output = File::create(&log)?;
        let child = Command::new(tools().join("openafs-cell"))
            .arg("-d")
            .arg(cell.path())
            .arg("run")
            .arg(std::env::current_exe()?)
            .args(["write", cell.address, volume, &number.to_string(), &done.to_string(), &until.to_string()])
            .args(node)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Writer { number, child, log })
    }

    /// Checks that the contents are those after `done` acknowledged steps of a writer, or one more; returns how many steps
    /// that is.
    pub(crate) fn compare_in(cell: &Cell, volume: &str, number: u32, done: u64) -> Result<u64> {
        let mut last = Writer::start_in(cell, volume, number, done, 0)?;
        ensure!(last.end()?, "{}", last.printed()?);
        last.done()?.context("it has compared")
    }

    pub(crate) fn printed(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned())
    }

    /// Returns the number of acknowledged steps, once the writer has finished its initial comparison.
    pub(crate) fn done(&self) -> Result<Option<u64>> {
        let printed = self.printed()?;
        // The last line may be incomplete.
        let whole = printed.rfind('\n').map_or("", |end| &printed[..end]);
        Ok(whole.lines().filter_map(|line| line.strip_prefix("done ")?.parse().ok()).next_back())
    }

    /// Kills the writer; returns the number of acknowledged steps. One more may have taken effect.
    pub(crate) fn kill(mut self) -> Result<u64> {
        kill_tree(&mut self.child);
        self.done()?.context("it has compared")
    }

    /// Whether the writer has exited.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Ends the writer, perhaps within a step; returns the number of acknowledged steps.
    pub(crate) fn stop(&mut self) -> Result<Option<u64>> {
        kill_tree(&mut self.child);
        self.done()
    }

    /// Waits until the writer exits; returns whether it completed all steps.
    pub(crate) fn end(&mut self) -> Result<bool> {
        let deadline = Instant::now() + END;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            ensure!(Instant::now() < deadline, "writer {} does not end:\n{}", self.number, self.printed()?);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        kill_tree(&mut self.child);
    }
}

fn store_check(cell: &Cell) -> Result<()> {
    let found = cell.run("cellar store check /vicepa --data")?;
    found.ok().context("cellar store check found something").map(drop)
}

fn server_killed() -> Result<()> {
    let seed: u64 = rand::random();
    println!("interop: store-server-killed has seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut cell = Cell::start(Server::Cellar, "cellkill", "10.99.0.16")?;
    for volume in VOLUMES {
        cell.open_volume(Server::Cellar, volume)?;
    }
    let end = soak().map(|span| Instant::now() + span);
    let mut done = [0; WRITERS as usize];
    let mut kills = 0;
    while kills < KILLS || end.is_some_and(|end| Instant::now() < end) {
        write_and_kill(&mut cell, &mut done, &mut rng).with_context(|| {
            format!("kill {kills} of seed {seed}; Cellar's log ends:\n{}", cell.cellar_log())
        })?;
        kills += 1;
    }
    for (number, &done) in (0..).zip(&done) {
        Writer::compare_in(&cell, VOLUMES[number as usize % VOLUMES.len()], number, done)?;
    }
    cell.end_cellar("TERM")?;
    store_check(&cell)?;
    let steps: u64 = done.iter().sum();
    println!("interop: {steps} acknowledged changes of {WRITERS} clients survived {kills} kills");
    Ok(())
}

/// Starts writers, which first compare the contents with their acknowledged steps, and kills the server while
/// they write.
fn write_and_kill(cell: &mut Cell, done: &mut [u64], rng: &mut SmallRng) -> Result<()> {
    let mut writers = (0..)
        .zip(done.iter())
        .map(|(number, &done)| Writer::start(cell, number, done, u64::MAX))
        .collect::<Result<Vec<_>>>()?;
    let wanted = rng.random_range(1..300);
    super::wait_for(Duration::from_secs(90), || {
        let now = writers.iter().map(Writer::done).collect::<Result<Vec<_>>>()?;
        for writer in &mut writers {
            if let Some(status) = writer.child.try_wait()? {
                anyhow::bail!("writer {} ended with {status}:\n{}", writer.number, writer.printed()?);
            }
        }
        let new: u64 =
            now.iter().zip(&*done).map(|(now, before)| now.unwrap_or(0).saturating_sub(*before)).sum();
        Ok(now.iter().all(Option::is_some) && new >= wanted)
    })?;
    if rng.random() {
        // The server is then killed while it deletes the old clone and pages are shared.
        cell.run(&format!("vos backup {} -localauth", VOLUMES[0]))?.ok()?;
    }
    std::thread::sleep(Duration::from_millis(rng.random_range(0..300)));
    cell.end_cellar("KILL")?;
    for writer in &mut writers {
        writer.end()?;
        let steps = writer.done()?.context("it has compared")?;
        done[writer.number as usize] = steps;
    }
    store_check(cell)?;
    cell.start_cellar()
}

/// Some 200 MB in addition to the reserve.
const SMALL_PARTITION: &str = "mount -t tmpfs -o size=320m tmpfs /vicepa && touch /vicepa/AlwaysAttach";

fn partition_full() -> Result<()> {
    let mut cell = Cell::start_on("cellfull", "10.99.0.17", &[], SMALL_PARTITION)?;
    cell.open_volume(Server::Cellar, "full")?;
    let rounds = soak().map_or(2, |span| 2 * span.as_secs() / 60);
    let program = std::env::current_exe()?;
    let fill = format!("{} fill {} full {rounds}", program.display(), cell.address);
    let printed =
        cell.run(&fill)?.ok().with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log()))?;
    print!("{printed}");
    cell.end_cellar("TERM")?;
    store_check(&cell)?;
    cell.start_cellar()?;
    let printed = cell.run(&format!("{} fill {} full 1", program.display(), cell.address))?.ok()?;
    print!("{printed}");
    cell.end_cellar("KILL")?;
    store_check(&cell)
}

fn partition_broken() -> Result<()> {
    let mut cell = Cell::start_on("cellbrok", "10.99.0.18", &["-p", "3"], "true")?;
    let address = cell.address;
    std::fs::write(cell.path().join("some"), "some text\n")?;
    for part in ["a", "b", "c"] {
        cell.run(&format!("vos create {address} {part} volume.{part} -localauth"))?.ok()?;
        copy_in(&cell, part)?;
    }
    cell.end_cellar("TERM")?;
    let (current, away) = ("/vicepb/cellar/meta/CURRENT", "/vicepb/cellar/meta/away");
    cell.shell(&format!("mv {current} {away}"))?.ok()?;
    cell.start_cellar()?;
    let log = cell.cellar_log();
    ensure!(log.contains("its volumes are offline") && log.contains("CURRENT"), "no message:\n{log}");

    let partitions = cell.run(&format!("vos listpart {address} -localauth"))?.ok()?;
    ensure!(partitions.contains("/vicepa") && partitions.contains("/vicepc"), "{partitions}");
    ensure!(!partitions.contains("/vicepb"), "{partitions}");
    let volumes = cell.run(&format!("vos listvol {address} -localauth"))?.ok()?;
    ensure!(volumes.contains("volume.a") && volumes.contains("volume.c"), "{volumes}");
    ensure!(!volumes.contains("volume.b"), "{volumes}");
    cell.run("vos examine volume.a -localauth")?.ok()?;
    let examined = cell.run("vos examine volume.b -localauth")?;
    ensure!(examined.text.contains("/vicepb"), "the location database has it still:\n{}", examined.text);
    ensure!(!examined.text.contains("On-line"), "{}", examined.text);
    for part in ["a", "c"] {
        copy_in(&cell, part)?;
    }
    let missing = cell.run(&format!("cellar cp cell:volume.b/some {}/b", cell.path().display()))?;
    ensure!(missing.status != 0, "a volume of the broken partition served:\n{}", missing.text);

    cell.end_cellar("TERM")?;
    cell.shell(&format!("mv {away} {current}"))?.ok()?;
    cell.start_cellar()?;
    let copy = cell.path().join("copy");
    cell.run(&format!("cellar cp cell:volume.b/some {}", copy.display()))?.ok()?;
    ensure!(std::fs::read_to_string(copy)? == "some text\n", "other bytes");
    Ok(())
}

fn copy_in(cell: &Cell, part: &str) -> Result<()> {
    let some = cell.path().join("some");
    cell.run(&format!("cellar cp {} cell:volume.{part}/some", some.display()))?.ok().map(drop)
}
