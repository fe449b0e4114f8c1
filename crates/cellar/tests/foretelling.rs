//! `--dry-run` of the commands that change a cell: it says what would be done and refuses what would be refused, and
//! nothing is changed.

mod support;

use cellar::config;
use cellar::jobs::journal::Journal;
use cellar::serve;
use jobs::{Job, Operation, Place, Stage};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

struct Cell {
    config: PathBuf,
    address: Ipv4Addr,
    jobs: PathBuf,
    // Ends before the folder goes.
    _running: serve::Running,
    _folder: tempfile::TempDir,
}

impl Cell {
    fn start() -> Cell {
        let folder = tempfile::tempdir().unwrap();
        let address = support::address();
        let config = support::configure(folder.path(), address, "").unwrap();
        let settings = Arc::new(config::file::load(&config).unwrap());
        let running = serve::start(&settings).unwrap();
        Cell { config, address, jobs: settings.jobs_path(), _running: running, _folder: folder }
    }

    /// Runs the program; what is asked has no blanks in it.
    fn program(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(arguments.split_whitespace()).arg("--config").arg(&self.config).output().unwrap()
    }

    /// What it prints.
    fn run(&self, arguments: &str) -> String {
        let output = self.program(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Why it refuses.
    fn refusal(&self, arguments: &str) -> String {
        let output = self.program(arguments);
        assert!(!output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stdout));
        let told = String::from_utf8(output.stderr).unwrap();
        told.trim().rsplit(": ").next().unwrap_or_default().to_owned()
    }

    /// Everything that the commands could have changed, as other commands tell it.
    fn state(&self) -> Vec<String> {
        let told = [
            "volume list --json",
            "volume examine one --json",
            "volume snapshot list one --json",
            "volume snapshot policy one --json",
            "user list --json",
            "group list --json",
            "group examine friends --json",
            "du one --json",
        ];
        let mut told: Vec<String> = told.iter().map(|asked| self.run(asked)).collect();
        let caches: Value = serde_json::from_str(&self.run("stat caches --json")).unwrap();
        let purged = caches.as_array().unwrap().iter().map(|row| row["purged"].to_string());
        told.push(purged.collect::<Vec<_>>().join(" "));
        told
    }
}

/// What each of them says, if it is asked for a sentence.
const FORETOLD: [(&str, &str); 20] = [
    ("volume create new --quota 70M --acl ann=rl", "with a quota of 70.00 MiB and ann=rl"),
    ("volume set two --quota 2G", "two: would have a quota of 2.00 GiB"),
    (
        "volume set two --quota 0 --compression raw",
        "would have no quota; what is written from then on would be",
    ),
    ("volume set one --compression zstd:9", "would be stored with zstd:9, deduplication off"),
    ("volume set one --deduplication on", "(default), deduplication on"),
    ("volume forget one", "would throw out of the caches of "),
    ("volume remove two", "would remove two: "),
    ("volume mount one/to-two two", "would make the mount point one/to-two, which leads to two"),
    ("volume unmount one/to-one", "would remove the mount point one/to-one, which leads to one"),
    ("volume snapshot create one later", "would make the snapshot later of one"),
    ("volume snapshot create one tomorrow --expires 1d", "of one, which expires at "),
    ("volume snapshot policy one --daily 3", "0 hourly, 3 daily, 0 weekly, 0 monthly; as it is: none"),
    ("volume snapshot mount one/old one early", "leads to one.snap.early.readonly"),
    ("volume snapshot rollback one early", "one would be what it was at "),
    ("volume snapshot remove one early", "would be removed"),
    ("user create eve --id 4711", "would make the user eve with number 4711"),
    ("group create ann:others --owner ann", "would make the group ann:others of ann"),
    ("group add bob friends", "would put bob into friends"),
    ("group drop ann friends", "would take ann out of friends"),
    ("user remove ann", "would remove ann, which has number "),
];

/// What each of them refuses, and why.
const REFUSED: [(&str, &str); 31] = [
    ("volume create one", "a volume one exists already"),
    ("volume create new --partition z", "the server has no partition /vicepz; it has /vicepa"),
    ("volume create new --acl zoe=rl", "there is no user or group zoe"),
    ("volume create new --acl ann", "`ann` is not WHO=RIGHTS, like system:anyuser=rl"),
    ("volume create new --noauth", "[VL_PERM"),
    ("volume set none --compression lz4", "there is no volume none in the location database"),
    ("volume set one --compression lz4 --noauth", ""),
    ("volume set none --quota 1", "there is no volume none in the location database"),
    ("volume set one --quota 1 --noauth", "you are not authorised for this [VOLSERBAD_ACCESS"),
    ("volume forget none", "there is no volume none in the location database"),
    ("volume forget one --noauth", ""),
    ("volume remove two --noauth", ""),
    ("volume mount one/to-one two", "[UAEEXIST"),
    ("volume mount one/away/there two", "one/away does not exist"),
    ("volume mount one/to-two two --noauth", ""),
    ("volume mount one.snap.early.readonly/a two", "the volume can only be read [UAEROFS"),
    ("volume unmount one/away", "one/away does not exist"),
    ("volume unmount one/to-one --noauth", ""),
    (
        "volume snapshot create one early",
        "there is a snapshot of this name; choose another or remove it first",
    ),
    ("volume snapshot create one later --noauth", ""),
    ("volume snapshot policy one --daily 3 --noauth", ""),
    ("volume snapshot mount one/old one later", "there is no such snapshot; one has early"),
    ("volume snapshot remove one early --noauth", ""),
    ("volume snapshot rollback one early --noauth", ""),
    ("user create ann", "a user or group of this name exists already [PREXIST"),
    ("user create eve --id 500", "this number belongs to somebody already [PRIDEXIST"),
    ("user create eve --noauth", "[PRPERM"),
    ("user remove zoe", "there is no user or group zoe"),
    ("group create friends", "a user or group of this name exists already [PREXIST"),
    ("group add ann friends", "[PRIDEXIST"),
    ("group drop bob friends", "[PRNOENT"),
];

#[test]
fn a_dry_run_tells_what_the_command_would_do_and_changes_nothing() {
    let cell = Cell::start();
    for command in [
        "volume create one --quota 0 --acl system:anyuser=rl",
        "volume create two --quota 0",
        "volume mount one/to-one one",
        "volume snapshot create one early",
        "user create ann --id 500",
        "user create bob",
        "group create friends --owner system:administrators",
        "group add ann friends",
    ] {
        cell.run(command);
    }
    let number = |made: &str| serde_json::from_str::<Value>(made).unwrap()["id"].as_u64().unwrap();
    let before = number(&cell.run("volume create three --json"));
    let state = cell.state();

    for (command, expected) in FORETOLD {
        let told = cell.run(&format!("{command} --dry-run"));
        assert!(told.contains(expected), "{command}: {told}");
        let told: Value = serde_json::from_str(&cell.run(&format!("{command} --dry-run --json"))).unwrap();
        assert!(told.is_object() && told["is_done"] != true, "{command}: {told}");
        assert_eq!(cell.state(), state, "{command}");
    }
    for (command, expected) in REFUSED {
        let refused = cell.refusal(&format!("{command} --dry-run"));
        assert!(refused.contains(expected), "{command}: {refused}");
        // Another server may be the one that refuses it first, with a code of its own.
        let words = |told: &str| told.split(" [").next().unwrap_or_default().to_owned();
        let really = cell.refusal(command);
        assert_eq!(
            words(&really),
            words(&refused),
            "{command}: {really} without --dry-run, {refused} with it"
        );
    }
    assert_eq!(cell.state(), state, "nothing refused is done");
    let after = number(&cell.run("volume create four --json"));
    assert_eq!(after, before + 3, "no number was taken by what was not made");
    // What was foretold can be done.
    for (command, _) in FORETOLD {
        cell.run(command);
    }
    assert_ne!(cell.state(), state);
}

/// What each stage has before it, if the job is let go on and if it is cancelled.
const STAGES: [(Stage, &str, &str); 6] = [
    (Stage::Beginning, "begin", "be undone"),
    (Stage::Working, "clear away what was begun, and begin anew", "be undone"),
    (Stage::Switching, "be finished", "be finished: it is too late to undo it"),
    (Stage::Cleaning, "be finished: only clearing away is left", "be finished: it is too late to undo it"),
    (Stage::Undoing, "be undone", "be undone, as it is anyway"),
    (
        Stage::CatchingUp,
        "send to the sites that lack it, as far as they can be reached",
        "end; the sites that lack it do not get it",
    ),
];

fn a_move(id: u32, stage: Stage) -> Job {
    let place = Place { server: Ipv4Addr::LOCALHOST, partition: 0 };
    let to = Place { partition: 1, ..place };
    let mut job = Job::new(id, Operation::Move { to }, 100, "data", place);
    job.stage = stage;
    job
}

/// The files of a journal but the locks, which whoever looks takes for a moment.
fn files(journal: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let all = std::fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().path());
    let all = all.filter(|path| path.extension().is_none_or(|ending| ending != "lock"));
    let mut all: Vec<_> = all.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    all.sort();
    all
}

