//! `--dry-run` of volume jobs, in an OpenAFS cell with a Cellar file server: a dry run changes nothing, and
//! predicts what the job then does.

use crate::Test;
use crate::tests::joining::{Pair, nothing_is_left_on};
use crate::tests::mixed::copy;
use crate::tests::{own_file, wait_for};
use anyhow::{Context, Result, ensure};
use interop::cell::{Output, Server, cellar_program};
use interop::means::Means;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "joining-foretold", needs: &[Means::Netns], run: expect_preview }]
}

/// A job, and the expected output of its dry run. `OPENAFS` and `CELLAR` are the servers' addresses, `FOLDER`
/// is a folder.
type ExpectedOutput = (&'static str, &'static str);

/// Commands that set up an obstacle, the jobs that are rejected because of it (run concurrently), and
/// commands that remove the obstacle.
struct Obstacle {
    put: &'static [&'static str],
    refused: &'static [ExpectedOutput],
    away: &'static [&'static str],
}

const OBSTACLES: &[Obstacle] = &[
    Obstacle {
        put: &[],
        refused: &[
            ("move theirs --to OPENAFS", "theirs is on OPENAFS /vicepa already"),
            ("move theirs --to OPENAFS --partition z", "the server has no such partition"),
            ("move theirs --to CELLAR --partition z", "the server has no such partition"),
            ("move ours --to OPENAFS --partition z", "the server has no such partition"),
            ("move theirs --to CELLAR --noauth", "you are not authorised for this"),
            ("copy theirs ours", "a volume ours exists already"),
            ("copy theirs new --to CELLAR --partition z", "the server has no such partition"),
            ("copy ours new --to OPENAFS --partition z", "the server has no such partition"),
            ("copy theirs new --noauth", "you are not authorised for this"),
            ("release gone.1", "gone.1 has no read-only sites"),
            ("release theirs --noauth", "you are not authorised for this"),
            ("backup theirs --noauth", "you are not authorised for this"),
            ("split theirs/first --to new", "OPENAFS is not a Cellar server"),
            ("split ours/first --to theirs", "a volume theirs exists already"),
            ("split ours/first --to new --noauth", "you are not authorised for this"),
            ("dump theirs FOLDER/new --noauth", "you are not authorised for this"),
            ("restore FOLDER/dump theirs", "a volume theirs exists already"),
            ("restore FOLDER/dump new --on OPENAFS --partition z", "the server has no such partition"),
            ("restore FOLDER/dump new --on OPENAFS --noauth", "you are not authorised for this"),
            ("restore FOLDER/dump theirs --overwrite full --noauth", "you are not authorised for this"),
            ("restore FOLDER/dump theirs --overwrite incremental", "it is a full dump"),
        ],
        away: &[],
    },
    // A locked entry, a volume that is offline, and one that does not exist.
    Obstacle {
        put: &[
            "vos lock theirs",
            "vos addsite CELLAR a off.3",
            "vos offline OPENAFS a off.1",
            "vos offline OPENAFS a off.2",
            "vos offline OPENAFS a off.3",
            "vos offline OPENAFS a off.4",
            "vos offline CELLAR a ours",
            "vos addsite OPENAFS a gone.3",
            "vos zap OPENAFS a gone.1",
            "vos zap OPENAFS a gone.2",
            "vos zap OPENAFS a gone.3",
            "vos zap OPENAFS a gone.4",
        ],
        refused: &[
            ("move theirs --to CELLAR", "which is locked for a delete"),
            ("release theirs", "which is locked for a delete"),
            ("backup theirs", "which is locked for a delete"),
            ("restore FOLDER/dump theirs --overwrite full", "which is locked for a delete"),
            ("move off.1 --to CELLAR", "the volume is offline"),
            ("copy off.2 new --to CELLAR", "the volume is offline"),
            ("release off.3", "the volume is offline"),
            ("backup off.4", "the volume is offline"),
            ("copy ours new.ours --to OPENAFS", "the volume is offline"),
            ("release ours", "the volume is offline"),
            ("move gone.1 --to CELLAR", "the server has no such volume"),
            ("copy gone.2 new.gone", "the server has no such volume"),
            ("release gone.3", "the server has no such volume"),
            ("backup gone.4", "the server has no such volume"),
            ("dump gone.1 FOLDER/new", "the server has no such volume"),
            ("restore FOLDER/dump gone.1 --overwrite full", "the server has no such volume"),
        ],
        away: &[
            "vos unlock theirs",
            "vos online OPENAFS a off.1",
            "vos online OPENAFS a off.2",
            "vos online OPENAFS a off.3",
            "vos online OPENAFS a off.4",
            "vos online CELLAR a ours",
        ],
    },
    Obstacle {
        put: &["vos shadow theirs OPENAFS a CELLAR a", "vos shadow ours CELLAR a OPENAFS b"],
        refused: &[
            ("move theirs --to CELLAR", "the server has a volume of this number already"),
            ("move ours --to OPENAFS --partition b", "the server has a volume of this number already"),
        ],
        away: &["vos zap CELLAR a theirs", "vos zap OPENAFS b ours"],
    },
    Obstacle {
        put: &["mount -t tmpfs -o size=100k tmpfs /vicepb"],
        refused: &[
            ("move theirs --to OPENAFS --partition b", "OPENAFS /vicepb has 100.0 KiB free, and theirs has"),
            ("copy theirs new --partition b", "OPENAFS /vicepb has 100.0 KiB free, and theirs has"),
            ("move ours --to OPENAFS --partition b", "OPENAFS /vicepb has 100.0 KiB free, and ours has"),
            ("copy ours new --to OPENAFS --partition b", "OPENAFS /vicepb has 100.0 KiB free, and ours has"),
        ],
        away: &["umount /vicepb"],
    },
];

