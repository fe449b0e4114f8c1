//! `cellar doctor` in a cell whose location database and volumes differ, as after interrupted operations.

use crate::support::cell::Cell;
use crate::support::locations::Locations;
use crate::support::place::address;
use afs_idl::{ClientConnection, vl, vol};
use base::HostUuid;
use cell_client::Interface;
use serde_json::Value;
use std::sync::Arc;

/// IDs that the location database does not assign to new volumes of a small cell.
const ORPHAN: u32 = 600_000_000;
const CLONE: u32 = 600_000_003;

/// Changes either the volumes or the location database of a cell, but not both.
struct Half {
    cell: Cell,
    locations: Locations,
    volumes: Arc<dyn ClientConnection>,
}

impl Half {
    fn new() -> Half {
        let cell = Cell::start("");
        let locations = Locations::of(&cell);
        let volumes = locations.cell.connection(cell.address, Interface::Volumes);
        Half { cell, locations, volumes }
    }

    fn volume(&self, name: &str) -> u32 {
        self.cell.volume(name);
        self.locations.entry(name).volume_id[0]
    }

    /// Performs only the first step of `vos rename`.
    fn rename_entry(&self, name: &str, new_name: &str) {
        let mut new_entry = self.locations.entry(name);
        let volume_id = new_entry.volume_id[0];
        new_entry.name = new_name.into();
        let request = vl::ReplaceEntryNRequest { volume_id, volume_type: 0, new_entry, release_type: 0 };
        self.locations.cell.database(Interface::Locations, |vl| vl::replace_entry_n(vl, &request)).unwrap();
    }

    fn lock_entry(&self, volume_id: u32) {
        let operation = vl::entry_flags::MOVE;
        let request = vl::SetLockRequest { volume_id, volume_type: 0, operation };
        self.locations.cell.database(Interface::Locations, |vl| vl::set_lock(vl, &request)).unwrap();
    }

    fn delete_volume(&self, volume_id: u32) {
        vol::nuke_volume(&*self.volumes, &vol::NukeVolumeRequest { partition: 0, volume_id }).unwrap();
    }

    fn create_volume(&self, volume_id: u32, name: &str) {
        let request = vol::CreateVolumeRequest {
            partition: 0,
            name: name.into(),
            volume_type: 0,
            parent_id: volume_id,
            volume_id,
        };
        let transaction = vol::create_volume(&*self.volumes, &request).unwrap().transaction;
        self.keep(transaction);
    }

    fn begin(&self, volume_id: u32) -> i32 {
        let request = vol::TransCreateRequest { volume_id, partition: 0, flags: 2 };
        vol::trans_create(&*self.volumes, &request).unwrap().transaction
    }

    fn end(&self, transaction: i32) {
        vol::end_trans(&*self.volumes, &vol::EndTransRequest { transaction }).unwrap();
    }

    /// Ends a transaction and keeps its new volume, which would otherwise be deleted.
    fn keep(&self, transaction: i32) {
        vol::set_flags(&*self.volumes, &vol::SetFlagsRequest { transaction, flags: 0 }).unwrap();
        self.end(transaction);
    }

    /// Creates a clone, as the first step of a release does.
    fn clone_volume(&self, volume_id: u32, new_volume_id: u32, new_name: &str) {
        let transaction = self.begin(volume_id);
        let request = vol::CloneVolumeRequest {
            transaction,
            purge_volume_id: 0,
            new_type: 1,
            new_name: new_name.into(),
            new_volume_id,
        };
        vol::clone_volume(&*self.volumes, &request).unwrap();
        self.keep(self.begin(new_volume_id));
        self.end(transaction);
    }

    /// Registers a server that does not exist.
    fn lose_server(&self) -> std::net::Ipv4Addr {
        let gone = address();
        let vl = self.locations.cell.connection(self.cell.address, Interface::Locations);
        let uuid = HostUuid(rand::random());
        let request = vl::RegisterAddrsRequest { uuid, spare1: 0, addresses: vec![gone.into()] };
        vl::register_addrs(&*vl, &request).unwrap();
        gone
    }
}

fn evidence(findings: &[Value], problem: &str) -> String {
    let found = findings.iter().find(|finding| finding["problem"] == problem);
    let finding = found.unwrap_or_else(|| panic!("no {problem} in {findings:#?}"));
    finding["evidence"].to_string()
}

#[test]
fn half_done_operations_have_a_remedy() {
    let half = Half::new();
    let [renamed, lost, locked, released] =
        ["rna", "lost", "locked", "released"].map(|name| half.volume(name));
    half.rename_entry("rna", "rnb");
    half.delete_volume(lost);
    half.lock_entry(locked);
    half.create_volume(ORPHAN, "orphan");
    half.clone_volume(released, CLONE, "released.clone");
    let gone = half.lose_server();
    let mut entry = half.locations.entry("released");
    entry.flags |= vl::entry_flags::READ_ONLY_EXISTS;
    entry.server_number[1] = gone.into();
    entry.server_flags[1] = vl::site_flags::READ_ONLY;
    entry.server_count = 2;
    entry.volume_id[1] = released + 1;
    let request =
        vl::ReplaceEntryNRequest { volume_id: released, volume_type: 0, new_entry: entry, release_type: 0 };
    half.locations.cell.database(Interface::Locations, |vl| vl::replace_entry_n(vl, &request)).unwrap();

    let findings = half.cell.findings("1");
    let server = half.cell.address;
    for (problem, expected) in [
        (
            "names-differ",
            format!("rna ({renamed}) on {server} /vicepa should be rnb: `vos rename rnb rnb.tmp` and"),
        ),
        ("missing-volumes", format!("lost ({lost}) is not on {server} /vicepa")),
        ("stale-locks", "locked: `vos unlock locked`".into()),
        (
            "orphan-volumes",
            format!("orphan ({ORPHAN}) on {server} /vicepa has no entry: `vos syncvldb -server {server}"),
        ),
        ("abandoned-clones", format!("`vos zap -server {server} -partition a -id {CLONE}`")),
        (
            "silent-servers",
            format!("{gone}: its volume server does not answer; entries have 1 volumes there"),
        ),
    ] {
        let evidence = evidence(&findings, problem);
        assert!(evidence.contains(&expected), "{problem}: {evidence}");
    }
    // A recently started transaction counts as in use.
    assert!(!findings.iter().any(|finding| finding["problem"] == "abandoned-transactions"));
}

