//! `cellar config check` and `show`.

use crate::support::place::Place;
use serde_json::{Value, json};

fn row(rows: &[Value], key: &str) -> Value {
    rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("no {key} in {rows:#?}")).clone()
}

#[test]
fn a_valid_configuration_is_confirmed() {
    let place = Place::new("[rx]\nworkers = 32\n");
    let said = place.run(&["config", "check"]);
    assert!(
        said.contains(" is valid: the cell t.example, roles fileserver") && said.contains("partitions: 1,"),
        "{said}"
    );
    let checked = place.json(&["config", "check"]);
    assert_eq!((&checked["cell"], &checked["partitions"]), (&json!("t.example"), &json!(1)));
    assert_eq!(checked["configuration"], place.config.to_str().unwrap());
}

#[test]
fn an_invalid_one_is_refused_with_the_line_and_the_key() {
    let place = Place::new("[rx]\nworkers = 0\n");
    let output = place.output(&["config", "check"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains("`rx.workers`") && error.contains("4 to 1024") && error.contains(", line "),
        "{error}"
    );
    let mut command = place.command(&["config", "check"]);
    std::fs::write(&place.config, "[cell]\ncolour = 1\n").unwrap();
    let error = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(error.contains("line 2") && error.contains("`colour`"), "{error}");
}

#[test]
fn every_value_is_shown_with_its_source() {
    let place = Place::new("[rx]\nworkers = 32\n");
    let path = place.config.to_str().unwrap();
    let set = place.rows(&["config", "show"]);
    let text = std::fs::read_to_string(&place.config).unwrap();
    let at = 1 + text.lines().position(|line| line == "workers = 32").unwrap();
    let expected =
        json!({ "key": "rx.workers", "value": 32, "source": { "line": { "file": path, "line": at } } });
    assert_eq!(row(&set, "rx.workers"), expected);
    assert!(!set.iter().any(|row| row["key"] == "rx.lanes"), "{set:#?}");

    let all = place.rows(&["config", "show", "--effective"]);
    assert_eq!(row(&all, "rx.workers"), expected);
    assert_eq!(row(&all, "rx.packet_bytes_max")["source"], "default");
    assert_eq!(row(&all, "configuration")["source"], json!({ "command-line": "--config" }));
    // The test's own commands set this variable.
    assert_eq!(row(&all, "log filter")["source"], json!({ "environment": "CELLAR_LOG" }));
    assert_eq!(row(&all, "security.levels.cellar.cell")["value"], "crypt");

    let shown = place.run(&["config", "show", "--effective"]);
    let line = shown.lines().find(|line| line.contains("rx.workers")).unwrap();
    assert!(line.contains("32") && line.ends_with(&format!("{path}, line {at}")), "{line}");
    let mut command = crate::support::place::cellar(&["config", "show", "--effective"]);
    let shown = crate::support::place::printed(command.env("CELLAR_CONFIG", path));
    let line = shown.lines().find(|line| line.contains(" configuration ")).unwrap();
    assert!(line.ends_with("environment, CELLAR_CONFIG"), "{line}");
}
