//! Records of what happens to nodes.

use super::{caller, clock, known, settings, start};
use crate::{Change, Form, Membership, Policy, Target};
use serde_json::{Value, json};

/// Records one change of each kind.
fn record_all(membership: &Membership) {
    let [node, other] = ["fs1", "fs2"].map(str::to_owned);
    let partition = || "/vicepb".to_owned();
    for change in [
        Change::Joined { node: node.clone() },
        Change::Evicted { node: other.clone(), by: node.clone() },
        Change::Taken { partition: partition(), from: other.clone(), cause: "died".into(), epoch: 7 },
        Change::GivenUp { partition: partition(), to: String::new(), cause: "given-up".into(), epoch: 7 },
        Change::Addresses { old: "192.0.2.11".into(), new: "192.0.2.11,192.0.2.12".into() },
        Change::Lost { node: node.clone() },
        Change::Left { node },
    ] {
        membership.record(&change, clock());
    }
}

#[test]
fn events_of_nodes_are_recorded_in_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let sink = |name: &str, form| settings(Target::File(path(name)), form, Policy::Block);
    let trail = start(&[sink("json", Form::Json), sink("openafs", Form::OpenAfs)]);
    record_all(&Membership::new(&trail, caller(known("afs", "", ""))));
    trail.stop();
    let lines = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let json_lines = lines("json");
    let found: Vec<Value> = json_lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["class"] == "server")
        .map(|line| {
            assert_eq!((&line["outcome"], &line["host"]), (&json!("good"), &json!("192.0.2.7")), "{line}");
            json!([line["event"], line["arguments"]])
        })
        .collect();
    let taken = json!({"partition": "/vicepb", "from": "fs2", "cause": "died", "epoch": 7});
    let given_up = json!({"partition": "/vicepb", "to": "", "cause": "given-up", "epoch": 7});
    let addresses = json!({"old": "192.0.2.11", "new": "192.0.2.11,192.0.2.12"});
    assert_eq!(
        found,
        [
            json!(["CELLAR_NodeJoined", {"node": "fs1"}]),
            json!(["CELLAR_NodeEvicted", {"node": "fs2", "by": "fs1"}]),
            json!(["CELLAR_PartitionTaken", taken]),
            json!(["CELLAR_PartitionGivenUp", given_up]),
            json!(["CELLAR_ServiceAddressesChanged", addresses]),
            json!(["CELLAR_NodeLost", {"node": "fs1"}]),
            json!(["CELLAR_NodeLeft", {"node": "fs1"}]),
        ]
    );
    let text = lines("openafs");
    assert!(
        text.contains(
            "EVENT CELLAR_PartitionTaken CODE 0 NAME afs HOST 192.0.2.7 STR /vicepb STR fs2 STR died"
        ),
        "{text}"
    );
    assert_eq!(text.matches("EVENT CELLAR_").count(), 7, "{text}");
}
