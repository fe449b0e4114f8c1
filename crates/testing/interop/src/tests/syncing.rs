//! Kills servers at their first syncs while a volume is moved, released, copied and so on: strace kills a
//! server (SIGKILL) when any of its threads syncs for the first, second or third time.

use crate::Test;
use crate::tests::jobs::{begin, finish, is_running, jobs};
use crate::tests::mixed::all;
use crate::tests::soak;
use crate::tests::stepping::{Cells, WORKS, Work};
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::means::Means;
use std::time::{Duration, Instant};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "servers-killed-at-syncs", needs: &[Means::Netns, Means::Strace], run: killed }]
}

/// For each operation, the server to kill (the second is the target), and the minimum and maximum number of
/// its syncs to kill it at; the long form of the test has no maximum. Each kill takes some four seconds for
/// the first server, and four times as long for the target.
const KILLS: [(&str, bool, usize, usize); 10] = [
    ("release", false, 3, 6),
    ("move", false, 2, 6),
    ("backup", false, 2, 3),
    ("copy", false, 2, 4),
    ("restore", false, 1, 2),
    ("split", false, 4, 6),
    ("release", true, 1, 2),
    ("move", true, 1, 2),
    ("copy", true, 1, 2),
    ("restore", true, 1, 2),
];
/// Time limit for strace to attach, and for a job to complete or its server to be killed.
const LIMIT: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(100);

fn killed() -> Result<()> {
    let mut cells = Cells::start(("sync1", "10.99.0.86"), ("sync2", "10.99.0.87"), "10.99.0.88")?;
    cells.have(1)?;
    all(&cells.first, &[format!("cellar volume dump s1 {}/s1.dump", cells.folder())])?;
    for (word, is_second, least, most) in KILLS {
        let work = WORKS.iter().find(|work| work.word == word).context("no such work")?;
        let began = Instant::now();
        let victim = if is_second { "target" } else { "source, with the databases," };
        let (mut hits, most) = (0, if soak().is_some() { usize::MAX } else { most });
        while hits < most
            && is_hit(&mut cells, work, is_second, hits + 1).with_context(|| format!("a {word}"))?
        {
            hits += 1;
        }
        ensure!(hits >= least, "during a {word} no thread of the {victim} syncs {least} times");
        println!("interop: {word}: the {victim} killed at its first {hits} syncs; {:.0?}", began.elapsed());
    }
    Ok(())
}

/// Runs an operation on a new volume, and kills a server at this sync; returns false if it had fewer syncs.
fn is_hit(cells: &mut Cells, work: &Work, is_second: bool, sync: usize) -> Result<bool> {
    let n = cells.volumes + 1;
    cells.have(n)?;
    let command = (work.command)(cells, n);
    let victim = cells.server(is_second);
    let trace = victim.scratch()?.join("syncs").display().to_string();
    attach(victim, &trace, sync)?;
    begin(&cells.first, &command)?;
    let is_hit = meets_its_end(cells, is_second)?;
    if !is_hit {
        let_go(cells.server(is_second), &trace)?;
    }
    finish(&cells.first)?;
    let reported = std::fs::read_to_string(format!("{}/runner.log", cells.folder()))?;
    let known = cells
        .check()
        .with_context(|| format!("sync {sync}, {:#?}; its runner said: {reported}", jobs(&cells.first)))?;
    cells.compare([(format!("s{n}"), n), (format!("s{n}/more"), n)].into_iter())?;
    let made = work.makes.map(|letter| format!("{letter}{n}")).filter(|name| known.contains(name));
    cells.compare(made.into_iter().map(|name| (name, work.like(n))))?;
    let entry = cells.first.run(&format!("vos listvldb s{n} -localauth"))?.ok()?;
    if !entry.contains("Not released") && work.word == "release" {
        cells.compare([(format!("s{n}.readonly"), n)].into_iter())?;
    }
    Ok(is_hit)
}

/// Makes strace kill the cell's server when one of its threads makes its sync of this number.
fn attach(victim: &Cell, trace: &str, sync: usize) -> Result<()> {
    let calls = "fsync,fdatasync";
    let script = format!(
        "rm -f {trace}.err; setsid strace -f -o /dev/null -e trace={calls} -e inject={calls}:signal=SIGKILL:when={sync} \
         -p $(pgrep -f 'cellar [s]erve') 2> {trace}.err < /dev/null > /dev/null & echo $! > {trace}.pid"
    );
    victim.shell(&script)?.ok()?;
    let reported = format!("{trace}.err");
    crate::tests::wait_for(LIMIT, || {
        Ok(std::fs::read_to_string(&reported).unwrap_or_default().contains("attached"))
    })
    .with_context(|| std::fs::read_to_string(&reported).unwrap_or_default())
}

/// Waits until the server was killed, and restarts it; or until the job's process has exited. Returns whether
/// the server was killed.
fn meets_its_end(cells: &mut Cells, is_second: bool) -> Result<bool> {
    let deadline = Instant::now() + LIMIT;
    loop {
        std::thread::sleep(NAP);
        let runs = is_running(&cells.first)?;
        if !runs {
            std::thread::sleep(NAP);
        }
        let victim = cells.server(is_second);
        if victim.has_ended()? {
            victim.start_cellar()?;
            return Ok(true);
        }
        if !runs {
            return Ok(false);
        }
        ensure!(Instant::now() < deadline, "the job is not over:\n{}", cells.first.cellar_log());
    }
}

/// Stops strace, and restarts the server if it was just killed; a server also syncs without jobs.
fn let_go(victim: &mut Cell, trace: &str) -> Result<()> {
    // If strace gets SIGTERM while a traced process is exiting, it waits for that process forever.
    let end = format!(
        "strace=$(cat {trace}.pid); kill $strace
         for nap in $(seq 60); do kill -0 $strace || exit; sleep 0.05; done; kill -9 $strace"
    );
    victim.shell(&end)?;
    std::thread::sleep(NAP);
    if victim.has_ended()? {
        victim.start_cellar()?;
    }
    Ok(())
}
