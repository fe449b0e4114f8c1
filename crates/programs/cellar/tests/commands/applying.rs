//! `cellar apply` against a running cell.

use crate::support::cell::Cell;
use serde_json::Value;

/// Writes the file and returns its path.
fn write(cell: &Cell, text: &str) -> String {
    let path = cell.path("cell.toml");
    std::fs::write(&path, text.replace("ADDRESS", &cell.address.to_string())).unwrap();
    path.to_str().unwrap().to_owned()
}

const TEXT: &str = r#"
cell = "t.example"

[users.ann]
id = 1001
[users.ben]
access = "SOM--"

[groups."ann:friends"]
members = ["ben"]
access = "S-M--"
[groups.staff]
owner = "staff"
members = ["ann", "ann:friends"]

[volumes."root.cell"]
quota = 0
acl = { "system:anyuser" = "rl" }
read_only = ["ADDRESS/a"]

[volumes."home.ann"]
server = "ADDRESS"
partition = "a"
quota = "1G"
owner = "ann"
acl = { ann = "rlidwka", staff = "rl" }
denied = { ben = "w" }
compression = "zstd:3"
deduplication = true
snapshots = { hourly = 24, daily = 7 }

[mounts]
"root.cell/ann" = "home.ann"
"root.cell/.ann" = "%home.ann"
"#;

fn descriptions(outcome: &Value) -> Vec<&str> {
    outcome["steps"].as_array().unwrap().iter().map(|step| step["description"].as_str().unwrap()).collect()
}

/// Runs `apply` with options; returns the exit status and the JSON.
fn apply(cell: &Cell, file: &str, options: &[&str]) -> (Option<i32>, Value) {
    let output = cell.output(&[&["apply", file, "--json"], options].concat());
    let reported = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), reported)
}

