//! `--dry-run` of the commands that change a cell: it shows what would be done, fails where the command would
//! fail, and changes nothing.

use crate::support::cell::Cell;
use crate::support::locations::Locations;
use crate::support::place::{Place, address};
use afs_idl::vl;
use cell_client::Interface;
use cellar_server::FaultInjection;
use job_runner::journal::Journal;
use jobs::{Job, Operation, Stage};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

/// A cell with helpers that take command lines.
struct CommandCell(Cell);

impl CommandCell {
    fn start() -> CommandCell {
        let place = Place::new("b = \"vicepb\"\n");
        std::fs::create_dir(place.path("vicepb")).unwrap();
        CommandCell(Cell::start_at(place, &FaultInjection::default()))
    }

    fn jobs(&self) -> PathBuf {
        self.0.settings().jobs_path()
    }

    /// Replaces placeholders in a command with this server's address and the test's directory.
    fn with_places(&self, command: &str) -> String {
        let folder = self.0.folder().to_str().unwrap();
        command.replace("ADDRESS", &self.0.address.to_string()).replace("FOLDER", folder)
    }

    /// Runs the program; arguments contain no spaces.
    fn program(&self, arguments: &str) -> Output {
        self.0.output(&arguments.split_whitespace().collect::<Vec<_>>())
    }

