//! Servers are killed at their first syncs while a volume moves or is released: strace ends one (SIGKILL) when any one of its threads
//! syncs for the first, second, third time.

use crate::Test;
use crate::tests::jobs::{begin, finish, jobs};
use crate::tests::stepping::Cells;
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::means::Means;
use std::time::{Duration, Instant};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "servers-killed-at-syncs", needs: &[Means::Netns, Means::Strace], run: killed }]
}

/// Of which job which server is killed (the second is the target), at how many of its syncs at least and at most. For the
/// first it takes some four seconds each, for the target four times as long.
const KILLS: [(&str, bool, usize, usize); 4] =
    [("release", false, 3, 6), ("move", false, 2, 6), ("release", true, 1, 2), ("move", true, 1, 2)];
/// How long strace may take to attach, and a job to be over or to meet its server's end.
const LIMIT: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(100);

fn killed() -> Result<()> {
    let mut cells = Cells::start(("sync1", "10.99.0.86"), ("sync2", "10.99.0.87"), "10.99.0.88")?;
    for (word, is_second, least, most) in KILLS {
        let began = Instant::now();
        let victim = if is_second { "target" } else { "source, with the databases," };
        let mut hits = 0;
        while hits < most
            && is_hit(&mut cells, word, is_second, hits + 1).with_context(|| format!("a {word}"))?
        {
            hits += 1;
        }
        ensure!(hits >= least, "during a {word} no thread of the {victim} syncs {least} times");
        println!("interop: {word}: the {victim} killed at its first {hits} syncs; {:.0?}", began.elapsed());
    }
    Ok(())
}

/// Does this with a volume of its own, and kills a server at this sync; whether it had so many.
fn is_hit(cells: &mut Cells, word: &str, is_second: bool, sync: usize) -> Result<bool> {
    let n = cells.volumes + 1;
    cells.have(n)?;
    let command = match word {
        "move" => format!("move s{n} --to {}", cells.second.address),
        _ => format!("{word} s{n}"),
    };
    let victim = cells.server(is_second);
    let trace = victim.scratch()?.join("syncs").display().to_string();
    attach(victim, &trace, sync)?;
    begin(&cells.first, &command)?;
    let is_hit = meets_its_end(cells, is_second)?;
    if !is_hit {
        cells.server(is_second).shell(&format!("kill $(cat {trace}.pid)"))?.ok()?;
    }
    // If the server was away before the job was recorded, the journal does not tell of it yet.
    crate::tests::wait_for(2 * LIMIT, || Ok(!is_running(cells)?)).context("the runner does not end")?;
    finish(&cells.first)?;
    let told = std::fs::read_to_string(format!("{}/runner.log", cells.folder()))?;
    cells
        .check()
        .with_context(|| format!("sync {sync}, {:#?}; its runner said: {told}", jobs(&cells.first)))?;
    cells.compare([(format!("s{n}"), n)].into_iter())?;
    let entry = cells.first.run(&format!("vos listvldb s{n} -localauth"))?.ok()?;
    if !entry.contains("Not released") && word == "release" {
        cells.compare([(format!("s{n}.readonly"), n)].into_iter())?;
    }
    Ok(is_hit)
}

/// Has strace kill the cell's server when a thread of it syncs for the time of this number.
fn attach(victim: &Cell, trace: &str, sync: usize) -> Result<()> {
    let calls = "fsync,fdatasync";
    let script = format!(
        "rm -f {trace}.err; setsid strace -f -o /dev/null -e trace={calls} -e inject={calls}:signal=SIGKILL:when={sync} \
         -p $(pgrep -f 'cellar [s]erve') 2> {trace}.err < /dev/null > /dev/null & echo $! > {trace}.pid"
    );
    victim.shell(&script)?.ok()?;
    let told = format!("{trace}.err");
    crate::tests::wait_for(LIMIT, || {
        Ok(std::fs::read_to_string(&told).unwrap_or_default().contains("attached"))
    })
    .with_context(|| std::fs::read_to_string(&told).unwrap_or_default())
}

/// Waits until the server was killed, and starts it again; or until the job's runner has ended without that. Which it was.
fn meets_its_end(cells: &mut Cells, is_second: bool) -> Result<bool> {
    let deadline = Instant::now() + LIMIT;
    loop {
        std::thread::sleep(NAP);
        let runs = is_running(cells)?;
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

/// Whether the program that began the job runs.
fn is_running(cells: &Cells) -> Result<bool> {
    Ok(cells.first.shell(&format!("kill -0 $(cat {}/runner.pid)", cells.folder()))?.status == 0)
}
