//! Nodes that join a cluster and are removed from it. Here the bucket is a folder.

use crate::support::place::{Place, addresses};
use crate::support::process::Process;
use crate::support::soon;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Output;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server of the cell that is to be a node, with a key of these bytes.
fn member(folder: &Path, key: u8, address: Ipv4Addr, database: Ipv4Addr) -> Place {
    let place = Place::member(folder, "t.example", key, address, database);
    std::fs::remove_dir(place.path("vicepa")).unwrap();
    place
}

/// Returns the row of a node in the state, once `cellar cluster status` shows it.
fn node(place: &Place, name: &str, state: &str) -> Value {
    soon("the node is in the state", || {
        let shown = place.json(&["cluster", "status"]);
        let rows = shown["nodes"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["node"] == name && row["state"] == state)
    })
}

#[test]
fn nodes_join_with_the_key_and_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("bucket")).unwrap();
    let bucket = format!("file://{}", at("bucket").display());
    let [first, second, stranger, _] = addresses();
    let place = Place::member(&at("n1"), "t.example", 7, first, first);
    std::fs::remove_dir(place.path("vicepa")).unwrap();
    let own = first.to_string();
    place.configure("[audit.trail]\nfile = \"audit\"\n");
    place.run(&["cluster", "init", &bucket, "--partitions", "b", "--node", "n1", "--address", &own]);

    let joining = member(&at("n2"), 7, second, first);
    let own = second.to_string();
    let join = ["cluster", "join", &bucket, "--node", "n2", "--address", &own];
    let before = std::fs::read_to_string(&joining.config).unwrap();
    let said = joining.run(&join);
    assert!(said.contains("key was not tried with another node: no node runs"), "{said}");
    std::fs::write(&joining.config, before).unwrap();

    let mut running = Process::start(place);
    node(&running, "n1", "live");
    let other = member(&at("n3"), 8, stranger, first);
    let before = std::fs::read_to_string(&other.config).unwrap();
    let output =
        other.output(&["cluster", "join", &bucket, "--node", "n3", "--address", &stranger.to_string()]);
    let error = stderr(&output);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    for words in ["the node n1 at", "does not accept the key", "RXKAD", "KeyFileExt"] {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&other.config).unwrap(), before, "nothing was changed");

    let said = joining.run(&join);
    assert!(!said.contains("was not tried"), "{said}");
    let mut second = Process::start(joining);
    node(&running, "n2", "live");
    let refused = |name: &str| stderr(&running.output(&["cluster", "remove", name]));
    soon("it runs", || refused("n2").contains("n2 runs: stop it first").then_some(()));
    second.terminate();
    node(&running, "n2", "left");
    let removed = running.json(&["cluster", "remove", "n2"]);
    assert_eq!(removed, json!({"node": "n2", "state": "left", "by": "n1"}));
    let shown = running.json(&["cluster", "status"]);
    assert_eq!(shown["nodes"].as_array().unwrap().len(), 1, "{shown:#}");
    assert!(refused("n2").contains("has no node `n2`; it has n1"));

    running.run(&["cluster", "addresses", "192.0.2.50"]);
    soon("the node has the new list", || {
        audited(&running).contains(&"CELLAR_ServiceAddressesChanged".to_owned()).then_some(())
    });
    running.terminate();
    let events = audited(&running);
    let place = |event: &str| events.iter().position(|one| one == event).expect(event);
    assert_eq!(place("CELLAR_NodeJoined"), 0, "{events:?}");
    assert!(place("CELLAR_PartitionTaken") < place("CELLAR_RemoveNode"), "{events:?}");
    assert!(place("CELLAR_PartitionGivenUp") < place("CELLAR_NodeLeft"), "{events:?}");
}

/// Returns the events of the class `server` in the audit of a node.
fn audited(place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(place.path("audit")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter(|line| line["class"] == "server")
        .map(|line| line["event"].as_str().unwrap().to_owned())
        .collect()
}
