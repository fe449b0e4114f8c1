//! Checks that dependencies between crates point down the table in ARCHITECTURE.md.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Position of a crate in the table: its row, and whether it is for tests only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) row: usize,
    pub(crate) is_test: bool,
}

/// Compares the table with the manifests. A crate may use crates of rows above its own; dependencies of tests
/// are not restricted.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let places = table(&text);
    ensure!(!places.is_empty(), "ARCHITECTURE.md has no table of crates");
    let dependencies = dependencies(&metadata(root)?)?;
    Ok(judge(&places, &dependencies))
}

/// Parses the table of crates whose header starts with `| level | crate |`.
pub(crate) fn table(text: &str) -> BTreeMap<String, Place> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| level | crate |")).skip(2);
    let mut places = BTreeMap::new();
    for (row, line) in rows.take_while(|line| line.starts_with('|')).enumerate() {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let is_test = cells.next() == Some("test");
        let names = cells.next().unwrap_or_default();
        for name in names.split(',').map(|name| name.trim().trim_matches('`')) {
            places.insert(name.to_owned(), Place { row, is_test });
        }
    }
    places
}

/// Returns the output of `cargo metadata` for the workspace.
pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns each workspace member except this one, with the members that it uses outside tests.
fn dependencies(metadata: &Value) -> Result<BTreeMap<String, Vec<String>>> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let mut all = BTreeMap::new();
    for package in packages.iter().filter(|package| name(package) != "xtask") {
        let used = package["dependencies"].as_array().context("no dependencies")?;
        let used = used.iter().filter(|it| it["path"].is_string() && it["kind"] != "dev");
        all.insert(name(package), used.map(name).collect());
    }
    Ok(all)
}

/// Returns the complaints about these dependencies.
pub(crate) fn judge(
    places: &BTreeMap<String, Place>,
    dependencies: &BTreeMap<String, Vec<String>>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, used) in dependencies {
        let Some(place) = places.get(name) else {
            complaints.push(format!("the crate {name} is not in the table of ARCHITECTURE.md"));
            continue;
        };
        for other in used {
            if !places.get(other).is_some_and(|below| may_use(*place, *below)) {
                complaints
                    .push(format!("{name} depends on {other}, which is not above it in ARCHITECTURE.md"));
            }
        }
    }
    complaints
}

fn may_use(user: Place, used: Place) -> bool {
    user.is_test || (!used.is_test && used.row < user.row)
}
