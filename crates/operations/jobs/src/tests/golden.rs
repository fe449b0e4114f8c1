//! Journals of an earlier version: `golden.jsonl` has one job a line, one for each combination of operation,
//! stage and further fields that simulated histories of that version recorded. Each must load, keep its
//! contents, and run to its end in a cell that is as the job may have left it.

use super::history::{History, Open, State, VOLUME, Volume, place, restored_files};
use crate::{Job, Place};
use afs_idl::vl::{NVldbEntry, entry_flags, site_flags};
use afs_idl::vol::{attach_mode, volume_type};
use serde_json::Value;
use std::panic::catch_unwind;

const GOLDEN: &str = include_str!("golden.jsonl");

/// Cells in which each job is resumed; they differ in which servers are Cellar's.
const CELLS: u64 = 8;

/// Next id that the location servers allocate, above those in the journals.
const NEXT_VOLUME: u32 = 5000;

/// A recorded job.
struct Recorded {
    json: Value,
}

impl Recorded {
    fn all() -> impl Iterator<Item = Recorded> {
        GOLDEN.lines().map(|line| Recorded { json: serde_json::from_str(line).unwrap() })
    }

    fn job(&self) -> Job {
        serde_json::from_value(self.json.clone()).unwrap_or_else(|error| panic!("{error}: {}", self.json))
    }

    fn stage(&self) -> &str {
        self.json["stage"].as_str().unwrap()
    }

    /// Returns the name and the parameters of the operation.
    fn operation(&self) -> (&str, &Value) {
        match &self.json["operation"] {
            Value::Object(operation) => {
                operation.iter().next().map(|(name, value)| (name.as_str(), value)).unwrap()
            }
            name => (name.as_str().unwrap(), &Value::Null),
        }
    }

    fn is(&self, field: &str) -> bool {
        self.json[field].as_bool().unwrap()
    }

    fn number(&self, field: &str) -> u32 {
        serde_json::from_value(self.json[field].clone()).unwrap()
    }

    /// Returns the destination.
    fn to(&self) -> Place {
        let (_, parameters) = self.operation();
        parameters.get("to").map_or(place(1), |to| serde_json::from_value(to.clone()).unwrap())
    }

    fn is_read_only(&self) -> bool {
        self.operation().1["readonly"] == true
    }

    /// Returns whether the stage is one after the switch.
    fn has_switched(&self) -> bool {
        matches!(self.stage(), "cleaning" | "catching_up" | "done")
    }

    fn lock_flag(&self) -> i32 {
        match self.operation().0 {
            "move" => entry_flags::MOVE,
            "backup" => entry_flags::BACKUP,
            "overwrite" => entry_flags::DUMP,
            _ => entry_flags::RELEASE,
        }
    }

    /// Returns the fields without those that nothing reads at this stage.
    fn live_fields(&self) -> Value {
        let mut json = self.json.clone();
        let operation = self.operation().0;
        let dead: &[&str] = match self.stage() {
            "done" | "failed" => &["clone", "new_begun", "source_off", "switch_asked", "source_gone"],
            "cleaning" | "catching_up" => &["new_begun", "source_off", "switch_asked"],
            _ => &[],
        };
        for field in dead {
            let says_overwritten = operation == "overwrite" && *field == "new_begun";
            if !says_overwritten {
                json[*field] = Value::Null;
            }
        }
        json
    }
}

/// Adds a volume with the contents of the source, or of the dump.
fn add(state: &mut State, at: Place, id: u32, volume: Volume) {
    let volume = Volume { partition: at.partition, ..volume };
    state.hosts.get_mut(&at.server).unwrap().volumes.insert((id, at.partition), volume);
}

