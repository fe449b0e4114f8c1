//! Kills the process that runs a job at every step: strace kills it (SIGKILL) at each of its syncs, two per
//! record in the journal: before the record replaces the previous one, and after.

use crate::Test;
use crate::tests::dumps::{dumped_from, vnodes};
use crate::tests::jobs::{finish, jobs, settled};
use crate::tests::mixed::all;
use crate::tests::run_until;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Instant;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "jobs-killed-at-each-step", needs: &[Means::Netns, Means::Strace], run: killed },
        Test { name: "jobs-between-killed", needs: &[Means::Netns, Means::Strace], run: between_killed },
    ]
}

/// More syncs than any of the jobs has.
const SYNCS_MAX: usize = 200;
/// Size of a file in a volume, apart from its name: more than one chunk.
const FILE_KIB: usize = 300;
/// Number of syncs before a job is in the journal: if the process is killed there, the job does not start.
const SYNCS_UNTIL_RECORDED: usize = 1;

/// An operation on a volume `s1`, `s2` ...; and the prefix of the new volume that it creates, if any.
pub(crate) struct Work {
    pub(crate) word: &'static str,
    pub(crate) command: fn(&Cells, usize) -> String,
    pub(crate) makes: Option<&'static str>,
}

/// The cell: two servers, the first with the databases, and the number of volumes.
pub(crate) struct Cells {
    pub(crate) first: Cell,
    pub(crate) second: Cell,
    pub(crate) volumes: usize,
}

pub(crate) const WORKS: [Work; 6] = [
    Work { word: "release", command: |_, n| format!("release s{n}"), makes: None },
    Work { word: "backup", command: |_, n| format!("backup s{n}"), makes: None },
    Work {
        word: "copy",
        command: |cells, n| format!("copy s{n} c{n} --to {}", cells.second.address),
        makes: Some("c"),
    },
    Work {
        word: "move",
        command: |cells, n| format!("move s{n} --to {}", cells.second.address),
        makes: None,
    },
    Work {
        word: "restore",
        command: |cells, n| format!("restore {}/s1.dump r{n} --on {}", cells.folder(), cells.second.address),
        makes: Some("r"),
    },
    Work { word: "split", command: |_, n| format!("split s{n}/more --to p{n}"), makes: Some("p") },
];

impl Work {
    /// Returns the number of the volume whose contents the new volume must have: a restore uses the first
    /// volume's dump.
    pub(crate) fn like(&self, n: usize) -> usize {
        if self.word == "restore" { 1 } else { n }
    }
}

impl Cells {
    /// Starts both servers, given their names and addresses; `nobody` is an unused address.
    pub(crate) fn start(
        first: (&'static str, &'static str),
        second: (&'static str, &'static str),
        nobody: &str,
    ) -> Result<Cells> {
        let first = Cell::start(Server::Cellar, first.0, first.1)?;
        let second = Cell::start_cellar_joining(&first, second.0, second.1, nobody)?;
        Cells::of(first, second)
    }

    /// Creates the cell from two servers, the first of which has the databases.
    fn of(first: Cell, second: Cell) -> Result<Cells> {
        let noise = first.scratch()?.join("noise");
        first.shell(&format!("head -c {FILE_KIB}K /dev/urandom > {}", noise.display()))?.ok()?;
        Ok(Cells { first, second, volumes: 0 })
    }

    /// Returns the second server, or the first.
    pub(crate) fn server(&mut self, is_second: bool) -> &mut Cell {
        if is_second { &mut self.second } else { &mut self.first }
    }

    pub(crate) fn folder(&self) -> String {
        self.first.path().join("scratch").display().to_string()
    }

    /// Creates volumes up to this number. Each has a file with its name and random data, a copy of it in a
    /// directory, and read-only sites on both servers.
    pub(crate) fn have(&mut self, count: usize) -> Result<()> {
        while self.volumes < count {
            let n = self.volumes + 1;
            self.first.open_volume(Server::Cellar, &format!("s{n}"))?;
            let folder = self.folder();
            let script = format!(
                "(echo s{n}; cat {folder}/noise) > {folder}/s{n} && cellar cp {folder}/s{n} cell:s{n}/file && \
                 mkdir -p {folder}/more && cp {folder}/s{n} {folder}/more/file && cellar cp {folder}/more/ cell:s{n}/more/ && \
                 vos addsite {} a s{n} -localauth && vos addsite {} a s{n} -localauth",
                self.first.address, self.second.address
            );
            self.first.shell(&script)?.ok()?;
            self.volumes = n;
        }
        Ok(())
    }