#[test]
fn a_dry_run_tells_how_an_interrupted_job_would_end_and_leaves_it() {
    let folder = tempfile::tempdir().unwrap();
    // No server runs here, so the jobs are the person's own.
    let config = support::configure(folder.path(), support::address(), "").unwrap();
    let path = folder.path().join("cellar/jobs/t.example");
    let journal = Journal::open(path.clone()).unwrap();
    for (stage, ..) in STAGES {
        journal.begin(|id| a_move(id, stage)).unwrap();
    }
    journal.begin(|id| a_move(id, Stage::Done)).unwrap();
    let (running, _claim) = journal.begin(|id| a_move(id, Stage::Working)).unwrap();
    journal.begin(|id| a_move(id, Stage::Working)).unwrap();
    journal.cancel(9).unwrap();
    let before = files(&path);
    let program = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["volume", "jobs"]).args(arguments.split_whitespace()).arg("--dry-run");
        command.arg("--config").arg(&config).env("XDG_STATE_HOME", folder.path());
        command.output().unwrap()
    };
    let would = |arguments: &str| {
        let output = program(&format!("{arguments} --json"));
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        let told: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        told.iter()
            .map(|job| (job["job"].as_u64().unwrap(), job["would"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    let mut interrupted: Vec<(u64, String)> = Vec::new();
    for (job, (_, resumed, cancelled)) in (1..).zip(STAGES) {
        assert_eq!(would(&format!("resume {job}")), [(job, resumed.to_owned())]);
        assert_eq!(would(&format!("cancel {job}")), [(job, cancelled.to_owned())]);
        interrupted.push((job, resumed.to_owned()));
    }
    interrupted.push((9, "be undone".to_owned()));
    assert_eq!(would("resume"), interrupted, "none that is over or that somebody runs");
    assert_eq!(would(&format!("resume {}", running.id)), [(8, "wait no longer".to_owned())]);
    assert_eq!(would("cancel 8"), [(8, "be undone".to_owned())]);
    let told = String::from_utf8(program("cancel 4").stdout).unwrap();
    assert!(told.contains("move of data from 127.0.0.1 /vicepa to 127.0.0.1 /vicepb"), "{told}");
    for (arguments, expected) in
        [("resume 7", "the job 7 is over"), ("cancel 7", "is over"), ("cancel 10", "no job 10")]
    {
        let refused = program(arguments);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains(expected), "{arguments}: {told}");
    }
    assert_eq!(files(&path), before);
}

#[test]
fn a_dry_run_tells_how_the_job_of_a_server_would_end_and_asks_it_for_nothing() {
    let cell = Cell::start();
    let journal = Journal::open(cell.jobs.clone()).unwrap();
    // Held, so that the server does not take them over.
    let _claim = journal.begin(|id| a_move(id, Stage::Switching)).unwrap();
    journal.begin(|id| a_move(id, Stage::Failed)).unwrap();
    let before = files(&cell.jobs);
    let on = format!("--on {} --dry-run", cell.address);
    for (arguments, expected) in [
        ("resume", "wait no longer"),
        ("resume 1", "wait no longer"),
        ("cancel 1", "be finished: it is too late to undo it"),
    ] {
        let told = cell.run(&format!("volume jobs {arguments} {on}"));
        assert!(told.contains(expected) && told.lines().count() == 2, "{arguments}: {told}");
    }
    for (arguments, expected) in [("resume 2", "the job 2 is over"), ("cancel 3", "there is no job 3")] {
        assert_eq!(cell.refusal(&format!("volume jobs {arguments} {on}")), expected);
    }
    assert_eq!(files(&cell.jobs), before);
}