/// Brings the cell to a state in which the job may have left it.
fn arrange(recorded: &Recorded, state: &mut State) {
    state.next_volume = NEXT_VOLUME;
    state.now = 10_000;
    let first = state.hosts.get_mut(&place(1).server).unwrap();
    let source = first.volumes.get_mut(&(VOLUME, 0)).unwrap();
    source.family = [VOLUME + 1, VOLUME + 2];
    let source = source.clone();
    let from: Place = serde_json::from_value(recorded.json["from"].clone()).unwrap();
    if recorded.is("clone_begun") {
        let clone =
            Volume { kind: volume_type::READ_ONLY, in_service: false, is_doomed: true, ..source.clone() };
        add(state, from, recorded.number("clone"), clone);
    }
    match recorded.operation().0 {
        "move" => arrange_move(recorded, state, &source),
        "copy" | "restore" | "split" => arrange_new(recorded, state, &source),
        "backup" => arrange_backup(recorded, state, &source),
        "overwrite" => arrange_overwritten(recorded, state),
        _ => arrange_released(recorded, state, &source),
    }
    let entry = state.entries.get_mut(&recorded.number("volume"));
    if let Some(entry) = entry.filter(|_| recorded.json["lock"] == "held") {
        entry.flags |= recorded.lock_flag();
    }
    for open in recorded.json["transactions"].as_array().unwrap() {
        let number = |field: &str| i32::try_from(open[field].as_i64().unwrap()).unwrap();
        let (id, volume, partition) = (number("id"), number("volume") as u32, number("partition"));
        let server = serde_json::from_value(open["server"].clone()).unwrap();
        let host = state.hosts.get_mut(&server).unwrap();
        if host.volumes.contains_key(&(volume, partition)) {
            let (attach, used) = (attach_mode::OFFLINE, state.now);
            host.open.insert(id, Open { volume, partition, attach, used, has_moved: false });
            host.next = host.next.max(id);
        }
    }
}

fn arrange_move(recorded: &Recorded, state: &mut State, source: &Volume) {
    let (to, is_off) = (recorded.to(), recorded.is("source_off"));
    let is_within = to.server == place(1).server;
    if recorded.is("new_begun") {
        let new = Volume { in_service: is_off && !is_within, is_doomed: !is_off, ..source.clone() };
        add(state, to, VOLUME, new);
    }
    let first = state.hosts.get_mut(&place(1).server).unwrap();
    first.volumes.get_mut(&(VOLUME, 0)).unwrap().in_service = !is_off;
    if recorded.is("source_gone") {
        first.volumes.remove(&(VOLUME, 0));
        first.volumes.remove(&(VOLUME + 2, 0));
        if let Some(new) = first.volumes.get_mut(&(VOLUME, to.partition)) {
            new.in_service = true;
        }
    }
    if recorded.has_switched() {
        let entry = state.entries.get_mut(&VOLUME).unwrap();
        (entry.server_number[0], entry.server_partition[0]) = (to.server.into(), to.partition);
        entry.flags &= !entry_flags::BACKUP_EXISTS;
    }
}

/// Arranges a copy, a restore or a split: a new volume with an entry of its own.
fn arrange_new(recorded: &Recorded, state: &mut State, source: &Volume) {
    let (operation, id, to) = (recorded.operation().0, recorded.number("new_volume"), recorded.to());
    if !recorded.is("new_begun") && !recorded.has_switched() {
        return;
    }
    let is_complete = recorded.stage() == "switching" || recorded.has_switched();
    let is_offline = recorded.operation().1["offline"] == true;
    let mut new =
        Volume { in_service: is_complete && !is_offline, is_doomed: !is_complete, ..source.clone() };
    if operation == "restore" {
        (new.files, new.created) = (restored_files(), 1);
    }
    if operation == "split" && recorded.has_switched() {
        new.is_split_off = true;
        let volumes = &mut state.hosts.get_mut(&to.server).unwrap().volumes;
        volumes.get_mut(&(VOLUME, 0)).unwrap().split_off = 1;
    }
    let mut entry = NVldbEntry {
        name: "new".into(),
        server_count: 1,
        volume_id: [id, id + 1, id + 2],
        flags: entry_flags::READ_WRITE_EXISTS,
        ..NVldbEntry::default()
    };
    (entry.server_number[0], entry.server_partition[0]) = (to.server.into(), to.partition);
    entry.server_flags[0] = site_flags::READ_WRITE;
    if recorded.is_read_only() {
        (entry.flags, entry.server_flags[0]) = (entry_flags::READ_ONLY_EXISTS, site_flags::READ_ONLY);
        new.kind = volume_type::READ_ONLY;
        let also: Vec<Place> = serde_json::from_value(recorded.operation().1["also"].clone()).unwrap();
        for (site, place) in (1..).zip(also) {
            (entry.server_number[site], entry.server_partition[site]) =
                (place.server.into(), place.partition);
            entry.server_flags[site] = site_flags::READ_ONLY;
            entry.server_count += 1;
            if recorded.stage() == "catching_up" {
                entry.server_flags[site] |= site_flags::DO_NOT_USE;
                entry.server_flags[0] |= site_flags::NEW_REPLICA;
            } else if recorded.has_switched() {
                add(state, place, id + 1, new.clone());
            }
        }
    }
    add(state, to, id + u32::from(recorded.is_read_only()), new);
    if recorded.has_switched() || operation == "split" {
        state.entries.insert(id, entry);
    }
}