/// Problems that `cellar volume repair` solves.
const REPAIRED: [&str; 5] =
    ["names-differ", "missing-volumes", "stale-locks", "orphan-volumes", "abandoned-clones"];

#[test]
fn a_repair_leaves_nothing_for_the_doctor_to_find() {
    let half = Half::new();
    let [renamed, lost, locked, released, kept] =
        ["rna", "lost", "locked", "released", "kept"].map(|name| half.volume(name));
    half.rename_entry("rna", "rnb");
    half.delete_volume(lost);
    half.lock_entry(locked);
    half.create_volume(ORPHAN, "orphan");
    half.clone_volume(released, CLONE, "released.clone");
    half.locations.set_sites("kept", &[half.cell.address]);
    let mut entry = half.locations.entry("kept");
    entry.flags |= vl::entry_flags::READ_ONLY_EXISTS | vl::entry_flags::BACKUP_EXISTS;
    (entry.volume_id[1], entry.volume_id[2]) = (kept + 1, kept + 2);
    let request =
        vl::ReplaceEntryNRequest { volume_id: kept, volume_type: 0, new_entry: entry, release_type: 0 };
    half.locations.cell.database(Interface::Locations, |vl| vl::replace_entry_n(vl, &request)).unwrap();
    let server = half.cell.address;

    let expected = [
        ("kept", "forget-backup", "remove kept.backup from the entry, no server has it".into()),
        (
            "kept",
            "remove-site",
            format!("remove the site {server} /vicepa of kept.readonly, which is not there"),
        ),
        ("locked", "unlock", "unlock the entry locked".into()),
        ("lost", "remove-entry", "remove the entry lost, no server has its volumes".into()),
        ("orphan", "register", format!("make an entry for orphan ({ORPHAN}) on {server} /vicepa")),
        ("rnb", "rename", format!("rename rna ({renamed}) on {server} /vicepa to rnb")),
    ];
    let dry = half.cell.json(&["volume", "repair", "--dry-run"]);
    assert_eq!((&dry["is_done"], steps(&dry)), (&false.into(), expected.to_vec()), "{dry:#}");
    let left = format!("the clone {CLONE} on {server} /vicepa was left behind: --remove-clones deletes it");
    assert_eq!(dry["left"], serde_json::json!([{ "volume": "released", "reason": left }]));
    assert_eq!(dry["not_checked"], serde_json::json!([]));
    // Nothing has changed, and other volumes stay as they are.
    let one = half.cell.json(&["volume", "repair", "locked"]);
    assert_eq!((&one["is_done"], steps(&one)), (&true.into(), expected[2..3].to_vec()), "{one:#}");

    let done = half.cell.json(&["volume", "repair", "--remove-clones"]);
    let clone =
        ("released", "remove-clone", format!("delete the clone {CLONE} of released on {server} /vicepa"));
    let mut rest = [&expected[..2], &expected[3..], &[clone]].concat();
    rest.sort();
    assert_eq!(steps(&done), rest, "{done:#}");
    let text = half.cell.run(&["volume", "repair", "--remove-clones"]);
    assert_eq!(text, "the location database agrees with the volumes\n");
    let reported = half.cell.output(&["doctor", "--interval", "1", "--json"]).stdout;
    let reported: Value = serde_json::from_slice(&reported).unwrap();
    let findings = reported["findings"].as_array().unwrap();
    assert!(
        !findings.iter().any(|it| REPAIRED.iter().any(|problem| it["problem"] == *problem)),
        "{reported:#}"
    );

    // The volumes are usable under their entries.
    for name in ["orphan", "rnb"] {
        let examined = half.cell.rows(&["volume", "examine", name]);
        assert_eq!(examined[0]["name"], name, "{examined:?}");
    }
    let entry = half.locations.entry("kept");
    let exists = vl::entry_flags::READ_WRITE_EXISTS;
    assert_eq!((entry.server_count, entry.flags, entry.volume_id[0]), (1, exists, kept));
}

/// Returns volume, action and description of each step, sorted.
fn steps(plan: &Value) -> Vec<(&str, &str, String)> {
    let steps = plan["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["failure"].is_null()), "{plan:#}");
    let mut steps: Vec<_> = steps
        .iter()
        .map(|step| {
            (
                step["volume"].as_str().unwrap(),
                step["action"].as_str().unwrap(),
                step["what"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    steps.sort();
    steps
}