/// Jobs that succeed as predicted, one after the other.
const DONE: &[ExpectedOutput] = &[
    ("backup theirs", "clone theirs on OPENAFS /vicepa as theirs.backup"),
    ("backup theirs", "bring theirs.backup on OPENAFS /vicepa up to date"),
    ("release theirs", "send everything to CELLAR /vicepa"),
    ("release ours", "send everything to OPENAFS /vicepa"),
    ("copy theirs copied --to CELLAR", "send the clone to copied on CELLAR /vicepa"),
    ("copy theirs copied.b --partition b", "send the clone to copied.b on OPENAFS /vicepb"),
    ("copy ours copied.c --to OPENAFS --partition b", "send the clone to copied.c on OPENAFS /vicepb"),
    ("dump theirs FOLDER/theirs", " on OPENAFS /vicepa to FOLDER/theirs"),
    ("restore FOLDER/dump new --on OPENAFS --partition b", "would make a new volume new on OPENAFS /vicepb"),
    ("release theirs", "nothing has changed, and all sites have it"),
    ("release ours", "nothing has changed, and all sites have it"),
    ("restore FOLDER/dump theirs --overwrite full", "would replace what theirs on OPENAFS /vicepa has"),
    ("release theirs", "CELLAR /vicepa gets everything"),
    ("split ours/first --to split", "put a mount point of split in the place of cell:ours/first"),
    ("release ours", "OPENAFS /vicepa gets what changed since"),
    ("move theirs --to CELLAR", "remove theirs, its backup and the clone on OPENAFS /vicepa"),
    ("move theirs --to OPENAFS", "into service on OPENAFS /vicepa"),
    ("move theirs --to OPENAFS --partition b", "take theirs into service there"),
    ("move ours --to OPENAFS --partition b", "into service on OPENAFS /vicepb"),
];

/// Time limit for an operation to start.
const LIMIT: Duration = Duration::from_secs(60);

fn expect_preview() -> Result<()> {
    let mut asking = Asking::start()?;
    for Obstacle { put, refused, away } in OBSTACLES {
        asking.all(put)?;
        asking.are_refused(refused).with_context(|| put.join(", "))?;
        asking.all(away)?;
    }
    asking.full_partition()?;
    asking.unchanged(|| {
        let all = together(DONE, |(job, _)| asking.run(&format!("{job} --dry-run")));
        all.into_iter().try_for_each(|asked| asked.map(drop))
    })?;
    for (job, expected) in DONE {
        asking.tells(job, true, expected)?;
        asking.run(job)?.ok().with_context(|| format!("{job}, which was foretold to be done"))?;
    }
    asking.busy_volume()?;
    asking.server_away()?;
    let pair = &asking.pair;
    nothing_is_left_on(&pair.openafs, &[&pair.openafs, &pair.cellar])
}

/// A cell with OpenAFS's server, which has two partitions, and Cellar's.
struct Asking {
    pair: Pair,
    folder: PathBuf,
}