fn arrange_backup(recorded: &Recorded, state: &mut State, source: &Volume) {
    let is_done = recorded.has_switched();
    if recorded.is("new_begun") || is_done {
        let backup =
            Volume { kind: volume_type::BACKUP, in_service: is_done, is_doomed: !is_done, ..source.clone() };
        add(state, place(1), VOLUME + 2, backup);
        let entry = state.entries.get_mut(&VOLUME).unwrap();
        entry.flags &= !entry_flags::BACKUP_EXISTS;
        entry.flags |= if is_done { entry_flags::BACKUP_EXISTS } else { 0 };
    }
}

/// Gives the volume that was overwritten the contents of the dump.
fn arrange_overwritten(recorded: &Recorded, state: &mut State) {
    if recorded.stage() != "switching" && !recorded.has_switched() {
        return;
    }
    state.acknowledged.clear();
    let id = if recorded.is_read_only() { recorded.number("new_volume") } else { VOLUME };
    let first = place(1).server;
    let restored = state.hosts.get_mut(&first).unwrap().volumes.get_mut(&(id, 0)).unwrap();
    (restored.files, restored.created) = (restored_files(), 1000);
    restored.in_service = recorded.operation().1["offline"] != true;
    let restored = restored.clone();
    if let Some(entry) = state.entries.get_mut(&recorded.number("volume")).filter(|_| recorded.is_read_only())
    {
        let sites = 1..usize::try_from(entry.server_count).unwrap();
        if recorded.stage() == "catching_up" && !sites.is_empty() {
            entry.server_flags[0] |= site_flags::NEW_REPLICA;
            sites.for_each(|site| entry.server_flags[site] |= site_flags::DO_NOT_USE);
        } else if recorded.has_switched() {
            for host in state.hosts.values_mut().filter(|host| host.volumes.contains_key(&(id, 0))) {
                host.volumes.insert((id, 0), restored.clone());
            }
        }
    }
}

/// Gives all sites the release, or only the first if the others are to get it later.
fn arrange_released(recorded: &Recorded, state: &mut State, source: &Volume) {
    if !recorded.has_switched() {
        return;
    }
    let mut entry = state.entries[&VOLUME].clone();
    let is_partial = recorded.stage() == "catching_up";
    for site in 1..usize::try_from(entry.server_count).unwrap() {
        if is_partial && site > 1 {
            entry.server_flags[site] |= site_flags::DO_NOT_USE;
            continue;
        }
        entry.server_flags[site] |= if is_partial { site_flags::NEW_REPLICA } else { 0 };
        let released = Volume { kind: volume_type::READ_ONLY, ..source.clone() };
        let at = Place { server: entry.server_number[site].into(), partition: entry.server_partition[site] };
        add(state, at, VOLUME + 1, released);
    }
    state.entries.insert(VOLUME, entry);
}

#[test]
fn journals_of_an_earlier_version_load_and_keep_their_contents() {
    let mut stages = std::collections::BTreeSet::new();
    for recorded in Recorded::all() {
        let json = serde_json::to_value(recorded.job()).unwrap();
        let written = Recorded { json };
        assert_eq!(written.live_fields(), recorded.live_fields());
        assert_eq!(written.job(), recorded.job(), "the written record is another job");
        stages.insert((recorded.operation().0.to_string(), recorded.stage().to_string()));
    }
    assert_eq!(stages.len(), 50, "operations and their stages: {stages:?}");
}

#[test]
fn jobs_of_an_earlier_version_are_finished_or_undone() {
    let mut failed = Vec::new();
    for recorded in Recorded::all() {
        for seed in 0..CELLS {
            let resumed = catch_unwind(|| {
                let mut history = History::of(seed, &recorded.job());
                arrange(&recorded, &mut history.state());
                history.run_to_the_end();
                history.check_end();
            });
            failed.extend(resumed.err().map(|_| format!("in the cell {seed}: {}", recorded.json)));
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), GOLDEN.lines().count(), failed.join("\n"));
}