    /// Runs a command that is killed at its sync of this number; returns whether it was.
    fn is_killed(&self, command: &str, sync: usize) -> Result<bool> {
        let trace = format!("{}/trace", self.folder());
        let inject = format!("-e trace=fsync -e inject=fsync:signal=SIGKILL:when={sync}");
        let ran = self.first.run(&format!("strace -f -o {trace} {inject} cellar volume {command}"))?;
        let is_killed = std::fs::read_to_string(&trace)?.contains("killed by SIGKILL");
        ensure!(is_killed || ran.status == 0, "{command}: {}", ran.text);
        Ok(is_killed)
    }

    /// Compares the contents of volumes with what was written to them.
    pub(crate) fn compare(&self, names: impl Iterator<Item = (String, usize)>) -> Result<()> {
        let folder = self.folder();
        let one = |(name, n): (String, usize)| {
            format!(
                "cellar cp cell:{name}/file {folder}/got && cmp {folder}/s{n} {folder}/got && rm {folder}/got"
            )
        };
        let script: Vec<String> = names.map(one).collect();
        self.first.shell(&format!("set -e; {}", script.join("; ").replace(" && ", "; ")))?.ok().map(drop)
    }

    /// Checks that nothing is locked, open or left over, that each volume exists once, and that the location
    /// database has all of them. Returns the volumes in the database.
    pub(crate) fn check(&self) -> Result<BTreeSet<String>> {
        let listed = settled(&self.first, &self.second)?;
        for cell in [&self.first, &self.second] {
            let status = format!("vos status {} -localauth", cell.address);
            run_until(&self.first, &status, |status| status.contains("No active transactions"))?;
        }
        let entries = self.first.run("vos listvldb -localauth")?.ok()?;
        let is_name = |line: &&str| !line.starts_with([' ', '\t']) && line.split_whitespace().count() == 1;
        let known: BTreeSet<String> =
            entries.lines().filter(is_name).map(|line| line.trim().to_owned()).collect();
        let mut writable = BTreeSet::new();
        for line in listed.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(kind)) = (words.next(), words.nth(1)) else { continue };
            if !["RW", "RO", "BK"].contains(&kind) {
                continue;
            }
            let family = name.trim_end_matches(".readonly").trim_end_matches(".backup");
            ensure!(known.contains(family), "{name} has no entry:\n{entries}");
            ensure!(kind != "RW" || writable.insert(name.to_owned()), "{name} is there twice:\n{listed}");
        }
        ensure!(known == writable, "entries {known:?}, volumes {writable:?}");
        Ok(known)
    }

    /// Repeats a command, each time on a new volume, and kills it at one of its syncs, until it has no more;
    /// the servers finish or undo all jobs. Returns the number of volumes.
    fn kill_between(
        &mut self,
        what: &str,
        command: impl Fn(&Cells, usize) -> Result<String>,
    ) -> Result<usize> {
        let (began, (mut sync, every), before) = (Instant::now(), BETWEEN, last(&jobs(&self.first)?));
        let mut killed = 0;
        loop {
            let n = self.volumes + 1;
            self.have(n)?;
            if !self.is_killed(&command(self, n)?, sync)? {
                break;
            }
            (killed, sync) = (killed + 1, sync + every);
        }
        ensure!(killed > 2, "{what} has only {sync} syncs");
        finish(&self.first)?;
        self.check().with_context(|| what.to_owned())?;
        self.compare((1..=self.volumes).flat_map(|n| [(format!("s{n}"), n), (format!("s{n}/more"), n)]))?;
        let mut ended = jobs(&self.first)?;
        ended.retain(|job| job["job"].as_u64() > before);
        let done = ended.iter().filter(|job| job["stage"] == "done").count();
        println!(
            "interop: {what}: killed at {killed} of {sync} syncs; {done} of {} jobs are done, the others undone; {:.0?}",
            ended.len(),
            began.elapsed()
        );
        Ok(self.volumes)
    }

    /// Kills the process that runs this work at each of its syncs, and checks the outcome.
    fn step_through(&mut self, work: &Work) -> Result<()> {
        let (began, before) = (Instant::now(), last(&jobs(&self.first)?));
        let mut killed = 0;
        loop {
            ensure!(killed < SYNCS_MAX, "a {} has no end", work.word);
            self.have(killed + 1)?;
            let command = (work.command)(self, killed + 1);
            if !self.is_killed(&command, killed + 1)? {
                break;
            }
            killed += 1;
        }
        ensure!(killed > 2 * SYNCS_UNTIL_RECORDED, "a {} has only {killed} syncs", work.word);
        finish(&self.first)?;
        let known = self.check()?;
        let all = 1..=killed + 1;
        self.compare((1..=self.volumes).flat_map(|n| [(format!("s{n}"), n), (format!("s{n}/more"), n)]))?;
        if work.word == "release" {
            let released = all.clone().filter(|n| *n > SYNCS_UNTIL_RECORDED);
            self.compare(released.map(|n| (format!("s{n}.readonly"), n)))?;
        }
        let mut ended = jobs(&self.first)?;
        ended.retain(|job| job["job"].as_u64() > before);
        ensure!(ended.len() == all.clone().count() - SYNCS_UNTIL_RECORDED, "jobs were lost: {ended:#?}");
        let done = ended.iter().filter(|job| job["stage"] == "done").count();
        if let Some(letter) = work.makes {
            let new: Vec<usize> = all.filter(|n| known.contains(&format!("{letter}{n}"))).collect();
            ensure!(new.len() == done, "{done} jobs are done, the new volumes are {new:?}");
            self.compare(new.into_iter().map(|n| (format!("{letter}{n}"), work.like(n))))?;
        }
        println!(
            "interop: {}: killed at each of {killed} syncs; {done} of {} recorded jobs are done, the others undone; \
             {:.0?}",
            work.word,
            ended.len(),
            began.elapsed()
        );
        Ok(())
    }
}

