//! Moves, releases, copies and restores during which a server, or the process that runs them, is killed.

use crate::Test;
use crate::tests::mixed::{all, copy, fetch_and_compare};
use crate::tests::{own_file, run_until, wait_for};
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "jobs-killed", needs: &[Means::Netns], run: killed }]
}

/// Number of rounds per operation; each kills a process.
const ROUNDS: u32 = 2;
/// Time limit for an interrupted job to be finished or undone.
const JOB_LIMIT: Duration = Duration::from_secs(180);
/// Size of a file that takes a while to send.
const BIG_FILE_MIB: u32 = 24;

/// The process that is killed in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    /// The command that runs the job.
    Runner,
    /// The server with the databases.
    First,
    /// The other server.
    Second,
}

/// Pseudo-random numbers from a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn killed() -> Result<()> {
    let seed = std::env::var("JOBS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121);
    println!("interop: seed {seed} (JOBS_SEED)");
    let mut dice = Dice(seed);
    let mut first = Cell::start(Server::Cellar, "jobs1", "10.99.0.61")?;
    let mut second = Cell::start_cellar_joining(&first, "jobs2", "10.99.0.62", "10.99.0.63")?;
    first.open_volume(Server::Cellar, "tree")?;
    let tree = own_file("src");
    copy(&first, &format!("{}/ cell:tree/data/", tree.display()))?;
    let big = first.scratch()?.join("big");
    first.shell(&format!("head -c {BIG_FILE_MIB}M /dev/urandom > {}", big.display()))?.ok()?;
    copy(&first, &format!("{} cell:tree/big", big.display()))?;
    let sites =
        [first.address, second.address].map(|server| format!("vos addsite {server} a tree -localauth"));
    all(&first, &sites)?;
    let dump = first.scratch()?.join("dump");
    all(&first, &[format!("cellar volume dump tree {}", dump.display())])?;
    for round in 0..4 * ROUNDS {
        let victim = [Victim::Runner, Victim::First, Victim::Second][dice.throw(3) as usize];
        let pause = Duration::from_millis(dice.throw(1500));
        let (new, to) = (format!("tree.{round}"), other(&first, &second)?);
        let (command, new) = match round % 4 {
            0 => ("release tree --all".into(), None),
            1 => (format!("move tree --to {to}"), None),
            2 => (format!("copy tree {new} --to {to}"), Some(new)),
            _ => (format!("restore {} {new} --on {to}", dump.display()), Some(new)),
        };
        println!("interop: round {round}: {command}, {victim:?} killed after {pause:?}");
        begin(&first, &command)?;
        std::thread::sleep(pause);
        kill(&mut first, &mut second, victim)?;
        finish(&first)?;
        let listed = check(&first, &second).with_context(|| format!("after round {round}"))?;
        if let Some(new) = new {
            check_new(&first, &new, &listed, &big).with_context(|| format!("after round {round}"))?;
        }
    }
    all(&first, &["cellar volume release tree --all".into()])?;
    fetch_and_compare(&first, "data", &tree)?;
    compare_big(&first, "tree", &big)
}

/// Checks that the volume to be created exists with its entry and all contents, or not at all.
fn check_new(first: &Cell, name: &str, listed: &str, big: &Path) -> Result<()> {
    let line = format!("{name} ");
    let count = listed.lines().filter(|found| found.starts_with(&line)).count();
    let is_known = first.run(&format!("cellar volume examine {name}"))?.status == 0;
    ensure!(count == usize::from(is_known), "known: {is_known}, on {count} servers:\n{listed}");
    println!("interop: {name} is {}", if is_known { "there" } else { "not there" });
    if is_known { compare_big(first, name, big) } else { Ok(()) }
}

/// Checks the contents of a volume's large file.
fn compare_big(first: &Cell, volume: &str, big: &Path) -> Result<()> {
    let copied = first.scratch()?.join("copied");
    copy(first, &format!("cell:{volume}/big {}", copied.display()))?;
    first.shell(&format!("cmp {} {}", big.display(), copied.display()))?.ok().context("the big file")?;
    first.shell(&format!("rm {}", copied.display()))?.ok().map(drop)
}

/// Returns the server that does not have the read-write volume.
fn other(first: &Cell, second: &Cell) -> Result<&'static str> {
    let shown = first.run("cellar volume examine tree")?.ok()?;
    Ok(if shown.contains(first.address) { second.address } else { first.address })
}

/// Starts a job in the background.
pub(crate) fn begin(cell: &Cell, command: &str) -> Result<()> {
    let folder = cell.scratch()?;
    let line = format!(
        "setsid cellar volume {command} > {}/runner.log 2>&1 < /dev/null & echo $! > {}/runner.pid",
        folder.display(),
        folder.display()
    );
    cell.shell(&line)?.ok().map(drop)
}

fn kill(first: &mut Cell, second: &mut Cell, victim: Victim) -> Result<()> {
    match victim {
        Victim::Runner => {
            let pid = first.scratch()?.join("runner.pid");
            // The job may have ended already.
            first.shell(&format!("kill -KILL $(cat {})", pid.display()))?;
        }
        Victim::First => {
            first.end_cellar("KILL")?;
            first.start_cellar()?;
        }
        Victim::Second => {
            second.end_cellar("KILL")?;
            second.start_cellar()?;
        }
    }
    Ok(())
}

/// Whether the process that [`begin`] has started last is running.
pub(crate) fn is_running(cell: &Cell) -> Result<bool> {
    let pid = cell.scratch()?.join("runner.pid");
    Ok(cell.shell(&format!("kill -0 $(cat {})", pid.display()))?.status == 0)
}

/// Waits until the server has finished or undone all interrupted jobs.
pub(crate) fn finish(cell: &Cell) -> Result<()> {
    // If a server was killed before the job was recorded, the journal does not have the job yet.
    wait_for(JOB_LIMIT, || Ok(!is_running(cell)?))
        .with_context(|| format!("the runner does not end\n{}", cell.cellar_log()))?;
    let deadline = Instant::now() + JOB_LIMIT;
    loop {
        let jobs = jobs(cell)?;
        if jobs.iter().all(|job| job["stage"] == "done" || job["stage"] == "failed") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{jobs:#?}\n{}", cell.cellar_log());
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Returns the jobs of a cell's server, as printed with `--json`.
pub(crate) fn jobs(cell: &Cell) -> Result<Vec<Value>> {
    let listed = cell.run("cellar volume jobs list --json")?.ok()?;
    serde_json::from_str(&listed).with_context(|| format!("no list of jobs: {listed}"))
}

/// Checks that nothing is locked or left over, and that the volume exists once. Returns the servers' lists of
/// volumes.
fn check(first: &Cell, second: &Cell) -> Result<String> {
    let all = settled(first, second)?;
    let copies = all.lines().filter(|line| line.starts_with("tree ")).count();
    ensure!(copies == 1, "{copies} read-write copies:\n{all}");
    Ok(all)
}

/// Checks that nothing is locked, busy or offline, and that no temporary clone is left over. Returns the
/// servers' lists of volumes.
pub(crate) fn settled(first: &Cell, second: &Cell) -> Result<String> {
    let locked = first.run("vos listvldb -locked -localauth")?.ok()?;
    ensure!(locked.contains("Total entries: 0"), "{locked}");
    let mut all = String::new();
    for cell in [first, second] {
        let list = format!("vos listvol {} -localauth", cell.address);
        let listed = run_until(first, &list, |listed| {
            listed.contains("Total volumes offLine 0 ; Total busy 0") && !listed.contains("clone-temp")
        })?;
        all.push_str(&listed);
    }
    Ok(all)
}