#[test]
fn applying_is_complete_and_idempotent() {
    let cell = Cell::start("");
    let file = write(&cell, TEXT);
    let (status, foretold) = apply(&cell, &file, &["--dry-run"]);
    assert_eq!((status, foretold["is_dry_run"].as_bool()), (Some(3), Some(true)));
    let planned: Vec<String> = descriptions(&foretold).into_iter().map(str::to_owned).collect();
    assert!(planned.len() > 20 && planned.last().unwrap() == "release root.cell", "{planned:#?}");
    assert!(!cell.output(&["user", "examine", "ann"]).status.success(), "a dry run changes nothing");

    let (status, done) = apply(&cell, &file, &[]);
    assert_eq!(
        (status, descriptions(&done)),
        (Some(0), planned.iter().map(|step| &**step).collect()),
        "{done:#}"
    );
    assert!(done["steps"].as_array().unwrap().iter().all(|step| step["is_done"] == true), "{done:#}");

    let ann = &cell.rows(&["user", "examine", "ann"])[0];
    assert_eq!(ann["id"], 1001);
    assert_eq!(cell.rows(&["group", "examine", "ann:friends"])[0]["elements"], serde_json::json!(["ben"]));
    let staff = &cell.rows(&["group", "examine", "staff"])[0];
    assert_eq!((&staff["owner"], &staff["members"]), (&"staff".into(), &2.into()));
    let home = &cell.rows(&["volume", "examine", "home.ann"])[0];
    assert_eq!((&home["quota_kib"], &home["compression"]), (&(1 << 20).into(), &"zstd:3".into()));
    assert_eq!(home["deduplication"], true);
    let policy = &cell.rows(&["volume", "snapshot", "policy", "home.ann"])[0];
    assert_eq!((&policy["hourly"], &policy["weekly"]), (&24.into(), &0.into()));
    let volumes = cell.rows(&["volume", "list"]);
    assert!(volumes.iter().any(|row| row["name"] == "root.cell.readonly"), "{volumes:#?}");
    let client = cell.client();
    let root = client.root_of("home.ann").unwrap();
    assert_eq!(root.status.owner, 1001);
    let acl = String::from_utf8(client.acl(&root).unwrap()).unwrap();
    assert!(acl.contains("ann\t127") && acl.contains("staff\t9") && acl.contains("ben\t2"), "{acl}");
    for (name, contents) in [("ann", "#home.ann."), (".ann", "%home.ann.")] {
        let root = client.root_of("root.cell.readonly").unwrap();
        let node = client.child(&root, name.as_bytes()).unwrap().unwrap();
        assert_eq!(client.read_link(&node).unwrap(), contents.as_bytes());
    }
    drop(client);

    for options in [&[][..], &["--dry-run"], &["--prune"]] {
        let (status, again) = apply(&cell, &file, options);
        assert_eq!((status, descriptions(&again)), (Some(0), vec![]), "{options:?}");
    }
    assert_eq!(cell.run(&["apply", &file]), "nothing to do\n");

    // A change made elsewhere is kept, or pruned; a changed declaration is applied and published.
    cell.run(&["group", "add", "ann", "ann:friends"]);
    assert_eq!(cell.run(&["apply", &file]), "nothing to do\n");
    let more = TEXT.replace("\"system:anyuser\" = \"rl\"", "\"system:anyuser\" = \"rl\", ann = \"rlidwk\"");
    let file = write(&cell, &more);
    let said = cell.run(&["apply", &file, "--prune"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert_eq!(
        (lines[0], lines[2], lines[3]),
        ("done: remove ann from ann:friends", "done: release root.cell", "changes made: 3")
    );
    assert_eq!(cell.run(&["apply", &file, "--prune"]), "nothing to do\n");
}

#[test]
fn contradictions_and_mistakes_change_nothing() {
    let cell = Cell::start("");
    cell.run(&["user", "create", "ann", "--id", "1001"]);
    let refused = |text: &str, words: &[&str]| {
        let file = write(&cell, text);
        let output = cell.output(&["apply", &file]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(&file) && words.iter().all(|word| error.contains(word)), "{error}");
    };
    refused("[users.ben]\n[users.ann]\nid = 7\n", &["line 3, `users.ann.id`", "1001", "nothing was changed"]);
    refused("[users.ben]\ncolour = 1\n", &["line 2", "unknown field `colour`"]);
    refused("cell = \"other.example\"\n[users.ben]\n", &["line 1, `cell`", "other.example", "t.example"]);
    assert!(!cell.output(&["user", "examine", "ben"]).status.success());
    let file = write(&cell, "[groups.g]\nmembers = [\"eve\"]\n");
    let (status, reported) = apply(&cell, &file, &["--dry-run"]);
    assert_eq!((status, &reported["conflicts"][0]["line"]), (Some(1), &2.into()), "{reported:#}");
}

#[test]
fn after_a_failure_the_rest_is_named_and_made_by_the_next_run() {
    let cell = Cell::start("");
    // The partition is not there: the volume cannot be created.
    let text = "[users.ann]\n[volumes.v]\npartition = \"z\"\nowner = \"ann\"\n";
    let file = write(&cell, text);
    let output = cell.output(&["apply", &file]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert_eq!((lines[0], lines[2]), ("done: create the user ann", "not done: give the root of v to ann"));
    assert!(lines[1].starts_with("not done: create the volume v on"), "{said}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("made 1 of 3 changes") && error.contains("no partition /vicepz"), "{error}");

    let file = write(&cell, &text.replace("\"z\"", "\"a\""));
    let (status, done) = apply(&cell, &file, &[]);
    assert_eq!((status, descriptions(&done).len()), (Some(0), 2), "{done:#}");
    assert_eq!(cell.client().root_of("v").unwrap().status.owner.cast_signed(), user(&cell, "ann"));
}

fn user(cell: &Cell, name: &str) -> i32 {
    cell.rows(&["user", "examine", name])[0]["id"].as_i64().unwrap() as i32
}