    /// Returns what the command prints.
    fn run(&self, arguments: &str) -> String {
        let output = self.program(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error of a failing command.
    fn refusal(&self, arguments: &str) -> String {
        let output = self.program(arguments);
        assert!(!output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stdout));
        let reported = String::from_utf8(output.stderr).unwrap();
        reported.trim().rsplit(": ").next().unwrap_or_default().to_owned()
    }

    /// Returns everything that the commands could have changed, according to other commands.
    fn state(&self) -> Vec<String> {
        let reported = [
            "volume list --json",
            "volume examine one --json",
            "volume snapshot list one --json",
            "volume snapshot policy one --json",
            "user list --json",
            "group list --json",
            "group examine friends --json",
            "du one --json",
        ];
        let mut reported: Vec<String> = reported.iter().map(|asked| self.run(asked)).collect();
        let caches: Value = serde_json::from_str(&self.run("stat caches --json")).unwrap();
        let purged = caches.as_array().unwrap().iter().map(|row| row["purged"].to_string());
        reported.push(purged.collect::<Vec<_>>().join(" "));
        reported
    }
}

/// Output of each command's dry run.
const PREVIEWS: [(&str, &str); 20] = [
    ("volume create new --quota 70M --acl ann=rl", "with a quota of 70.00 MiB and ann=rl"),
    ("volume set two --quota 2G", "two: would have a quota of 2.00 GiB"),
    ("volume set two --quota 0 --compression raw", "would have no quota; data written from then on would be"),
    ("volume set one --compression zstd:9", "would be stored with zstd:9, deduplication off"),
    ("volume set one --deduplication on", "(default), deduplication on"),
    ("volume forget one", "from the caches of "),
    ("volume remove two", "would remove two: "),
    ("volume mount one/to-two two", "would create the mount point one/to-two to two"),
    ("volume unmount one/to-one", "would remove the mount point one/to-one to one"),
    ("volume snapshot create one later", "would make the snapshot later of one"),
    ("volume snapshot create one tomorrow --expires 1d", "of one, which expires at "),
    ("volume snapshot policy one --daily 3", "0 hourly, 3 daily, 0 weekly, 0 monthly; at present: none"),
    ("volume snapshot mount one/old one early", "one/old to one.snap.early.readonly"),
    ("volume snapshot rollback one early", "one would be in its state of "),
    ("volume snapshot remove one early", "would be removed"),
    ("user create eve --id 4711", "would make the user eve with number 4711"),
    ("group create ann:others --owner ann", "would make the group ann:others of ann"),
    ("group add bob friends", "would put bob into friends"),
    ("group drop ann friends", "would take ann out of friends"),
    ("user remove ann", "would remove ann, which has number "),
];

/// Error of each command's dry run.
const REFUSED: [(&str, &str); 31] = [
    ("volume create one", "a volume one exists already"),
    ("volume create new --partition z", "the server has no partition /vicepz; it has /vicepa"),
    ("volume create new --acl zoe=rl", "there is no user or group zoe"),
    ("volume create new --acl ann", "`ann` is not NAME=RIGHTS, like system:anyuser=rl"),
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
    ("volume mount one.snap.early.readonly/a two", "the volume is read-only [UAEROFS"),
    ("volume unmount one/away", "one/away does not exist"),
    ("volume unmount one/to-one --noauth", ""),
    (
        "volume snapshot create one early",
        "a snapshot with this name exists; choose another name or remove it first",
    ),
    ("volume snapshot create one later --noauth", ""),
    ("volume snapshot policy one --daily 3 --noauth", ""),
    ("volume snapshot mount one/old one later", "there is no such snapshot; one has early"),
    ("volume snapshot remove one early --noauth", ""),
    ("volume snapshot rollback one early --noauth", ""),
    ("user create ann", "a user or group of this name exists already [PREXIST"),
    ("user create eve --id 500", "this number is already in use [PRIDEXIST"),
    ("user create eve --noauth", "[PRPERM"),
    ("user remove zoe", "there is no user or group zoe"),
    ("group create friends", "a user or group of this name exists already [PREXIST"),
    ("group add ann friends", "[PRIDEXIST"),
    ("group drop bob friends", "[PRNOENT"),
];

#[test]
fn a_dry_run_prints_the_effects_and_changes_nothing() {
    let cell = CommandCell::start();
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

    for (command, expected) in PREVIEWS {
        let reported = cell.run(&format!("{command} --dry-run"));
        assert!(reported.contains(expected), "{command}: {reported}");
        let reported: Value =
            serde_json::from_str(&cell.run(&format!("{command} --dry-run --json"))).unwrap();
        assert!(reported.is_object() && reported["is_done"] != true, "{command}: {reported}");
        assert_eq!(cell.state(), state, "{command}");
    }
    for (command, expected) in REFUSED {
        let refused = cell.refusal(&format!("{command} --dry-run"));
        assert!(refused.contains(expected), "{command}: {refused}");
        // Without --dry-run, another server may be the first to reject it, with a code of its own.
        let words = |reported: &str| reported.split(" [").next().unwrap_or_default().to_owned();
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
    // What the dry runs showed can be done.
    for (command, _) in PREVIEWS {
        cell.run(command);
    }
    assert_ne!(cell.state(), state);
}

/// Output of the dry run of each command that is a job, or dumps a volume to a file.
const FORETOLD_JOBS: [(&str, &str); 11] = [
    ("volume copy one copied", "send the clone to copied on ADDRESS /vicepa"),
    ("volume copy one copied.b --to ADDRESS --partition b", "ADDRESS /vicepb has "),
    ("volume release released", "ADDRESS /vicepa gets a clone"),
    ("volume release quiet", "nothing has changed, and all sites have it"),
    ("volume backup one", "one has no backup yet"),
    ("volume backup quiet", "bring quiet.backup on ADDRESS /vicepa up to date"),
    (
        "volume split one/below --to split.off",
        "put a mount point of split.off in the place of cell:one/below",
    ),
    ("volume dump one FOLDER/one.dump", " on ADDRESS /vicepa to FOLDER/one.dump"),
    ("volume restore FOLDER/dump restored", "would make a new volume restored on ADDRESS /vicepa"),
    ("volume restore FOLDER/dump two --overwrite full", "would replace what two on ADDRESS /vicepa has"),
    ("volume move one --to ADDRESS --partition b", "remove one and the clone on ADDRESS /vicepa, and unlock"),
];

/// Error of the dry run of each such command.
const REFUSED_JOBS: [(&str, &str); 27] = [
    ("volume move none --to ADDRESS", "there is no volume none in the location database"),
    ("volume move one --to ADDRESS", "one is on ADDRESS /vicepa already"),
    ("volume move one --to ADDRESS --partition z", "the server has no such partition"),
    ("volume move one --to ADDRESS --partition b --noauth", "you are not authorised for this"),
    ("volume copy none new", "there is no volume none in the location database"),
    ("volume copy one two", "a volume two exists already"),
    ("volume copy one a/b", ""),
    ("volume copy one new --partition z", "the server has no such partition"),
    ("volume copy one new --noauth", "you are not authorised for this"),
    ("volume release one", "one has no read-only sites (`vos addsite` makes them)"),
    ("volume release released --noauth", "you are not authorised for this"),
    ("volume backup none", "there is no volume none in the location database"),
    ("volume backup one --noauth", "you are not authorised for this"),
    ("volume split one/away --to new", "one/away does not exist"),
    ("volume split one/text --to new", "one/text is not a directory"),
    ("volume split one/below --to two", "a volume two exists already"),
    ("volume split one/below --to new --noauth", "you are not authorised for this"),
    ("volume dump none FOLDER/new", "there is no volume none in the location database"),
    ("volume dump one FOLDER/away/new", "No such file or directory (os error 2)"),
    ("volume dump one FOLDER", ""),
    ("volume dump one FOLDER/new --noauth", "you are not authorised for this"),
    ("volume restore FOLDER/away new", "No such file or directory (os error 2)"),
    ("volume restore FOLDER/dump two", "a volume two exists already; --overwrite full replaces its contents"),
    (
        "volume restore FOLDER/dump none --overwrite incremental",
        "there is no volume none to apply changes to",
    ),
    ("volume restore FOLDER/dump new --partition z", "the server has no such partition"),
    ("volume restore FOLDER/dump new --noauth", "you are not authorised for this"),
    ("volume restore FOLDER/dump two --overwrite full --noauth", "you are not authorised for this"),
];

/// Returns the location entries of these tests' volumes.
fn entries(locations: &Locations) -> Vec<vl::NVldbEntry> {
    ["one", "two", "released", "quiet"].map(|volume| locations.entry(volume)).to_vec()
}

/// A cell with volumes that can be moved, copied, released, backed up, split, dumped and restored.
fn cell_with_volumes() -> (CommandCell, Locations) {
    let cell = CommandCell::start();
    let local = cell.0.folder();
    std::fs::create_dir(local.join("below")).unwrap();
    std::fs::write(local.join("below/text"), "below").unwrap();
    std::fs::write(local.join("text"), "text").unwrap();
    for volume in ["one", "two", "released", "quiet"] {
        cell.run(&format!("volume create {volume} --quota 0 --acl system:anyuser=rl"));
    }
    for command in [
        "cp FOLDER/below/ cell:one/below/",
        "cp FOLDER/text cell:one/text",
        "user create ann --id 500",
        "group create friends --owner system:administrators",
        "volume dump one FOLDER/dump",
        "volume backup quiet",
    ] {
        cell.run(&cell.with_places(command));
    }
    let locations = Locations::of(&cell.0);
    locations.set_sites("released", &[cell.0.address]);
    locations.set_sites("quiet", &[cell.0.address]);
    // A clone made within two seconds of a change counts as older.
    std::thread::sleep(Duration::from_secs(4));
    cell.run("volume release quiet");
    (cell, locations)
}

#[test]
fn a_dry_run_of_a_job_reports_the_servers_refusals() {
    let (cell, locations) = cell_with_volumes();
    let everything = || (cell.state(), entries(&locations), files(&cell.jobs()));
    let before = everything();
    for (command, expected) in FORETOLD_JOBS {
        let (command, expected) = (cell.with_places(command), cell.with_places(expected));
        let reported = cell.run(&format!("{command} --dry-run"));
        assert!(reported.contains(&expected), "{command}: {reported}");
        let reported: Value =
            serde_json::from_str(&cell.run(&format!("{command} --dry-run --json"))).unwrap();
        assert_eq!(reported["is_done"], false, "{command}: {reported}");
    }
    assert!(everything() == before, "something was changed");
    for (command, expected) in REFUSED_JOBS {
        let (command, expected) = (cell.with_places(command), cell.with_places(expected));
        let words = |reported: &str| reported.split(" [").next().unwrap_or_default().to_owned();
        let refused = cell.refusal(&format!("{command} --dry-run"));
        assert!(refused.contains(&expected), "{command}: {refused}");
        assert_eq!(words(&cell.refusal(&command)), words(&refused), "{command}");
    }
    let (state, entries, _) = everything();
    assert_eq!((&state, &entries), (&before.0, &before.1), "nothing refused is done");
    for (command, _) in FORETOLD_JOBS {
        cell.run(&cell.with_places(command));
    }
    assert_ne!(cell.state(), state);
}

#[test]
fn a_dry_run_names_locks_and_servers_that_do_not_answer() {
    let (cell, locations) = cell_with_volumes();
    let away = address();
    let moved = cell.refusal(&format!("volume move two --to {away} --partition a --dry-run"));
    assert!(moved.starts_with("the server does not answer"), "{moved}");
    locations.set_sites("released", &[cell.0.address, away]);
    let reported: Value =
        serde_json::from_str(&cell.run("volume release released --dry-run --json")).unwrap();
    let gets = |site: usize| reported["sites"][site]["gets"].clone();
    assert!(gets(0) == "clone" && gets(1)["later"].is_string(), "{reported:#}");
    locations.set_sites("released", &[away]);
    let released = cell.refusal("volume release released --dry-run");
    assert!(released.starts_with("the server does not answer"), "{released}");
    let lock = |operation| {
        let volume_id = locations.entry("two").volume_id[0];
        let request = vl::SetLockRequest { volume_id, volume_type: 0, operation };
        locations.cell.database(Interface::Locations, |way| vl::set_lock(way, &request)).unwrap();
    };
    lock(vl::entry_flags::BACKUP);
    let locked = cell.program(&cell.with_places("volume move two --to ADDRESS --partition b --dry-run"));
    let reported = String::from_utf8_lossy(&locked.stderr).into_owned();
    assert!(!locked.status.success() && reported.contains("which is locked for a backup"), "{reported}");
}

/// Effects of resuming and of cancelling a job at each stage.
const STAGES: [(Stage, &str, &str); 6] = [
    (Stage::Beginning, "begin", "be undone"),
    (Stage::Working, "undo the interrupted work, and start again", "be undone"),
    (Stage::Switching, "be finished", "be finished: it is too late to undo it"),
    (Stage::Cleaning, "be finished: only cleaning up is left", "be finished: it is too late to undo it"),
    (Stage::Undoing, "be undone", "be undone, as it is anyway"),
    (
        Stage::CatchingUp,
        "send to the sites that lack it, as far as they can be reached",
        "end; the sites that lack it will not get it",
    ),
];

/// Returns a job at a stage, as a journal has it: a move, or a release if a move has no such stage.
fn job_at(id: u32, stage: Stage) -> Job {
    let place = jobs::Place { server: Ipv4Addr::LOCALHOST, partition: 0 };
    let to = jobs::Place { partition: 1, ..place };
    let operation = match stage {
        Stage::CatchingUp => Operation::Release(jobs::Release { all: false }),
        _ => Operation::Move(jobs::Move { to }),
    };
    let mut record = serde_json::to_value(Job::new(id, operation, 100, "data", place)).unwrap();
    record["stage"] = stage.name().into();
    if stage == Stage::Switching {
        record["clone"] = 101.into();
        for field in ["clone_begun", "new_begun", "source_off"] {
            record[field] = true.into();
        }
    }
    serde_json::from_value(record).unwrap()
}

/// Returns the files of a journal except the locks, which readers hold briefly.
fn files(journal: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let all = std::fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().path());
    let all = all.filter(|path| path.extension().is_none_or(|ending| ending != "lock"));
    let mut all: Vec<_> = all.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    all.sort();
    all
}

#[test]
fn a_dry_run_of_an_interrupted_job_leaves_it_unchanged() {
    // No server runs here, so these are the user's own jobs.
    let place = Place::new("");
    let path = place.path("cellar/jobs/t.example");
    let journal = Journal::open(path.clone()).unwrap();
    for (stage, ..) in STAGES {
        journal.begin(|id| job_at(id, stage)).unwrap();
    }
    journal.begin(|id| job_at(id, Stage::Done)).unwrap();
    let (running, _claim) = journal.begin(|id| job_at(id, Stage::Working)).unwrap();
    journal.begin(|id| job_at(id, Stage::Working)).unwrap();
    journal.cancel(9).unwrap();
    let before = files(&path);
    let program = |arguments: &str| {
        let asked = format!("volume jobs {arguments} --dry-run");
        let mut command = place.command(&asked.split_whitespace().collect::<Vec<_>>());
        command.env("XDG_STATE_HOME", place.folder()).output().unwrap()
    };
    let would = |arguments: &str| {
        let output = program(&format!("{arguments} --json"));
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        let reported: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        reported
            .iter()
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
    let reported = String::from_utf8(program("cancel 4").stdout).unwrap();
    assert!(reported.contains("move of data from 127.0.0.1 /vicepa to 127.0.0.1 /vicepb"), "{reported}");
    for (arguments, expected) in
        [("resume 7", "the job 7 has ended"), ("cancel 7", "has ended"), ("cancel 10", "no job 10")]
    {
        let refused = program(arguments);
        let reported = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && reported.contains(expected), "{arguments}: {reported}");
    }
    assert_eq!(files(&path), before);
}

#[test]
fn a_dry_run_of_a_servers_job_changes_nothing() {
    let cell = CommandCell::start();
    let journal = Journal::open(cell.jobs()).unwrap();
    // Claimed, so that the server does not take them over.
    let _claim = journal.begin(|id| job_at(id, Stage::Switching)).unwrap();
    journal.begin(|id| job_at(id, Stage::Failed)).unwrap();
    let before = files(&cell.jobs());
    let on = format!("--on {} --dry-run", cell.0.address);
    for (arguments, expected) in [
        ("resume", "wait no longer"),
        ("resume 1", "wait no longer"),
        ("cancel 1", "be finished: it is too late to undo it"),
    ] {
        let reported = cell.run(&format!("volume jobs {arguments} {on}"));
        assert!(reported.contains(expected) && reported.lines().count() == 2, "{arguments}: {reported}");
    }
    for (arguments, expected) in [("resume 2", "the job 2 has ended"), ("cancel 3", "there is no job 3")] {
        assert_eq!(cell.refusal(&format!("volume jobs {arguments} {on}")), expected);
    }
    assert_eq!(files(&cell.jobs()), before);
}
