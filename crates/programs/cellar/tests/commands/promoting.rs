//! Promotions between cells, with real processes: three cells, one of them with two servers, killed servers,
//! a killed promotion, a rollback, an untrusted signature, and a modified manifest.

use crate::support::place::{Place, addresses, cellar, printed};
use crate::support::process::Process;
use crate::support::soon;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const VOLUME: &str = "software";

/// Contents of files by path.
type Tree = BTreeMap<String, Vec<u8>>;

struct World {
    folder: tempfile::TempDir,
    source: Process,
    servers: Vec<Process>,
    cells: PathBuf,
}

impl World {
    fn start() -> World {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, b2, c] = addresses();
        let start = |name: &str, cell: &str, key, address, database| {
            let place = Place::member(&folder.path().join(name), cell, key, address, database);
            place.configure(&format!("[security]\nforward_destinations = [\"{a}\", \"{c}\"]\n"));
            Process::start(place)
        };
        let source = start("a", "a.example", 1, a, a);
        // c.example has the key of a.example, so their servers can call each other.
        let servers = vec![
            start("b", "b.example", 2, b, b),
            start("b2", "b.example", 2, b2, b),
            start("c", "c.example", 1, c, c),
        ];
        let key = folder.path().join("release.key");
        let public = printed(&mut cellar(&["promote", "key", "new", key.to_str().unwrap()]));
        let cells = folder.path().join("promote.toml");
        let text = format!(
            "source = \"a.example\"\nsigning_key = \"release.key\"\nstate = \"state\"\n\
             [trusted]\nrelease = \"{}\"\n\
             [cell.\"a.example\"]\ndatabase_servers = [\"{a}\"]\nkeyfile = \"a/KeyFileExt\"\ncommon_key = true\n\
             [cell.\"b.example\"]\ndatabase_servers = [\"{b}\"]\nkeyfile = \"b/KeyFileExt\"\n\
             sites = [\"{b} a\", \"{b2} a\"]\n\
             [cell.\"c.example\"]\ndatabase_servers = [\"{c}\"]\nkeyfile = \"c/KeyFileExt\"\ncommon_key = true\n",
            public.trim()
        );
        std::fs::write(&cells, text).unwrap();
        World { folder, source, servers, cells }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Stores files in the volume.
    fn write(&self, directory: &str, files: &Tree) {
        let local = self.path("local");
        let _ = std::fs::remove_dir_all(&local);
        for (name, data) in files {
            let path = local.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, data).unwrap();
        }
        let from = format!("{}/", local.display());
        let to = format!("cell:{VOLUME}/{directory}");
        self.source.run(&["cp", &from, &to]);
    }

    /// Reads the contents of a volume through a dump.
    fn read(&self, server: &Process, volume: &str) -> Tree {
        let (dump, out) = (self.path("read.dump"), self.path("read"));
        let _ = std::fs::remove_dir_all(&out);
        server.run(&["volume", "dump", volume, dump.to_str().unwrap()]);
        printed(cellar(&["dump", "extract"]).args([&dump, &out]));
        let files = walkdir::WalkDir::new(&out).into_iter().map(Result::unwrap);
        files
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| {
                let name = entry.path().strip_prefix(&out).unwrap().to_string_lossy().into_owned();
                (name, std::fs::read(entry.path()).unwrap())
            })
            .collect()
    }

    fn read_cell(&self, server: usize) -> Tree {
        self.read(&self.servers[server], &format!("{VOLUME}.readonly"))
    }

    fn promote_command(&self, arguments: &[&str]) -> Command {
        let mut command = cellar(&["promote"]);
        command.args(arguments).args(["--json", "--cells"]).arg(&self.cells);
        command
    }

    fn promote(&self, arguments: &[&str]) -> Output {
        self.promote_command(arguments).output().unwrap()
    }

    fn promote_well(&self, arguments: &[&str]) -> Value {
        let output = self.promote(arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {err}{out}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn promote_to_both(&self) -> Value {
        self.promote_well(&[VOLUME, "--to", "b.example", "c.example"])
    }

    /// Starts a promotion to both cells and returns when it sends data.
    fn begin_to_both(&self) -> Child {
        let mut command = self.promote_command(&[VOLUME, "--to", "b.example", "c.example"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let journal = self.path(&format!("state/a.example/{VOLUME}.json"));
        let is_sending = || std::fs::read_to_string(&journal).unwrap().contains("\"stage\": \"sending\"");
        soon("it sends", || (is_sending() || child.try_wait().unwrap().is_some()).then_some(()));
        child
    }

    fn status(&self) -> Vec<Value> {
        self.promote_well(&["status", VOLUME]).as_array().unwrap().clone()
    }

    /// Returns the number of calls of a procedure on one of the servers.
    fn calls(&self, server: usize, procedure: &str) -> u64 {
        let rows = self.servers[server].stat("calls");
        let of_it = rows.iter().filter(|row| row["procedure"] == procedure);
        of_it.filter_map(|row| row["calls"].as_u64()).sum()
    }

    fn both_have(&self, version: u64, contents: &Tree) {
        for (row, server) in self.status().iter().zip([0, 2]) {
            assert_eq!(
                (&row["state"], row["in_use"].as_u64()),
                (&Value::from("current"), Some(version)),
                "{row}"
            );
            assert_eq!(self.read_cell(server), *contents, "{}", row["cell"]);
        }
        // The second server of b.example.
        let on = self.servers[1].address.to_string();
        let list = self.servers[0].rows(&["volume", "list", "--on", &on]);
        let there = list.iter().find(|row| row["name"] == format!("{VOLUME}.readonly"));
        assert_eq!(there.map(|row| row["online"].clone()), Some(Value::from(true)), "{list:?}");
    }
}

fn noise(length: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn files(version: u8, length: usize) -> Tree {
    let names = ["readme", "bin/tool", "lib/deep/data"];
    names.iter().zip(0..).map(|(name, n)| ((*name).to_owned(), noise(length, version * 8 + n))).collect()
}

#[test]
fn a_volume_and_its_changes_are_carried_to_other_cells() {
    let world = World::start();
    world.source.run(&["volume", "create", VOLUME, "--quota", "0", "--acl", "system:anyuser=rl"]);
    world.write("v1", &files(1, 300_000));
    world.promote_to_both();
    let one = world.read(&world.source, VOLUME);
    assert_eq!(one.len(), 3);
    // Each server hashed the received version itself, without sending it back.
    for server in [0, 2] {
        assert!(world.calls(server, "DigestContents") > 0);
        assert_eq!(world.calls(server, "Dump"), 0);
    }
    world.both_have(1, &one);

    world.write("v2", &files(2, 1_000));
    world.promote_to_both();
    let two = world.read(&world.source, VOLUME);
    assert_eq!(two.len(), 6);
    world.both_have(2, &two);
}

#[test]
fn killed_servers_catch_up_and_cells_go_back_without_the_source() {
    let mut world = World::start();
    world.source.run(&["volume", "create", VOLUME, "--quota", "0", "--acl", "system:anyuser=rl"]);
    world.write("v1", &files(1, 100_000));
    world.promote_to_both();
    let one = world.read(&world.source, VOLUME);
    world.both_have(1, &one);

    // Nothing has changed, so there is no new version.
    assert_eq!(world.promote_to_both()[0]["in_use"], 1);

    // A server of the tree is killed while it receives data, and restarted.
    world.write("v2", &files(2, 4_000_000));
    let mut child = world.begin_to_both();
    world.servers[0].kill();
    world.servers[0].restart();
    assert_eq!(world.read_cell(0), one, "the former version is in use");
    if !child.wait().unwrap().success() {
        world.promote_well(&["resume", VOLUME]);
    }
    let two = world.read(&world.source, VOLUME);
    world.both_have(2, &two);

    // The promotion itself is killed while it sends.
    world.write("v3", &files(3, 4_000_000));
    let mut child = world.begin_to_both();
    child.kill().unwrap();
    child.wait().unwrap();
    world.promote_well(&["resume", VOLUME]);
    let three = world.read(&world.source, VOLUME);
    world.both_have(3, &three);

    // A rollback uses clones kept by the cells, without the source.
    world.source.kill();
    world.promote_well(&["rollback", VOLUME, "--everywhere"]);
    world.both_have(2, &two);
    world.source.restart();

    // A version is signed by a key that c.example does not trust.
    let text = std::fs::read_to_string(&world.cells).unwrap();
    std::fs::write(&world.cells, format!("{text}trust = []\n")).unwrap();
    world.write("v4", &files(4, 1_000));
    let output = world.promote(&[VOLUME, "--to", "b.example", "c.example"]);
    assert!(!output.status.success());
    let rows = world.status();
    assert_eq!((&rows[0]["state"], &rows[1]["state"]), (&Value::from("current"), &Value::from("refused")));
    assert!(rows[1]["trouble"].as_str().unwrap().contains("does not trust"), "{rows:?}");
    assert_eq!(world.read_cell(2), two, "the former version is in use");
    let would = world.promote_well(&["resume", VOLUME, "--dry-run"]);
    assert_eq!((would.as_array().unwrap().len(), &would[0]["cell"]), (1, &Value::from("c.example")));
    assert_eq!(world.status(), rows, "nothing was done");
    std::fs::write(&world.cells, text).unwrap();
    only_signed_manifests_are_accepted(&world, &two);
}

/// Checks manifests: c.example has `former`, and now trusts the signer of version 4, which b.example has.
fn only_signed_manifests_are_accepted(world: &World, former: &Tree) {
    let journal = world.path(&format!("state/a.example/{VOLUME}.json"));
    // Changes the version's time of promotion in the manifest.
    let change = |seconds: i64| {
        let mut kept: Value = serde_json::from_slice(&std::fs::read(&journal).unwrap()).unwrap();
        let at = &mut kept["record"]["versions"]["4"]["manifest"]["promoted_at"];
        *at = Value::from(at.as_i64().unwrap() + seconds);
        std::fs::write(&journal, kept.to_string()).unwrap();
    };
    change(1);
    assert!(!world.promote(&["resume", VOLUME]).status.success());
    let row = &world.status()[1];
    assert_eq!(row["state"], "refused");
    assert!(row["trouble"].as_str().unwrap().contains("it was changed, or forged"), "{row}");
    assert_eq!(world.read_cell(2), *former, "the former version is in use");
    change(-1);
    world.promote_well(&["resume", VOLUME]);
    world.both_have(4, &world.read(&world.source, VOLUME));
}

#[test]
fn a_failed_copy_is_made_when_its_server_returns() {
    let mut world = World::start();
    world.source.run(&["volume", "create", VOLUME, "--quota", "0", "--acl", "system:anyuser=rl"]);
    world.write("v1", &files(1, 1_000));
    // b.example may choose the sites; each of its two servers is to have a copy.
    let text = std::fs::read_to_string(&world.cells).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("sites"));
    let text: Vec<&str> = ["copies = 2"].into_iter().chain(lines).collect();
    std::fs::write(&world.cells, text.join("\n")).unwrap();
    world.servers[1].kill();
    let row = world.promote_to_both()[0].clone();
    assert_eq!((&row["state"], &row["copies"]), (&Value::from("current"), &Value::from(2)), "{row}");
    assert_eq!(row["sites"].as_array().unwrap().len(), 1, "{row}");
    assert!(row["trouble"].as_str().unwrap().contains("does not answer"), "{row}");
    world.servers[1].restart();
    let row = world.promote_to_both()[0].clone();
    assert_eq!((row["sites"].as_array().unwrap().len(), &row["trouble"]), (2, &Value::Null), "{row}");
    world.both_have(1, &world.read(&world.source, VOLUME));
    let troubles = |world: &World| -> Vec<Value> {
        let asked = world.promote_well(&["status", VOLUME, "--ask"]);
        let sites = |row: &Value| row["found"].as_array().unwrap().clone();
        asked.as_array().unwrap().iter().flat_map(sites).map(|site| site["trouble"].clone()).collect()
    };
    assert_eq!(troubles(&world), [Value::Null, Value::Null, Value::Null]);
    world.servers[1].kill();
    let found = troubles(&world);
    let [one, two, three] = &found[..] else { panic!("{found:?}") };
    assert!(two.as_str().unwrap().contains("the server does not answer"), "{two}");
    assert_eq!((one, three), (&Value::Null, &Value::Null));
    assert_eq!(world.status()[0]["found"], Value::Null, "nobody is asked");
}

#[test]
fn a_volume_that_was_there_before_is_not_touched() {
    let world = World::start();
    for server in [&world.source, &world.servers[2]] {
        server.run(&["volume", "create", VOLUME]);
    }
    let output = world.promote(&[VOLUME, "--to", "c.example"]);
    assert!(!output.status.success());
    assert!(world.status()[0]["trouble"].as_str().unwrap().contains("--adopt"));
}