/// Returns the highest job number.
fn last(jobs: &[Value]) -> Option<u64> {
    jobs.iter().filter_map(|job| job["job"].as_u64()).max()
}

fn killed() -> Result<()> {
    let mut cells = Cells::start(("step1", "10.99.0.83"), ("step2", "10.99.0.84"), "10.99.0.85")?;
    cells.have(1)?;
    all(&cells.first, &[format!("cellar volume dump s1 {}/s1.dump", cells.folder())])?;
    for work in &WORKS {
        cells.step_through(work).with_context(|| format!("a {}", work.word))?;
    }
    Ok(())
}

/// For jobs between OpenAFS's server and Cellar's: the first sync at which the process is killed, and the
/// interval.
const BETWEEN: (usize, usize) = (SYNCS_UNTIL_RECORDED + 1, 5);

/// A move from OpenAFS's server to Cellar's, which has the databases, and a release from there to both; the
/// process that runs them is killed at some of its syncs.
fn between_killed() -> Result<()> {
    let first = Cell::start(Server::Cellar, "step3", "10.99.0.89")?;
    let second = Cell::start_joining(&first, "step4", "10.99.0.90")?;
    let mut cells = Cells::of(first, second)?;
    let there = |n: usize| format!("move s{n} --to");
    let begun = cells.kill_between("a move from OpenAFS's server", |cells, n| {
        all(&cells.first, &[format!("cellar volume {} {}", there(n), cells.second.address)])?;
        Ok(format!("{} {}", there(n), cells.first.address))
    })?;
    cells.kill_between("a release to OpenAFS's server", |_, n| Ok(format!("release s{n}")))?;
    for n in begun + 1..=cells.volumes {
        let [here, there] = [&cells.first, &cells.second].map(|server| {
            vnodes(&std::fs::read(dumped_from(&cells.first, &format!("s{n}.readonly"), server.address)?)?)
        });
        ensure!(here? == there?, "the read-only copies of s{n} differ");
    }
    Ok(())
}