impl Asking {
    /// Creates the volumes `theirs` and `ours` on OpenAFS's and Cellar's server, with sites on both, and
    /// volumes to take offline or remove.
    fn start() -> Result<Asking> {
        let pair = Pair::start_with(&["-p", "2"])?;
        let folder = pair.openafs.scratch()?;
        pair.openafs.open_volume(Server::OpenAfs, "theirs")?;
        let asking = Asking { pair, folder };
        asking.run("create ours --on CELLAR --quota 0 --acl system:anyuser=rl")?.ok()?;
        for number in 1..=4 {
            asking.all(&[
                &format!("vos create OPENAFS a off.{number}"),
                &format!("vos create OPENAFS a gone.{number}"),
            ])?;
        }
        for volume in ["theirs", "ours"] {
            copy(&asking.pair.openafs, &format!("{}/ cell:{volume}/first/", own_file("src").display()))?;
            asking.all(&[
                &format!("vos addsite OPENAFS a {volume}"),
                &format!("vos addsite CELLAR a {volume}"),
            ])?;
        }
        asking.all(&["vos dump theirs -file FOLDER/dump"])?;
        Ok(asking)
    }

    fn filled(&self, text: &str) -> String {
        let Pair { openafs, cellar } = &self.pair;
        let folder = self.folder.display().to_string();
        text.replace("OPENAFS", openafs.address).replace("CELLAR", cellar.address).replace("FOLDER", &folder)
    }

    fn all(&self, commands: &[&str]) -> Result<()> {
        let filled: Vec<String> = commands.iter().map(|command| self.filled(command)).collect();
        self.pair.all(&filled.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs `cellar volume` on OpenAFS's host, with a separate journal.
    fn run(&self, job: &str) -> Result<Output> {
        let (folder, program) = (self.folder.display(), cellar_program()?);
        let command = format!("env XDG_STATE_HOME={folder} {} volume {job}", program.display());
        self.pair.openafs.run(&self.filled(&command))
    }

    /// Returns the output of a dry run, which must succeed if `is_done`, and otherwise fail.
    fn ask(&self, job: &str, is_done: bool) -> Result<String> {
        let asked = self.run(&format!("{job} --dry-run"))?;
        ensure!(
            (asked.status == 0) == is_done,
            "{job} --dry-run: exit status {}: {}",
            asked.status,
            asked.text
        );
        Ok(asked.text)
    }

    /// Checks that `ask` changes nothing.
    fn unchanged<T>(&self, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.state()?;
        let reported = ask()?;
        let after = self.state()?;
        let came: Vec<&str> = after.lines().filter(|line| !before.contains(line)).collect();
        ensure!(before == after, "asking changed\n{before}\nto what has {came:#?}");
        Ok(reported)
    }

    /// Returns the contents of the location database and of both servers, and their open transactions.
    fn state(&self) -> Result<String> {
        let (theirs, ours) = (self.pair.openafs.address, self.pair.cellar.address);
        // Access counts are left out, since a lookup of a directory is an access.
        let script = format!(
            "vos listvldb -localauth; for server in {theirs} {ours}; do \
             vos listvol $server -long -localauth | grep -v 'accesses in the past day\\|Last Access'; \
             vos status $server -localauth; done; find {} ! -name '*.lock' -path '*jobs*'",
            self.folder.display()
        );
        // The transaction of a job that has just ended may still be there, and end in between.
        let mut state = self.pair.openafs.shell(&script)?.ok()?;
        for _ in 0..60 {
            thread::sleep(Duration::from_millis(500));
            let last = std::mem::replace(&mut state, self.pair.openafs.shell(&script)?.ok()?);
            // A dump in progress is that of a busy volume.
            let is_quiet =
                state.matches("No active transactions").count() == 2 || state.contains("procedure: Dump");
            if last == state && is_quiet {
                break;
            }
        }
        Ok(state)
    }

    /// Checks that a dry run prints the expected text for a job that would succeed, or not.
    fn tells(&self, job: &str, is_done: bool, expected: &str) -> Result<String> {
        let (reported, expected) = (self.ask(job, is_done)?, self.filled(expected));
        ensure!(reported.contains(&expected), "{job} --dry-run: {reported}");
        Ok(reported)
    }

    /// Checks that dry runs reject these jobs for the same reason as the jobs themselves.
    fn are_refused(&self, jobs: &[ExpectedOutput]) -> Result<()> {
        let ask = || together(jobs, |(job, expected)| self.tells(job, false, expected)).into_iter().collect();
        let expect_preview: Vec<String> = self.unchanged(ask)?;
        // In parallel, since some jobs wait before they give up.
        let ended = together(jobs, |(job, _)| self.run(job));
        for (((job, _), expect_preview), ended) in jobs.iter().zip(expect_preview).zip(ended) {
            let ended = ended?;
            ensure!(
                ended.status != 0 && why(&ended.text) == why(&expect_preview),
                "{job}: {}, expected {expect_preview}",
                ended.text
            );
        }
        Ok(())
    }

    /// A dump that seems too large only causes a warning. OpenAFS's server then reports that the dump is
    /// damaged.
    fn full_partition(&self) -> Result<()> {
        self.all(&["mount -t tmpfs -o size=100k tmpfs /vicepb"])?;
        let job = "restore FOLDER/dump new --on OPENAFS --partition b";
        self.tells(job, true, "but OPENAFS /vicepb has 100.00 KiB free, and the dump ")?;
        let refused = self.run(job)?;
        let expected = self.filled("the dump is sound, but OPENAFS /vicepb has ");
        ensure!(refused.status != 0 && refused.text.contains(&expected), "{job}: {}", refused.text);
        self.all(&["umount /vicepb"])
    }

    /// While a slow client dumps a volume, another dump is rejected, and a job waits.
    fn busy_volume(&self) -> Result<()> {
        let (folder, host) = (self.folder.display(), &self.pair.openafs);
        // More than the buffers hold between server and client.
        host.shell(&format!("head -c 4M /dev/zero > {folder}/zeros"))?.ok()?;
        copy(host, &format!("{folder}/zeros cell:theirs/zeros"))?;
        let wait = format!("until [ -e {folder}/go ]; do sleep 0.1; done; cat > /dev/null");
        let dumped = format!("vos dump theirs -localauth | ({wait})");
        std::thread::scope(|scope| {
            let dumping = scope.spawn(|| host.shell(&dumped)?.ok());
            let reported = self.of_busy_volume();
            let job = scope.spawn(|| self.run("backup theirs"));
            let waiting = wait_for(LIMIT, || Ok(self.run("jobs list --json")?.ok()?.contains("\"working\"")));
            std::fs::write(self.folder.join("go"), "")?;
            dumping.join().expect("no panic")?;
            job.join().expect("no panic")?.ok().context("a backup of what was busy")?;
            reported.and(waiting)
        })
    }

    fn of_busy_volume(&self) -> Result<()> {
        let status = self.filled("vos status OPENAFS -localauth");
        wait_for(LIMIT, || Ok(self.pair.openafs.run(&status)?.ok()?.contains("Dump")))?;
        self.unchanged(|| {
            self.tells("backup theirs", true, "another operation has the volume")?;
            self.tells("move theirs --to CELLAR", true, "it is waited for")
        })?;
        self.are_refused(&[("dump theirs FOLDER/busy", "another operation has the volume")])
    }

    /// One of the servers is down. Only a release waits for it.
    fn server_away(&mut self) -> Result<()> {
        self.pair.cellar.end_cellar("TERM")?;
        // In parallel, since a call to a server that does not answer takes some seconds to time out.
        let asked = [
            ("move theirs --to CELLAR --partition a", false, "the server does not answer"),
            ("copy theirs new.2 --to CELLAR --partition a", false, "the server does not answer"),
            ("release theirs", true, "CELLAR /vicepa gets it later"),
        ];
        let reported = together(&asked, |(job, is_done, expected)| self.tells(job, *is_done, expected));
        reported.into_iter().try_for_each(|reported| reported.map(drop))?;
        let waits = self.run("release theirs")?;
        ensure!(waits.status != 0 && waits.text.contains("did not reach all sites"), "{}", waits.text);
        self.pair.cellar.start_cellar()?;
        self.run("jobs resume")?.ok().map(drop)
    }
}

/// Runs `work` for all elements concurrently.
fn together<A: Sync, T: Send>(each: &[A], work: impl Fn(&A) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = each.iter().map(|one| scope.spawn(move || work(one))).collect();
        running.into_iter().map(|it| it.join().expect("no panic")).collect()
    })
}

/// Extracts the reason from a message.
fn why(reported: &str) -> &str {
    let reason = reported.trim().rsplit(": ").next().unwrap_or_default();
    reason.split(" [").next().unwrap_or_default()
}
